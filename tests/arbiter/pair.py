"""The reference model and the C core side by side: steps are made by both, and what they decide must be equal."""

from __future__ import annotations

import atexit
import dataclasses
import re
import subprocess
import tempfile
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import cffi

from models.arbiter.model import Params, Regime, Slice, SliceParams, State
from models.arbiter.policy import Arbiter
from shim import build_shim
from tests.examples import is_nightly

ROOT = Path(__file__).resolve().parents[2]
HEADERS = (
    *("abi/vg_abi.h", "arbiter/arbiter.h", "arbiter/model.h", "arbiter/device.h", "arbiter/policy.h"),
    *("arbiter/coast.h", "arbiter/reclaim.h", "arbiter/memory.h", "arbiter/copies.h"),
)
PARTS = (
    *(
        "accounting",
        "charges",
        "completed",
        "device",
        "entitlements",
        "free_slices",
        "gaps",
        "gates",
        "lags",
        "maximum",
    ),
    *("outputs", "policy", "slot", "coast", "memory", "reclaim", "copies"),
)
SOURCES = tuple(f"arbiter/{name}.c" for name in PARTS)
INPUTS = (
    *("attached", "wants", "outstanding", "quiet", "gave_up_while_waiting", "noticed", "running", "drained_ns"),
    *("counted_ahead", "gang_turns", "gang_go", "gang_stop", "gang_busy"),
    *("drain_expected_ns", "busy_total_ns", "active_total_ns", "done_total_ns"),
)
DECISIONS = (
    *("word", "state", "lease_end_ns", "bound_ns", "neighbour_waits", "watch", "entitlement_ppm", "saturating"),
    *("throttled", "cap_ns", "virtual_ns", "charged_ns", "demand_ppm", "rescue_ns", "provisional_ns", "gang_veto"),
    *("owed_ns", "late_ns"),
)
COUNTED = ("borrowed_ns", "grants", "early_releases", "overruns")
#: at each change the model makes all of the first steps as well, then some; the core alone is several times as fast
FIRST_STEPS, COMPARED_EVERY = 300, 5


def _cdef() -> str:
    """The headers as cffi reads them: without preprocessor lines other than integer macros, and without functions."""
    keep = re.compile(r"#define\s+\w+\s+\d+\s*(/\*.*\*/)?$")
    text: list[str] = []
    for name in HEADERS:
        header = re.sub(r"^static inline .*?^}$", "", (ROOT / "shim" / name).read_text(), flags=re.M | re.S)
        text += (line for line in header.splitlines() if not line.startswith("#") or keep.match(line))
    return "\n".join(text)


@lru_cache(maxsize=1)
def load() -> tuple[Any, Any]:
    """(ffi, lib) of a library made of the pure arbiter sources, with overflow and the like as errors."""
    ffi = cffi.FFI()
    ffi.cdef(_cdef())
    folder = tempfile.TemporaryDirectory(prefix="vgpu-core-")
    atexit.register(folder.cleanup)
    out = Path(folder.name) / "libcore.so"
    sanitize = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    flags = ["-O1", "-g", "-std=gnu11", "-fPIC", "-iquote", "shim", *sanitize]
    objects = build_shim.compile_objects([f"shim/{name}" for name in SOURCES], flags)
    subprocess.run([*build_shim.compiler(), *flags, "-shared", "-o", str(out), *objects], cwd=ROOT, check=True)
    return ffi, ffi.dlopen(str(out))


def fill(ffi: Any, kind: str, values: Any) -> Any:
    """A C structure with all the values of a dataclass that it has a field for."""
    made = ffi.new(f"struct {kind} *")
    for name in vars(values):
        setattr(made, name, int(getattr(values, name)))
    return made


NAMES = (*DECISIONS, *COUNTED, "free_lag_ns")
_of_model = attrgetter(*NAMES)


def _paths(ffi: Any) -> dict[str, str]:
    """The model's name of a field -> where it is in struct vg_core_slice: lag_ns in the struct free is free_lag_ns."""
    fields = ffi.typeof("struct vg_core_slice").fields
    found = {name: name for name, _ in fields}
    for name, field in fields:
        for inner, _ in field.type.fields if field.type.kind == "struct" else ():
            found[f"{name}_{inner}"] = f"{name}.{inner}"
            found.setdefault(inner, f"{name}.{inner}")
    return found


SLICE_NAMES = tuple(f.name for f in dataclasses.fields(Slice) if f.name not in ("ident", "params", "place"))
DEVICE_NAMES = tuple(f.name for f in dataclasses.fields(Arbiter) if f.name not in ("params", "slices"))
_of_model_slice = attrgetter(*SLICE_NAMES)
_of_core_device = attrgetter(*DEVICE_NAMES)


@lru_cache(maxsize=1)
def _of_core_slice() -> attrgetter[Any]:
    paths = _paths(load()[0])
    return attrgetter(*(paths[name] for name in SLICE_NAMES))


@lru_cache(maxsize=1)
def _of_core() -> attrgetter[Any]:
    paths = _paths(load()[0])
    return attrgetter(*(paths[name] for name in NAMES))


def differences(row: Any, s: Slice) -> list[str]:
    """Where the core and the model have decided differently for a slice."""
    theirs, ours = _of_core()(row), _of_model(s)
    if theirs == ours:
        return []
    return [f"{n}: core {a}, model {b}" for n, a, b in zip(NAMES, theirs, ours, strict=True) if a != b]


class Pair(Arbiter):
    """An Arbiter that asks the C core, too, and raises AssertionError where the two differ. In a nightly run the model
    makes every step as well; else it makes some, each from the state that the core is in."""

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params or Params())
        self.ffi, self.lib = load()
        self.core = self.ffi.new("struct vg_core *")
        self.rows: dict[int, Any] = {}
        self.steps = 0
        self._compares_all = is_nightly()
        self.lib.vg_core_init(self.core, fill(self.ffi, "vg_arbiter_params", self.params), 0)

    def _tell_core(self) -> None:
        for s in self.slices:
            inputs = getattr(self.rows[s.ident], "in")
            for name in INPUTS:
                setattr(inputs, name, getattr(s, name))

    def set(self, ident: int, params: SliceParams) -> Slice:
        self._tell_core()
        row = self.lib.vg_core_set(self.core, ident, fill(self.ffi, "vg_slice_params", params))
        assert row != self.ffi.NULL
        self.rows[ident] = row
        return super().set(ident, params)

    def remove(self, ident: int) -> None:
        self.lib.vg_core_remove(self.core, ident)
        super().remove(ident)

    def _follow_core(self) -> None:
        read = _of_core_slice()
        for s in self.slices:
            vars(s).update(zip(SLICE_NAMES, read(self.rows[s.ident]), strict=True))
            s.state = State(s.state)
        vars(self).update(zip(DEVICE_NAMES, _of_core_device(self.core), strict=True))
        self.regime = Regime(self.regime)

    def _check_memory(self, s: Slice) -> None:
        """Both remember the same: a difference that changes no decision yet is one all the same."""
        theirs, ours = _of_core_slice()(self.rows[s.ident]), _of_model_slice(s)
        named = zip(SLICE_NAMES, theirs, ours, strict=True)
        assert theirs == ours, [(name, core, model) for name, core, model in named if core != model]

    def step(self, now_ns: int) -> int:
        self._tell_core()
        self.steps += 1
        if self.steps > FIRST_STEPS and self.steps % COMPARED_EVERY and not self._compares_all:
            deadline_ns = self.lib.vg_core_step(self.core, now_ns)
            self._follow_core()
            return int(deadline_ns)
        wanted = super().step(now_ns)
        got = self.lib.vg_core_step(self.core, now_ns)
        for s in self.slices:
            differ = differences(self.rows[s.ident], s)
            assert not differ, f"{now_ns} ns, slice {s.ident}: {differ}"
            self._check_memory(s)
        theirs = dict(zip(DEVICE_NAMES, _of_core_device(self.core), strict=True))
        assert theirs == {name: getattr(self, name) for name in DEVICE_NAMES}, f"{now_ns} ns"
        assert got == wanted, f"{now_ns}: deadline {got} for {wanted}"
        assert sum(s.saturating and s.state == State.OPEN for s in self.slices) < 2, "the slot has two holders"
        return wanted
