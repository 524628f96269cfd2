# `make doctor`: judge this host. `make test`: what CI runs. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check
REPORTS := build/reports
# Tests start child processes of their own: more workers than this gain nothing.
WORKERS := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
PYTEST := $(VENV)/bin/pytest -q -n $(WORKERS)
SOURCES := $(shell find doctor optimize matrices playbooks -type f -not -name '*.pyc' -not -name edition.json 2>/dev/null)

# ansible-lint brings ansible-core, black and more, 92 MB that nothing else here needs: an environment of its own.
ANSIBLE_LINT := build/ansible-lint

# Runs a command that is worth a look only when it fails.
silent = echo "$(1)"; said=$$($(1) 2>&1) || { echo "$$said"; exit 1; }

.PHONY: help
help:
	@sed -n 's/^## //p' Makefile

## make doctor   judge this host; makes .venv first if needed. ARGS='--from host.tar.gz' passes options
# A verdict was printed on 0, 1 and 3; anything else means that it was not. stdout is the answer alone.
.PHONY: doctor
doctor: $(VENV)/.doctor
	@code=0; $(VENV)/bin/mopt-doctor check $(ARGS) || code=$$?; \
	$(PYTHON) -I -c 'import sys; from doctor.errors import COMMAND_CODES as own, EXIT_CODES as all; \
	c = int(sys.argv[1]); print("make doctor: mopt-doctor ended with exit code", c, \
	"(" + (all | own["check"]).get(c, "a signal") + ")", file=sys.stderr)' $$code; \
	case $$code in 0|1|3) ;; *) exit $$code ;; esac

## make test     what CI runs: lint, then the tests on the tree and on the built wheel, on each Python here
# A stage that fails stops no other: one run tells all that is wrong.
.PHONY: test
test: $(VENV)/.dev
	@mkdir -p $(REPORTS); rm -f $(REPORTS)/*.xml
	@failed=(); \
	for stage in lint test-tree test-wheel test-versions; do \
	  $(MAKE) --no-print-directory $$stage || failed+=($$stage); \
	done; \
	$(PYTHON) -I .ci/totals $(REPORTS) || failed+=(totals); \
	if [ $${#failed[@]} -gt 0 ]; then echo "make test: failed: $${failed[*]}" >&2; exit 1; fi

## make check    its fast part, under a minute: lint, and the tests of what is pure
.PHONY: check
check: lint
	@$(PYTEST) -m "not slow and not wheel" tests/core tests/facts tests/report tests/test_hosts.py

## make lint     ruff, mypy, import directions, matrix, Python 3.6 syntax of the collector
.PHONY: lint
lint: $(VENV)/.dev
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet --isolated --line-length 140 --target-version py37 \
	  --select A,B,C4,E,F,I,PIE,PLE,PLW,RET,RUF,W --ignore B904,PLW2901,RUF005,RUF012,RUF059 doctor/evidence/collector.py
	$(VENV)/bin/ruff check --quiet --isolated --line-length 160 --target-version py37 \
	  --select A,B,C4,E,F,PIE,PLE,RUF,W --ignore B904,E402,RUF005,RUF012,RUF059 playbooks/plugins
	.ci/python36-syntax doctor/evidence/collector.py $(shell find playbooks/plugins -name '*.py')
	@$(call silent,$(VENV)/bin/mypy)
	@$(call silent,$(VENV)/bin/lint-imports)
	@$(call silent,$(VENV)/bin/mopt-doctor matrix validate)
	$(PYTHON) -I docs/refresh.py --check

.PHONY: test-tree
test-tree: $(VENV)/.dev $(ANSIBLE_LINT)/.installed
	@mkdir -p $(REPORTS)
	@echo "== the tree"
	@MOPT_ANSIBLE=$(CURDIR)/$(ANSIBLE_LINT)/bin $(PYTEST) -m "not wheel" --junitxml=$(REPORTS)/tree.xml

.PHONY: test-wheel
test-wheel: dist/.built
	@mkdir -p $(REPORTS)
	@echo "== wheel, sdist and editable install"
	@MOPT_DIST=$(CURDIR)/dist $(VENV)/bin/pytest -q -m wheel --junitxml=$(REPORTS)/wheel.xml

.PHONY: test-versions
test-versions: dist/.built
	@mkdir -p $(REPORTS)
	@code=0; for version in 3.10 3.13; do \
	  .ci/on-wheel $$version -n $(WORKERS) tests/core tests/facts tests/edition tests/test_hosts.py || code=1; \
	done; exit $$code

## make wheel    wheel and sdist in dist/
.PHONY: wheel
wheel: dist/.built

dist/.built: $(SOURCES) pyproject.toml hatch_build.py README.md CHANGELOG.md LICENSE | $(VENV)/.dev
	@rm -rf dist
	$(PYTHON) -m build --outdir dist . >/dev/null
	@touch $@; ls dist

## make bench    CPU and memory of a start, against other tools (minutes; installs them below a folder of its own)
.PHONY: bench
bench: $(VENV)/.doctor
	$(PYTHON) -I benchmarks/startup.py $(ARGS)

## make bugreports DIR=…   judge public bug reports that lie in DIR; tests/bugreports/truth.yaml says which
.PHONY: bugreports
bugreports: $(VENV)/.dev
	@$(PYTHON) tests/bugreports/run.py $(or $(DIR),build/bugreports) $(ARGS)

## make fuzz     2000 hostile mutants of bundles and reports, 100 of them through the command
.PHONY: fuzz
fuzz: $(VENV)/.dev
	@$(PYTHON) tests/fuzz/run.py $(ARGS)

## make lab      provision disposable hosts, every test (root, Debian; an hour). ARGS='-k TEST --core 2.19' passes options
# In namespaces of their own, out of which no route leads; what they are built from is kept in the user's cache.
LAB := PYTHONPATH=. $(PYTHON) -m tests.lab
LAB_PYTEST := $(LAB) run -- $(VENV)/bin/pytest -q -p no:cacheprovider tests/lab

.PHONY: lab
lab: lab-base
	@$(LAB_PYTEST) $(ARGS)

## make lab-slice  its part for each change: an Ubuntu and a Rocky, traps, failures (minutes). CORE='2.19 2.21' runs under both
CORE := newest

.PHONY: lab-slice
lab-slice: lab-deps
	@mkdir -p $(REPORTS); rm -f $(REPORTS)/lab*
	@$(LAB) base ubuntu-24.04 rocky-9 $(addprefix --core ,$(CORE))
	@# Two sessions side by side, one a core: each has namespaces of its own.
	@slice='env $(LAB_PYTEST) -m slice $(addprefix --core ,$(CORE))'; code=0; \
	$$slice -k test_provision --junitxml=$(REPORTS)/lab-provision.xml $(ARGS) >$(REPORTS)/lab-provision.txt 2>&1 & first=$$!; \
	trap 'kill $$first' INT TERM; \
	$$slice -k 'not test_provision' --junitxml=$(REPORTS)/lab.xml $(ARGS) || code=1; \
	wait $$first || code=1; cat $(REPORTS)/lab-provision.txt; exit $$code

## make lab-vm   a machine with a kernel of its own, Secure Boot on and off (minutes, emulated)
.PHONY: lab-vm
lab-vm: $(VENV)/.dev
	@$(LAB) deps hosts vm
	@PYTHONPATH=. $(PYTHON) -m tests.lab.vm $(ARGS)

## make lab-kills  runs killed at random moments, resumed and rolled back (minutes a trial). ARGS='--seed 7 --count 25'
.PHONY: lab-kills
lab-kills: lab-base
	@$(LAB_PYTEST)/test_kills.py $(ARGS)

.PHONY: lab-deps lab-base
lab-deps: $(VENV)/.dev
	@$(LAB) deps hosts
lab-base: lab-deps
	@$(LAB) base

## make docs     write the generated parts of README and docs/ again
.PHONY: docs
docs: $(VENV)/.dev
	$(PYTHON) -I docs/refresh.py

## make planted  search servers whose knee and SLO rate are known, over 20 seeds (minutes). ARGS=4 for fewer
.PHONY: planted
planted: $(VENV)/.dev
	@$(PYTHON) -m tests.optimize.planted $(ARGS)

## make clean    remove what was built; .venv stays
.PHONY: clean
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis matrices/edition.json
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# --- environment ----------------------------------------------------------------------------------

$(PYTHON):
	@.ci/make-venv $(VENV)

# Stamps: a second run installs nothing.
$(VENV)/.doctor: pyproject.toml hatch_build.py | $(PYTHON)
	@echo "installing mopt-doctor into $(VENV)" >&2
	@$(PIP) -e .
	@touch $@

$(ANSIBLE_LINT)/.installed:
	@echo "installing ansible-lint into $(ANSIBLE_LINT)" >&2
	@.ci/make-venv $(ANSIBLE_LINT)
	@$(ANSIBLE_LINT)/bin/python -m pip install --quiet --disable-pip-version-check 'ansible-lint>=25.1'
	@touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py | $(PYTHON)
	@echo "installing mopt-doctor and its development tools into $(VENV)" >&2
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.doctor
