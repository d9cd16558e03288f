# Everything runs in this folder's own .venv; only Python 3.11 or newer and a package index are needed.
# The first Python that runs and is new enough; a name on the path alone may be an empty shim.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
    $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
DEMO   := $(VENV)/demo
SPEC   ?= specs/mistral_window.yaml
JOBS   ?= 2

.PHONY: demo test lint fuzz format generated clean
.DELETE_ON_ERROR:

# Compile one spec, prove and measure the kernel that came out, and print the table.
demo: $(STAMP)
	$(BIN)/attnc compile $(SPEC) -o $(DEMO)
	$(BIN)/attnc explain $(SPEC)
	$(BIN)/attnc verify $(DEMO)/$(notdir $(SPEC:.yaml=.py))

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m "not fuzz and not gpu" $(TESTS)

fuzz: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m fuzz $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rewrite the committed kernels; `git diff generated/` then shows what a compiler edit did to each.
generated: $(STAMP)
	$(BIN)/attnc compile specs/ -o generated/

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "attnc needs Python 3.11 or newer with venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[verify,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
