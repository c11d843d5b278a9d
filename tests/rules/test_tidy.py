"""Lengths, banned calls, generated files current: each rule lists all places and says what to do instead."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .tree import ROOT, c_code, find, parse, source_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_LINES_MAX = 600
PYTHON_FUNCTION_LINES_MAX = 80
C_FUNCTION_LINES_MAX = 100
#: one class for each message of the API, made by tools/api.py
LONG_FILES = {"vgpud/client/model.py"}

RAW_SYSTEM_CALLS = r"\b(syscall|SYS_\w+|__NR_\w+)\b"
#: in code that is loaded into a user's program
BANNED_IN_SHIM = {
    r"\b(exit|_exit|abort|signal|sigaction|setenv|unsetenv|putenv|umask|setlocale)\s*\(": "the process is the tenant's",
    r'(?<!secure_)\bgetenv\s*\((?!"CUDA_)': "use secure_getenv: the program may be setuid (the driver's names aside)",
    r"\b(printf|puts|perror)\s*\(": "stdout and stderr are the tenant's: use vg_log",
    r"__attribute__\s*\(\s*\(\s*constructor": "no constructors: every program of a container loads us",
    r"#\s*include\s*<cuda[A-Za-z]*\.h>": "the build needs nothing of CUDA: include gen/abi/cuda_abi.h",
}


def shim_sources() -> list[str]:
    """C files that are loaded into tenants' programs."""
    apart = ("simgpu", "runtime", "job", "arbiter", "pyabi", "codegen")
    names = [n for n in source_files(".c", ".h") if n == "cuda_hook.c" or n.startswith("shim/")]
    return [n for n in names if not n.startswith(tuple(f"shim/{folder}/" for folder in apart))]


# ---- lengths ----


def test_file_length() -> None:
    names = set(source_files(".py", ".c", ".h", ".S", ".pyi")) - LONG_FILES
    lengths = {n: (ROOT / n).read_text().count("\n") for n in names}
    long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}
    assert not long, f"give one of its jobs a file of its own: {long}"


def test_python_function_length() -> None:
    long = [
        f"{name}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for name in source_files(".py")
        for node in ast.walk(parse(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > PYTHON_FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def c_functions(name: str) -> Iterator[tuple[int, int]]:
    """(first line, number of lines) of each: in .clang-format's layout a definition begins in column 0 and ends at a
    `}` in column 0."""
    begin, is_function = 0, False
    for number, line in enumerate(c_code(name).split("\n"), 1):
        if line[:1].isalpha():
            begin, is_function = number, "(" in line and "=" not in line and not line.startswith("typedef")
        elif line.startswith("}") and is_function:
            yield begin, number - begin + 1
            is_function = False


def test_c_function_length() -> None:
    found = [(f"{name}:{line}", lines) for name in source_files(".c") for line, lines in c_functions(name)]
    assert len(found) > 1000, "they are not found any more"
    long = [f"{where}: function of {lines} lines" for where, lines in found if lines > C_FUNCTION_LINES_MAX]
    assert not long, "\n".join(long)


# ---- banned calls ----


def _reads_wall_clock(node: ast.Call) -> bool:
    """Whether it reads the wall clock, or makes a time stamp without a time zone."""
    call = ast.unparse(node.func)
    if call in {"time.time", "datetime.utcnow", "datetime.datetime.utcnow"}:
        return True
    if call.removeprefix("datetime.") not in {"datetime.now", "datetime.fromtimestamp", "now", "fromtimestamp"}:
        return False
    return not any(k.arg == "tz" for k in node.keywords) and len(node.args) <= call.endswith("fromtimestamp")


def test_no_wall_clock_in_logic() -> None:
    """CLOCK_REALTIME jumps: durations and deadlines come from time.monotonic*, time stamps are aware (UTC)."""
    found = [
        f"{name}:{node.lineno} calls {ast.unparse(node.func)}"
        for name in source_files(".py")
        for node in ast.walk(parse(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _reads_wall_clock(node)
    ]
    assert not found, "\n".join(found)


def test_banned_in_the_shim() -> None:
    sources = shim_sources()
    assert len(sources) > 70, "they are not found any more"
    found = [f"{why}: {place}" for pattern, why in BANNED_IN_SHIM.items() for place in find(pattern, sources)]
    assert not found, "\n".join(found)


def test_only_driver_looks_symbols_up() -> None:
    lookers = ("shim/driver/", "shim/nvml/resolve_ml.", "shim/simcuda/common/driver.")
    others = [n for n in shim_sources() if not n.startswith(lookers)]
    assert not find(r"\bdl(v?sym|m?open)\s*\(", others)


def test_only_prim_makes_raw_system_calls() -> None:
    assert not find(RAW_SYSTEM_CALLS, [n for n in shim_sources() if n != "shim/base/prim.c"])


def test_only_monotonic_time_in_c() -> None:
    """NVML's own time stamps are wall-clock microseconds, so its simulation may ask; an engine's log has a date, and so
    has a job's result."""
    names = [n for n in source_files(".c", ".h") if n == "cuda_hook.c" or n.startswith("shim/")]
    names = [n for n in names if not n.startswith(("shim/simgpu/nvml/", "shim/runtime/report.c", "shim/job/file.c"))]
    assert not find(r"\bCLOCK_REALTIME|\bgettimeofday\s*\(|\btime\s*\(\s*(NULL|0)\s*\)", names)


def test_every_c_file_says_what_it_is() -> None:
    silent = [n for n in source_files(".c", ".h", ".S") if not (ROOT / n).read_text().lstrip().startswith(("/*", "//"))]
    assert not silent, f"open each with a comment (what it is, who calls it, what must hold): {silent}"


# ---- generated files, documents, versions ----


@pytest.mark.parametrize("command", ["shim/codegen/generate.py", "protos/generate.py"])
def test_generated_files_are_current(command: str) -> None:
    done = subprocess.run([sys.executable, command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_runtime_is_at_least_as_new_as_the_generator() -> None:
    """Generated code refuses an older runtime, so our lower bounds must not lie below the generator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(d.split(">=") for d in project["dependencies"] if ">=" in d and ";" not in d)
    grpc = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", (ROOT / "vgpud/v1alpha1/vgpud_pb2_grpc.py").read_text())
    proto = re.search(r"# Protobuf Python Version: (\d+\.\d+)", (ROOT / "vgpud/v1alpha1/vgpud_pb2.py").read_text())
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


def test_documented_exit_codes() -> None:
    from vgpud.cli.common.exits import EXIT_CODES

    rows = dict(re.findall(r"^\| `(\d+)` \| (.*?) \|$", (ROOT / "docs/cli.md").read_text(), flags=re.M))
    assert rows == {str(int(code)): text for code, text in EXIT_CODES.items()}


def test_documents_name_what_exists() -> None:
    """Links, and paths in backticks that begin with a folder of ours, lead somewhere."""
    missing = []
    for name in (n for n in source_files(".md") if "/" not in n):
        text = (ROOT / name).read_text()
        links = {link for link in re.findall(r"\]\(([^)\s#]+)", text) if not link.startswith("http")}
        folders = "vgpud|models|shim|tests|benchmarks|docker|protos|tools|docs"
        paths = {path for path in re.findall(r"`([\w./-]+)`", text) if re.match(rf"({folders})/", path)}
        wanted = sorted(path for path in links | paths if not path.startswith("vgpud/lib/"))
        missing += [f"{name} names {path}" for path in wanted if not (ROOT / path).exists()]
    assert not missing, "\n".join(missing)


def test_decisions_that_comments_name_are_listed() -> None:
    listed = set(re.findall(r"^\| (D\d+) \|", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.M))
    for name in source_files(".py", ".c", ".h", ".proto"):
        for words in re.findall(r"\bDESIGN ([\w, ]{2,8})", (ROOT / name).read_text()):
            assert set(re.findall(r"D\d+", words)) <= listed and words[0] == "D", f"{name}: DESIGN {words}"


def test_no_unfinished_words() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|NotImplemented" + r"Error)\b")
    names = source_files(".py", ".c", ".h", ".S", ".md", ".toml", ".def")
    lines = ((n, i, line) for n in names for i, line in enumerate((ROOT / n).read_text().split("\n"), 1))
    found = [f"{n}:{i}" for n, i, line in lines if words.search(line)]
    assert not found, found
