"""The driver where its own parts have a fault: kubelet has an answer, and no half of a driver keeps running."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from lightkube import AsyncClient, KubeConfig

from tests.k8s.parts import NODE, kubeconfig
from vgpud.k8s.core.machine import State
from vgpud.k8s.core.model import Ref
from vgpud.k8s.driver import WAIT_S, Driver
from vgpud.k8s.shell import api_server, kubelet
from vgpud.k8s.shell.health_files import HealthFiles
from vgpud.k8s.shell.kubelet import Paths
from vgpud.k8s.shell.node_lock import NodeLock
from vgpud.k8s.shell.sockets import listen

REF = Ref("u", "team", "half")


def run(folder: Path, story: Any) -> list[str]:
    """Runs a story with a driver that is not started; returns why it wanted to end."""
    ended: list[str] = []
    config = KubeConfig.from_file(kubeconfig(folder, "http://127.0.0.1:9"))

    async def inner() -> None:
        async with grpc.aio.insecure_channel(f"unix:{folder}/none") as channel:
            connect = lambda: AsyncClient(config, trust_env=False)  # noqa: E731
            paths, lock = Paths(folder, folder, ""), NodeLock(folder)
            driver = Driver(State(NODE), connect, channel, paths, lock, HealthFiles(None), ended.append)
            await story(driver)
            await driver.stop()

    asyncio.run(inner())
    return ended


async def for_ever(*_arguments: object) -> Any:
    await asyncio.Event().wait()


async def broken(*_arguments: object) -> Any:
    raise ValueError("value out of range")


@pytest.mark.parametrize("ending", [False, True])
def test_a_call_with_a_fault_is_answered_and_the_next_one_is_not_stuck_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bool
) -> None:
    async def story(driver: Driver) -> None:
        monkeypatch.setattr(driver._api, "read_claim", broken)
        monkeypatch.setattr(driver._daemon, "end_slice", broken)
        for _ in range(2):
            answer = await asyncio.wait_for(driver._calls.ask(REF, ending), 20)
            assert "the driver has a fault, which its log has: value out of range" in answer.error
        assert not driver._state.work and not driver._calls._waiting

    assert run(tmp_path, story) == []


def test_an_answer_comes_within_kubelets_45_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kubelet.ANSWER_S + kubelet.ANSWER_S / 10 < 45
    assert api_server.CALL_S + WAIT_S < kubelet.ANSWER_S, "the reason of a wait without result is said"
    monkeypatch.setattr(kubelet, "ANSWER_S", 0.05)

    async def story(driver: Driver) -> None:
        monkeypatch.setattr(driver._api, "read_claim", for_ever)
        answer = await asyncio.wait_for(driver._calls.ask(REF, False), 20)
        assert answer.error == "claim team/half: vgpud's driver did not finish in time: kubelet tries again"
        assert not driver._calls._waiting

    assert run(tmp_path, story) == []


def test_a_watch_with_a_fault_ends_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(driver: Driver) -> None:
        monkeypatch.setattr(driver._daemon, "watch", broken)
        await driver.start()
        await asyncio.sleep(0.1)

    assert run(tmp_path, story) == ["the driver has a fault: value out of range"]


def test_a_socket_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """The command says it, where gRPC has an error of its own."""

    async def story() -> None:
        with pytest.raises(OSError, match=r"cannot listen on .*none/reg\.sock"):
            listen(grpc.aio.server(), tmp_path / "none" / "reg.sock")

    asyncio.run(story())


def test_a_kubeconfig_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vgpud.k8s", "--kubelet-dir", str(tmp_path), "--socket", str(tmp_path / "none")]
    command += ["--kubeconfig", str(tmp_path / "config")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = f"vgpud-k8s: no API server is known: Configuration file {tmp_path / 'config'} not found: name a --kubeconfig"
    assert (done.returncode, done.stderr.startswith(said)) == (2, True), done.stderr
