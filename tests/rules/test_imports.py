"""Which Python package may import which: one table, checked on the whole graph, lazy and type-only imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .tree import components, imports, parse, source_files

#: what the core may import of Python's own library: nothing with a clock, a file or a socket
CORE_MODULES = {"__future__", "bisect", "collections", "dataclasses", "enum", "fractions", "hashlib", "heapq"}
CORE_MODULES |= {"difflib", "itertools", "json", "math", "operator", "re", "typing", "zlib"}

#: package -> what it may import beside itself. A module that lies at the top is a package of its own here; the bare
#: name vgpud (the version) and what protoc made (v1alpha1, k8s.kubelet_api) are every package's; who may import _shim,
#: OWNERS says.
ALLOWED: dict[str, set[str]] = {
    # the ground
    "errors": set(),
    "project": set(),
    "paths": {"errors"},
    "userfiles": {"core.devices", "errors"},
    "metrics": {"core", "host"},
    # pure
    "core": set(),
    "core.fairness": set(),
    "core.slices": {"core"},
    "core.devices": {"core", "core.slices"},
    "core.jobs": {"core", "core.devices"},
    "core.policy": {"core", "core.jobs"},
    "core.elastic": {"core", "core.jobs"},
    "core.history": {"core"},
    "core.tune": {"core"},
    "core.colocate": {"core", "core.jobs"},
    "core.placement": {"core", "core.colocate", "core.devices", "core.jobs", "core.slices"},
    "core.queue": {"core", "core.elastic", "core.jobs", "core.placement", "core.policy", "core.slices"},
    # what the host knows, and files of libraries
    "host": {"core", "errors", "paths"},
    "certs": {"errors", "host", "paths"},
    "libraries": {"errors", "paths"},
    "simdevice": {"errors", "host", "libraries", "paths"},
    "oci": {"core", "libraries"},
    "slurm": {"core", "core.jobs"},
    "config": {"core", "core.devices", "core.jobs", "errors", "oci", "paths", "userfiles"},
    # the shells: none imports another
    "api": {
        "certs",
        "core",
        "core.elastic",
        "core.fairness",
        "core.history",
        "core.jobs",
        "core.placement",
        "core.policy",
        "core.queue",
        "core.slices",
        "errors",
        "host",
        "oci",
    },
    "attach": {"core", "core.slices", "host"},
    "containers": {"core", "core.slices", "errors", "host", "libraries", "oci", "paths", "slurm"},
    "devices": {"core", "core.devices", "core.slices", "errors", "host", "simdevice"},
    "jobs": {"core.jobs", "errors", "host", "oci", "paths"},
    "store": {"core", "core.history", "core.jobs", "core.queue", "core.slices", "errors", "host", "project"},
    # what wires them together
    "daemon": {
        "api",
        "attach",
        "config",
        "containers",
        "core",
        "core.devices",
        "core.history",
        "core.slices",
        "daemon.jobs",
        "daemon.slices",
        "devices",
        "errors",
        "host",
        "metrics",
        "oci",
        "paths",
        "store",
    },
    "daemon.slices": {"api", "attach", "config", "core", "core.slices", "devices", "errors", "paths", "store"},
    "daemon.jobs": {
        "api",
        "config",
        "core",
        "core.colocate",
        "core.devices",
        "core.elastic",
        "core.history",
        "core.jobs",
        "core.placement",
        "core.policy",
        "core.queue",
        "core.slices",
        "daemon.slices",
        "devices",
        "errors",
        "host",
        "jobs",
        "libraries",
        "oci",
        "paths",
        "predict",
        "store",
        "userfiles",
    },
    "serve": {
        "certs",
        "config",
        "core",
        "daemon",
        "devices",
        "errors",
        "host",
        "libraries",
        "paths",
        "project",
        "store",
    },
    # what programs import, and tools beside the daemon
    "client": {"core", "errors", "host", "paths", "predict", "simulate"},
    "elastic": {"client"},
    "predict": {"errors", "userfiles"},
    "predict.recorder": set(),
    "setup": {"config", "errors", "paths"},
    "simulate": {
        "core",
        "core.colocate",
        "core.devices",
        "core.elastic",
        "core.jobs",
        "core.placement",
        "core.policy",
        "core.queue",
        "errors",
        "slurm",
        "userfiles",
    },
    # how slices and jobs are shown, on a terminal and in the browser
    "view": {"client", "core", "core.jobs", "errors"},
    # workers of Ray: in raylets' agents, and before each worker
    "ray": {"api", "client", "core", "core.slices", "errors", "libraries"},
    # the balancer of a service: a process of its own, as its user, over the API
    "services.core": {"core.jobs"},
    "services.shell": {"client", "core.jobs", "errors", "host", "paths", "services.core", "tunnels"},
    "services": {"client", "core.jobs", "errors", "host", "services.core", "services.shell"},
    # the queue over many nodes: a process of its own, beside slurmctld
    "cluster.core": {"core", "core.devices", "core.jobs", "core.queue", "slurm"},
    "cluster.shell": {"cluster.core", "core", "core.jobs", "errors", "slurm", "userfiles"},
    "cluster": {
        "cluster.core",
        "cluster.shell",
        "core",
        "core.jobs",
        "core.placement",
        "core.policy",
        "core.queue",
        "daemon.jobs",
        "errors",
        "host",
        "paths",
        "simulate",
        "store",
    },
    # a node of Kubernetes: a process of its own, beside the daemon
    "k8s.core": {"core", "core.slices"},
    "k8s.shell": {"host", "k8s.core"},
    "k8s": {"core", "errors", "k8s.core", "k8s.shell", "paths"},
    # `kubectl vgpu`, by kubectl
    "kubectl": {"cli.common", "core", "errors", "k8s.core", "view"},
    # connections that the console and balancers pass on
    "tunnels": set(),
    # the console in the browser: processes of its own, over the API
    "console.login": {"client", "errors", "host"},
    "console.live": {"client", "cluster.shell", "console.login", "errors", "host", "view"},
    "console.web": {"console.live", "console.login", "core", "errors", "view"},
    "console.pages": {
        "cli.common",
        "cli.jobs",
        "client",
        "console.live",
        "console.login",
        "console.web",
        "core",
        "core.jobs",
        "core.placement",
        "core.policy",
        "errors",
        "view",
    },
    "console.sessions": {
        "client",
        "console.live",
        "console.login",
        "console.web",
        "core",
        "core.jobs",
        "errors",
        "host",
        "tunnels",
        "view",
    },
    "console.services": {
        "cli.common",
        "console.live",
        "console.login",
        "console.pages",
        "console.sessions",
        "console.web",
        "core",
        "core.jobs",
        "errors",
        "paths",
        "services.core",
        "services.shell",
        "view",
    },
    "console": {
        "console.live",
        "console.login",
        "console.pages",
        "console.services",
        "console.sessions",
        "console.web",
        "core",
        "errors",
        "host",
        "paths",
    },
    # the command line
    "cli.common": {"client", "console.login", "core", "core.tune", "errors", "host", "paths", "view"},
    "cli": {"cli.common", "errors", "project"},
    "cli.cluster": {
        "cli.common",
        "cluster",
        "cluster.core",
        "cluster.shell",
        "core",
        "core.jobs",
        "core.slices",
        "errors",
        "oci",
        "paths",
        "simulate",
        "store",
        "userfiles",
        "view",
    },
    "cli.slices": {"cli.common", "client", "core", "core.slices", "errors", "k8s.core", "libraries", "view"},
    "cli.predict": {
        "cli.common",
        "cli.slices",
        "client",
        "core",
        "errors",
        "libraries",
        "predict",
        "predict.recorder",
        "simdevice",
        "view",
    },
    "cli.demo": {"cli.common", "client", "core", "errors", "libraries", "paths", "predict", "simdevice", "view"},
    "cli.jobs": {
        "cli.cluster",
        "cli.common",
        "cli.predict",
        "cli.slices",
        "client",
        "cluster.shell",
        "core",
        "core.elastic",
        "core.jobs",
        "core.placement",
        "core.policy",
        "core.slices",
        "core.tune",
        "errors",
        "host",
        "paths",
        "predict",
        "simulate",
        "slurm",
        "userfiles",
        "view",
    },
    "cli.tune": {
        "cli.common",
        "cli.jobs",
        "cli.predict",
        "client",
        "core",
        "core.jobs",
        "core.tune",
        "errors",
        "predict",
        "view",
    },
    "cli.services": {
        "cli.common",
        "cli.jobs",
        "client",
        "core.jobs",
        "errors",
        "services.core",
        "services.shell",
        "view",
    },
    "cli.system": {
        "certs",
        "cli.common",
        "cli.demo",
        "cli.slices",
        "client",
        "config",
        "console",
        "console.login",
        "core",
        "errors",
        "host",
        "libraries",
        "oci",
        "paths",
        "project",
        "setup",
        "simdevice",
        "store",
        "view",
    },
}
#: library -> the only packages that may import it
OWNERS = {
    "cryptography": {"certs"},
    "grpc": {"api", "daemon", "cli.common", "client", "k8s", "k8s.shell", "serve"},
    "lightkube": {"k8s", "k8s.shell"},
    "ray": {"ray"},
    "sqlite3": {"store"},
    "pynvml": {"devices"},
    "vgpud._shim": {"attach", "devices"},
    "prometheus_client": {"metrics"},
    "starlette": {"console", "console.pages", "console.services", "console.sessions", "console.web"},
    "uvicorn": {"console"},
    "jinja2": {"console.web"},
    "bcrypt": {"console.login"},
}


_GENERATED = ("vgpud.v1alpha1", "vgpud.k8s.kubelet_api", "vgpud._shim")


def _modules(*folders: str) -> dict[str, str]:
    """Dotted name of each module in these folders -> its file."""
    return {n[:-3].replace("/", ".").removesuffix(".__init__"): n for n in source_files(".py", under=folders)}


MODULES = _modules("vgpud/")


def package(module: str) -> str:
    """The package of a module of vgpud, without the first word; of a module at the top its own name."""
    parts = module.split(".")[1:]
    return ".".join(parts if MODULES.get(module, "").endswith("__init__.py") or len(parts) == 1 else parts[:-1])


def ours() -> Iterator[tuple[str, str, str]]:
    """(where, importing module, imported module) of all imports among vgpud's own modules."""
    for module, name in MODULES.items():
        for line, dotted in imports(name):
            if not dotted.startswith("vgpud."):
                continue
            known = dotted if dotted in MODULES else dotted.rpartition(".")[0]
            if not known.startswith(_GENERATED) and known != "vgpud":
                yield f"{name}:{line}", module, known


def test_packages_import_what_the_table_allows() -> None:
    wrong = []
    for where, module, imported in ours():
        source, target = package(module), package(imported)
        if source != target and target not in ALLOWED.get(source, set()):
            wrong.append(f"{where} imports {imported}: {source} may import {sorted(ALLOWED.get(source, set()))}")
    assert not wrong, "\n".join(wrong)


def test_the_table_allows_no_more_than_is_used() -> None:
    used = {(package(module), package(imported)) for _, module, imported in ours()}
    spare = [f"{source} -> {t}" for source, targets in ALLOWED.items() for t in targets if (source, t) not in used]
    assert not spare, f"nobody uses this any more: {spare}"
    assert {package(m) for m in MODULES if m != "vgpud"} == set(ALLOWED)


def test_the_table_has_no_circle() -> None:
    assert components(ALLOWED) == []


def circles(files: dict[str, str]) -> list[set[str]]:
    """Modules that import each other; `files`: the file of each module by its dotted name."""
    graph: dict[str, set[str]] = {}
    for module, name in files.items():
        for _, dotted in imports(name):
            known = dotted if dotted in files else dotted.rpartition(".")[0]
            if known in files:
                graph.setdefault(module, set()).add(known)
    return components(graph)


def test_modules_have_no_circle() -> None:
    assert circles(_modules("vgpud/", "models/", "benchmarks/", "tools/")) == []


def test_core_imports_nothing_with_a_clock_or_a_file() -> None:
    wrong = [
        f"{name}:{line} imports {dotted}"
        for name in source_files(".py", under="vgpud/core/")
        for line, dotted in imports(name)
        if dotted.split(".")[0] not in CORE_MODULES | {"vgpud"}
    ]
    assert not wrong, "\n".join(wrong)


def test_libraries_have_owners() -> None:
    wrong = []
    for module, name in MODULES.items():
        for line, dotted in imports(name):
            for library, owners in OWNERS.items():
                if (dotted + ".").startswith(library + ".") and package(module) not in owners:
                    wrong.append(f"{name}:{line} imports {dotted}: only {sorted(owners)} may")
    assert not wrong, "\n".join(wrong)


def test_the_product_imports_no_test_model_or_benchmark() -> None:
    wrong = [
        f"{name}:{line} imports {dotted}"
        for name in [*MODULES.values(), *source_files(".py", under="shim/")]
        for line, dotted in imports(name)
        if dotted.split(".")[0] in {"tests", "models", "benchmarks"}
    ]
    assert not wrong, "\n".join(wrong)


def test_generators_know_nothing_of_the_daemon() -> None:
    found = [
        (name, line)
        for name in source_files(".py", under="shim/")
        for line, dotted in imports(name)
        if dotted.split(".")[0] == "vgpud"
    ]
    assert not found


def test_few_files_lie_at_the_top() -> None:
    """A new module belongs into a package that says what it is."""
    at_top = [n for n in source_files("", under="vgpud/") if n.count("/") == 1]
    assert len(at_top) <= 8, at_top


#: packages whose modules may import in functions -> why
LAZY = {
    "cli": "a command loads only what it uses: `vgpu` must start at once",
    "view": "as cli, which shows with it",
    "console.login.passwords": "`vgpu console open` passes here, and has no bcrypt",
    "console.main": "the privileged process never loads the web server",
    "client": "programs import it, and pay for gRPC only when they are in a job",
    "elastic": "torch is imported only by programs that have it",
    "predict": "torch, numpy and scikit-learn are optional",
    "simulate": "matplotlib is optional",
    "ray.plugin": "validating an environment takes no gRPC, and raylets' agents have their own",
    "serve": "`vgpud serve --help` must not load the daemon",
    "k8s.main": "a probe runs `vgpud-k8s --check` every half minute, in the memory that the driver has",
}
#: where annotations may name what is not imported at run time; environment: `vgpu run` starts without protobuf
TYPES_ONLY = {"cli", "client", "predict", "view", "libraries.environment"}


def _is_in(module: str, packages: Iterable[str]) -> bool:
    name = module.removeprefix("vgpud.")
    return any(name == known or name.startswith(f"{known}.") for known in packages)


def _late_imports(name: str) -> Iterator[int]:
    """Lines of imports in functions."""
    for function in ast.walk(parse(name)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (n.lineno for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom))


def test_imports_are_at_the_top() -> None:
    wrong = [
        f"{name}:{line}: an import in a function hides a dependency, often a circle"
        for module, name in MODULES.items()
        if not _is_in(module, LAZY)
        for line in sorted(set(_late_imports(name)))
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_for_the_type_checker_only_are_where_loading_is_lazy() -> None:
    wrong = [
        f"{name} imports for the type checker only: move the type below both modules"
        for module, name in MODULES.items()
        if not _is_in(module, TYPES_ONLY) and any(dotted == "typing.TYPE_CHECKING" for _, dotted in imports(name))
    ]
    assert not wrong, "\n".join(wrong)
