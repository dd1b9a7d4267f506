# What people type. Every target works from a fresh clone with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: install bytecode compile wheel binary binary-with-spark deb release run check fix test-install test test-compiled sim chaos conformance bench docs clean

install: $(STAMP)

# On a terminal pip shows how far each download is.
$(STAMP): requirements.lock pyproject.toml
	@echo "odradek: installing into $(VENV), some seconds to a minute, once"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python lacks ensurepip, which makes $(VENV): on Debian and Ubuntu" \
	  "it is in the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@[ -t 1 ] && quiet= || quiet=--quiet; \
	$(BIN)/python -m pip install $$quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

# Python writes bytecode as it goes, unless it is told not to (PYTHONDONTWRITEBYTECODE): without any,
# half of a start is reading sources.
bytecode: install
	@$(BIN)/python -m compileall -q appliance broker dashboard

# Compiles what every record passes through (broker/compiled). Without a C compiler it stays
# interpreted, which is slower and otherwise the same.
compile: bytecode
	$(BIN)/python -m broker.compiled.build

# dist/odradek-*.whl, pages and static files in it: with the compiled hot path it fits this Python on this
# kind of machine, with COMPILE=no any.
wheel: bytecode
	@[ "$(COMPILE)" = no ] || $(BIN)/python -m broker.compiled.build --if-possible
	@rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@ls dist/odradek-*.whl

# dist/odradek: one file that needs nothing but a C library as new as this machine's (packaging/binary).
binary: $(DEV_STAMP) wheel
	@mkdir -p build
	$(BIN)/python packaging/binary/build.py --wheel "$$(ls -t dist/odradek-*.whl | head -1)" --output dist/odradek --parts build/parts.json

# dist/odradek-with-spark: the same with Spark for reports, which is downloaded once, into .cache/spark (460 MB).
binary-with-spark: binary
	$(BIN)/odradek spark prepare --data .cache
	$(BIN)/python packaging/binary/with_spark.py dist/odradek --spark .cache/spark --output dist/odradek-with-spark

# dist/odradek_VERSION_amd64.deb: the executable as a service of a Debian (needs dpkg-deb).
deb: binary
	$(BIN)/python packaging/debian/build.py dist/odradek --output dist

# What a release hands out, anew: wheel, executables, Debian package, checksums, and what is in it (SBOM).
release:
	rm -rf dist
	$(MAKE) binary-with-spark
	$(BIN)/python packaging/debian/build.py dist/odradek --output dist
	$(BIN)/python packaging/release.py dist build/parts.json

run: bytecode
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

# WORKERS processes side by side, each with whole files, in an order that is shuffled but repeats:
# ORDER=2 shuffles anew, and finds tests that lean on each other. The usual tests wait more than they
# compute, so three keep two cores busy; the long ones have servers enough with two.
ORDER := 1
WORKERS := 2
test: WORKERS := 3
SHUFFLED := --randomly-seed=$(ORDER)
SIDE_BY_SIDE = -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(SHUFFLED)

test: $(DEV_STAMP)
	$(BIN)/pytest -rs -m "not slow" $(SIDE_BY_SIDE) $(PYTEST_ARGS)

# The units and properties once more, on the compiled hot path.
test-compiled: $(DEV_STAMP) compile
	$(BIN)/pytest -rs -m "not slow" -p tests.support.on_compiled $(SHUFFLED) tests/broker tests/property $(PYTEST_ARGS)

# A cluster's machines in a simulated world: SEED=7 tells a story of each kind, SEEDS=0-1000 runs many, STORY=transactions keeps to a
# kind, FAULT='no lease' plants a fault.
sim: $(DEV_STAMP)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STORY),--story $(STORY)) $(if $(FAULT),--fault "$(FAULT)")

# Mixed faults on three real brokers under load, and whether anything was lost: SECONDS=1800, SEED=1.
chaos: $(DEV_STAMP)
	$(BIN)/python -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

conformance: $(DEV_STAMP)
	$(BIN)/pytest -rs $(SIDE_BY_SIDE) tests/conformance tests/chaos tests/web tests/dashboard tests/appliance tests/spark $(PYTEST_ARGS)

bench: $(DEV_STAMP) bytecode
	$(BIN)/python -m tests.bench

docs: $(DEV_STAMP)
	$(BIN)/python -m tests.support.generate_docs

clean:
	rm -rf $(VENV) build dist *.egg-info broker/compiled/build
