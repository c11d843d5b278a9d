"""Reads shim/codegen/hooks.def and gives every entry point its row: exactly one, or the build fails."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cudaspec import EntryPoint, SpecError

BEHAVIOURS = ("pass", "gate", "sync", "order", "copy", "memory", "custom")
HAND_WRITTEN = ("memory", "custom")
AWAY = ("waits", "gate", "polls", "asks")


@dataclass(frozen=True)
class Row:
    glob: str
    behaviour: str
    away_behaviour: str  # what the call does while the slice's memory is away: one of AWAY
    reason: str
    line: int

    @property
    def has_body(self) -> bool:
        """Whether it is hand-written under another name, and what programs call is generated around it."""
        return self.away_behaviour == "waits" and self.behaviour in HAND_WRITTEN

    @property
    def alternatives(self) -> list[str]:
        """The glob with its braces written out."""
        parts = [p.split(",") for p in re.split(r"[{}]", self.glob)]
        plain = [[",".join(p)] if i % 2 == 0 else p for i, p in enumerate(parts)]
        return ["".join(words) for words in itertools.product(*plain)]


def family(name: str) -> str:
    """An ABI name without its version and its kind of default stream: cuMemsetD8Async_v2_ptsz -> cuMemsetD8Async."""
    return re.sub(r"_v\d+$", "", re.sub(r"_pt[ds][sz]$", "", name))


def read_rows(path: Path) -> list[Row]:
    """The rows of hooks.def. Raises SpecError with the line of one that is not `glob behaviour away reason`."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split(None, 3)
        if not words or line.startswith("#"):
            continue
        if len(words) < 4 or words[1] not in BEHAVIOURS or words[2] not in AWAY:
            wanted = f"<glob> <{'|'.join(BEHAVIOURS)}> <{'|'.join(AWAY)}> <reason>"
            raise SpecError(f"{path}:{number}: expected {wanted}: {line}")
        if (words[1] == "gate") > (words[2] == "gate"):
            raise SpecError(f"{path}:{number}: what passes the gate waits there: {line}")
        rows.append(Row(words[0], words[1], words[2], words[3], number))
    return rows


def _problems(
    entries: Iterable[EntryPoint], rows_by_entry: dict[str, list[Row]], unused_row_problems: Iterable[str]
) -> Iterator[str]:
    for entry in entries:
        rows = rows_by_entry[entry.name]
        if not rows:
            yield f"{entry.name} has no row"
        elif len(rows) > 1:
            yield f"{entry.name} has {len(rows)} rows: lines {', '.join(str(r.line) for r in rows)}"
    yield from unused_row_problems


def assign(entries: tuple[EntryPoint, ...], rows: list[Row]) -> dict[str, Row]:
    """The row of every entry point. Raises SpecError for one with none or several, and for a row that meets nothing."""
    found: dict[str, list[Row]] = {entry.name: [] for entry in entries}
    families: dict[str, list[str]] = {}
    versions: dict[str, list[str]] = {}
    for entry in entries:
        families.setdefault(family(entry.name), []).append(entry.name)
        versions.setdefault(re.sub(r"_pt[ds][sz]$", "", entry.name), []).append(entry.name)
    versioned: dict[str, Row] = {}
    unused: list[str] = []
    for row in rows:
        for alternative in row.alternatives:
            if re.search(r"_v\d+$", alternative):
                met = versions.get(alternative, [])
                versioned.update(dict.fromkeys(met, row))
            else:
                met = [name for one in fnmatch.filter(families, alternative) for name in families[one]]
                for name in met:
                    found[name].append(row)
            if not met:
                unused.append(f"line {row.line}: {alternative} meets no entry point")
    found.update({name: [row] for name, row in versioned.items()})
    problems = list(_problems(entries, found, unused))
    if problems:
        raise SpecError("hooks.def: " + "\nhooks.def: ".join(problems))
    return {name: met[0] for name, met in found.items()}
