# make demo            trains and scores a small model from nothing
# make test            lint, then the quick tests
# make test-slow       tests that take minutes each
# make test-faults     kills, full disks, signals and random input, many of them (20 minutes); with FAULTS_SEED=... others
# make test-numerics   the quick tests that compute, with the arithmetic of other CPUs
# make bench           us and our peers side by side: benchmarks/README.md (2 hours); QUICK=1: runs/bench (10 minutes).
#                      Text of your own: ARGS="--source text.en --target text.de", tokenised
# make docs            a site of README and docs in runs/site; a link that leads nowhere is an error
# make lint            ruff, and mypy where word numbers, page rows and list columns meet
# make audit           is what is installed what lock.txt names, and are there advisories about it? Fails also if nobody
#                      can be asked; with OFFLINE=1 nobody is
# make lock            writes lock.txt again, after a change of the dependencies
# make clean           removes what make made, except runs/
#
# Each installs what it needs first, into .venv. Another Python: make test PYTHON=python3.13

SHELL := bash
.SHELLFLAGS := -o pipefail -c

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13; do \
  $$python -c '$(SUPPORTED)' 2> /dev/null && { echo $$python; exit; }; done; echo python3)
ifeq ($(origin PYTHON),file)
VENV ?= .venv
else
VENV ?= .venv-$(shell basename "$(PYTHON)")
endif
BIN := $(VENV)/bin
TOOLS := .venv-tools

# Nothing but what lock.txt names, with its hash. What has to be built is built with what is installed already, not in an
# environment that pip fills with a torch of its own choice.
PIP := python -m pip --disable-pip-version-check install --quiet
LOCKED_PIP := $(PIP) --require-hashes --constraint lock.txt --no-build-isolation
DEPENDENCIES := import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(*project["dependencies"], *sum(project["optional-dependencies"].values(), []), sep="\n")

.PHONY: install demo test test-slow test-faults test-numerics bench docs lint audit lock clean
.DEFAULT_GOAL := test

# One make at a time installs: another waits, and then finds it done.
ONE_AT_A_TIME = flock --nonblock .make.lock true || echo "Another make is installing here: waiting for it"; \
  flock .make.lock $(MAKE) --silent

install:
	@$(ONE_AT_A_TIME) $(VENV)/.installed

# A new environment, also if an installation into it was interrupted, with the pip that lock.txt names: older ones do not
# look at the hashes of constraints.
define ENVIRONMENT
@"$(PYTHON)" -c '$(SUPPORTED)' || \
  { echo "$(PYTHON) does not run, or is not Python 3.11, 3.12 or 3.13: name another one with PYTHON=..." >&2; exit 1; }
@echo "Installing into $(@D)$(1)"
@[ -e $@ ] || "$(PYTHON)" -m venv --clear $(@D)
@rm -f $@
@sed -n '/^pip==/,/[^\\]$$/p' lock.txt | $(@D)/bin/$(PIP) --require-hashes --requirement /dev/stdin
endef

$(VENV)/.installed: pyproject.toml lock.txt
	$(call ENVIRONMENT,: about 5 minutes the first time)
	@$(BIN)/$(LOCKED_PIP) --no-deps --no-index torch 2> /dev/null || true  # a torch that lies on this machine goes before PyPI's
	$(BIN)/$(LOCKED_PIP) --group build
	$(BIN)/python -c '$(DEPENDENCIES)' | $(BIN)/$(LOCKED_PIP) --requirement /dev/stdin
	@# by path: else a folder of that name, such as this one, seen from where it lies, would hide the package
	PYTHONWARNINGS=ignore $(BIN)/$(PIP) --no-deps --no-build-isolation --no-index --config-settings editable_mode=compat \
	  --editable .
	@touch $@

# What does not belong beside fairseq: a group of pyproject.toml in an environment of that name.
.venv-%/.installed: lock.txt
	$(call ENVIRONMENT)
	$(@D)/bin/$(LOCKED_PIP) --group $*
	@touch $@

demo: install
	PATH="$$PWD/$(BIN):$$PATH" bash examples/demo/run.sh

QUICK_TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not faults" --numprocesses 2 --dist loadfile $(ARGS)

test: lint
	$(QUICK_TESTS)

test-slow: install
	$(BIN)/python -m pytest -m slow $(ARGS)

test-faults: export FAULTS_SEED ?= $(shell echo $$RANDOM)
test-faults: export FAULTS_FIGURES = $(shell mktemp)
test-faults: install
	@echo "The moments and the input are those of FAULTS_SEED=$$FAULTS_SEED"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults --numprocesses 2 $(ARGS); \
	  failed=$$?; cat $$FAULTS_FIGURES; rm -f $$FAULTS_FIGURES; exit $$failed

# Without vector instructions, and with the order of additions that MKL takes on every CPU. These files do not compute:
NO_NUMERICS := alignment bench bench_lexicon bench_start bench_training_runs builtin_aligner contrasts coverage demo_corpus \
  dictionary_file disk_full examples fuzzed_lines killed_training lexicon* \
  lost_worker make outputs padding plan prepare readme report* site start symmetrize versions
test-numerics: install
	ATEN_CPU_CAPABILITY=default $(QUICK_TESTS) $(NO_NUMERICS:%=--ignore-glob='tests/test_%.py')
	MKL_CBWR=COMPATIBLE $(QUICK_TESTS) $(NO_NUMERICS:%=--ignore-glob='tests/test_%.py')

bench: install
	@$(ONE_AT_A_TIME) .venv-peers/.installed
	$(BIN)/python benchmarks/bench.py $(if $(QUICK),--quick) $(ARGS)

docs:
	@$(ONE_AT_A_TIME) .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build
	@echo "runs/site/index.html is the site; its search needs a server: python3 -m http.server --directory runs/site"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy --no-error-summary

audit: install
	@$(if $(OFFLINE),,$(ONE_AT_A_TIME) $(TOOLS)/.installed)
	@$(BIN)/python -m pip check
	@$(BIN)/python .ci/audit.py $(if $(OFFLINE),,$(TOOLS)/bin/pip-audit)

# Versions stay what they are unless ARGS names one: make lock ARGS="--upgrade-package ruff"
lock:
	@$(ONE_AT_A_TIME) $(TOOLS)/.installed
	$(TOOLS)/bin/uv pip compile pyproject.toml --all-extras $(patsubst %,--group %,build docs peers pip tools) --universal \
	  --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --output-file lock.txt $(ARGS)

clean:
	flock .make.lock rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
