# `make demo` and `make test` do all the set-up. PYTHON chooses the interpreter, TORCH=system reuses the torch it has.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TORCH ?= pinned
ROOMS = agent bench cli core dashboards drills monitor receiver store trainer web
TORCH_PKG = $(if $(filter system,$(TORCH)),,torch)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test check drills sim bench bench-detect dashboards commands pictures sbom audit weather soak setup typing lint clean
help: ## what can be made
	@echo 'PYTHON=python3.12 chooses the interpreter, TORCH=system reuses its torch, FAULTS="jitter crash" what demo plays'
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# With TORCH=system a .pth file lends the packages of PYTHON, also when that is a virtual environment itself.
$(VENV)/.ready-$(TORCH): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' || { \
	  echo "rankpulse needs Python 3.11 to 3.13, and $(PYTHON) is none. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test "$(TORCH)" != system || $(PYTHON) -c 'import torch' || { \
	  echo "$(PYTHON) has no torch: name one that has (PYTHON=...), or run make without TORCH=system"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "no virtual environment can be made: on Debian and Ubuntu install python3-venv"; exit 1; }
	@rm -f $(VENV)/.ready-* $(VENV)/lib/python3*/site-packages/system-torch.pth
	@test "$(TORCH)" != system || $(PYTHON) -c 'import site, sysconfig; print(sysconfig.get_paths()["purelib"])' \
	  > $$(echo $(VENV)/lib/python3*/site-packages)/system-torch.pth
	@echo "installing into $(VENV): a few minutes, most of it torch"
	$(BIN)/python -m pip install -q -c constraints.txt $(TORCH_PKG) -e '.[demo,dev]'
	@$(BIN)/python -c 'import torch'
	@touch $@

setup: $(VENV)/.ready-$(TORCH) ## the virtual environment, with torch

demo: setup ## real jobs on this machine live through jitter, a crash, a hang, bad weather, the loss of a node and more
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

check: lint ## a minute or two: lint and the quick tests
	$(BIN)/python -m pytest -m "not live and not drill" -n 2

JOBS = tests/drills tests/monitor
# a live test that fails beside another is tried once more alone, and told of: docs/decisions/0015-second-try.md
LIVE = $(BIN)/python tests/twice.py -m "live and not drill" -n 2 --dist loadfile -rs
test: lint ## everything once, two tests at a time
	$(BIN)/python -m pytest -m "not live and not drill" -n 2 --durations=5 -rs
	$(LIVE) $(JOBS:%=--ignore=%) --durations=5
	$(LIVE) $(JOBS) --durations=15

drills: setup ## live repeats
	$(BIN)/python -m pytest -m drill

SEEDS ?= 200
SCALES ?= 1 0.2 5
sim: setup ## SEEDS=200 clusters of 64 nodes on a virtual clock, each with faults of its own
	$(BIN)/rankpulse sim --seeds $(SEEDS)

bench: setup ## figures, as ratios side by side
	$(BIN)/rankpulse bench pulse
	$(BIN)/rankpulse bench recovery
	$(BIN)/rankpulse bench checkpoint
	$(BIN)/rankpulse bench durable
	$(BIN)/rankpulse bench engine
	$(BIN)/rankpulse bench page
	$(BIN)/rankpulse bench asking --turns 4

bench-detect: setup ## detection time against false alarms, and the page of it: hours; SCALES=1 for the main table only
	@for scale in $(SCALES); do \
	  $(BIN)/rankpulse bench detect --scale $$scale --out build/bench-detect/x$$scale || exit; \
	done
	$(BIN)/python -m rankpulse.bench.detect.page build/bench-detect/page $(SCALES:%=build/bench-detect/x%/report.json)

dashboards: setup ## Grafana dashboards and Prometheus rules, made anew from the metrics catalogue
	$(BIN)/python -m rankpulse.dashboards.build

commands: setup ## docs/reference/commands.md, made anew from the commands' help
	$(BIN)/python -m rankpulse.cli.commands_page docs/reference/commands.md

pictures: setup ## the docs' pictures of the on-call page, from played stories; needs chromium-driver
	$(BIN)/python tests/page/pictures.py

# their many dependencies are not ours: they get an environment of their own
build/tools/.ready: pyproject.toml
	@$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install -q 'cyclonedx-bom>=7' 'pip-audit>=2.9'
	@touch $@

sbom: setup build/tools/.ready ## build/sbom.json: everything that is installed with rankpulse, as CycloneDX
	build/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json $(BIN)/python

audit: setup build/tools/.ready ## whether a dependency is known to be vulnerable; needs the network
	@$(BIN)/python -m pip freeze --exclude-editable > build/audit.txt
	@build/tools/bin/pip-audit --disable-pip --no-deps --progress-spinner off -r build/audit.txt $(AUDIT) \
	  > build/audit.out 2> build/audit.err; code=$$?; grep -v 'could not be audited' build/audit.out; cat build/audit.err >&2; \
	  skipped=$$(grep -c 'could not be audited' build/audit.out); \
	  if test $$skipped -gt 0; then echo "SKIPPED: nothing is known of $$skipped of $$(wc -l < build/audit.txt) packages:" \
	    "the index that is asked here does not tell of vulnerabilities"; fi; \
	  if grep -qE 'ServiceError|ConnectionError|Failed to resolve|Could not connect|Max retries|timed out' build/audit.err; then \
	    echo "SKIPPED: the vulnerability service cannot be reached from here; nothing was looked up"; exit 0; fi; exit $$code

weather soak: ## not there yet
	@echo "$@: not part of this version; see CHANGELOG.md"; exit 1

clean: ## remove what make made
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis
