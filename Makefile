# make help lists what there is. All of it installs what is missing first (deploy/host/setup.sh).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test lint format bench clean

BIN := .venv/bin
SUITES ?=

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## install what attach and demo need
	@deploy/host/setup.sh agent
	@deploy/host/setup.sh target

setup-dev: ## install what the tests need, too
	@deploy/host/setup.sh dev
	@deploy/host/setup.sh target

demo: setup ## watch a small gevent web shop that blocks its hub, and print where
	@answer=$$($(BIN)/greenscope doctor 2>&1) || { code=$$?; echo "$$answer"; exit $$code; }
	@$(BIN)/python docs/demo/demo.py

test: setup-dev ## all suites, or those in SUITES="unit bpf"
	@$(BIN)/python tests/suites.py $(SUITES)

lint: setup-dev ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: setup-dev ## let ruff put the code into its form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup-dev ## measure what watching costs (tests/bench/)
	@$(BIN)/python -m tests.bench

clean: ## remove all that was made here, the environments included
	@rm -rf .venv .venv-target build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path "./.git/*" -type d -prune -exec rm -rf {} +
