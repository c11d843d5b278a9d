"""Writing and checking the results of benchmarks: benchmarks/results/<name>-<sim|real>.json.

Every file says on which machine, when, at which commit and on what kind of device its figures were measured;
figures are written by a benchmark's run and by nothing else. Figures of many rows also have a page (Markdown).
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import Figure, by_row, count_met, format_figures, format_table, goals_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
REQUIRED: dict[str, type] = {
    "benchmark": str,
    "simulated": bool,
    "device": str,
    "date": str,
    "commit": str,
    "machine": dict,
    "parameters": dict,
    "goals": dict,
    "figures": dict,
    "raw": dict,
}
#: characters of a line of a result
WIDTH = 120
MACHINE_REQUIRED = ("cpu", "cores", "kernel", "memory_bytes", "load_1min")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """The machine that runs this: CPU model, usable cores, kernel, memory, load, our scheduling class."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_1min": round(os.getloadavg()[0], 2),
        "scheduler": {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "round robin"}.get(
            os.sched_getscheduler(0), "unknown"
        ),
    }


def commit() -> str:
    """The commit of the working tree, with `+changes` when tracked files differ from it; `unknown` outside git."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    changed = [line for line in changes.stdout.splitlines() if "benchmarks/results/" not in line]
    return head.stdout.strip() + ("+changes" if changed else "")


def changes() -> str:
    """What tracked files have been changed to since the commit, as a digest; "" when nothing or outside git."""
    command = ["git", "-C", str(ROOT), "diff", "HEAD", "--", ".", ":!benchmarks/results"]
    done = subprocess.run(command, capture_output=True, check=False)
    return hashlib.sha256(done.stdout).hexdigest()[:12] if done.stdout else ""


def format_json(value: Any, indent: str = "") -> str:
    """JSON for people and for git: what fits on one line stands on one, and so do all lists that hold no others."""
    flat, inner = json.dumps(value), indent + " "
    if len(indent) + len(flat) <= WIDTH:
        return flat
    if isinstance(value, Mapping):
        lines = [f"{inner}{json.dumps(str(key))}: {format_json(one, inner)}" for key, one in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        return "[\n" + ",\n".join(inner + format_json(one, inner) for one in value) + f"\n{indent}]"
    return flat


def finite(value: Any) -> Any:
    """The same with None for what JSON cannot say: figures that were infinite or not a number."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def problems(result: Mapping[str, Any]) -> list[str]:
    """What is wrong with a result, as readable lines; empty when it is a good one."""
    found = [f"{key} is missing" for key in REQUIRED if key not in result]
    found += [
        f"{key} is {type(result[key]).__name__}, not {kind.__name__}"
        for key, kind in REQUIRED.items()
        if key in result and not isinstance(result[key], kind)
    ]
    if isinstance(result.get("machine"), dict):
        found += [f"machine.{key} is missing" for key in MACHINE_REQUIRED if key not in result["machine"]]
    if isinstance(result.get("figures"), dict) and not result["figures"]:
        found.append("figures is empty")
    if result.get("simulated") is True and "SIMULATED" not in str(result.get("device")):
        found.append("a simulated result must name a SIMULATED device")
    return found


def write(
    name: str,
    *,
    is_simulated: bool,
    device: str,
    parameters: Mapping[str, Any],
    goals: Mapping[str, Any],
    figures: Mapping[str, Any],
    raw: Mapping[str, Any],
    folder: Path = RESULTS,
) -> Path:
    """Writes one result and returns its path. Raises ValueError when it is not complete."""
    result = {
        "benchmark": name,
        "simulated": is_simulated,
        "device": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "parameters": dict(parameters),
        "goals": dict(goals),
        "figures": finite(figures),
        "raw": finite(raw),
    }
    wrong = problems(result)
    if wrong:
        raise ValueError(f"result {name}: " + "; ".join(wrong))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{'sim' if is_simulated else 'real'}.json"
    path.write_text(format_json(result) + "\n")
    return path


@dataclass(frozen=True)
class Page:
    """What stands above the figures on a result's page. notes: paragraphs; rows: cells of a table of what ran."""

    title: str
    notes: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def write_figures(
    name: str,
    figures: Sequence[Figure],
    page: Page,
    *,
    is_simulated: bool,
    device: str,
    parameters: Mapping[str, Any],
    raw: Mapping[str, Any],
    folder: Path,
    draw: Callable[[Path], Sequence[Path]] = lambda _stem: (),
) -> list[Path]:
    """Writes JSON, page and pictures beside each other and returns their paths. Raises ValueError without a figure.

    draw: makes the pictures, whose paths begin with the one given, and returns their paths.
    """
    path = write(
        name,
        is_simulated=is_simulated,
        device=device,
        parameters=parameters,
        goals=goals_of(figures),
        figures=by_row(figures),
        raw=raw,
        folder=folder,
    )
    pictures = draw(path.with_suffix(""))
    page_path = path.with_suffix(".md")
    page_path.write_text(_format_page(page, json.loads(path.read_text()), figures, pictures))
    return [path, page_path, *pictures]


def _format_page(page: Page, result: Mapping[str, Any], figures: Sequence[Figure], pictures: Sequence[Path]) -> str:
    measured_on = result["machine"]
    parts = [
        f"# {page.title}",
        f"{result['date']}, commit {result['commit']}, {measured_on['cores']} cores ({measured_on['cpu']}); "
        f"{result['device']}. {count_met(figures)}.",
        *page.notes,
        *([format_table(page.header, page.rows)] if page.rows else []),
        format_figures(figures),
        *(f"![{picture.stem}]({picture.name})" for picture in pictures),
    ]
    return "\n\n".join(parts) + "\n"
