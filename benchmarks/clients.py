"""Real client programs under the hook: the same driver calls, codes and bytes as without it, and right numbers.

Runs tests/clients/test_hooked.py (cuda-python, cuda.core, numba-cuda, tinygrad on the simulated device) and keeps what
it found: for every program how many driver calls were recorded on either side, and whether all of them were equal.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from benchmarks import harness, results

TESTS = "tests/clients/test_hooked.py"


def outcome(case: ET.Element) -> dict[str, Any]:
    """One test of a JUnit report: passed, failed or skipped (with the first line of the reason), its properties."""
    found: dict[str, Any] = {"result": "passed", "seconds": float(case.get("time", "0"))}
    for kind in ("failure", "error", "skipped"):
        element = case.find(kind)
        if element is not None:
            found |= {"result": kind, "why": (element.get("message") or "").strip().partition("\n")[0]}
    found |= {p.get("name", ""): p.get("value") for p in case.iter("property")}
    if "calls" in found:
        found["calls"] = int(found["calls"])
    return found


def main() -> int:
    """Runs the tests, prints and writes the result. Exit code 1 when a program behaves differently under the hook."""
    args = harness.parser(__doc__).parse_args()
    if args.real:
        print("clients: the recorder stands in front of the simulated driver; on a real device use qualify")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", TESTS, f"--junitxml={report}", "-o", "junit_family=xunit1"]
        subprocess.run(command, cwd=harness.ROOT, check=False)
        tree = ET.parse(report)  # noqa: S314 - our own test run wrote it
    found = {str(case.get("name")): outcome(case) for case in tree.iter("testcase")}
    for name, one in found.items():
        print(f"  {name:<40} {one['result']:<8} {one.get('calls', '')} {one.get('why', '')}")
    bad = [name for name, one in found.items() if one["result"] in ("failure", "error")]
    skipped = [name for name, one in found.items() if one["result"] == "skipped"]
    with harness.system(harness.one_device()) as own:
        device = own.device_name()
    path = results.write(
        "clients",
        is_simulated=True,
        device=device,
        parameters={"tests": TESTS},
        goals={"different": 0, "skipped": 0},
        figures={"different": bad, "skipped": skipped, "programs": found},
        raw={},
        folder=args.results,
    )
    print(path)
    return 1 if bad or skipped or not found else 0


if __name__ == "__main__":
    raise SystemExit(main())
