# `make demo` and `make test` do all the set-up. TORCH=system reuses the torch of the python that runs make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TORCH ?= pinned
ROOMS = agent bench cli core drills monitor store trainer
VENV_FLAGS = $(if $(filter system,$(TORCH)),--system-site-packages,)
TORCH_PKG = $(if $(filter system,$(TORCH)),,torch)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test check drills bench weather soak setup typing lint clean
help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' || { \
	  echo "rankpulse needs Python 3.11 to 3.13; this is $$($(PYTHON) -V). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt $(TORCH_PKG) -e '.[demo,dev]'
	@$(BIN)/python -c 'import torch' || { echo "no torch in $(VENV): run make without TORCH=system"; exit 1; }
	@touch $@

setup: $(VENV)/.ready ## the virtual environment, with torch

demo: setup ## a real job on this machine lives through jitter, a crash and a stop
	$(BIN)/rankpulse demo $(FAULTS)

# mypy and import-linter want the rooms as one package; the link tree is that package
typing:
	@mkdir -p build/typing/rankpulse
	@for room in $(ROOMS); do ln -sfn ../../../$$room build/typing/rankpulse/$$room; done

lint: setup typing ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p rankpulse
	$(BIN)/lint-imports --no-cache

check: lint ## a minute: lint and the quick tests
	$(BIN)/python -m pytest -m "not live and not drill"

test: lint ## everything once
	$(BIN)/python -m pytest -m "not drill" --durations=15

drills: setup ## live repeats
	$(BIN)/python -m pytest -m drill

bench: setup ## figures, as ratios side by side
	$(BIN)/rankpulse bench pulse

weather soak: ## not there yet
	@echo "$@: not part of this version; see CHANGELOG.md"; exit 1

clean: ## remove what make made
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis
