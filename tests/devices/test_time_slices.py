"""Lengths of the driver's time slices: by nvidia-smi on real devices, by its server on simulated ones, and undone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.core.test_machine import device as core_device
from tests.daemon.node import Node, wait_until
from vgpud import paths
from vgpud.config import TIME_SLICES
from vgpud.devices import time_slices
from vgpud.devices.time_slices import RECORD_NAME, TimeSlices
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.slow
GPU, OTHER = replace(core_device(0), is_simulated=False), replace(core_device(1), is_simulated=False)
GPUS = {GPU.uuid: GPU, OTHER.uuid: OTHER}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone sets time slices")
needs_sim = pytest.mark.skipif(
    not (paths.sim_lib_dir() / "libcuda.so.1").exists(), reason="the simulated driver is not built: run make"
)


class Smi:
    """An nvidia-smi that writes down how it was called. `answer`: what it prints and exits with."""

    def __init__(self, folder: Path, answer: str = "exit 0") -> None:
        self.calls_path = folder / "calls"
        self.program = folder / "nvidia-smi"
        self.program.write_text(f'#!/bin/sh\necho "$@" >> {self.calls_path}\n{answer}\n')
        self.program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.calls_path.read_text().splitlines() if self.calls_path.exists() else []


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setattr(time_slices, "_SMI_PLACES", "")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    return tmp_path


def make_slices(folder: Path) -> TimeSlices:
    return TimeSlices(TIME_SLICES, folder, "")


@needs_root
def test_what_a_killed_daemon_set_is_undone_by_the_next(places: Path) -> None:
    smi = Smi(places)
    said = make_slices(places).apply(GPUS, {GPU.uuid: "long", OTHER.uuid: "default"})
    assert [(one.device_uuid, one.length, one.why_not) for one in said] == [(GPU.uuid, "long", "")]
    assert smi.calls == [f"compute-policy -i {GPU.uuid} --set-timeslice 3"]
    assert make_slices(places).apply(GPUS, {GPU.uuid: "default", OTHER.uuid: "short"})[0].length == "short"
    undone = [f"compute-policy -i {GPU.uuid} --set-timeslice 0", f"compute-policy -i {OTHER.uuid} --set-timeslice 1"]
    assert smi.calls[1:] == undone
    make_slices(places).undo(GPUS)
    assert smi.calls[-1] == f"compute-policy -i {OTHER.uuid} --set-timeslice 0"
    assert json.loads((places / RECORD_NAME).read_text()) == []


@needs_root
def test_it_is_written_down_before_it_is_done(places: Path) -> None:
    """What nvidia-smi finds when it is called."""
    smi = Smi(places, f"cat {places / RECORD_NAME} >> {places / 'calls'}")
    make_slices(places).apply(GPUS, {GPU.uuid: "medium", OTHER.uuid: "default"})
    assert json.loads(smi.calls[1]) == [GPU.uuid]


@needs_root
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("echo 'Unable to set it' >&2; exit 4", "the driver does not take it: Unable to set it"),
        ("echo 'Not Supported'", "the driver does not take it: Not Supported"),
        ("exit 9", "the driver does not take it: exit code 9"),
    ],
)
def test_a_driver_that_refuses_is_said_in_one_line(places: Path, answer: str, why: str) -> None:
    Smi(places, answer)
    (said,) = make_slices(places).apply({GPU.uuid: GPU}, {GPU.uuid: "long"})
    assert said.why_not == why


@needs_root
def test_neither_smi_nor_instances_can(places: Path) -> None:
    (said,) = make_slices(places).apply({GPU.uuid: GPU}, {GPU.uuid: "long"})
    assert said.why_not.startswith("there is no nvidia-smi")
    instance = replace(GPU, profile="1g.18gb")
    (said,) = make_slices(places).apply({GPU.uuid: instance}, {GPU.uuid: "long"})
    assert said.why_not.startswith("it is a MIG instance")


@pytest.mark.parametrize("path", ["", "relative:.:/bin", None])
def test_no_smi_of_the_working_directory_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    """Root would run what a user has put there."""
    monkeypatch.setattr(time_slices, "_SMI_PLACES", "/bin")
    if path is None:
        monkeypatch.delenv("PATH", raising=False)
    else:
        monkeypatch.setenv("PATH", path)
    (tmp_path / "relative").mkdir()
    fakes = Smi(tmp_path), Smi(tmp_path / "relative")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(time_slices.TimeSliceError):
        time_slices._call_smi("GPU-none", 0)
    assert [fake.calls for fake in fakes] == [[], []]


def test_nothing_is_called_where_nothing_is_asked_for(places: Path) -> None:
    smi = Smi(places)
    make_slices(places).apply(GPUS, dict.fromkeys(GPUS, "default"))
    make_slices(places).undo(GPUS)
    assert smi.calls == [] and not (places / RECORD_NAME).exists()


def test_a_damaged_record_is_no_fault(places: Path) -> None:
    for text in ("", "{", '"GPU-0"', "[1, null]"):
        (places / RECORD_NAME).write_text(text)
        make_slices(places).undo(GPUS)


# ---- a daemon on a simulated device ----


@pytest.fixture
def device(node: Node) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(node.directory / "sim", {"devices": 2, "memory_bytes": "4G"}) as started:
        yield started


def lengths(device: SimulatedDevice) -> list[str]:
    shown = state_page.read(device.directory / state_page.PAGE_NAME)
    return [TIME_SLICES[each.time_slice] for each in shown.devices]


@needs_root
@needs_sim
def test_a_daemon_sets_and_undoes_them(node: Node, device: SimulatedDevice) -> None:
    where = ["--device", "sim", "--sim-dir", str(device.directory)]
    node.settings["[devices]"] = 'time_slice = ["all=long", "1=short"]'
    node.start(*where)
    wait_until(lambda: lengths(device) == ["long", "short"], "the lengths")
    shown = node.nodes.GetNode(pb.GetNodeRequest()).node.time_slices
    assert [(each.length, each.problem) for each in shown] == [("long", ""), ("short", "")]
    node.stop(signal.SIGKILL)
    assert lengths(device) == ["long", "short"], "nobody could undo it"
    node.settings["[devices]"] = 'time_slice = ["1=medium"]'
    node.start(*where)
    wait_until(lambda: lengths(device) == ["default", "medium"], "the lengths of the second daemon")
    assert node.stop() == 0
    assert lengths(device) == ["default", "default"]


@needs_sim
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('"endless"', "write one of default, short, medium, long, or a list such as"),
        ('["0=endless"]', "write one of default, short, medium, long, or a list such as"),
    ],
)
def test_a_length_that_is_none_is_refused(node: Node, device: SimulatedDevice, setting: str, why: str) -> None:
    node.settings["[devices]"] = f"time_slice = {setting}"
    refused = node.run("--device", "sim", "--sim-dir", str(device.directory))
    assert refused.returncode == 2
    assert why in refused.stderr


@needs_sim
def test_a_device_that_is_not_there_is_said_and_keeps_no_other_from_its_length(
    node: Node, device: SimulatedDevice
) -> None:
    node.settings["[devices]"] = 'time_slice = ["7=short", "1=long"]'
    node.start("--device", "sim", "--sim-dir", str(device.directory))
    wait_until(lambda: lengths(device) == ["default", "long"], "the lengths")
    entries = node.events.ListEvents(pb.ListEventsRequest()).events
    assert "devices.time_slice names '7', which is no device here" in [entry.message for entry in entries]
