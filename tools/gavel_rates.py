"""Writes vgpud/userfiles/gavel.csv from Gavel's measurements in benchmarks/data; `--check` says whether it is current.

One GPU alone, in steps a second: every size that was measured on all three GPUs, by the table's own name, and by the
name that users write the middle one of a model's sizes, the larger of two (the outermost have outliers: a V100 that is
slower than a P100).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data" / "gavel"
TABLE = ROOT / "vgpud" / "userfiles" / "gavel.csv"
sys.path.insert(0, str(ROOT))

from vgpud.core.devices.rates import model_key  # noqa: E402
from vgpud.userfiles.rates import COLUMNS  # noqa: E402

GPUS = ("k80", "p100", "v100")
ABOUT = """\
Steps a second of one GPU, measured by Gavel (Narayanan et al., OSDI'20): {file}
of {source} ({commit}), made by tools/gavel_rates.py.
The name of a model alone is that of the middle one of the batch sizes.

"""


def read_rates() -> dict[str, dict[str, float]]:
    """By the table's name of a model, then by GPU: what ran alone on one of each."""
    table: dict[str, Any] = json.loads((DATA / "simulation_throughputs.json").read_text())
    found: dict[str, dict[str, float]] = {}
    for key in table[GPUS[0]]:
        name, _, gpus = key.partition("', ")
        rates = {gpu: table[gpu].get(key, {}).get("null", 0) for gpu in GPUS}
        if gpus == "1)" and all(rate > 0 for rate in rates.values()):
            found[name.removeprefix("('")] = rates
    return found


def select_middle_sizes(rates: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """By the name without a size."""
    sizes: dict[str, list[str]] = {}
    for name in rates:  # from the smallest to the largest
        sizes.setdefault(name.partition(" (")[0], []).append(name)
    middle = {model: names[len(names) // 2] for model, names in sizes.items()}
    return {model_key(model): rates[name] for model, name in middle.items() if model_key(model) != model_key(name)}


def text() -> str:
    source = json.loads((DATA / "source.json").read_text())
    (file,) = source["sha256"]
    about = ABOUT.format(file=file, source=source["source"], commit=source["commit"])
    rates = read_rates()
    lines = [f"# {line}".rstrip() for line in (about + (DATA / "LICENSE").read_text()).splitlines()]
    lines.append(",".join(COLUMNS))
    for model, of_gpus in (select_middle_sizes(rates) | rates).items():
        lines += [f"{model},{gpu},{rate:.4g}" for gpu, rate in of_gpus.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    check = parser.parse_args().check
    wanted = text()
    if TABLE.is_file() and TABLE.read_text() == wanted:
        return 0
    if check:
        print(f"{TABLE.relative_to(ROOT)} is not current: run tools/gavel_rates.py", file=sys.stderr)
        return 1
    TABLE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
