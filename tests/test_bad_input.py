"""A user's mistake: one line that says what to do, no stack trace, nothing damaged."""

import shutil

import pytest
from conftest import ADAM, PLUGIN, SMALL, generate, run, train


def refuses(result, *words):
    """The command failed, its last line says why, and no stack trace was printed."""
    printed = result.stdout + result.stderr
    assert result.returncode in (1, 2), printed
    assert "Traceback" not in printed, printed
    last = result.stderr.strip().splitlines()[-1]
    assert all(word in last for word in words), last


@pytest.mark.parametrize(
    "options, words",
    [
        (("--share-decoder-input-output-embed", "--decoder-embed-dim", 32), ["--decoder-embed-dim 32", "equal sizes"]),
        (("--share-all-embeddings",), ["--joined-dictionary"]),
        (("--attention-dim", 0), ["--attention-dim", "at least 1"]),
        (("--encoder-hidden-size", -5), ["--encoder-hidden-size", "at least 1"]),
        (("--dropout", 1.5), ["--dropout", "1.5"]),
        (("--sort-window", -1), ["--sort-window"]),
        (("--left-pad-target",), ["--left-pad-target"]),
    ],
)
def test_options_that_do_not_go_together(data, tmp_path, options, words):
    refuses(train(data, tmp_path, *SMALL, *ADAM, *options, check=False), *words)
    assert not list(tmp_path.glob("*.pt"))


def test_a_data_folder_that_is_missing_or_incomplete(data, tmp_path):
    options = (tmp_path / "save", *SMALL, *ADAM)
    refuses(train(tmp_path / "nowhere", *options, check=False), "nowhere", "fairseq-preprocess")
    empty = tmp_path / "empty"
    empty.mkdir()
    refuses(train(empty, *options, check=False), "fairseq-preprocess")
    no_dictionary = shutil.copytree(data, tmp_path / "copy")
    (no_dictionary / "dict.tgt.txt").unlink()
    refuses(train(no_dictionary, *options, check=False), "dict.tgt.txt", "fairseq-preprocess")
    refuses(train(data, *options, "--train-subset", "other", check=False), "other", "fairseq-preprocess")


def test_a_sentence_longer_than_the_limit(trained, data, tmp_path):
    model = trained[0] / "checkpoint_best.pt"
    long = ("--max-source-positions", 6)
    command = ("fairseq-generate", data, *PLUGIN, "--path", model, *long)
    refuses(run(*command, check=False), "max_positions=(6, ", "--skip-invalid-size-inputs-valid-test")
    skipped = run(*command, "--skip-invalid-size-inputs-valid-test")
    assert "will be skipped" in skipped.stdout + skipped.stderr

    interactive = ("fairseq-interactive", data, *PLUGIN, "--path", model, *long)
    answered = run(*interactive, stdin="ba " * 10 + "\nba\n")
    assert "only the first 5" in answered.stderr and answered.stdout.count("\nD-") == 2

    result = train(
        data, tmp_path, *SMALL, *ADAM, "--max-source-positions", 8, "--max-update", 2, "--disable-validation"
    )
    assert "will be skipped" in result.stdout + result.stderr


def test_empty_lines_in_training_text_do_no_harm(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.src").write_text("a b c\n\nb c\n\n" * 10)
        (tmp_path / f"{split}.tgt").write_text("x y\nz\n\n\n" * 10)
    pairs = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid", "--testpref", tmp_path / "valid")
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *pairs, "--destdir", tmp_path / "bin")
    result = train(tmp_path / "bin", tmp_path, *SMALL, *ADAM, "--max-update", 3)
    assert "nan" not in (result.stdout + result.stderr).lower()
    assert generate(tmp_path / "bin", tmp_path / "checkpoint_last.pt").count("\nH-") == 40


def test_a_checkpoint_of_other_dictionaries_or_sizes(trained, data, tmp_path):
    model = trained[0] / "checkpoint_best.pt"
    swapped = shutil.copytree(data, tmp_path / "swapped")
    lines = (data / "dict.tgt.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (swapped / "dict.tgt.txt").write_text("".join(reversed(lines)), encoding="utf-8")
    refuses(run("fairseq-generate", swapped, *PLUGIN, "--path", model, check=False), "other dictionaries")
    flags = (*SMALL, *ADAM, "--readout-dim", 32, "--restore-file", model)
    refuses(train(data, tmp_path, *flags, check=False), "another model", "size mismatch")
