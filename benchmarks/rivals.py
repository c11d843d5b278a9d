"""Any preloaded library beside ours and none: what a launch, an allocation and a start cost, and how exactly it shares.

    python -m benchmarks.rivals --library ./other.so --env LIMIT={percent} --env REGION={folder}/region

--library may be given several times; each --env belongs to the --library before it. In its values {percent} stands for
the maximum of the row's slice in percent of the device, and {folder} for a folder that the row's programs share and
that was empty before. A library's programs run with it preloaded, over the same simulated driver, without our daemon.

Launches and allocations go to a stub driver at a maximum of .5; starts have no maximum; shares are those of saturating
tenants with kernels of 2 ms, from the device's own log. Each round of a row runs every way once, in turn; a figure is
the median of the rounds. A row at which a library fails says so, and the others are measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness, overhead, results, start_together
from benchmarks.sharing.bench import Bench, Tenant
from benchmarks.sharing.rows_shares import saturating, worst_error_pp
from benchmarks.table import format_line, format_table
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError
from vgpud.simdevice.process import environment

NONE, OURS = "none", "ours"
CAPPED = 0.5
KERNEL_US = 2000
RUNS = 41  # of the calls below, in each program
LAUNCHES, ALLOCATIONS, ALLOCATION_BYTES = 5000, 1000, 256
STARTS, TOGETHER = 11, 20
PROGRAM_TIMEOUT_S = 60.0
MIXES: Mapping[str, tuple[Tenant, ...]] = {
    "30:70": (saturating("a", 0.3, KERNEL_US), saturating("b", 0.7, KERNEL_US)),
    "cap of 30": (saturating("a", 0.3, KERNEL_US),),
}
GROUPS = ("launch", "alloc", "start", "shares")
FAILURES = (PartError, OSError, ValueError, KeyError, subprocess.SubprocessError)


@dataclass
class Library:
    """A library of the user's and the variables that it reads."""

    name: str
    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def preload_variables(self, maximum: float, folder: Path) -> dict[str, str]:
        """What a program's environment has for it, at this maximum."""
        words = {"{percent}": f"{maximum * 100:g}", "{folder}": str(folder)}
        made = {"LD_PRELOAD": str(self.path)}
        for name, value in self.env.items():
            for word, meaning in words.items():
                value = value.replace(word, meaning)
            made[name] = value
        return made


@dataclass(frozen=True)
class Preloaded(Tenant):
    """A load beside which nothing of ours runs."""

    variables: tuple[tuple[str, str], ...] = ()

    @property
    def env(self) -> Mapping[str, str]:
        return dict(self.variables)


@dataclass
class Row:
    """A row of the table: its figures by way, a number for each round or why there is none."""

    name: str
    values: dict[str, list[float] | str] = field(default_factory=dict)

    def add(self, way: str, value: float) -> None:
        numbers = self.values.setdefault(way, [])
        if isinstance(numbers, list):
            numbers.append(value)

    def figures(self) -> dict[str, float | str]:
        return {w: v if isinstance(v, str) else statistics.median(v) for w, v in self.values.items()}


class Table:
    """All rows, and the rounds in which they are measured."""

    def __init__(self, libraries: Sequence[Library], rounds: int) -> None:
        self.libraries = {library.name: library for library in libraries}
        self.ways = [NONE, OURS, *self.libraries]
        self.rounds = rounds
        self.rows: dict[str, Row] = {}

    def measure(
        self, names: Sequence[str], measure_once: Callable[[str, Path], Sequence[float]], over_none: str = ""
    ) -> None:
        """Measures every way in turn, round by round. measure_once: one measurement of a way, a number for each of the
        rows; the folder is empty. over_none: "-" or "/", shown are differences from or ratios to the same round's
        without a library."""
        failed: dict[str, str] = {}
        for turn in range(self.rounds):
            ways = self.ways[1:]
            base = self._try(NONE, measure_once, failed)
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                got = self._try(way, measure_once, failed)
                if way == OURS and not over_none:
                    self._note(names, NONE, base, failed)
                if over_none and got and base:
                    pairs = zip(got, base, strict=True)
                    got = [a - b for a, b in pairs] if over_none == "-" else [a / b for a, b in pairs]
                elif over_none and NONE in failed:
                    failed[way] = failed[NONE]
                self._note(names, way, got, failed)
        for name in names:
            print(format_line([name, *map(format_way, map(self.rows[name].figures().get, self.ways))]), flush=True)

    def _note(self, names: Sequence[str], way: str, numbers: Sequence[float] | None, failed: Mapping[str, str]) -> None:
        for index, name in enumerate(names):
            row = self.rows.setdefault(name, Row(name))
            if way in failed:
                row.values[way] = failed[way]
            elif numbers:
                row.add(way, numbers[index])

    def _try(
        self, way: str, measure_once: Callable[[str, Path], Sequence[float]], failed: dict[str, str]
    ) -> Sequence[float] | None:
        if way in failed:
            return None
        with tempfile.TemporaryDirectory(prefix="vgpu-row-") as folder:
            try:
                return measure_once(way, Path(folder))
            except FAILURES as error:
                failed[way] = f"failed: {str(error) or type(error).__name__}"
                return None

    def variables(self, way: str, maximum: float, folder: Path) -> dict[str, str]:
        """What a library's way adds to a program's environment; nothing for the other two."""
        return self.libraries[way].preload_variables(maximum, folder) if way in self.libraries else {}


def format_way(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:,.2f}"


# ---- launches and allocations ----


def call_ns(table: Table, own: OwnSystem, stub: Path, mode: str, threads: int, way: str, folder: Path) -> list[float]:
    """ns of one call, of the slowest thread."""
    calls = [str(LAUNCHES)] if mode == "launch" else [str(ALLOCATIONS), str(ALLOCATION_BYTES)]
    command = [str(harness.build("tenants/overhead.c")), mode, "-", str(threads), str(RUNS), *calls]
    if way == OURS:
        amounts = ["--gpus", f"{CAPPED:g}", "--max", f"{CAPPED:g}"]
        part = own.run(f"{mode}-{threads}", amounts, ["env", f"VGPU_DRIVER={stub}", *command])
    else:
        env = environment(own.sim_dir, own.env)
        env["LD_LIBRARY_PATH"] = f"{stub.parent}:{env['LD_LIBRARY_PATH']}"
        part = Part(f"{mode}-{threads}", command, {**env, **table.variables(way, CAPPED, folder)}, own.folder)
        own.tenants.append(part)
    try:
        part.process.wait(PROGRAM_TIMEOUT_S)
        if part.process.returncode:
            part.check()
        return [max(each["hooked_ns"] for each in json.loads(part.output_file.read_text().splitlines()[-1]))]
    finally:
        part.stop()
        own.tenants.remove(part)


@contextmanager
def stub_driver() -> Iterator[Path]:
    """The stub with events that cost nothing, alone in a folder under the name by which programs open the driver."""
    with tempfile.TemporaryDirectory(prefix="vgpu-stub-") as name:
        stub = overhead.build_stub(Path(name), overhead.Events.FREE)
        yield stub.rename(stub.with_name("libcuda.so.1"))


# ---- starts ----


def start_ms(table: Table, hooked_env: Mapping[str, str], count: int, way: str, folder: Path) -> list[float]:
    """ms until so many programs that begin at once have ended; of one, the median of several starts."""
    env = dict(hooked_env) if way == OURS else harness.without_hook(hooked_env)
    env |= table.variables(way, 1, folder)
    times = STARTS if count == 1 else 1
    runs = [start_together.batch(count, env, PROGRAM_TIMEOUT_S) for _ in range(times)]
    return [statistics.median(run["batch_ms"] for run in runs)]


# ---- shares ----


def shares(
    table: Table, bench: Bench, mix: Sequence[Tenant], seeds: Iterator[int], way: str, folder: Path
) -> list[float]:
    """Mean share of each tenant in percent, and the worst second in percentage points."""
    tenants: list[Tenant] = []
    for tenant in mix:
        variables = tuple(table.variables(way, tenant.maximum, folder).items())
        tenants.append(Preloaded(**vars(tenant), variables=variables))
    seen = bench.observe(tenants, is_hooked=way == OURS, seed=next(seeds))
    return [*(seen.share(tenant.name) * 100 for tenant in tenants), worst_error_pp(seen, tenants)]


# ---- the command ----


class _AddLibrary(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        path = Path(values).resolve()
        if not path.is_file():
            parser.error(f"--library {values}: no such file")
        taken = {NONE, OURS, *(library.name for library in namespace.libraries)}
        name, number = path.name.removesuffix(".so"), 2
        while name in taken:
            name, number = f"{path.name.removesuffix('.so')}-{number}", number + 1
        namespace.libraries = [*namespace.libraries, Library(name, path)]


class _AddVariable(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        name, separator, value = values.partition("=")
        if not separator or not name:
            parser.error(f"--env {values}: NAME=VALUE is needed")
        if not namespace.libraries:
            parser.error(f"--env {values}: it belongs to a --library, which must be named before it")
        namespace.libraries[-1].env[name] = value


def parser() -> argparse.ArgumentParser:
    made = harness.parser(__doc__, libraries=[])
    made.add_argument("--library", action=_AddLibrary, metavar="PATH", required=True, help="a library to preload")
    made.add_argument(
        "--env", action=_AddVariable, metavar="NAME=VALUE", help="a variable of the --library named before it"
    )
    made.add_argument("--rows", nargs="+", choices=GROUPS, default=list(GROUPS), help="which rows (default: all)")
    made.add_argument("--repeats", type=int, default=5, help="rounds of each row (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=10, help="of each run of shares (default: %(default)s)")
    return made


def measure(table: Table, own: OwnSystem, stub: Path, group: str, seconds: float) -> None:
    """Measures one group of rows."""
    for mode, label in (("launch", "launch"), ("alloc", f"alloc+free of {ALLOCATION_BYTES} bytes")):
        for threads in (1, 2) if mode == group else ():
            name = f"{label}, {threads} thread(s), ns over none"
            table.measure([name], lambda way, at: call_ns(table, own, stub, mode, threads, way, at), "-")  # noqa: B023
    if group == "start":
        hooked = start_together.environment(own)
        table.measure(["start of a program, ms over none"], lambda way, at: start_ms(table, hooked, 1, way, at), "-")
        table.measure(
            [f"{TOGETHER} starts at once, over none"], lambda way, at: start_ms(table, hooked, TOGETHER, way, at), "/"
        )
    for case, mix in MIXES.items() if group == "shares" else ():
        names = [f"{case}, share of {tenant.name}, %" for tenant in mix]
        bench, seeds = Bench(own, seconds, True), iter(range(1, 1 << 30))
        table.measure(
            [*names, f"{case}, worst second, pp"],
            lambda way, at: shares(table, bench, mix, seeds, way, at),  # noqa: B023
        )


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when ours failed somewhere."""
    made = parser()
    args = made.parse_args()
    if args.real:
        made.error("libraries are compared over the simulated driver: a real device's own cost hides theirs")
    table = Table(args.libraries, args.repeats)
    print(format_table(("row", *table.ways)), flush=True)
    with stub_driver() as stub:
        for group in args.rows:  # a system each: slices of one are in no other's way
            with harness.system(harness.one_device(), lengths_us=[KERNEL_US]) as own:
                measure(table, own, stub, group, args.seconds)
                device = own.device_name()
    path = results.write(
        "rivals",
        is_simulated=True,
        device=device,
        parameters={
            "libraries": {one.name: {"path": str(one.path), "env": one.env} for one in args.libraries},
            "rounds": args.repeats,
            "seconds": args.seconds,
            "capped": CAPPED,
        },
        goals={},
        figures={row.name: row.figures() for row in table.rows.values()},
        raw={row.name: row.values for row in table.rows.values()},
        folder=args.results,
    )
    print(path)
    return 1 if any(isinstance(row.values.get(OURS), str) for row in table.rows.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
