# The commands of this project. The environment is made once; stamp files
# remember it, so that a second call starts at once.
VENV ?= .venv
# The first Python from 3.11 to 3.13, the plain python3 preferred.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& { echo $$p; break; }; done)
RUN = $(VENV)/bin/python -m

# The search space of "make sweep", and more arguments for it: make sweep ARGS="--trials 3"
SPACE ?= search_spaces/nccl.yaml
ARGS ?=

.PHONY: sweep test lint clean
sweep: $(VENV)/.engine
	$(RUN) sweeper run $(SPACE) $(ARGS)

test: $(VENV)/.dev
	$(RUN) pytest

lint: $(VENV)/.dev
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint Dockerfile

$(VENV)/.engine: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; none was found on the PATH."; exit 1; }
	@echo "Installing SGLang and the sweeper into $(VENV): about 11 GB, some minutes."
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --upgrade pip
	$(RUN) pip install --quiet -e '.[engine]'
	@touch $@

$(VENV)/.dev: $(VENV)/.engine
	$(RUN) pip install --quiet -e '.[engine,dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
