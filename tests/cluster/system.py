"""A controller over programs that stand in for Slurm's, in folders of a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cluster import fake_programs
from tests.cluster.fake_slurm import FakeSlurm
from vgpud.cli.main import cli
from vgpud.cluster import service
from vgpud.cluster.shell import slurm as shell
from vgpud.cluster.shell.slurm import Slurm
from vgpud.core.jobs.model import QueueSpec
from vgpud.errors import VgpudError


def invoke(words: Sequence[str]) -> Result:
    """A command line in this process. A refusal is in the output, and is the exit code, as `vgpu` itself has it."""
    done = CliRunner().invoke(cli, words)
    if isinstance(done.exception, VgpudError):
        done.exit_code = int(done.exception.exit_code)
        done.output_bytes += f"vgpu: {done.exception}\n".encode()
    return done


class System:
    """Programs on PATH, and the folders of a controller. `quick`: the controller calls them as functions."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, quick: bool = False) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.state = fake_programs.install(folder / "bin", FakeSlurm(n1=2, n2=1))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        if quick:
            monkeypatch.setattr(shell, "run", self._call)
        self.options = service.Options(
            "gpu",
            folder / "state",
            folder / "run",
            (QueueSpec("default", min_run_ns=0),),
            record=str(folder / "record"),
        )

    def _call(self, words: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = 0) -> str:
        try:
            return fake_programs.call(self.state, words[0], list(words[1:]))
        except SystemExit as error:
            raise shell.SlurmError(str(error)) from error

    def slurm(self) -> FakeSlurm:
        found = fake_programs.load(self.state)
        assert isinstance(found, FakeSlurm)
        return found

    def submit(self, gres: str, **fields: object) -> str:
        slurm = self.slurm()
        key = slurm.submit(gres, **fields)  # type: ignore[arg-type]
        fake_programs.save(self.state, slurm)
        return key

    def end(self, key: str) -> None:
        slurm = self.slurm()
        slurm.end(key)
        fake_programs.save(self.state, slurm)

    def service(self) -> service.Service:
        return service.Service(self.options, Slurm("gpu"))

    def change(self, change: Callable[[FakeSlurm], object]) -> None:
        """Something that happens in Slurm."""
        slurm = self.slurm()
        change(slurm)
        fake_programs.save(self.state, slurm)

    def run(self, *words: str) -> Result:
        """A command of vgpu as a user calls it; what it prints on stderr is part of the output."""
        return invoke(words)

    def say(self, *words: str) -> str:
        """What it prints, where it succeeds."""
        done = self.run(*words)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def vgpu(self, *words: str) -> str:
        """A command of `vgpu cluster`."""
        return self.say("cluster", *words)
