# The commands for people and CI. `make` without a target lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Where cargo puts what it builds: its own default unless the environment says otherwise.
target := $(or $(CARGO_TARGET_DIR),target)
servers := hack/controlplane/build.sh

# How many test binaries run side by side, and how many tests of each. They wait more than they compute.
TEST_JOBS ?= 2
TEST_THREADS ?= 2
# Seconds that each long step may take.
BUILD_DEADLINE ?= 3600
TEST_DEADLINE ?= 3600
BENCH_DEADLINE ?= 3600
CHAOS_DEADLINE ?= 3600
# The seed of the chaos tests' faults, and of the random histories of `make test`: a failure there comes from a change.
# `make chaos` tries other histories each time.
SEED ?= 1
# The number of rounds of the chaos tests.
ROUNDS ?= 3
# How many random histories of the controller the chaos tests try: 400 in `make test`. Histories of change requests take
# ten times as long, so they are a tenth; those of decisions, and edited files, are ten times as many.
HISTORIES ?= 2000

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## Build the binary: target/release/sluice
	@.ci/need rust
	cargo build --release -p sluice

.PHONY: demo
demo: ## Show Sluice at work on real API servers; ONCE=1 ends on its own with "demo: ok", FAULT=1 plants a fault
	@.ci/need rust git cc servers
	@$(MAKE) -j2 build-demo servers-controlplane servers-crds
	@exec $(target)/debug/demo $(if $(filter-out 0,$(ONCE)),--once) $(if $(filter-out 0,$(FAULT)),--fault) \
	  $(target)/debug/sluice

.PHONY: test
test: ## Run every test, on real servers
	@.ci/need rust git cc sshd gpg chromium servers
	@$(MAKE) -j2 build-tests servers-controlplane servers-forge servers-issuer servers-crds
	@PROPTEST_RNG_SEED=$(SEED) .ci/within $(TEST_DEADLINE) 'the tests' .ci/tests $(TEST_JOBS) $(TEST_THREADS)

.PHONY: chaos
chaos: ## Run the chaos tests with all faults, and long random histories (SEED=1 ROUNDS=3 HISTORIES=2000)
	@.ci/need rust git cc servers
	@$(MAKE) servers-controlplane servers-forge servers-crds
	@.ci/within $(BUILD_DEADLINE) 'compiling the tests' \
	  cargo test -p sluice-core -p sluice-controller -p sluice-delivery -p sluice --no-run
	@PROPTEST_CASES=$(HISTORIES)0 .ci/within $(CHAOS_DEADLINE) 'random histories of decisions, and random files' \
	  cargo test -p sluice-core --test decide --test setters -- --skip many_files --skip kept_proofs
	@PROPTEST_CASES=$(HISTORIES) .ci/within $(CHAOS_DEADLINE) 'random histories of the controller' \
	  cargo test -p sluice-controller --lib -- state::simulation::properties::
	@PROPTEST_CASES=$$(($(HISTORIES) / 10)) .ci/within $(CHAOS_DEADLINE) 'random histories of change requests' \
	  cargo test -p sluice-controller --lib -- state::simulation::request_properties::
	@SLUICE_CHAOS_SEED=$(SEED) SLUICE_CHAOS_ROUNDS=$(ROUNDS) .ci/within $(CHAOS_DEADLINE) 'the chaos tests of deliveries' \
	  cargo test -p sluice-delivery --test it -- --nocapture --test-threads=1 chaos:: queue::
	@SLUICE_CHAOS_SEED=$(SEED) SLUICE_CHAOS_ROUNDS=$(ROUNDS) .ci/within $(CHAOS_DEADLINE) 'the chaos test of the controller' \
	  cargo test -p sluice --test chaos -- --nocapture
	@SLUICE_CHAOS_ROUNDS=$(ROUNDS) .ci/within $(CHAOS_DEADLINE) 'fifty pipelines while the controller is killed' \
	  cargo test -p sluice --test flux -- --nocapture swarm::

.PHONY: screenshots
screenshots: ## Write a picture of each page in each look to target/screenshots
	@.ci/need rust git cc chromium servers
	@$(MAKE) servers-controlplane servers-crds servers-issuer
	@mkdir -p $(target)/screenshots
	@SLUICE_SCREENSHOTS=$(abspath $(target)/screenshots) .ci/within 600 'the pictures' \
	  cargo test -p sluice --test it -- browser::every_page sign_in::a_person file_proposal::a_first_set_up_in
	@SLUICE_SCREENSHOTS=$(abspath $(target)/screenshots) .ci/within 300 'the pictures of groups, graphs and promotions' \
	  cargo test -p sluice-web --test pages -- environment_graph::graphs pipeline_groups::groups

.PHONY: lint
lint: ## Check format, lints, dependencies, generated files and the architecture
	@.ci/need rust lints git cc
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	@.ci/deny
	@cargo run --quiet -p sluice -- crds | diff -u deploy/crds.yaml - || \
	  { echo '✗ deploy/crds.yaml is not what the code says: run make crds and commit it' >&2; exit 1; }
	cargo test --quiet -p sluice --test architecture

.PHONY: bench
bench: ## Measure the budgets and print them (BENCH='size help' for some; --help for flags)
	@.ci/need rust git cc chromium servers
	@$(MAKE) servers-controlplane servers-crds
	cargo build --release -p sluice -p sluice-bench
	@.ci/within $(BENCH_DEADLINE) 'the measurements' $(target)/release/bench --sluice $(target)/release/sluice $(BENCH)

# The parts that demo and tests build first, side by side: each has stretches that use one core only. Cargo would take the
# limit of two from MAKEFLAGS for itself, and leave other cores idle.
cargo := env -u MAKEFLAGS cargo

.PHONY: build-demo build-tests
servers-%:
	@.ci/within $(BUILD_DEADLINE) 'building the servers ($*)' $(servers) $* >/dev/null

build-demo:
	$(cargo) build -p sluice -p sluice-demo

build-tests:
	@.ci/within $(BUILD_DEADLINE) 'compiling the tests' $(cargo) test --workspace --no-run

.PHONY: controlplane
controlplane: ## Build kube-apiserver and etcd; the last line is their folder
	@$(servers) controlplane

.PHONY: forge
forge: ## Build Gitea; the last line is its folder
	@$(servers) forge

.PHONY: issuer
issuer: ## Build Dex; the last line is its folder
	@$(servers) issuer

.PHONY: reference
reference: ## Write docs/reference/ from the code
	@.ci/need rust cc
	@UPDATE=1 cargo test --quiet -p sluice --test reference --test fields --test json_schema --test api_reference

.PHONY: crds
crds: ## Write deploy/crds.yaml from the code
	@.ci/need rust cc
	@crds=$$(cargo run --quiet -p sluice -- crds); printf '%s\n' "$$crds" > deploy/crds.yaml
