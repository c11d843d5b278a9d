"""`vgpu tune` of the CIFAR trainers beside the full grid: how good its choice is, and what finding it costs.

A private system on a simulated device. The grid is each candidate alone, measured in full by `vgpu tune` of one
candidate, in a shuffled order; the choice is judged by the grid's rates, and the cost is device time. Twice for each
trainer: the best throughput per GPU, and the cheapest that meets a deadline. Trainers: tinygrad, and PyTorch where
VGPU_TORCH_PYTHON names an interpreter that has its build for CUDA.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.pytorch.interpreter import CANNOT, find_python
from benchmarks.table import at_least, at_most, judge
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.core.tune.choice import choose
from vgpud.core.tune.model import Candidate
from vgpud.core.tune.record import Record, read_record

GPUS, BATCHES = "0.25,0.5,1", "64..512"
PATTERN = r'"samples": (?P<samples>\d+), "seconds": (?P<seconds>[\d.]+)'
GOAL_QUALITY, GOAL_COST = 0.95, 0.25
#: the deadline is what the fastest candidate needs, and so much more
DEADLINE_FACTOR = 1.5
SAMPLES = 1_000_000
#: more than any trainer takes
ENDLESS_S = 100_000


@dataclass(frozen=True)
class Trainer:
    """A program that trains until it is ended, with a batch."""

    name: str
    python: str
    variables: tuple[str, ...] = ()

    def words(self) -> list[str]:
        variables = [word for variable in self.variables for word in ("--env", variable)]
        module = f"benchmarks.cifar.train_{self.name}"
        program = [self.python, "-m", module, "--seconds", str(ENDLESS_S), "--report-every", "1", "--batch", "{batch}"]
        return [*variables, "--", *program]


class Site:
    """Tunings on a private system."""

    def __init__(self, own: OwnSystem, run_s: float) -> None:
        self._own, self._run_s = own, run_s
        own.env["XDG_STATE_HOME"] = str(own.folder / "home")
        own.env["VGPU_SIM_KERNELS"] = str(Path(__file__).with_name("kernels.model"))

    def tune(self, trainer: Trainer, gpus: str, batches: str, *options: str) -> Record:
        """Raises RuntimeError if it fails."""
        words = ["--run-time", f"{self._run_s:g}s", "--run-limit", "20m", "--rate-pattern", PATTERN, "--name", "bench"]
        command = [sys.executable, "-m", "vgpud.cli.main", "tune", "--gpus", gpus, "--batch", batches, *words, *options]
        done = subprocess.run(
            [*command, *trainer.words()], env=self._own.env, cwd=harness.ROOT, stdout=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            raise RuntimeError(f"vgpu tune has ended with {done.returncode}")
        return read_record((Path(self._own.env["XDG_STATE_HOME"]) / "vgpud/tune/bench.json").read_text())

    def measure_grid(self, trainer: Trainer, candidates: list[Candidate]) -> dict[Candidate, Record]:
        """Each alone and in full."""
        order = random.Random(1).sample(candidates, len(candidates))
        return {one: self.tune(trainer, f"{one.gpus:g}", str(one.value("batch"))) for one in order}


def judge_choice(record: Record, grid: dict[Candidate, Record]) -> dict[str, Any]:
    """By the grid's rates: the choice beside the best, 1 = as good, and what is late is
    at most as good as it is in time. And the cost as a part of the grid's."""
    rates = {one: alone.rows[0].rate for one, alone in grid.items()}
    best = choose(list(rates.items()), record.work)
    chosen = record.chosen_row
    assert best and chosen
    rate, work = rates[chosen.candidate], record.work
    quality = work.gpu_seconds(*best) / work.gpu_seconds(chosen.candidate, rate)
    if not work.is_met(chosen.candidate, rate):
        quality = min(quality, work.deadline_s / work.duration_s(chosen.candidate, rate))
    return {
        "choice": chosen.candidate.describe(),
        "best": best[0].describe(),
        "quality": round(quality, 4),
        "cost": round(record.gpu_seconds_used / sum(one.gpu_seconds_used for one in grid.values()), 4),
        "cost_granted": round(record.gpu_seconds_granted / sum(one.gpu_seconds_granted for one in grid.values()), 4),
    }


def measure(site: Site, trainer: Trainer) -> dict[str, Any]:
    """Both tunings of a trainer, and its grid."""
    per_gpu = site.tune(trainer, GPUS, BATCHES)
    grid = site.measure_grid(trainer, [row.candidate for row in per_gpu.rows])
    fastest = max(alone.rows[0].rate for alone in grid.values())
    deadline_s = DEADLINE_FACTOR * SAMPLES / fastest
    deadline = site.tune(trainer, GPUS, BATCHES, "--samples", str(SAMPLES), "--deadline", f"{deadline_s:.3f}s")
    return {
        "per_gpu": judge_choice(per_gpu, grid),
        "deadline": judge_choice(deadline, grid),
        "grid": {one.describe(): alone.rows[0].rate for one, alone in grid.items()},
        "records": {name: json.loads(one.to_json()) for name, one in (("per_gpu", per_gpu), ("deadline", deadline))},
    }


def find_trainers(names: list[str]) -> list[Trainer]:
    """Those that can run here."""
    database = paths.make_private_dir(paths.cache_dir(), 0o755) / "tinygrad.db"
    found = {"tinygrad": Trainer("tinygrad", sys.executable, (f"CACHEDB={database}", "NOOPT=1", "PARALLEL=0"))}
    if "torch" in names and (python := find_python(("torch", "numpy"))):
        found["torch"] = Trainer("torch", python)
    return [found[name] for name in names if name in found]


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--run-s", type=float, default=16.0, help="of a full measurement (default: %(default)s)")
    parser.add_argument("trainers", nargs="*", default=["tinygrad", "torch"], help="tinygrad, torch (default: both)")
    options = parser.parse_args()
    if options.real:
        parser.error("it is for the simulated device, whose kernels take what kernels.model says")
    if unknown := set(options.trainers) - {"tinygrad", "torch"}:
        parser.error(f"no trainer {min(unknown)!r}: choose from tinygrad, torch")
    trainers = find_trainers(options.trainers)
    with harness.system(harness.one_device(), ("job_grace_s = 2",)) as own:
        own.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(harness.ROOT), os.environ.get("PYTHONPATH")]))
        site = Site(own, options.run_s)
        good = [report(options, trainer.name, measure(site, trainer)) for trainer in trainers]
    if len(good) < len(options.trainers):
        return CANNOT
    return 0 if all(good) else 1


def report(options: Any, trainer: str, raw: dict[str, Any]) -> bool:
    """Whether all goals are met; writes one result for each trainer."""
    good: list[bool] = []
    figures: dict[str, Any] = {}
    goals: dict[str, float] = {}
    for aim in ("per_gpu", "deadline"):
        one = raw[aim]
        print(f"{trainer}, {aim}: chose {one['choice']}; the grid's best: {one['best']}")
        good.append(judge(f"{trainer}, {aim}: of the grid's best", one["quality"], at_least(GOAL_QUALITY)))
        good.append(judge(f"{trainer}, {aim}: device time, of the grid's", one["cost"], at_most(GOAL_COST)))
        figures |= {f"{aim}_{name}": one[name] for name in ("quality", "cost", "cost_granted")}
        goals |= {f"{aim}_quality": GOAL_QUALITY, f"{aim}_cost": GOAL_COST}
    path = results.write(
        f"tune_{trainer}",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={"gpus": GPUS, "batches": BATCHES, "run_s": options.run_s, "deadline_factor": DEADLINE_FACTOR},
        goals=goals,
        figures=figures,
        raw=raw,
        folder=options.results,
    )
    print(path, flush=True)
    return all(good)


if __name__ == "__main__":
    sys.exit(main())
