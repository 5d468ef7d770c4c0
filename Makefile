# Every target does all of its own set-up: only Python 3.11 or newer (with venv) and PyPI are needed.
#   make train       the main job: two workers on this machine train the tutorials' network
#   make test        ruff, types, tests
#   make lint        ruff and types only
#   make test-floor  the tests on the oldest versions that pyproject.toml names
#   make bench       the benchmarks, in one table (15 minutes at most, without peers)
#   make clean       remove the virtual environments
# Extra arguments: make test PYTEST_ARGS="-k cluster", make train TRAIN_ARGS="--epochs 1", make bench BENCH_ARGS="--write", make PYTHON=/opt/python3.12 ...

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help train test lint test-floor bench clean

BIN := .venv/bin
PYTEST_ARGS ?=
TRAIN_ARGS ?=
BENCH_ARGS ?=
# Files side by side; the tests of one share what is slow to make. One after another: make test PYTEST_ARGS="-n 0"
# In their order, which has the slow folders first: sorted by number of tests, files of one slow test would come last.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

help:
	@sed -n '2,8s/^# \{0,1\}//p' Makefile

train: .venv/installed-examples
	@$(BIN)/stratagem run --workers 2 examples/multi_worker.py $(TRAIN_ARGS)

test: lint
	@echo "== pytest"
	@$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

lint: .venv/installed-dev
	@echo "== ruff check" && $(BIN)/ruff check .
	@echo "== ruff format" && $(BIN)/ruff format --check .
	@echo "== types" && $(BIN)/basedpyright

test-floor: .venv-floor/installed-dev
	@echo "== pytest on the oldest supported versions:" $$(.venv-floor/bin/python tools/floor.py)
	@.venv-floor/bin/python $(PYTEST) $(PYTEST_ARGS)

bench: .venv/installed-bench
	@$(BIN)/python benchmarks/suite.py $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-floor

# Stamps: a folder is installed again only when what is written in pyproject.toml changed.
.venv/installed-examples: pyproject.toml tools/install.sh
	@PYTHON="$(PYTHON)" sh tools/install.sh .venv examples

.venv/installed-bench: pyproject.toml tools/install.sh
	@PYTHON="$(PYTHON)" sh tools/install.sh .venv bench

.venv/installed-dev: pyproject.toml tools/install.sh
	@PYTHON="$(PYTHON)" sh tools/install.sh .venv dev

.venv-floor/installed-dev: pyproject.toml tools/install.sh tools/floor.py
	@PYTHON="$(PYTHON)" sh tools/install.sh .venv-floor dev --oldest
