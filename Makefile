# Needs make and Python 3.11 or later; uses uv when it is there, else venv and pip.

# The first Python that is new enough. A command can exist and still fail (a pyenv shim): each one is tried.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PYTEST_ARGS ?= -q -n auto --maxprocesses 8
# On the newest Python: what runs code, in tasks, threads and processes. On those between: where Pythons differ most.
# The rest is the same whatever the Python.
FEW = -m 'not torture and not many' tests/capture/test_agents.py tests/capture/test_clock.py tests/capture/test_sleeping.py \
	tests/capture/test_subprocess.py tests/capture/test_threads.py tests/capture/test_changes.py \
	$(filter-out %kills.py,$(wildcard tests/integration/test_run_*))
OTHERS = $(FEW) tests/unit tests/corpus tests/programs tests/integration/test_graph_* tests/integration/test_map* \
	tests/integration/test_replay*
BENCH_ARGS ?=
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE # the tests start thousands of processes, and each would compile all that it loads

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-capture bench-postgres torture clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-15s %s\n' "$$name" "$$what"; done

demo: .venv/.installed ## the whole story in a minute, offline
	@.venv/bin/everstep demo

test: .venv/.ready ## the tests, on every Python from 3.11 on this machine
	@.venv/bin/python -c 'import sys; print("== Python %d.%d" % sys.version_info[:2])'
	@.venv/bin/python -m pytest $(PYTEST_ARGS)
	@done=$$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); newest=yes; \
	for v in 3.14 3.13 3.12 3.11; do \
		[ "$$v" != "$$done" ] || continue; \
		found=$$(for p in python$$v "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$v.*/bin/python$$v; do \
			"$$p" -c 'import ensurepip, venv' 2>/dev/null && echo "$$p" && break; done); \
		[ -n "$$found" ] || continue; \
		echo "== Python $$v"; \
		$(MAKE) -s .venv-$$v/.ready PYTHON="$$found" || exit 1; \
		if [ -n "$$newest" ]; then .venv-$$v/bin/python -m pytest $(PYTEST_ARGS) $(OTHERS) || exit 1; \
		else .venv-$$v/bin/python -m pytest $(PYTEST_ARGS) $(FEW) || exit 1; fi; \
		newest=; \
	done

check: .venv/.ready ## format, lint, types, then the tests
	@.venv/bin/ruff format --check --quiet . || { echo "fix it with: .venv/bin/ruff format ." >&2; exit 1; }
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy --no-error-summary
	@$(MAKE) test

bench: .venv-bench/.ready ## Everstep, its peers and the raw floor, side by side
	@.venv-bench/bin/python -m benchmarks.run $(BENCH_ARGS)

bench-capture: .venv-bench/.ready ## programs recorded and replayed by Everstep, vcrpy and reeltime; writes the page in docs
	@.venv-bench/bin/python -m benchmarks.capture $(BENCH_ARGS)

bench-postgres: .venv-bench/.ready ## trails on a PostgreSQL server, raw commits and the peer's; writes the page on capacity
	@.venv-bench/bin/python -m benchmarks.postgres $(BENCH_ARGS)

torture: .venv/.ready ## the long crash and damage tests
	@.venv/bin/python -m pytest -q -n auto --maxprocesses 4 -m torture

clean: ## remove the environments, caches and build results
	@rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist bench-results
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is ready when its stamp is newer than what it was made from. For the demo it needs less: a few seconds.
.venv/.installed: pyproject.toml
	$(call make_environment,-e '.[capture]')

.venv/.ready .venv-3.11/.ready .venv-3.12/.ready .venv-3.13/.ready .venv-3.14/.ready: pyproject.toml
	$(call make_environment,-e '.[dev]')

.venv-bench/.ready: pyproject.toml benchmarks/requirements.txt
	$(call make_environment,-e '.[capture]' -r benchmarks/requirements.txt)

define make_environment
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or later found. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "setting up $(@D) (once; with all that the tests need it takes about a minute)"
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$(PYTHON)" $(@D) && \
		uv pip install --quiet --python $(@D)/bin/python $(1); \
	else \
		"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
			echo "$(PYTHON) cannot make virtual environments. Install its venv module (Debian and Ubuntu: apt install python3-venv) or uv." >&2; exit 1; }; \
		"$(PYTHON)" -m venv $(@D) && \
		$(@D)/bin/python -m pip install -qq --no-compile --no-input --disable-pip-version-check $(1); \
	fi
	@touch $@
endef
