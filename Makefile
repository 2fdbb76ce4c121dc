# Every command that people and CI use. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help run test test-again test-all check check-lint check-types check-package check-kernels check-recipes docs bench bench-smoke gpu-test gpu-bench gpu-sanitize clean

help: ## this list
	@echo "make TARGET [PYTHON=python3] [VENV=.venv] [ARGS='...']"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18

run: $(VENV)/.stamp-run ## install into .venv, then time the seven benchmark networks (ARGS: more for `jtgpu time`)
	$(BIN)/jtgpu time $(ARGS)

test: $(VENV)/.stamp-test ## one test of everything that needs no GPU, in a few minutes (ARGS: more for pytest)
	$(PYTEST) -m "not slow" --hypothesis-profile=quick $(ARGS)

test-all: $(VENV)/.stamp-test ## every test that needs no GPU, at full length
	$(PYTEST) --hypothesis-profile=full $(ARGS)

test-again: $(VENV)/.stamp-test ## every test at full length, as on another processor: other kernels of BLAS, no AVX-512
	@without="$$($(BIN)/python -m tests.support.processors)"; \
	echo "processor features that NumPy does without: $${without:-none}; BLAS by kernels of Prescott, on one thread"; \
	if [ -n "$$without" ]; then export NPY_DISABLE_CPU_FEATURES="$$without"; fi; \
	export OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=1; \
	$(PYTEST) --hypothesis-profile=full $(ARGS)

WORKERS ?= 2
# A test that hangs ends its process, and pytest reports the stack: a limit on the whole run would not say where.
# Bytecode is written: both workers import all tests, and many tests start an interpreter.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --ignore=tests/on_gpu -n $(WORKERS) --dist worksteal \
         --durations=25 --durations-min=1 -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

check: check-lint check-types check-kernels check-recipes check-package ## lint, types, kernels compile, the wheel holds everything

check-lint: $(VENV)/.stamp-dev ## ruff, the layers of the package (import-linter), its budget of lines
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python tools/import_circles.py
	$(BIN)/python tools/line_budget.py

check-types: $(VENV)/.stamp-dev
	$(BIN)/mypy

check-kernels: $(VENV)/.stamp-test ## compile every kernel with nvcc, if there is one
	$(BIN)/python tools/check_kernels.py

check-recipes: $(VENV)/.stamp-dev ## the recipe for conda (rattler-build) and the container files (hadolint)
	$(BIN)/python tools/check_recipes.py

check-package: $(VENV)/.stamp-dev ## build the wheel, look inside, install it apart, type in every page's first example
	$(BIN)/python tools/check_package.py

docs: $(VENV)/.stamp-docs ## the documentation site, to build/docs; warnings are errors, internal links are checked
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs build/docs
	$(BIN)/python tools/check_site.py build/docs

bench: $(VENV)/.stamp-test ## the CPU backend compared with pyAgrum, all networks and questions, to bench/results (ARGS: see --help)
	$(BIN)/python bench/bench_cpu.py $(ARGS)

bench-smoke: $(VENV)/.stamp-test ## every benchmark in its shortest form, results discarded
	$(BIN)/python bench/bench_cpu.py --smoke
	$(BIN)/python bench/bench_queries.py --smoke
	$(BIN)/python bench/bench_zeros.py --smoke
	$(BIN)/python bench/bench_noisy.py --smoke
	$(BIN)/python bench/bench_formats.py --smoke
	$(BIN)/python bench/bench_cases.py --smoke
	$(BIN)/python bench/bench_frames.py --smoke
	$(BIN)/python bench/bench_scaling.py --smoke
	$(BIN)/python bench/bench_cluster.py --smoke
	$(BIN)/python bench/bench_large.py --smoke
	$(BIN)/python bench/bench_fit.py --smoke
	$(BIN)/python bench/bench_learn.py --smoke
	$(BIN)/python bench/bench_draw.py --smoke
	$(BIN)/python bench/bench_page.py --smoke
	$(BIN)/python bench/bench_series.py --smoke
	$(BIN)/python bench/bench_mixed.py --smoke
	$(BIN)/python bench/bench_decide.py --smoke
	$(BIN)/python bench/bench_causal.py --smoke
	$(BIN)/python bench/bench_dynamic.py --smoke
	$(BIN)/python bench/pipeline.py --smoke learn whiten
	$(BIN)/python bench/bench_screen.py --smoke
	$(BIN)/python bench/bench_graphs.py --smoke
	$(BIN)/python bench/bench_serve.py --smoke
	$(BIN)/python bench/bench_ordering.py nets/alarm.net nets/asia.net --time 1 --runs 1 --out /dev/null

gpu-test: ## tests on an NVIDIA GPU; writes the receipt
	@$(call with-cuda,tests/on_gpu/receipt.py --write $(ARGS))

gpu-bench: ## benchmarks on an NVIDIA GPU
	@$(call with-cuda,bench/bench_indexed.py $(ARGS))
	@$(call with-cuda,bench/bench_gpu.py)

gpu-sanitize: ## compute-sanitizer (memcheck, racecheck, synccheck, initcheck) over every kernel and engine
	@$(call with-cuda,tests/on_gpu/sanitize.py --tools)

# A GPU machine may have no network, and PyCUDA may need nvcc and minutes to install: if $(PYTHON) has every package
# needed, it is used directly.
with-cuda = if $(PYTHON) -c 'import pycuda, numba, networkx, click, pytest' 2>/dev/null; \
	then PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) $(1); \
	else $(MAKE) --no-print-directory $(VENV)/.stamp-cuda && $(BIN)/python $(1); fi

clean: ## remove the virtual environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment. A stamp that is older than setup.py or pyproject.toml is rebuilt, so a second call takes no time and
# no network. The checkout is installed in editable mode: tests run the sources in this folder.
$(VENV)/bin/python:
	@for python in $(PYTHON) python3.13 python3.12 python3.11 python3.14; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "$$("$$python" --version) creates $(VENV)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo "jtgpu needs Python 3.11 or later with its venv module. '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)," \
	     "and no python3.11 to python3.14 was found. Name one: make run PYTHON=/path/to/python3.12" \
	     "(Debian, Ubuntu: apt install python3-venv)" >&2; exit 1

$(VENV)/.stamp-run: setup.py pyproject.toml | $(VENV)/bin/python
	@echo "installing jtgpu and what it needs into $(VENV)"
	$(PIP) install --editable .
	@touch $@

$(VENV)/.stamp-test $(VENV)/.stamp-dev $(VENV)/.stamp-docs $(VENV)/.stamp-cuda: $(VENV)/.stamp-%: setup.py pyproject.toml | $(VENV)/bin/python
	@echo "installing jtgpu and the packages of [$*] into $(VENV): a minute or two, once"
	$(PIP) install --editable '.[$(subst cuda,cuda$(comma)test,$*)]'
	@$(BIN)/python -m jtgpu.util.ahead || true
	@touch $(VENV)/.stamp-run $(if $(filter dev,$*),$(VENV)/.stamp-test $(VENV)/.stamp-docs) $@

comma := ,
