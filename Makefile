# The commands of the project. Each first makes the virtual environment that it needs.
#   make demo    the whole job once, on an embedded S3 server
#   make test    everything that can be checked by running it, against the installed wheel
#   make check   ruff, mypy, the floors
#   make bench   rough figures beside s5cmd and tar (minutes); make bench-stream: cache_stream beside a home-made pipeline
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
TESTS   ?= tests notebooks
SOURCES := $(shell find nbdata -name '*.py') pyproject.toml README.md

.PHONY: demo test check bench bench-stream clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of dependencies; a change of the sources alone only installs nbdata again.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install '.[demo]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(PIP) install '.[bench]'
	touch $@

$(VENV)/.nbdata-demo: $(SOURCES) | $(VENV)/.demo
	$(PIP) install --force-reinstall --no-deps .
	touch $@

$(VENV)/.nbdata: $(SOURCES) | $(VENV)/.test
	$(PIP) install --force-reinstall --no-deps .
	touch $@ $(VENV)/.nbdata-demo

demo: $(VENV)/.nbdata-demo
	$(BIN)/nbdata demo $(if $(SIZE),--size $(SIZE))

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.nbdata
	NBDATA_TESTED=wheel $(BIN)/pytest --nbval-lax --nbval-current-env --nbval-cell-timeout=120 $(TESTS) $(ARGS)

bench: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/rough.py $(ARGS)

bench-stream: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/cache_stream.py $(ARGS)

clean:
	rm -rf $(VENV) build dist demo-data .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
