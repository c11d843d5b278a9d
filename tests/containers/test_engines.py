"""The engines themselves, without us: what the other tests here stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import engine
from benchmarks.base_image import base_tar

from . import conftest


def test_docker_runs_a_container_over_runc(plain_docker: engine.Docker) -> None:
    done = plain_docker.run(engine.BASE, "sh", "-c", "echo $((6 * 7))", runtime="runc")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_an_image_is_built_on_the_base(plain_docker: engine.Docker) -> None:
    name = plain_docker.build("vgpu-test/built", f"FROM {engine.BASE}\nENV WORD=there\n")
    done = plain_docker.run(name, "sh", "-c", "echo $WORD", runtime="runc")
    assert done.stdout == "there\n", done.stderr


def test_the_base_image_is_made_once(image_tar: Path) -> None:
    before = image_tar.stat().st_mtime_ns
    assert base_tar() == image_tar
    assert image_tar.stat().st_mtime_ns == before


def test_without_an_engine_the_summary_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no container engine: .*(is not installed|need root)"):
        conftest.need("no-such-engine")


def test_in_ci_that_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI=true, and this must run: no container engine"):
        conftest.need("no-such-engine")
