"""What the benchmarks share: C programs built on the spot, the kernel model with spin kernels, a private system."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.spinning import spinning
from vgpud.cli.demo.private_system import OwnSystem

ROOT = results.ROOT
BUILD = ROOT / "build" / "bench"
SHIPPED_MODEL = ROOT / "shim" / "simgpu" / "kernels.model"
CFLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread")


def build(source: str, *flags: str, output: str | None = None) -> Path:
    """Compiles one C file of benchmarks/ into build/bench/. Raises CalledProcessError when the compiler refuses.

    It is there all at once: another process may be running the one before it, or begin to.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / (output or Path(source).stem)
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [*compiler, *CFLAGS, "-o", str(made), str(ROOT / "benchmarks" / source), *flags, "-ldl"]
        subprocess.run(command, check=True)
        made.replace(path)
    return path


def spin_model(folder: Path, lengths_us: Iterable[int]) -> Path:
    """Writes a kernel model file: the shipped one, and before it a rule for spin_N of each length."""
    rules = [f"^spin_{us}$  us={us}  wave_us=0" for us in sorted(set(lengths_us))]
    path = folder / "kernels.model"
    path.write_text("\n".join([*rules, SHIPPED_MODEL.read_text()]))
    return path


@contextmanager
def system(
    sim_config: Mapping[str, str] | None, config: Sequence[str] = (), lengths_us: Iterable[int] = (200,)
) -> Iterator[OwnSystem]:
    """A private daemon and device in a temporary folder. sim_config None: on the real device."""
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        folder = Path(name)
        own = OwnSystem(folder, sim_config, config)
        own.env["VGPU_SIM_KERNELS"] = str(spin_model(folder, lengths_us))
        with own:
            yield own


def one_device() -> dict[str, str]:
    """The configuration of one simulated device with its shipped constants."""
    return {"devices": "1"}


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, prog=_prog()
    )
    made.add_argument("--real", action="store_true", help="use the real device instead of the simulated one")
    made.add_argument(
        "--results", type=Path, default=results.RESULTS, help="folder for the JSON (default: %(default)s)"
    )
    made.set_defaults(**defaults)
    return made


LOAD_SECONDS_MAX = 3600.0


def add_load(parser: argparse.ArgumentParser) -> None:
    """The option --load, for figures beside other work."""
    parser.add_argument(
        "--load", type=int, default=0, metavar="N", help="beside N processes that only spin, at normal priority"
    )


@contextmanager
def load_processors(count: int) -> Iterator[None]:
    """So many processes spin in the body."""
    with spinning(count, LOAD_SECONDS_MAX):
        yield


def loaded_name(name: str, count: int) -> str:
    """The name of a result: figures beside other work are kept apart."""
    return f"{name}-load{count}" if count else name


def without_hook(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of the same program without the hook."""
    return {name: value for name, value in env.items() if name != "LD_PRELOAD"}


def _prog() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
