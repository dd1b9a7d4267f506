# What people type. Every target works from a fresh clone with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: install compile run check fix test-install test test-compiled conformance bench docs clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

# Compiles what every record passes through (broker/compiled). Without a C compiler it stays
# interpreted, which is slower and otherwise the same.
compile: install
	$(BIN)/python -m broker.compiled.build

run: install
	@[ "$(COMPILE)" = no ] || $(BIN)/python -m broker.compiled.build --if-possible
	$(BIN)/odradek serve

check: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-install: $(DEV_STAMP)

test: $(DEV_STAMP)
	$(BIN)/pytest -rs -m "not slow" $(PYTEST_ARGS)

# The units and properties once more, on the compiled hot path.
test-compiled: $(DEV_STAMP) compile
	$(BIN)/pytest -rs -m "not slow" -p tests.support.on_compiled tests/broker tests/property $(PYTEST_ARGS)

conformance: $(DEV_STAMP)
	$(BIN)/pytest -rs tests/conformance $(PYTEST_ARGS)

bench: $(DEV_STAMP)
	$(BIN)/python -m tests.bench

docs: $(DEV_STAMP)
	$(BIN)/python -m tests.support.generate_docs

clean:
	rm -rf $(VENV) build dist *.egg-info broker/compiled/build
