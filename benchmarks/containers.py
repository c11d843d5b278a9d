"""What sharing costs containers: CIFAR trainers side by side in slices, against the same containers without the shim.

1 to 4 containers on one device with equal shares, 0.5/0.25/0.25, and 2.5 of three devices beside the half that is left.
Each mix runs twice with the same image and command: over vgpu-runtime with `VGPU=...`, and over plain runc with the
driver mounted, where the device time-slices between them by itself. Then the pair 0.25/0.75, once with kernels that
never pause and once with trainers; `vgpu slice set` swaps the shares while they run. Needs root and docker, whose
daemon it starts for itself; images are made on the spot.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import containers_view, engine, harness, images, results
from benchmarks.base_image import ImageError
from benchmarks.container_runs import Container, Measured, open_stage
from benchmarks.qualify import checks
from benchmarks.table import at_most, below_bound, judge
from vgpud.errors import VgpudError

#: the seed of this project lost 10 % of samples per second with each container added: the figure to beat
GOAL_LOSS_PER_ADDED = 0.10
GOAL_ERROR_PP = 3.0
REAL_BASE = "debian:bookworm-slim"
TORCH_TARGET = "cifar-bench-torch"
PLOT = results.ROOT / "docs" / "containers.png"


def equal(count: int) -> tuple[Container, ...]:
    """count containers that share one device equally; a share has three digits, so three get 0.333 each."""
    return tuple(Container("abcd"[index], (int(1000 / count) / 1000,)) for index in range(count))


MIXES: dict[str, tuple[Container, ...]] = {
    "1": equal(1),
    "2": equal(2),
    "3": equal(3),
    "4": equal(4),
    "0.5/0.25/0.25": (Container("half", (0.5,)), Container("left", (0.25,)), Container("right", (0.25,))),
    "2.5 of 3": (Container("most", (1, 1, 0.5), "0,1,2"), Container("rest", (0.5,), "2")),
}
PAIR = "0.25/0.75"
SMALL, LARGE = "small", "large"


class Bench:
    """An engine with the trainer's image, and what was measured on it."""

    def __init__(self, docker: engine.Docker, work: Path, image: str, args: argparse.Namespace) -> None:
        self.docker, self.work, self.image, self.args = docker, work, image, args
        self.device = ""
        self.raw: dict[str, Any] = {}

    def run(self, mix: str, *, shim: bool) -> Measured:
        """One mix, once."""
        wanted = MIXES[mix]
        devices = max(len(one.shares) for one in wanted)
        folder = self.work / f"s{len(self.raw)}"
        with open_stage(folder, self.docker, self.image, devices=devices, shim=shim, real=self.args.real) as stage:
            if shim:
                self.device = self.device or stage.own.device_name()
            stage.start(wanted)
            measured = stage.measure(self.args.seconds)
        self._keep(f"{mix} {'vgpu' if shim else 'plain'}", measured)
        return measured

    def run_pair(self, *, saturating: bool) -> dict[str, Measured]:
        """0.25/0.75, then the same containers with their shares swapped live. saturating: without Python's pauses."""
        promised = {SMALL: 0.25, LARGE: 0.75}
        found = {}
        folder = self.work / f"p{len(self.raw)}"
        what = "kernels" if saturating else "trainers"
        with open_stage(folder, self.docker, self.image, devices=1, shim=True, real=self.args.real) as stage:
            self.device = self.device or stage.own.device_name()
            stage.start([Container(name, (share,), saturating=saturating) for name, share in promised.items()])
            found[f"{what} {PAIR}"] = stage.measure(self.args.seconds, promised)
            for name, share in ((LARGE, 0.25), (SMALL, 0.75)):  # what is given up must be free before it is taken
                stage.own.vgpu("slice", "set", name, "--gpus", f"{share:g}", "--max", f"{share:g}")
                promised[name] = share
            found[f"{what} set live"] = stage.measure(self.args.seconds, promised)
        for name, measured in found.items():
            self._keep(name, measured)
        return found

    def _keep(self, name: str, measurement: Measured) -> None:
        self.raw[name] = asdict(measurement)
        print(f"{name:<22} {measurement.total():>10,.0f} samples/s   {containers_view.rates(measurement)}", flush=True)


def figures_of(mix: str, plain: Measured, shim: Measured) -> dict[str, Any]:
    """The figures of one mix."""
    return {
        "containers": {one.name: list(one.shares) for one in MIXES[mix]},
        "plain": {"samples_per_second": plain.rates, "sum": round(plain.total(), 1), "shares": plain.shares},
        "vgpu": {"samples_per_second": shim.rates, "sum": round(shim.total(), 1), "shares": shim.shares},
        "loss": round(1 - shim.total() / plain.total(), 5),
    }


def add_losses(mixes: dict[str, Any]) -> None:
    """Adds to the equal mixes what each container beyond the first costs: (loss with n - loss with 1) / (n - 1)."""
    for count in (2, 3, 4):
        if "1" in mixes and str(count) in mixes:
            added = (mixes[str(count)]["loss"] - mixes["1"]["loss"]) / (count - 1)
            mixes[str(count)]["loss_per_added_container"] = round(added, 5)


def judge_mixes(mixes: dict[str, Any], pair: dict[str, Any]) -> bool:
    """Prints figures beside their goals. Returns whether all are met."""
    good = True
    for mix, figures in mixes.items():
        if "loss_per_added_container" in figures:
            value = figures["loss_per_added_container"]
            what = f"{mix} containers: loss per added container"
            good &= judge(what, value, below_bound(GOAL_LOSS_PER_ADDED))
    for phase, figures in pair.items():
        if figures["worst_window"]:
            error = figures["worst_window"]["error_pp"]
            what = f"{phase}: worst one-second share error, pp"
            good &= judge(what, error, at_most(GOAL_ERROR_PP))
    return good


def pair_figures(measurements: dict[str, Measured]) -> dict[str, Any]:
    """The figures of the pair, by phase."""
    return {
        phase: {
            "samples_per_second": measured.rates,
            "shares": measured.shares,
            "worst_window": asdict(measured.worst_window) if measured.worst_window else None,
        }
        for phase, measured in measurements.items()
    }


def make_image(docker: engine.Docker, work: Path, args: argparse.Namespace) -> str:
    """The trainer's image. Real: PyTorch, from the package index; simulated: PyTorch's wheel where it is there, else
    tinygrad, from wheels."""
    context = images.context(work / "context")
    if args.real:
        print("making the image: PyTorch", flush=True)
        return images.build(docker, context, TORCH_TARGET, args.base or REAL_BASE, offline=False)
    wheel = args.torch or images.find_torch_wheel()
    print(f"making the image: {f'PyTorch, {wheel.name}' if wheel else 'tinygrad'}", flush=True)
    base = args.base or images.import_base(docker)
    if wheel:
        version, packages = images.add_torch(context, wheel)
        return images.build(docker, context, TORCH_TARGET, base, TORCH=version, TORCH_PACKAGES=packages)
    images.add_wheels(context, images.CIFAR)
    return images.build(docker, context, "cifar-bench", base)


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = harness.parser(__doc__)
    made.add_argument("--seconds", type=float, default=20.0, help="measured time of a run (default: %(default)s)")
    made.add_argument("--mix", action="append", choices=[*MIXES, PAIR], help="mixes to run (default: all)")
    made.add_argument("--base", default="", help="base image (default: made by debootstrap; --real: " + REAL_BASE + ")")
    made.add_argument("--torch", type=Path, help="PyTorch's wheel for CUDA (default: in docker/wheels, else tinygrad)")
    made.add_argument("--plot", type=Path, default=PLOT, help="where the plot goes (default: %(default)s)")
    args = made.parse_args()
    if args.seconds < 2:
        made.error("--seconds must be at least 2")
    return args


def measure(args: argparse.Namespace, work: Path, names: Sequence[str]) -> bool:
    """Runs the mixes and writes result and plot. Returns whether all goals are met."""
    front = work / "d" / "front"
    with engine.Docker(work / "d", {"vgpu": front / "vgpu-runtime"}) as docker:
        bench = Bench(docker, work, make_image(docker, work, args), args)
        mixes = {}
        for mix in MIXES:
            if mix in names:
                mixes[mix] = figures_of(mix, bench.run(mix, shim=False), bench.run(mix, shim=True))
        pair = {}
        if PAIR in names:
            pair = pair_figures({**bench.run_pair(saturating=True), **bench.run_pair(saturating=False)})
    add_losses(mixes)
    print(f"{bench.device}: CIFAR containers, samples/s\n")
    print(containers_view.format_mixes(mixes, pair))
    good = judge_mixes(mixes, pair)
    path = results.write(
        "containers",
        is_simulated=not args.real,
        device=bench.device,
        parameters={"seconds": args.seconds, "settle_s": 2, "window_s": 1, "step_s": 0.1, "image": bench.image},
        goals={"loss_per_added_container": GOAL_LOSS_PER_ADDED, "error_pp": GOAL_ERROR_PP},
        figures={"mixes": mixes, "pair": pair},
        raw=bench.raw,
        folder=args.results,
    )
    trained = {phase: bench.raw[phase] for phase in pair if phase.startswith("trainers")}
    containers_view.plot(args.plot, bench.device, mixes, trained)
    print(path, args.plot, sep="\n")
    return good


def main() -> int:
    """Runs the benchmark. Exit code 1 when a goal is missed, 3 where containers cannot run."""
    args = arguments()
    reason = engine.why_not("dockerd", "docker") or (args.real and checks.has_device())
    if reason:
        print(f"containers: {reason}")
        return 3
    work = Path(tempfile.mkdtemp(prefix="vgb-"))
    try:
        return 0 if measure(args, work, args.mix or [*MIXES, PAIR]) else 1
    except (VgpudError, ImageError, images.BuildError) as error:
        print(f"containers: {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
