"""Writes the state diagrams of the documents from the tables in the code; `--check` says whether they are current.

A diagram stands between `<!-- diagram: NAME -->` and `<!-- end -->`, as Mermaid.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from models.arbiter.gate_states import GATE_TRANSITIONS  # noqa: E402
from models.arbiter.model import State as GateState  # noqa: E402
from vgpud.core.elastic.worker_group import WORKER_TRANSITIONS, WorkerState  # noqa: E402
from vgpud.core.jobs.model import JobState  # noqa: E402
from vgpud.core.jobs.states import JOB_TRANSITIONS  # noqa: E402
from vgpud.core.slices import residency, suspend  # noqa: E402

MARKED = re.compile(r"(<!-- diagram: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
DOCUMENTS = (ROOT / "docs" / "design").glob("*.md")

#: (state, label, state after it)
Arrow = tuple[str, str, str]


def of_table(table: Mapping[tuple[Any, Any], Enum]) -> list[Arrow]:
    return [(_name(state), event.name.lower(), _name(after)) for (state, event), after in table.items()]


def of_steps(steps: Mapping[str, Iterable[str]], usual: str) -> list[Arrow]:
    """Of core/slices/suspend.py and residency.py, whose state "" is the usual one."""
    return [(before or usual, "", after or usual) for before, all_ in steps.items() for after in sorted(all_)]


def _name(state: Enum) -> str:
    return state.name.lower()


def mermaid(arrows: Iterable[Arrow], first: Iterable[str]) -> str:
    """Events that lead from one state to the same other one share an arrow; states that nothing leaves are final."""
    labels: dict[tuple[str, str], list[str]] = {}
    for state, label, after in arrows:
        labels.setdefault((state, after), []).append(label)
    lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in first)]
    for (state, after), found in labels.items():
        text = ", ".join(label for label in found if label)
        lines.append(f"    {state} --> {after}" + (f": {text}" if text else ""))
    left = {state for state, _ in labels}
    ends = dict.fromkeys(after for _, after in labels if after not in left)
    return "\n".join([*lines, *(f"    {state} --> [*]" for state in ends)])


DIAGRAMS = {
    "job states": mermaid(of_table(JOB_TRANSITIONS), (_name(JobState.PENDING), _name(JobState.HELD))),
    "worker states": mermaid(of_table(WORKER_TRANSITIONS), (_name(WorkerState.ACTIVE), _name(WorkerState.STAND_IN))),
    "slice states": mermaid(of_steps(suspend.STEPS, "running"), ("running",)),
    "residency": mermaid(of_steps(residency.STEPS, "resident"), ("resident", "away")),
    "gate states": mermaid(of_table(GATE_TRANSITIONS), (_name(GateState.SHUT),)),
}


def current(text: str) -> str:
    """The text with its diagrams as the code has them. Raises KeyError for a diagram of another name."""
    return MARKED.sub(lambda m: f"{m[1]}```mermaid\n{DIAGRAMS[m[2]]}\n```\n{m[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    check = parser.parse_args().check
    stale = 0
    for document in sorted(DOCUMENTS):
        text = document.read_text()
        if (wanted := current(text)) == text:
            continue
        stale += 1
        if check:
            print(f"{document.relative_to(ROOT)}: a diagram is not that of the code: run `make gen`", file=sys.stderr)
        else:
            document.write_text(wanted)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
