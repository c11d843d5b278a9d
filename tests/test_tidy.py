"""The rules of the house as a test: who may import whom, lengths, banned calls, generated files current.

Each rule names the file, the line and what to do instead. ARCHITECTURE.md says why they are there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("vgpud/v1/", "shim/gen/")
FILE_LINES_MAX = 600
PYTHON_FUNCTION_LINES_MAX = 80
C_FUNCTION_LINES_MAX = 100

#: what the pure core may import besides itself
CORE_IMPORTS = {"__future__", "bisect", "collections", "dataclasses", "enum", "fractions", "heapq", "itertools", "math"}
CORE_IMPORTS |= {"hashlib", "json", "re", "typing", "zlib"}
#: the daemon's shells: each owns one library and none knows another
SHELLS = {"api", "attach", "devices", "store", "metrics", "containers", "jobs"}
#: only these wire the shells together
COMPOSITION_ROOTS = ("vgpud/daemon/", "vgpud/serve.py")
#: library -> the only files (or folders, ending in /) that may import it
OWNERS = {
    "grpc": ("vgpud/api/", "vgpud/serve.py", "vgpud/daemon/daemon.py", "vgpud/client/grpc_import.py"),
    "sqlite3": ("vgpud/store/",),
    "pynvml": ("vgpud/devices/nvml.py",),
    "vgpud._shim": ("vgpud/attach/messages.py", "vgpud/devices/arbiters.py"),
    "prometheus_client": ("vgpud/metrics.py",),
}
#: C source -> headers of ours it may not include (hooks -> gate, memory, link -> abi, prim)
C_LAYERS = {
    "shim/prim.c": r"(gate|memory|link|context|session|arbiter|resolve)\.h",
    "shim/memory.c": r"(gate|hook_\w+)\.h",
    "shim/arbiter": r"(gate|memory|link|context|session|resolve)\.h",
}
RAW_SYSTEM_CALLS = r"\b(syscall|SYS_\w+|__NR_\w+)\b"
#: in code that is loaded into somebody else's program
BANNED_IN_SHIM = {
    r"\b(exit|_exit|abort|signal|sigaction|setenv|unsetenv|putenv|umask|setlocale)\s*\(": "the process is the tenant's",
    r'(?<!secure_)\bgetenv\s*\((?!"CUDA_)': "use secure_getenv: the program may be setuid (the driver's names aside)",
    r"\b(printf|puts|perror)\s*\(": "stdout and stderr are the tenant's: use vg_log",
    r"__attribute__\s*\(\s*\(\s*constructor": "no constructors: every program of a container loads us",
    r"#\s*include\s*<cuda[A-Za-z]*\.h>": "the build needs nothing of CUDA: include gen/cuda_abi.h",
}


def tracked(*suffixes: str) -> list[str]:
    """Source files of the project, relative to the root; generated ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\n") if listed.returncode == 0 else _walk()
    return [n for n in names if n.endswith(suffixes) and not n.startswith(GENERATED) and (ROOT / n).is_file()]


def _walk() -> list[str]:
    """Without git (a source distribution): everything under the folders that hold sources."""
    folders = ("vgpud", "shim", "tests", "benchmarks", "protos", "tools")
    found = [p for folder in folders for p in (ROOT / folder).rglob("*") if "__pycache__" not in p.parts]
    return [str(p.relative_to(ROOT)) for p in [*found, *ROOT.glob("*.py"), *ROOT.glob("*.c")]]


def parse(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(), filename=name)


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import that runs; those under `if TYPE_CHECKING` are for the type checker only."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped.update(child for statement in node.body for child in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; name the module in full"
            module = node.module or ""
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def c_code(name: str) -> str:
    """A C file without comments; line numbers stay."""
    text = (ROOT / name).read_text()
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def shim_sources() -> list[str]:
    """C files that are loaded into tenants' programs."""
    names = [n for n in tracked(".c", ".h") if n == "cuda_hook.c" or n.startswith("shim/")]
    return [
        n
        for n in names
        if not n.startswith(("shim/simgpu/", "shim/runtime/", "shim/job/", "shim/arbiter", "shim/pyabi/"))
    ]


def find(pattern: str, names: list[str]) -> list[str]:
    found = []
    for name in names:
        for number, line in enumerate(c_code(name).split("\n"), 1):
            if re.search(pattern, line):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


# ---- who may import whom ----


@pytest.mark.parametrize("name", [n for n in tracked(".py") if n.startswith("vgpud/core/")])
def test_core_is_pure(name: str) -> None:
    for line, module in imports(parse(name)):
        inside = module.startswith("vgpud.core")
        assert inside or module.split(".")[0] in CORE_IMPORTS, f"{name}:{line} imports {module}: the core has no IO"
        if name.startswith("vgpud/core/policy/"):
            known = module.startswith(("vgpud.core.policy", "vgpud.core.jobs", "vgpud.core.named"))
            assert not inside or known, f"{name}:{line} imports {module}: a policy knows the queue's model only"
        if name.startswith("vgpud/core/placement/"):
            assert not module.startswith(("vgpud.core.policy", "vgpud.core.queue.machine")), f"{name}:{line}: {module}"


@pytest.mark.parametrize(
    "name", [n for n in tracked(".py") if n.startswith("vgpud/") and not n.startswith(COMPOSITION_ROOTS)]
)
def test_shells_do_not_know_each_other(name: str) -> None:
    own = name.split("/")[1].removesuffix(".py")
    for line, module in imports(parse(name)):
        parts = module.split(".")
        foreign = len(parts) > 1 and parts[0] == "vgpud" and parts[1] in SHELLS and parts[1] != own
        assert not foreign, f"{name}:{line} imports {module}: only {sorted(COMPOSITION_ROOTS)} wire shells together"


@pytest.mark.parametrize("name", [n for n in tracked(".py") if n.startswith("vgpud/")])
def test_libraries_have_one_owner(name: str) -> None:
    for line, module in imports(parse(name)):
        for library, owners in OWNERS.items():
            if module == library or module.startswith(library + "."):
                assert name.startswith(owners), f"{name}:{line} imports {module}: only {', '.join(owners)} may"
        assert module.split(".")[0] not in {"tests", "benchmarks"}, f"{name}:{line} imports {module}"


@pytest.mark.parametrize("name", [n for n in tracked(".py") if n.startswith("shim/")])
def test_generators_know_nothing_of_the_daemon(name: str) -> None:
    for line, module in imports(parse(name)):
        assert module.split(".")[0] != "vgpud", f"{name}:{line} imports {module}"


@pytest.mark.parametrize("name", [n for n in tracked(".c", ".h") if n.startswith(tuple(C_LAYERS))])
def test_c_layers(name: str) -> None:
    banned = next(pattern for prefix, pattern in C_LAYERS.items() if name.startswith(prefix))
    includes = re.findall(r'#\s*include\s*"([^"]+)"', (ROOT / name).read_text())
    wrong = [i for i in includes if re.fullmatch(banned, Path(i).name) and Path(i).stem != Path(name).stem]
    wrong = [i for i in wrong if not (name.startswith("shim/arbiter") and Path(i).name.startswith("arbiter"))]
    assert not wrong, f"{name} includes {wrong}"


# ---- lengths ----


@pytest.mark.parametrize("name", tracked(".py", ".c", ".h", ".S", ".pyi"))
def test_file_length(name: str) -> None:
    lines = (ROOT / name).read_text().count("\n")
    assert lines <= FILE_LINES_MAX, f"{name} has {lines} lines: give one of its jobs a file of its own"


@pytest.mark.parametrize("name", tracked(".py"))
def test_python_function_length(name: str) -> None:
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            assert lines <= PYTHON_FUNCTION_LINES_MAX, f"{name}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("name", tracked(".c"))
def test_c_function_length(name: str) -> None:
    """In .clang-format's layout a definition begins in column 0 and ends at a `}` in column 0."""
    begin, is_function = 0, False
    for number, line in enumerate(c_code(name).split("\n"), 1):
        if line[:1].isalpha():
            begin, is_function = number, "(" in line and "=" not in line and not line.startswith("typedef")
        elif line.startswith("}") and is_function:
            assert number - begin < C_FUNCTION_LINES_MAX, f"{name}:{begin}: function of {number - begin + 1} lines"
            is_function = False


# ---- banned calls ----


@pytest.mark.parametrize("name", tracked(".py"))
def test_no_wall_clock_in_logic(name: str) -> None:
    """CLOCK_REALTIME jumps: durations and deadlines come from time.monotonic*, time stamps are aware (UTC)."""
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            call = ast.unparse(node.func)
            where = f"{name}:{node.lineno} calls {call}"
            assert call not in {"time.time", "datetime.utcnow", "datetime.datetime.utcnow"}, where
            if call.removeprefix("datetime.") in {"datetime.now", "datetime.fromtimestamp", "now", "fromtimestamp"}:
                aware = any(k.arg == "tz" for k in node.keywords) or len(node.args) > call.endswith("fromtimestamp")
                assert aware, f"{where} without a time zone"


@pytest.mark.parametrize("pattern", list(BANNED_IN_SHIM))
def test_banned_in_the_shim(pattern: str) -> None:
    found = find(pattern, shim_sources())
    assert not found, f"{BANNED_IN_SHIM[pattern]}: " + "; ".join(found)


def test_only_resolve_looks_symbols_up() -> None:
    others = [n for n in shim_sources() if not Path(n).stem.startswith(("resolve", "hook_resolve"))]
    others = [n for n in others if not n.startswith("shim/driver/")]
    assert not find(r"\bdl(v?sym|m?open)\s*\(", others)


def test_only_prim_makes_raw_system_calls() -> None:
    assert not find(RAW_SYSTEM_CALLS, [n for n in shim_sources() if n != "shim/prim.c"])


def test_only_monotonic_time_in_c() -> None:
    """NVML's own time stamps are wall-clock microseconds, so its simulation may ask; an engine's log has a date, and so
    has a job's result."""
    names = [n for n in tracked(".c", ".h") if n == "cuda_hook.c" or n.startswith("shim/")]
    names = [n for n in names if not n.startswith(("shim/simgpu/nvml/", "shim/runtime/report.c", "shim/job/file.c"))]
    assert not find(r"\bCLOCK_REALTIME|\bgettimeofday\s*\(|\btime\s*\(\s*(NULL|0)\s*\)", names)


def test_every_c_file_says_what_it_is() -> None:
    silent = [n for n in tracked(".c", ".h", ".S") if not (ROOT / n).read_text().lstrip().startswith(("/*", "//"))]
    assert not silent, f"open each with a comment (what it is, who calls it, what must hold): {silent}"


# ---- generated files, documents, versions ----


@pytest.mark.parametrize("command", ["shim/generate.py", "shim/generate_ml.py", "protos/generate.py"])
def test_generated_files_are_current(command: str) -> None:
    done = subprocess.run([sys.executable, command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_runtime_is_at_least_as_new_as_the_generator() -> None:
    """Generated code refuses an older runtime, so our lower bounds must not lie below the generator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(d.split(">=") for d in project["dependencies"] if ">=" in d and ";" not in d)
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", (ROOT / "vgpud/v1/vgpud_pb2_grpc.py").read_text())
    proto = re.search(r"# Protobuf Python Version: (\d+\.\d+)", (ROOT / "vgpud/v1/vgpud_pb2.py").read_text())
    assert grpc and _version(bounds["grpcio"]) >= _version(grpc.group(1))
    assert proto and _version(bounds["protobuf"]) >= _version(proto.group(1))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_readme_commands_exist() -> None:
    """Every `make WORD` of the README is a target, every `vgpu WORD` a command of the command line."""
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", readme, flags=re.S)
    code = "\n".join(blocks + re.findall(r"`([^`\n]+)`", readme))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    wanted = set(re.findall(r"^make ([a-z-]+)", code, flags=re.M))
    assert {"demo", "test"} <= wanted <= targets, f"no such make target: {wanted - targets}"

    from vgpud.cli.main import COMMANDS

    named = set(re.findall(r"^vgpu ([a-z]+)", code, flags=re.M))
    assert named <= set(COMMANDS), f"no such command of vgpu: {named - set(COMMANDS)}"


def test_readme_exit_codes() -> None:
    from vgpud.cli.common.exits import EXIT_CODES

    rows = dict(re.findall(r"^\| `(\d+)` \| (.*?) \|$", (ROOT / "README.md").read_text(), flags=re.M))
    assert rows == {str(int(code)): text for code, text in EXIT_CODES.items()}


@pytest.mark.parametrize("name", [n for n in tracked(".md") if "/" not in n])
def test_documents_name_what_exists(name: str) -> None:
    """Links, and paths in backticks that begin with a folder of ours, lead somewhere."""
    text = (ROOT / name).read_text()
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")}
    folders = "vgpud|shim|tests|benchmarks|docker|protos|tools|docs"
    paths = {path for path in re.findall(r"`([\w./-]+)`", text) if re.match(rf"({folders})/", path)}
    missing = sorted(path for path in links | paths if not (ROOT / path).exists() and not path.startswith("vgpud/lib/"))
    assert not missing, f"{name} names {missing}"


def test_decisions_that_comments_name_are_listed() -> None:
    listed = set(re.findall(r"^\| (D\d+) \|", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.M))
    for name in tracked(".py", ".c", ".h", ".proto"):
        for words in re.findall(r"\bDESIGN ([\w, ]{2,8})", (ROOT / name).read_text()):
            assert set(re.findall(r"D\d+", words)) <= listed and words[0] == "D", f"{name}: DESIGN {words}"


def test_no_unfinished_words() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|NotImplemented" + r"Error)\b")
    names = tracked(".py", ".c", ".h", ".S", ".md", ".toml", ".def")
    lines = ((n, i, line) for n in names for i, line in enumerate((ROOT / n).read_text().split("\n"), 1))
    found = [f"{n}:{i}" for n, i, line in lines if words.search(line)]
    assert not found, found
