"""A checkpoint of one supported line of Python and fairseq is usable in the other, both ways (make test-versions)."""

import os
from pathlib import Path

import pytest
from conftest import ADAM, BIN, SMALL, generate, hypotheses, train

OTHER = os.environ.get("LV_OTHER_PYTHON")
pytestmark = pytest.mark.skipif(not OTHER, reason="needs a second environment: make test-versions")


@pytest.fixture
def other():
    return Path(OTHER).parent


def test_this_lines_checkpoint_translates_in_the_other(names, other):
    data, model = names / "data", names / "model.pt"
    assert hypotheses(generate(data, model, bin=other)) == hypotheses(generate(data, model))


def test_the_other_lines_checkpoint_translates_and_trains_on_in_this(data, tmp_path, other):
    train(data, tmp_path, *SMALL, *ADAM, "--max-epoch", 3, bin=other)
    model = tmp_path / "checkpoint_last.pt"
    assert hypotheses(generate(data, model)) == hypotheses(generate(data, model, bin=other))
    for number, bin in enumerate((BIN, other)):
        result = train(data, tmp_path, *SMALL, *ADAM, "--max-epoch", 4 + number, bin=bin)
        assert f"Loaded checkpoint {model} (epoch {4 + number} @" in result.stdout + result.stderr
