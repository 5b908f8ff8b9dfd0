# Two commands do everything on a bare machine with Python 3.11+: `make quickstart` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test check docs gallery linkcheck format bench attack mutants clean

quickstart: .venv/installed
	$(BIN)/bayesticket quickstart

test: .venv/for-tests
	$(BIN)/pytest

check: .venv/for-tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(MAKE) --no-print-directory docs
	$(MAKE) --no-print-directory test

# The site, in build/site; it opens from there without a network. Warnings are errors, and so are links that lead nowhere.
docs: .venv/for-tests
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs build/site
	$(BIN)/python tools/check_site.py build/site

# Runs the examples that have changed since their page was made, at full scale; or `make gallery ONLY="name other"`.
gallery: .venv/for-tests
	$(BIN)/python tools/gallery.py $(ONLY)

# Asks the network whether outer links still lead somewhere.
linkcheck: .venv/for-tests
	$(BIN)/sphinx-build -b linkcheck docs build/links

format: .venv/for-tests
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed
	$(BIN)/bayesticket bench

# The attacks on files, signals and versions among the tests, with ten times as many random ones.
attack: .venv/for-tests
	ATTACK=10 $(BIN)/pytest tests/attacks

# Which small errors would no test notice? Up to an hour on two cores, and no part of `make check`.
mutants: .venv/for-tests
	$(BIN)/python tools/mutants.py --sample 10 --jobs 2 --least 0.9

# The library alone; not compiled, since Python compiles the few modules that are imported, and pip all of them.
.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $@

# Beside it what tests and checks need.
.venv/for-tests: .venv/installed
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache
