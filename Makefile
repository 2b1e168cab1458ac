# radiator: `make help` lists the targets. Nothing is installed outside .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help venv clients test test-all thorough check lint types format demo console bench measure fuzz docs slow wheels deb image clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="..." is handed on to test, test-all, thorough, slow, demo, console, bench, measure and fuzz; PYTHON=python3.12 chooses the interpreter'

venv: $(STAMP) ## make .venv and install what is missing (again when setup.py or the extension changes)

$(STAMP): setup.py pyproject.toml radiator/_speed.pyx
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("expected Python 3.11 or newer, got %d.%d: make PYTHON=python3.12 ..." % v[:2])'
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing radiator and its extras into $(VENV): once, and half a gigabyte, most of it Spark"
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev,spark,demo]'
	@touch $@

clients: ## install the STOMP clients of other languages that tests/interop tries (Debian packages as root, and npm)
	@tests/interop/install.sh

test: $(STAMP) ## run the tests that every change needs: under five minutes on two cores
	$(BIN)/python -m tests $(ARGS)

thorough: $(STAMP) ## run the tests marked thorough: more cases, seeds and kills
	$(BIN)/python -m tests thorough $(ARGS)

test-all: $(STAMP) ## run both of these as one
	$(BIN)/python -m tests all $(ARGS)

slow: $(STAMP) ## run the tests marked slow
	$(BIN)/python -m tests slow $(ARGS)

check: lint types test ## ruff, mypy --strict, and `make test`

lint: $(STAMP) ## ruff: the rules, and the format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

format: $(STAMP) ## let ruff format the code
	$(BIN)/ruff format .

demo: $(STAMP) ## the whole way on real data: publish, tail, replay, workers, two crashes, a Spark report
	$(BIN)/python -m examples.flights $(ARGS)

console: $(STAMP) ## a broker with flights, workers and dead letters, to look at in the console (a web page)
	$(BIN)/python -m examples.flights.scene $(ARGS)

bench: $(STAMP) ## measure this machine: produce, fan-out, drain, replay, latency, memory
	$(BIN)/radiator bench $(ARGS)

measure: $(STAMP) ## measure what is inside: how long a start takes, rebuilding what is gone included
	$(BIN)/python -m bench.recovery $(ARGS)

fuzz: $(STAMP) ## let atheris look for bytes that break a reader: ARGS="TARGET SECONDS", a minute each by default
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[fuzz]'
	$(BIN)/python -m fuzz.run $(ARGS)

docs: $(STAMP) ## build the documentation as a site, build/site; a broken link or anchor is an error
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheels: $(STAMP) ## build dist/: an sdist, and a wheel with the extension; needs a C compiler and Python's headers
	RADIATOR_EXTENSION=require $(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz

deb: ## build dist/radiator-broker_*.deb of the last commit; needs debhelper, dh-virtualenv and fakeroot
	packaging/build-deb.sh

image: ## build the container image radiator; needs buildah
	buildah build --file packaging/Containerfile --tag radiator .

clean: ## remove what can be rebuilt (.venv and data stay)
	rm -rf build dist demo-out console-out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
