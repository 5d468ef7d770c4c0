# Every target does all of its own set-up: only Python 3.11 or newer (with venv) and PyPI are needed.
#   make train            the main job: two workers on this machine train the tutorials' network
#   make test             ruff, types, and the tests that each change has to pass
#   make test-all         ruff, types and all tests
#   make test-newest      of these, the parts that another Python or another JAX may break
#   make test-rest        the tests that test-all has and test has not, but for test-table; PART=1/8 an eighth
#   make test-table       TensorFlow's operations, each with its derivatives, as TensorFlow computed them
#   make test-tpu-compile steps compiled for TPUs; none is needed
#   make test-gpu-compile steps compiled for 8 H100s, by a compiler of 6 GB; no GPU is needed
#   make gpu              the tests marked gpu, then the benchmarks of GPUs; make gpu ON=cpu is a rehearsal
#   make test-as-users    the numerics, compiled as users compile them
#   make test-floor       all tests on the oldest versions that pyproject.toml names
#   make versions         a suite of its own on each Python, JAX and Keras, and the table in docs/versions.md
#   make lint             ruff and types only
#   make docs             the documentation as a site, in build/site
#   make bench            the benchmarks, in one table (15 minutes at most, without peers)
#   make package          the sdist and the wheel in dist, built and looked at
#   make release          the same for a tagged commit, and the wheel tried on each Python; uploads nothing
#   make clean            remove the virtual environments
# Extra arguments: make test PYTEST_ARGS="-k cluster", make train TRAIN_ARGS="--epochs 1", make bench BENCH_ARGS="--write".
# Another Python: make test PYTHON=python3.13 works in an environment of its own, .venv-3.13.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help train test test-all test-newest test-rest test-table test-tpu-compile test-gpu-compile gpu test-as-users test-floor versions lint docs bench package release clean

PYTHON ?=
FOUND := $(if $(PYTHON),$(shell sh tools/pythons.sh $(PYTHON)))
VENV := $(if $(PYTHON),.venv-$(or $(word 1,$(FOUND)),none),.venv)
BIN := $(VENV)/bin
INSTALL := PYTHON="$(or $(word 2,$(FOUND)),$(PYTHON))" sh tools/install.sh
PYTEST_ARGS ?=
TRAIN_ARGS ?=
BENCH_ARGS ?=
PART ?=
ON ?=
VERSIONS_ARGS ?=
RELEASE_ARGS ?=
# Files side by side; the tests of one share what is slow to make. One after another: make test PYTEST_ARGS="-n 0"
# In their order, which has the slow folders first: sorted by number of tests, files of one slow test would come last.
QUICK := quick or not (multiprocess or thorough or table)
# Byte code and syntax trees differ between versions of Python, tracing and numerics between those of JAX.
NEWEST := tests/conformance tests/examples tests/multiprocess tests/programs tests/test_public_api.py \
	$(addprefix tests/unit/,core fit launch loop migrate mesh plan program replica)
PYTEST := -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

help:
	@sed -n '2,19s/^# \{0,1\}//p' Makefile

train:
	@$(INSTALL) $(VENV) examples
	@$(BIN)/stratagem run --workers 2 examples/multi_worker.py $(TRAIN_ARGS)

test: lint
	@echo "== pytest, the tests of each change"
	@$(BIN)/python $(PYTEST) -m "$(QUICK)" $(PYTEST_ARGS)

test-all: lint
	@echo "== pytest, all tests"
	@$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

test-newest:
	@$(INSTALL) $(VENV) dev
	@echo "== pytest, what another Python or JAX may break"
	@$(BIN)/python $(PYTEST) -m "$(QUICK)" $(NEWEST) $(PYTEST_ARGS)

test-rest:
	@$(INSTALL) $(VENV) dev
	@echo "== pytest, the tests that make test leaves out"
	@$(BIN)/python $(PYTEST) -m "not table and not ($(QUICK))" $(if $(PART),--part $(PART)) $(PYTEST_ARGS)

test-table:
	@$(INSTALL) $(VENV) dev
	@echo "== pytest, the table of TensorFlow's operations"
	@$(BIN)/python $(PYTEST) -m table $(PYTEST_ARGS)

# In environments of their own: JAX loads libtpu wherever it is, and looks for TPUs at each start.
COMPILED := tests/conformance/test_described.py tests/unit/plan/test_command.py tests/unit/plan/test_topology.py

test-tpu-compile:
	@$(INSTALL) $(VENV)-tpu test,plan-tpu
	@echo "== pytest, steps compiled for TPUs"
	@$(VENV)-tpu/bin/python -m pytest -n 2 $(COMPILED) $(PYTEST_ARGS)

test-gpu-compile:
	@$(INSTALL) $(VENV)-gpu test,plan-gpu
	@echo "== pytest, steps compiled for GPUs"
	@$(VENV)-gpu/bin/python -m pytest -n 2 $(COMPILED) $(PYTEST_ARGS)

# The benchmarks run also where a test fails: both are worth knowing of a machine that is there for an hour.
gpu:
ifeq ($(ON),cpu)
	@$(INSTALL) $(VENV) dev
	@echo "== pytest, the tests for GPUs, on CPU devices; then their benchmarks, with tiny networks"
	@STRATAGEM_GPU_REHEARSAL=1 $(BIN)/python -m pytest -n 2 -m gpu tests/gpu $(PYTEST_ARGS); tests=$$?; \
		$(BIN)/python benchmarks/gpu.py --on cpu --rounds 1 $(BENCH_ARGS) && exit $$tests
else
	@$(INSTALL) $(VENV)-gpu test,plan-gpu
	@echo "== pytest, the tests for GPUs; then their benchmarks"
	@JAX_PLATFORMS=cuda,cpu $(VENV)-gpu/bin/python -m pytest -m gpu tests/gpu $(PYTEST_ARGS); tests=$$?; \
		$(VENV)-gpu/bin/python benchmarks/gpu.py $(BENCH_ARGS) && exit $$tests
endif

test-as-users:
	@$(INSTALL) $(VENV) dev
	@echo "== pytest, the numerics with all of XLA's passes"
	@STRATAGEM_TESTS_AS_USERS=1 $(BIN)/python $(PYTEST) tests/conformance $(PYTEST_ARGS)

test-floor:
	@$(INSTALL) $(VENV)-floor dev --oldest
	@echo "== pytest on the oldest supported versions:" $$($(VENV)-floor/bin/python tools/floor.py)
	@$(VENV)-floor/bin/python $(PYTEST) $(PYTEST_ARGS)

versions:
	@$(INSTALL) $(VENV) dev
	@$(BIN)/python -m tools.versions $(VERSIONS_ARGS)

lint:
	@$(INSTALL) $(VENV) dev
	@echo "== ruff check" && $(BIN)/ruff check --no-cache .
	@echo "== ruff format" && $(BIN)/ruff format --check .
	@echo "== types" && $(BIN)/basedpyright --pythonpath $(BIN)/python

docs:
	@$(INSTALL) $(VENV) dev
	@echo "== sphinx"
	@$(BIN)/python -m tools.site

bench:
	@$(INSTALL) $(VENV) bench
	@$(BIN)/python benchmarks/suite.py $(BENCH_ARGS)

package:
	@$(INSTALL) $(VENV) release
	@$(BIN)/python -m tools.release --build-only $(RELEASE_ARGS)

release:
	@$(INSTALL) $(VENV) release
	@$(BIN)/python -m tools.release $(RELEASE_ARGS)

clean:
	rm -rf .venv .venv-*
