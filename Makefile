# `make` alone says what there is. Everything happens in .venv, which is made when it is needed.

PYTHON ?= python3
# PYTHON makes .venv: 3.10 or later
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
EXTRA = $(BIN)/pip install -q
RUST := Cargo.toml Cargo.lock $(shell find rust -name Cargo.toml -o -name '*.rs' -not -path '*/target/*') python/headrace/tools.tsv

.PHONY: help try build build-dev test lint format bench counts fuzz docs all clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

try: .venv/built ## build, install into .venv, and show the run of a recording
	$(BIN)/headrace run tests/data/recordings/pi/tools.jsonl.gz

build: .venv/built ## release build, installed into .venv (editable)

.venv/built: pyproject.toml $(RUST)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -e '.[test]'
	touch $@

build-dev: ## the same with a quick build that is slow to run; for work on the Rust code
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(EXTRA) maturin
	$(BIN)/maturin develop -E test
	touch .venv/built

test: .venv/built ## the tests, then once more on the pure-Python backend
	HEADRACE_BACKEND=native $(BIN)/python -m pytest
	HEADRACE_BACKEND=python $(BIN)/python -m pytest -m 'not once'

lint: .venv/built ## ruff, mypy --strict, rustfmt, clippy, and the tests of the Rust crate
	$(EXTRA) 'headrace[lint]'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cargo fmt --check
	cargo fmt --check --manifest-path rust/fuzz/Cargo.toml
	cargo clippy --all-targets -- -D warnings
	cargo test -q -p headrace-core

format: .venv/built ## format all code
	$(EXTRA) 'headrace[lint]'
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt
	cargo fmt --manifest-path rust/fuzz/Cargo.toml

bench: .venv/built ## figures, ours and those of peers in one run, into docs/benchmarks.md
	$(EXTRA) 'headrace[bench]'
	$(BIN)/python -m benches --mb 200 --write

counts: .venv/built ## instructions for each record, by callgrind; needs valgrind
	$(BIN)/python -m benches.counts --write
	$(BIN)/python -m benches.thrash --write

fuzz: .venv/built ## a minute for each fuzz target, and for both backends; installs cargo-fuzz if it is missing
	cargo fuzz --version >/dev/null 2>&1 || cargo install -q cargo-fuzz
	# cargo-fuzz needs unstable compiler flags, which RUSTC_BOOTSTRAP lets a stable compiler take
	for target in $$(cargo fuzz list --fuzz-dir rust/fuzz); do \
		RUSTC_BOOTSTRAP=1 cargo fuzz run $$target --fuzz-dir rust/fuzz -- -max_total_time=60 || exit 1; done
	$(BIN)/python -m tests.fuzz_twins rust/fuzz/corpus/templates 60

docs: .venv/built ## run every example of the docs
	$(BIN)/python -m pytest tests/test_docs.py

all: test lint ## what has to pass before a change goes in

clean: ## remove what was built
	rm -rf .venv target python/headrace/_native*.so
