# SPDX-License-Identifier: MIT OR Apache-2.0
# Spumone: everything a user or a developer calls, one line each.  `make help` lists it.

TARGET     := aarch64-unknown-none-softfloat
HYPERVISOR := target/$(TARGET)/release/spumone
SPM        := target/host/spm
RT         := build/guests/rt/freertos.elf
LINUX      := build/guests/linux/Image
LINUX_RT   := build/guests/linux/Image-rt

.PHONY: help setup build guests clock demo run test lint host-test loom miri boot-test clock-test fuzz nightly sizes clean

# A Rust that `setup` has just installed is found by what is called after it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## install what is missing (apt, rustup)
	@scripts/setup

build: setup ## the hypervisor and spm
	@scripts/build

guests: setup ## FreeRTOS, and Linux from Debian packages
	@guests/rt/build.sh build/guests/rt
	@guests/linux/build.sh build/guests/linux

clock: setup ## the exact clock for QEMU
	@$(MAKE) --silent -C testbed

demo: build guests clock ## both guests side by side on one screen, on the exact clock; ends with a table
	@$(SPM) demo

run: build guests ## a Linux shell beside the running FreeRTOS
	@$(SPM) run systems/shell.toml

test: setup ## everything that must pass: lint, host tests, boots on QEMU
	@scripts/test

lint: setup ## formatting, clippy and documentation, warnings denied
	@scripts/test lint

host-test: setup ## unit and property tests
	@scripts/test host

loom: setup ## interleavings of what cores share
	@scripts/test loom

miri: setup ## weak memory: what cores share, under Miri
	@scripts/test miri

boot-test: build guests ## whole boots on QEMU
	@scripts/test boot

clock-test: build guests ## the exact clock's own tests
	@scripts/test clock

fuzz: setup ## coverage-guided fuzzing of what reads users' files: FUZZ_MINUTES=60 FUZZ_TARGET="elf btf"
	@scripts/fuzz $(FUZZ_TARGET)

nightly: build guests ## boots and exhaustive tests that take hours
	@scripts/test nightly

sizes: build ## lines of EL2 code, size of the image
	@scripts/sizes

clean: ## remove what was built; downloads stay
	@cargo clean --quiet
	@rm -rf build/guests build/systems
