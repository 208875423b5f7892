# Everything runs in .venv: `make demo` installs what the product needs into it, the other commands also what tests need.
PYTHON ?= python3
BIN := .venv/bin
PRODUCT := .venv/.product
INSTALLED := .venv/.installed

.PHONY: setup demo test test-lowest test-pythons campaign mutants lint bench docs dist sbom clean

setup: $(INSTALLED)

# By uv, which comes from PyPI, or by pip where it does not; the versions are those of constraints.txt.
define install
	@$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python --constraint constraints.txt --editable "$(1)" || \
		$(BIN)/python -m pip install -qq --constraint constraints.txt --editable "$(1)"
	@touch $@
endef

$(PRODUCT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onepair needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	@echo "Installing into .venv: one to three minutes and about 6 GB, once."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --constraint constraints.txt uv || echo "uv cannot be had: pip takes a few minutes more"
	$(call install,.[all])

$(INSTALLED): $(PRODUCT)
	$(call install,.[dev])

demo: $(PRODUCT)
	$(BIN)/onepair demo

# Those on a Ray cluster run by themselves: its parts give up on each other where others are at work.
RAY_TESTS := tests/inference/test_ray.py

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --ignore $(RAY_TESTS)  # a process for each core, and a thread for each process
	$(BIN)/python -m pytest $(RAY_TESTS)

# The long versions of tests/campaigns, whose figures are in docs/project/internals.md.
campaign: setup
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.campaigns.bad_input --cases 10000 --seed 1
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.campaigns.kills --times 50 --seed 1

# Whether tests find what is wrong: of each room, changes of the code drawn by a seed.
mutants: setup
	$(BIN)/python -m tests.campaigns.mutants --room losses --sample 100 --seed 1
	$(BIN)/python -m tests.campaigns.mutants --room labels --sample 100 --seed 1
	$(BIN)/python -m tests.campaigns.mutants --room probability --sample 100 --seed 1 --slowest 1

# New environments of up to 6 GB each, removed afterwards: the lowest versions that are allowed; every Python found.
test-lowest: setup
	$(BIN)/python -m tests.campaigns.installs lowest

test-pythons: setup
	$(BIN)/python -m tests.campaigns.installs pythons

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/average_precision.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/review.py

docs: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" mkdocs build --quiet
	@echo "The site is in site/index.html"

dist: setup
	$(BIN)/python -m hatchling build

sbom: setup
	mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json $(BIN)/python
	@echo "What is installed in .venv, with versions and licences, is in build/sbom.json (CycloneDX)"

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
