"""[devices] kubernetes in a daemon: names that are checked at start, and every command of a user that meets it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from tests.daemon.node import Node, wait_until
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.errors import ExitCode

ALL = ["[devices]", 'kubernetes = ["all"]']
OWNED = "belong to Kubernetes here (devices.kubernetes in vgpud.toml): ask for them with a ResourceClaim"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--gpus", "0.5", "--", "true"),
        ("slice", "create", "a", "--gpus", "0.5"),
        ("alloc", "0.5"),
        ("submit", "--gpus", "0.5", "--", "true"),
    ],
)
def test_every_command_says_that_all_devices_are_kubernetes(
    make_system: Callable[..., OwnSystem], short_dir: Path, words: tuple[str, ...]
) -> None:
    system = make_system(config=[f'cdi_dir = "{short_dir}/cdi"', *ALL])
    done = call(system, *words)
    assert done.returncode and f"devices 0, 1 {OWNED}" in done.stderr, done


def test_a_list_leaves_the_other_device_to_users(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(config=["[devices]", 'kubernetes = ["1"]'])
    assert call(system, "slice", "create", "a", "--gpus", "0.5").returncode == 0
    assert [d["device_index"] for d in ask(system, "slice", "show", "a")["slice"]["devices"]] == [0]
    assert call(system, "submit", "--wait", "--gpus", "0.5", "--", "true").returncode == 0
    assert "device 1 belongs to Kubernetes here" in call(system, "submit", "--gpus", "2", "--", "true").stderr
    devices = ask(system, "gpu", "ls")["devices"]
    assert [(d["kubernetes"], d["offered"]) for d in devices] == [(False, True), (True, True)]
    assert "given to Kubernetes" in call(system, "doctor").stdout
    for words in (("gpu", "ls"), ("status",)):
        assert "to Kubernetes" in call(system, *words).stdout


@pytest.mark.parametrize("name", ["7", "GPU-00000000-0000-0000-0000-000000000000", "", "ALL"])
def test_a_device_that_is_not_there_is_refused_at_start(node: Node, name: str) -> None:
    node.settings["[devices]"] = f'kubernetes = ["0", "{name}"]'
    done = node.run()
    assert done.returncode == ExitCode.USAGE
    assert f"devices.kubernetes names '{name}', vgpud has 0 (GPU-" in done.stderr
    assert 'name these, or "all"' in done.stderr


def test_a_device_by_uuid(node: Node) -> None:
    node.start()
    uuid = node.nodes.ListDevices(node_request()).devices[0].uuid
    node.stop()
    node.settings["[devices]"] = f'kubernetes = ["{uuid}"]'
    node.start()
    assert node.nodes.ListDevices(node_request()).devices[0].kubernetes


def test_a_reload_changes_nothing_before_a_restart(node: Node) -> None:
    node.start()
    node.create("a", 500)
    node.settings["[devices]"] = 'kubernetes = ["all"]'
    node.write_config()
    assert node.process
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "needs a restart: devices" in node.log.read_text(), "the reload")
    node.create("b", 100)
    node.stop()
    node.start()
    assert node.names() == ["a", "b"]
    assert len(node.messages("slice.beside_claims")) == 2


def node_request() -> Any:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    return pb.ListDevicesRequest()
