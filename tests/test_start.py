"""What decoding does not wait for: libraries that it has no use for."""

import os
import subprocess
import sys

import pytest
from architectures import ARCHITECTURES
from conftest import BIN, ROOT
from networks import save
from small_corpus import configure, write_corpus
from test_architectures import PLAIN

HEAVY = {"sympy", "torch._dynamo", "torch._inductor", "matplotlib", "thot", "starlette", "uvicorn"}

# all ways in which models of fairseq make and fill word tables, in a process that has imported torch alone
BUILD = """
import sys
import torch
from torch import nn
from lv_fairseq.word_tables import Places, Tables, adopt, to_be_loaded

def build():
    model = nn.Module()
    model.encoder, model.decoder = nn.Module(), nn.Module()
    model.encoder.embed_tokens = nn.Embedding(50, 4)
    model.decoder.embed_tokens = nn.Embedding(60, 4, padding_idx=1)
    nn.init.uniform_(model.encoder.embed_tokens.weight, -0.1, 0.1)
    nn.init.normal_(model.decoder.embed_tokens.weight, mean=0, std=0.5)
    nn.init.constant_(model.decoder.embed_tokens.weight[1], 0)
    model.decoder.output = nn.utils.skip_init(nn.Linear, 4, 60)
    for draw in (nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_):
        draw(model.decoder.output.weight)
    model.decoder.output.bias.data.uniform_(-0.1, 0.1)
    return model

model = to_be_loaded(build, lambda model: adopt(model, Places("output")), 50, 60)
assert all(parameter.is_meta for parameter in model.parameters()) and len(list(model.parameters())) == 4
print(*sys.modules)
"""


def imported(*command, stdin="") -> set[str]:
    """What a process says that it has imported."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, *map(str, command)]
    result = subprocess.run(words, input=stdin, capture_output=True, text=True, env=env, check=True)
    named = (line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:"))
    return {*result.stdout.split(), *named}


def test_tables_that_will_be_loaded_need_no_compiler():
    found = imported("-c", BUILD)
    assert "torch.nn" in found
    assert found & HEAVY == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_decoding_imports_nothing_heavy(tmp_path, name):
    flags, joined = ARCHITECTURES[name]
    data = write_corpus(tmp_path / "data", pairs=9, joined=joined)
    cfg, _, plain, _ = configure(data, *PLAIN, model=flags)
    path = save(tmp_path / "model.pt", cfg, plain.state_dict())
    command = ["-X", "importtime", BIN / "fairseq-interactive", data, "--user-dir", ROOT / "lv_fairseq", "--path", path]
    command += ["--task", "lv_translation", "--source-lang", "src", "--target-lang", "tgt", "--candidate-frequent", 5]
    found = imported(*command, "--max-len-b", 3, "--cpu", stdin="a b\n")
    assert {"lv_fairseq.decoding.search", "D-0"} <= found
    assert found & HEAVY == set()
