# Everything a person types. Each target gets the machine ready first (deploy/setup.sh).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.PHONY: build test slow soak lint demo bench docs wheel images help setup setup-tests setup-lint setup-docs

# Set but empty means unset; cargo and torch-sys would take it for a folder.
ifeq ($(LIBTORCH),)
unexport LIBTORCH
endif

started := $(shell date +%s)

# Two more than there are cores: many tests wait for processes, deadlines and each other.
test_threads := $(shell echo $$(($$(nproc) + 2)))

# What was built before the tests, so that none of them has to ask cargo for it.
program := $(abspath $(or $(CARGO_TARGET_DIR),target))/release/kith

# $(call stage,name,command): says what runs, runs it, says how long it took.
define stage
@printf '== %s\n' '$(1)'; SECONDS=0; $(2); printf '== %s: %d s\n\n' '$(1)' "$$SECONDS"
endef

build: setup ## build the programs into target/release
	$(call stage,build,cargo build --release --locked)

test: setup-tests ## all checks: format, clippy, tests, doc tests
	$(call stage,format,cargo fmt --all --check)
	$(call stage,clippy,cargo clippy --release --workspace --all-targets --locked -- -D warnings)
	$(call stage,build,cargo build --release --locked && cargo nextest run --release --workspace --locked --no-run)
	$(call stage,tests,KITH_PROGRAM=$(program) cargo nextest run --release --workspace --locked --test-threads $(test_threads))
	$(call stage,doc tests,cargo test --release --doc --locked --package kith-draw)
	@printf 'all checks passed in %d s\n' "$$(($$(date +%s) - $(started)))"

slow: setup-tests ## the slow tests, which `make test` leaves out
	$(call stage,slow tests,cargo build --release --locked && KITH_PROGRAM=$(program) KITH_SLOW=1 cargo nextest run --release --workspace --locked --profile slow -E 'test(slow_)')

soak: build ## runs under random disturbances: 10 minutes, or SOAK_MINUTES
	@nice python3 -B deploy/soak/soak.py --kith $(program)

lint: setup-lint ## format, clippy with warnings denied, and what we depend on
	$(call stage,format,cargo fmt --all --check)
	$(call stage,clippy,cargo clippy --release --workspace --all-targets --locked -- -D warnings)
	$(call stage,dependencies,deploy/deny.sh)

demo: build ## show the built program at work
	@deploy/demo.sh

bench: build ## measure, as ratios against named peers in the same run
	@deploy/bench.sh

docs: setup-docs ## write the book as web pages into target/book/html
	@deploy/book.py $(dir $(program))../book

wheel: setup ## build the Python package into target/wheels (`pip install target/wheels/*.whl`)
	@deploy/wheel.sh

images: build ## build the container images without a registry and train in them (root, podman, buildah)
	@deploy/images/try.sh

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup:
	@deploy/setup.sh

setup-tests:
	@deploy/setup.sh --tests

setup-lint:
	@deploy/setup.sh --lint

setup-docs:
	@deploy/setup.sh --docs
