# The truth for people and for CI. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help run test check check-lint check-types check-package check-kernels bench bench-smoke gpu-test gpu-bench gpu-sanitize clean

help: ## this list
	@echo "make TARGET [PYTHON=python3] [VENV=.venv] [ARGS='...']"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 18

run: $(VENV)/.stamp-run ## install into .venv, then time the seven benchmark networks (ARGS: more for `jtgpu time`)
	$(BIN)/jtgpu time $(ARGS)

test: $(VENV)/.stamp-test ## all tests that need no GPU (ARGS: more for pytest)
	$(BIN)/python -m pytest --ignore=tests/on_gpu $(HANGS) $(ARGS)

# A test that hangs says where, and ends the run: a limit on the whole of it would tell nothing.
HANGS = -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

check: check-lint check-types check-kernels check-package ## lint, types, kernels compile, the wheel holds everything

check-lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .

check-types: $(VENV)/.stamp-dev
	$(BIN)/mypy

check-kernels: $(VENV)/.stamp-test ## compile every kernel with nvcc, where there is one
	$(BIN)/python tools/check_kernels.py

check-package: $(VENV)/.stamp-dev ## build the wheel, look inside, run it away from the checkout
	$(BIN)/python tools/check_package.py

bench: $(VENV)/.stamp-test ## the CPU backend beside pyAgrum, all networks and questions, to bench/results (ARGS: see --help)
	$(BIN)/python bench/bench_cpu.py $(ARGS)

bench-smoke: $(VENV)/.stamp-test ## every benchmark, shortest form, nothing kept
	$(BIN)/python bench/bench_cpu.py --smoke
	$(BIN)/python bench/bench_queries.py --smoke
	$(BIN)/python bench/bench_formats.py --smoke
	$(BIN)/python bench/bench_cases.py --smoke
	$(BIN)/python bench/bench_frames.py --smoke
	$(BIN)/python bench/bench_scaling.py --smoke
	$(BIN)/python bench/bench_cluster.py --smoke
	$(BIN)/python bench/bench_large.py --smoke
	$(BIN)/python bench/bench_ordering.py nets/alarm.net nets/asia.net --time 1 --runs 1 --out /dev/null

gpu-test: ## tests on an NVIDIA GPU, and the receipt of what passed
	@$(call with-cuda,tests/on_gpu/receipt.py --write $(ARGS))

gpu-bench: ## benchmarks on an NVIDIA GPU
	@$(call with-cuda,bench/bench_indexed.py $(ARGS))
	@$(call with-cuda,bench/bench_gpu.py)

gpu-sanitize: ## compute-sanitizer (memcheck, racecheck, synccheck, initcheck) over every kernel and engine
	@$(call with-cuda,tests/on_gpu/sanitize.py --tools)

# A GPU machine may have no network, and PyCUDA may take nvcc and minutes to install: where $(PYTHON) has all that is
# needed, it is used as it is.
with-cuda = if $(PYTHON) -c 'import pycuda, numba, networkx, typer, pytest' 2>/dev/null; \
	then PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) $(1); \
	else $(MAKE) --no-print-directory $(VENV)/.stamp-cuda && $(BIN)/python $(1); fi

clean: ## remove the virtual environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The environment. A stamp is newer than setup.py and pyproject.toml, or it is made again: so a second call takes no
# time and no network. The checkout is installed in place: what runs is what stands here.
$(VENV)/bin/python:
	@for python in $(PYTHON) python3.13 python3.12 python3.11 python3.14; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "$$("$$python" --version) makes $(VENV)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo "jtgpu needs Python 3.11 or later with its venv module. '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1)," \
	     "and no python3.11 to python3.14 was found. Name one: make run PYTHON=/path/to/python3.12" \
	     "(Debian, Ubuntu: apt install python3-venv)" >&2; exit 1

$(VENV)/.stamp-run: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable .
	@touch $@

$(VENV)/.stamp-test $(VENV)/.stamp-dev $(VENV)/.stamp-cuda: $(VENV)/.stamp-%: setup.py pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable '.[$(subst cuda,cuda$(comma)test,$*)]'
	@touch $(VENV)/.stamp-run $@

comma := ,
