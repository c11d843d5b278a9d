"""Which C folder may include which: one table. Includes name the folder ("gate/gate.h"), so the rule reads text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shim.build_shim import generate

from .tree import ROOT, components, source_files

_BELOW_GATE = {"base", "context", "gen/abi", "session"}
_SIM_GROUND = {"simgpu/base", "simgpu/process"}
_SIM_WORK = {"simgpu/process", "simgpu/arena", "simgpu/streams", "simgpu/memory"}

#: folder of shim/ -> what it may include beside itself. From the ground up: base and abi; session; ledger; context;
#: gate; moves; attach; hooks. Arbiter and attach_server run in the daemon and have nothing of the tenant's
#: folders.
ALLOWED: dict[str, set[str]] = {
    "abi": set(),
    "base": set(),
    "gen/abi": set(),
    "gen/nvml": set(),
    "session": {"abi", "base"},
    "ledger": {"base", "gen/abi", "session"},
    "context": {"base", "gen/abi", "ledger", "session"},
    "gate": _BELOW_GATE,
    "moves": {"context", "gate", "gen/abi", "ledger", "session"},
    "attach": {"abi", "base", "context", "gate", "ledger", "moves", "session"},
    "driver": {"base", "gen/abi"},
    "gen/hooks": {"base", "gate", "gen/abi"},
    "hooks": _BELOW_GATE | {"attach", "driver", "gate", "gen/hooks", "ledger", "moves"},
    "cuda_hook.c": {"gate", "gen/abi", "hooks"},
    "nvml": {"abi", "attach", "base", "driver", "gen/nvml", "session"},
    "arbiter": {"abi", "base"},
    "attach_server": {"abi", "arbiter", "base"},
    "job": set(),
    "runtime": set(),
    # CUDA's libraries of the simulated device: on the driver API alone
    "simcuda": {"base", "gen/abi"},
    "gen/simcuda": {"simcuda"},
    # the simulated device, from the ground up; process/process.h says what each folder is. Server and NVML share wire.h
    # and constants.h with the driver, and nothing else.
    "simgpu": set(),
    "simgpu/base": {"base"},
    "simgpu/process": {"base", "gen/abi", "simgpu", "simgpu/base"},
    "simgpu/arena": _SIM_GROUND,
    "simgpu/streams": _SIM_GROUND | {"simgpu/arena"},
    "simgpu/memory": _SIM_GROUND | {"simgpu/arena", "simgpu/streams"},
    "simgpu/arrays": _SIM_WORK | {"ledger", "simgpu/base"},
    "simgpu/copies": _SIM_WORK | {"simgpu/arrays", "simgpu/base"},
    "simgpu/textures": _SIM_GROUND | {"simgpu/arena", "simgpu/arrays", "simgpu/memory"},
    "simgpu/images": set(),
    "simgpu/modules": _SIM_WORK | {"simcuda", "simgpu/base", "simgpu/images"},  # of it devices.h: GPUs by their names
    "simgpu/graphs": _SIM_WORK - {"simgpu/memory"}
    | {"simgpu/arrays", "simgpu/base", "simgpu/copies", "simgpu/images", "simgpu/modules"},
    "simgpu/capture": {"simgpu/graphs", "simgpu/modules", "simgpu/process", "simgpu/streams"},
    "simgpu/ipc": _SIM_WORK,
    "simgpu/contexts": _SIM_WORK
    | {"simgpu/arrays", "simgpu/base", "simgpu/capture", "simgpu/graphs", "simgpu/ipc", "simgpu/modules"},
    "simgpu/entries": _SIM_GROUND | {"base", "gen/abi"},
    "gen/simgpu": {"simgpu/entries"},
    "simgpu/nvml": {"abi", "base", "gen/nvml", "simgpu"},
    "simgpu/server": {"base", "simgpu"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def folder(name: str) -> str:
    """The folder of a file of shim/, two words long under gen/ and simgpu/; of cuda_hook.c its name."""
    parts = name.removeprefix("shim/").split("/")
    if len(parts) == 1:
        return parts[0]
    return "/".join(parts[:2]) if parts[0] in {"gen", "simgpu"} and len(parts) > 2 else parts[0]


def sources() -> list[str]:
    """All C and assembler of the product, what is generated included."""
    generate.update()
    generated = [
        str(p.relative_to(ROOT)) for p in (ROOT / "shim" / "gen").rglob("*") if p.suffix in (".c", ".h", ".inc")
    ]
    ours = [n for n in source_files(".c", ".h", ".S") if n == "cuda_hook.c" or n.startswith("shim/")]
    return [n for n in [*ours, *generated] if not n.startswith("shim/pyabi/")]


def include_pairs() -> Iterator[tuple[str, str]]:
    """(file, included file of ours relative to shim/)"""
    for name in sources():
        yield from ((name, other) for other in INCLUDE.findall((ROOT / name).read_text()))


def test_includes_name_their_folder() -> None:
    wrong = [f'{name} includes "{other}"' for name, other in include_pairs() if not (ROOT / "shim" / other).is_file()]
    assert not wrong, "name it from shim/ on: " + "; ".join(wrong)


def test_folders_include_what_the_table_allows() -> None:
    wrong = [
        f'{name} includes "{other}": {folder(name)} may include {sorted(ALLOWED.get(folder(name), set()))}'
        for name, other in include_pairs()
        if folder(other) != folder(name) and folder(other) not in ALLOWED.get(folder(name), set())
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_allows_no_more_than_is_used() -> None:
    used = {(folder(name), folder(other)) for name, other in include_pairs()}
    spare = [f"{one} -> {other}" for one, others in ALLOWED.items() for other in others if (one, other) not in used]
    assert not spare, f"nobody uses this any more: {spare}"
    assert {folder(n) for n in sources()} <= set(ALLOWED)


def test_the_table_has_no_circle() -> None:
    assert components(ALLOWED) == []


def test_headers_of_hooks_are_of_one_source_each() -> None:
    headers = source_files(".h", under="shim/hooks/")
    assert headers and [h for h in headers if not (ROOT / h).with_suffix(".c").is_file()] == []


def test_few_files_lie_at_the_top() -> None:
    at_top = [n for n in source_files("", under="shim/") if n.count("/") == 1]
    assert len(at_top) <= 5, at_top
