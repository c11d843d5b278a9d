# make demo and make test work from a clean clone with nothing else typed; they set .venv up first (tools/setup).
VENV ?= .venv
PY := $(VENV)/bin/python
C_FILES := cuda_hook.c $(shell find shim tests benchmarks integrations -name '*.[ch]' -not -path 'shim/gen/*' -not -path 'shim/pyabi/*' 2>/dev/null)
NATIVE_FILES := $(shell find shim -name '*.[chS]' -o -name '*.map' -o -name '*.def' -o -name '*.txt' -o -name '*.model' -o -name '*.py' 2>/dev/null) cuda_hook.c
NATIVE := vgpud/lib/.built
# what a contributor runs at each change: without devices, engines and torch, whose tests wait or compute
QUICK := $(addprefix tests/,cli core libraries oci predict rules simulate tools userfiles test_docs.py test_scheduling.py)
QUICK += --ignore=tests/predict/test_torch.py --ignore=tests/predict/test_collect.py -m "not slow and not alone"
# With TORCH=1 a test that needs PyTorch's build for CUDA downloads it, to $(VENV)/torch.
TORCH_SETTING := $(if $(TORCH),VGPU_TEST_TORCH=1)
# Tests start some thousand interpreters: each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-k8s demo-slurm demo-ray test test-k8s test-torch test-quick test-nightly test-c test-containers lint format gen gen-check bench bench-containers bench-sharing bench-hostile bench-scheduling bench-cluster bench-cluster-slurm bench-predict conformance clients-gpu qualify wheel deb clean
.SUFFIXES:
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-16s %s\n", $$1, $$2}' Makefile

demo-k8s: $(VENV)/.test $(NATIVE) ## pods share one GPU on a real Kubernetes node of this machine (root; KUBEBUILDER_ASSETS=folder)
	@$(PY) -m benchmarks.kubernetes.demo

demo-slurm: $(VENV)/.test $(NATIVE) ## jobs of a real Slurm on this machine share one GPU (root; Debian's slurm packages)
	@$(PY) -m benchmarks.slurm_demo

demo-ray: $(VENV)/.test $(NATIVE) ## actors of a real Ray cluster on this machine share one GPU (needs the package ray)
	@$(PY) -m benchmarks.ray.demo

demo: $(VENV)/.demo $(NATIVE) ## two training programs share one device (DEMO=--sim: simulated even where a GPU is)
	@$(PY) -m vgpud.cli.main demo $(DEMO)

test: $(VENV)/.test $(NATIVE) ## all tests that this machine can run (PYTEST="-k gate" picks some, TORCH=1 gets 0.5 GB of PyTorch)
	@$(TORCH_SETTING) $(PY) -m pytest -n auto $(PYTEST)

test-quick: $(VENV)/.test $(NATIVE) ## the tests of decisions, documents, rules and the command line: under 3 minutes on two processors
	@$(PY) -m pytest -n auto $(QUICK) $(PYTEST)

test-nightly: $(VENV)/.test $(NATIVE) ## all tests, and all random input that they were written for
	@$(PY) -m pytest -n auto --hypothesis-profile=nightly $(PYTEST)

test-c: $(VENV)/.test ## the C unit tests, under ASan + UBSan and under TSan
	@$(PY) -m pytest tests/test_c.py

test-torch: $(VENV)/.test $(NATIVE) ## PyTorch on the simulated device: downloads 0.5 GB, once, or takes VGPU_TORCH_PYTHON
	@VGPU_TEST_TORCH=1 $(PY) -m pytest -n auto tests/pytorch $(PYTEST)

test-containers: $(VENV)/.test $(NATIVE) ## the tests on docker, podman and containerd alone (root; they start the engines themselves)
	@$(PY) -m pytest tests/containers $(PYTEST)

test-k8s: $(VENV)/.test $(NATIVE) ## Kubernetes: fakes; real control plane; real node with pods (root; KUBEBUILDER_ASSETS=folder)
	@$(PY) -m tests.k8s
	@$(PY) -m pytest tests/k8s $(PYTEST)

lint: $(VENV)/.dev $(NATIVE) gen-check ## ruff, mypy --strict, clang-format, generated files current
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	cd shim && "$(abspath $(VENV))/bin/mypy" --config-file ../pyproject.toml build_shim.py
	cd shim/codegen && "$(abspath $(VENV))/bin/mypy" --config-file ../../pyproject.toml generate.py generate_names.py
	@$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)

format: $(VENV)/.dev ## put Python and C in the one format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(C_FILES)

gen: $(VENV)/.dev ## make the committed generated files anew (vgpud/v1alpha1 from protos, addresses, state diagrams, Gavel's speeds)
	$(PY) protos/generate.py
	$(PY) tools/diagrams.py
	$(PY) tools/api.py
	$(PY) tools/addresses.py
	$(PY) tools/gavel_rates.py

gen-check: $(VENV)/.dev
	$(PY) shim/codegen/generate.py --check
	$(PY) protos/generate.py --check
	$(PY) tools/diagrams.py --check
	$(PY) tools/api.py --check
	$(PY) tools/addresses.py --check
	$(PY) tools/gavel_rates.py --check

conformance: $(VENV)/.demo $(NATIVE) ## small driver programs: hooked as unhooked, simulated as real (REAL=1 confirms on a real device, KEEP=1 keeps the result)
	@$(PY) -m tests.conformance $(if $(REAL),--confirm) $(if $(KEEP),--results benchmarks/results)

clients-gpu: $(VENV)/.demo $(NATIVE) ## PyTorch, CuPy, JAX, Triton on a real device: in a slice as without (PYTHON=... has them, KEEP=1 keeps the result)
	@$(PY) -m tests.clients.gpu $(if $(PYTHON),--python $(PYTHON)) $(if $(KEEP),--results benchmarks/results)

bench: $(VENV)/.test $(NATIVE) ## all benchmarks on the simulated device, as JSON in benchmarks/results (BENCH="share launch")
	@$(PY) -m benchmarks $(BENCH)

bench-containers: $(VENV)/.test $(NATIVE) ## as root: what sharing costs CIFAR containers (BENCH="--real", "--mix 4")
	@$(PY) -m benchmarks.containers $(BENCH)

bench-sharing: $(VENV)/.test $(NATIVE) ## how well a device is shared, without a hook and with (BENCH="W1 W4", "--full")
	@$(PY) -m benchmarks.sharing $(BENCH)

bench-hostile: $(VENV)/.test $(NATIVE) ## what a hostile tenant or user costs its neighbours; two of its cases need root (BENCH="page reads --seconds 2")
	@$(PY) -m benchmarks.hostile $(BENCH)

bench-scheduling: $(VENV)/.test ## how well jobs are ordered and placed: policies, placement, speed, on shipped traces (BENCH="muri speed")
	@$(PY) -m benchmarks.scheduling $(BENCH)

bench-cluster: $(VENV)/.test ## the queue over many nodes: a decision, placement by models of GPUs, beside a queue on each node (BENCH="models topology")
	@$(PY) -m benchmarks.cluster $(BENCH)

bench-cluster-slurm: $(VENV)/.test $(NATIVE) ## half an hour, as root: 500 jobs on a real Slurm of two nodes while daemons are killed (BENCH="--jobs 40")
	@$(PY) -m benchmarks.cluster.acceptance $(BENCH)

bench-predict: $(VENV)/.test $(NATIVE) ## prediction, co-location, elasticity beside the papers' figures (BENCH="s_k")
	@$(PY) -m benchmarks.predict $(BENCH)

qualify: $(VENV)/.demo $(NATIVE) ## on a machine with a real device: is everything as assumed? (under 10 minutes; 4: steps were skipped; PYTHON=..., RESUME=1, SIM=1)
	@$(PY) -m benchmarks.qualify $(if $(SIM),--sim) $(if $(RESUME),--resume) $(if $(PYTHON),--python $(PYTHON))

wheel: $(VENV)/.test ## the wheel for every distribution, in dist/ (MACHINE=aarch64: by a cross compiler), checked by auditwheel
	@$(PY) tools/build_wheel.py $(if $(MACHINE),--machine $(MACHINE))

deb: $(VENV)/.test ## a Debian package in dist/, for this system's Python (TARGET_PYTHON=3.12; MACHINE=aarch64)
	@$(PY) tools/build_deb.py $(if $(MACHINE),--machine $(MACHINE)) $(if $(TARGET_PYTHON),--python $(TARGET_PYTHON))

clean: ## everything that make made
	rm -rf $(VENV) build dist *.egg-info vgpud/lib vgpud/_shim.c vgpud/_shim.abi3.so .mypy_cache .ruff_cache .pytest_cache
	find shim/gen -type f ! -name cuda_abi.h ! -name simgpu_names.c -delete

$(VENV)/.demo: pyproject.toml setup.py tools/setup
	@tools/setup $(VENV) demo
	@touch $@ $(NATIVE)

$(VENV)/.test: pyproject.toml setup.py tools/setup
	@tools/setup $(VENV) demo,test
	@touch $@ $(VENV)/.demo $(NATIVE)

$(VENV)/.dev: pyproject.toml setup.py tools/setup
	@tools/setup $(VENV) demo,test,dev
	@touch $@ $(VENV)/.demo $(VENV)/.test $(NATIVE)

$(NATIVE): $(NATIVE_FILES)
	@$(PY) shim/build_shim.py
	@touch $@
