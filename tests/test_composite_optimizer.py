"""--optimizer composite, which holds an optimiser for each group of parameters, trains with and without pages."""

import pytest
import torch
from omegaconf import OmegaConf
from small_corpus import TAU, configure, train_epochs, write_corpus

FLAGS = ("--optimizer", "adam", "--lr", 0.01, "--weight-decay", 0.01)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=60)


def composite(cfg, model):
    """The same Adam twice: for word tables and for the rest."""
    for name, parameter in model.named_parameters():
        parameter.param_group = "words" if "embed_tokens" in name or "output_projection" in name else "default"
    one = {"optimizer": cfg.optimizer, "lr_scheduler": cfg.lr_scheduler}
    one = OmegaConf.to_container(OmegaConf.create(one), resolve=True)
    for part in one.values():
        part["lr"] = [0.01]
    cfg.optimizer = OmegaConf.create(
        {"_name": "composite", "groups": {"words": one, "default": one}, "dynamic_groups": False}
    )
    cfg.lr_scheduler = OmegaConf.create({"_name": "pass_through"})


def train(corpus, tau, together, **how):
    cfg, *parts = configure(corpus, *FLAGS, *TAU, tau)
    if not together:
        composite(cfg, parts[1])
    return train_epochs(cfg, *parts, **how).model.state_dict()


def test_it_trains_like_one_optimizer_for_all(corpus):
    expected, result = (train(corpus, 0, together) for together in (True, False))
    for name, value in expected.items():
        torch.testing.assert_close(result[name], value, rtol=1e-4, atol=1e-5)


def test_with_pages_it_trains_saves_and_resumes_like_one_optimizer_for_all(corpus, tmp_path):
    expected = train(corpus, 30, True, epochs=(1, 2))
    train(corpus, 30, False, save=tmp_path / "checkpoint.pt")
    result = train(corpus, 30, False, epochs=(2,), resume=tmp_path / "checkpoint.pt")
    for name, value in expected.items():
        torch.testing.assert_close(result[name], value, rtol=1e-4, atol=1e-5)
