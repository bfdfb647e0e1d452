# make demo   trains and scores a small model from nothing
# make test   runs the tests from nothing
# Both install what they need into .venv first. Another Python: make test PYTHON=python3.10

PYTHON ?= $(shell command -v python3.11 || command -v python3)
ifeq ($(origin PYTHON),file)
VENV ?= .venv
else
VENV ?= .venv-$(notdir $(PYTHON))
endif
BIN := $(CURDIR)/$(VENV)/bin
INSTALLED := $(VENV)/.installed

# fairseq is compiled while it is installed: the constraint holds for that build too, and keeps pip from taking another
# torch for it. pip 24.1 and later refuse a package that fairseq 0.12.2 needs.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow test-versions lint install clean
.DEFAULT_GOAL := test

install: $(INSTALLED)

$(INSTALLED): setup.py constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || \
	  { echo "$(PYTHON) does not run, or is older than 3.9: name another one with PYTHON=..." >&2; exit 1; }
	@echo "Installing into $(VENV): about 5 minutes the first time"
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet pip==24.0 wheel
	$(BIN)/python -m pip install --quiet torch
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)
	PATH="$(BIN):$$PATH" bash examples/demo/run.sh

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile $(ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow $(ARGS)

# Checkpoints move between the two supported lines of fairseq, both ways.
OTHER ?= python3.10
test-versions: $(INSTALLED)
	$(MAKE) install PYTHON=$(OTHER)
	LV_OTHER_PYTHON="$(CURDIR)/.venv-$(notdir $(OTHER))/bin/python" \
	  $(BIN)/python -m pytest tests/test_versions.py $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf .venv .venv-* build dist *.egg-info runs .pytest_cache .ruff_cache .hypothesis
