"""The daemon's shells by themselves: store, event log, configuration, devices, pages."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from vgpud import config, paths
from vgpud.core.events import ForgetSlice, SaveRequest, SaveSlice
from vgpud.core.model import Remembered, Share, Slice, Spec
from vgpud.core.observed import ADMINS, Entry
from vgpud.core.origins import User
from vgpud.daemon.slices.event_log import NOISY_PER_S, EventLog
from vgpud.devices.nvml import Devices, mps_pid, sim_context_bytes
from vgpud.errors import ConfigError, DeniedError, DriverError
from vgpud.host import processes
from vgpud.simdevice import state_page
from vgpud.store.database import Store

SHARE = Share("GPU-0", 250, 1000, 1 << 30, 2 << 30)


def make_slice(name: str = "a", revision: int = 1) -> Slice:
    spec = Spec(250, None, 1000, 1 << 30, 2 << 30, 5, 7, ("GPU-0",))
    return Slice(User(name, ephemeral=True), f"uid-{name}", 3, spec, (SHARE,), 1000, 123, revision)


def entry(sequence: int) -> Entry:
    return Entry(sequence, 10**18 + sequence, "slice.created", "a", "GPU-0", 1 << 50, "text")


def test_store_keeps_everything(tmp_path: Path) -> None:
    store = Store(tmp_path)
    remembered = Remembered("print", make_slice(), 99)
    store.apply([SaveSlice(make_slice()), SaveRequest("r", remembered), SaveSlice(make_slice("b"))])
    store.apply(
        [SaveSlice(make_slice(revision=2)), ForgetSlice("uid-b"), SaveRequest("d", Remembered("gone", None, 1))]
    )
    store.append_events([entry(1), entry(2)], 10)
    store.close()
    loaded = Store(tmp_path).load(10)
    assert loaded.slices == (make_slice(revision=2),)
    assert [(key, r.fingerprint, r.answer) for key, r in loaded.requests] == [
        ("r", "print", make_slice()),
        ("d", "gone", None),
    ]
    assert loaded.events == (entry(1), entry(2))


def test_store_is_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(1, 30):
        store.apply([SaveRequest(f"r{number}", Remembered("", None, 0))], requests_max=5)
        store.append_events([entry(number)], events_max=7)
    loaded = store.load(100)
    assert [key for key, _ in loaded.requests] == [f"r{n}" for n in range(25, 30)]
    assert [e.sequence for e in loaded.events] == list(range(23, 30))


def of_user(sequence: int, uid: int) -> Entry:
    return replace(entry(sequence), owner_uid=uid)


def flood() -> list[Entry]:
    """Two events of each of three users and of admins, and then thousands of one user's, with one more of another's."""
    few = [of_user(sequence, uid) for sequence, uid in enumerate((1, 2, 3, ADMINS) * 2, 1)]
    return [*few, *(of_user(sequence, 3 if sequence % 500 else 2) for sequence in range(9, 3000))]


def quiet(entries: Iterable[Entry]) -> list[int]:
    return [entry.sequence for entry in entries if entry.owner_uid != 3]


def test_no_user_pushes_others_events_out(tmp_path: Path) -> None:
    log, store = EventLog([], 100), Store(tmp_path)
    for one in flood():
        log.add(one)
        if one.sequence % 50 == 0:
            store.append_events(log.take_unwritten(), 100)
    store.append_events(log.take_unwritten(), 100)
    expected = quiet(flood())
    seen = log.entries_after(0)
    assert quiet(seen) == expected
    assert (len(seen), seen[-1].sequence, log.next_sequence) == (100, 2999, 3000)
    assert [one.sequence for one in seen] == sorted(one.sequence for one in seen)
    store.close()
    loaded = Store(tmp_path).load(100).events
    assert quiet(loaded) == expected and 100 <= len(loaded) <= 106
    again = EventLog(loaded, 100)
    assert quiet(again.entries_after(0)) == expected and again.next_sequence == 3000
    lowered = EventLog(loaded, 20).entries_after(0)
    assert len(lowered) == 20 and {one.owner_uid for one in lowered} == {1, 2, 3, ADMINS}


def test_owners_who_flood_together_share_the_log() -> None:
    log = EventLog([], 90)
    for sequence in range(1, 5000):
        log.add(of_user(sequence, 1 + sequence % 3 if sequence % 7 else 4))
    held = Counter(one.owner_uid for one in log.entries_after(0))
    assert max(held.values()) - min(held.values()) <= 1


def test_event_log_is_bounded_and_in_order() -> None:
    log = EventLog([entry(5)], 3)
    assert log.next_sequence == 6
    for sequence in range(6, 10):
        log.add(entry(sequence))
    assert [e.sequence for e in log.entries_after(0)] == [7, 8, 9]
    assert [e.sequence for e in log.entries_after(8)] == [9]
    taken = log.take_unwritten()
    log.add(entry(10))
    log.keep_unwritten(taken)
    assert [e.sequence for e in log.take_unwritten()] == [8, 9, 10]


def test_event_log_bounds_noise_per_slice_and_second() -> None:
    log = EventLog([], 3)
    assert [log.too_noisy("a", 5) for _ in range(NOISY_PER_S + 2)] == [False] * NOISY_PER_S + [True] * 2
    assert not log.too_noisy("b", 5)
    assert not log.too_noisy("a", 5 + 1_000_000_000)


@pytest.fixture
def devices(fake_driver: Path) -> Devices:
    made = Devices(str(fake_driver), str(fake_driver))
    made.inventory()
    return made


def test_who_draws_or_goes_by_mps_uses_a_device_as_well(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does several has the same memory in each list; two entries of one list are two parts of it."""
    lists = {"Compute": [(1, 5), (1, 2), (2, None)], "Graphics": [(1, 7), (3, 9)], "MPSCompute": [(4, 1)]}
    for kind, rows in lists.items():
        listed = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in rows]
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses", lambda _device, listed=listed: listed)
    (uuid,) = [device.uuid for device in devices.inventory()]
    assert devices.running(uuid) == {1: 7, 2: 0, 3: 9, 4: 1}


def test_pids_of_another_namespace_say_nothing(fake_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pid namespace of our own the driver's pids are others' here; a simulated device's are ours."""
    monkeypatch.setenv("FAKE_LISTED", str(listed := fake_driver.with_name("pids")))
    listed.write_text(str(os.getpid()))
    monkeypatch.setattr(processes, "sees_all_pids", lambda: False)
    made = Devices(str(fake_driver), str(fake_driver))
    (device,) = made.inventory()
    assert not made.knows_pids and made.running(device.uuid) is None and not made.lists(os.getpid())
    monkeypatch.setattr(processes, "sees_all_pids", lambda: True)
    made = Devices(str(fake_driver), str(fake_driver))
    made.inventory()
    assert made.lists(os.getpid())


def test_every_default_is_a_valid_configuration(tmp_path: Path) -> None:
    empty = tmp_path / "c.toml"
    empty.write_text("")
    assert config.load(empty) == config.Config()
    assert config.load(empty, mode="open", node=None).mode == "open"


def test_missing_default_file_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "config_file", lambda: tmp_path / "none.toml")
    assert config.load(None) == config.Config()
    with pytest.raises(ConfigError, match=r"no configuration file .*none2"):
        config.load(tmp_path / "none2.toml")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9419", ("127.0.0.1", 9419)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
        ("off", None),
    ],
)
def test_metrics_addresses(text: str, address: tuple[str, int] | None) -> None:
    given = config.Config(metrics=text)
    config.check(given, "x")
    assert config.metrics_address(given) == address


@pytest.mark.parametrize("text", ["", ":1", "host", "host:", "host:70000", "host:-1", "host:x"])
def test_wrong_metrics_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="metrics"):
        config.check(config.Config(metrics=text), "x")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("container_latency = 1", "1 is not true or false: write for example true$"),
        ("container_priority_max = true", "True is not a whole number"),
        ("container_priority_max = 1001", "write 0 to 1000$"),
        ("container_priority_max = -1", "write 0 to 1000$"),
        ('container_gpus_max = "0"', "0 GPUs is too little"),
        ('on_stranger = "stop"', '"log" or "freeze" or "kill"$'),
        ('on_excess = ""', '"log" or "freeze" or "kill"$'),
    ],
)
def test_wrong_values_of_the_site(tmp_path: Path, line: str, remedy: str) -> None:
    (tmp_path / "c.toml").write_text(line)
    with pytest.raises(ConfigError, match=remedy):
        config.load(tmp_path / "c.toml")


def test_directories_of_root_and_others() -> None:
    env = {"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    assert paths.runtime_dir(env, 0) == Path("/run/vgpud")
    assert paths.runtime_dir(env, 7) == Path("/run/user/7/vgpud")
    assert paths.runtime_dir({}, 7) == Path("/tmp/vgpud-7")
    assert paths.runtime_dir({"XDG_RUNTIME_DIR": "relative"}, 7) == Path("/tmp/vgpud-7")
    assert (paths.state_dir(env, 7), paths.state_dir(env, 0)) == (Path("/s/vgpud"), Path("/var/lib/vgpud"))
    assert paths.config_file(env, 7) == Path("/c/vgpud/vgpud.toml")


def test_private_directories_are_really_ours(tmp_path: Path) -> None:
    assert paths.make_private_dir(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(DeniedError, match="not a directory"):
        paths.make_private_dir(tmp_path / "link")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(DeniedError, match="chmod go-w"):
        paths.make_private_dir(tmp_path / "open")


def test_a_daemon_in_a_directory_of_strangers_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/tmp/vgpud-UID can be taken by any user, and the daemon names the libraries that `vgpu run` preloads."""
    euid = os.geteuid() or 7  # root's own directory is elsewhere; what root owns is trusted
    monkeypatch.setattr(paths.os, "geteuid", lambda: euid)
    own, env = tmp_path / "vgpud", {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert paths.default_host(env) == f"unix://{own}/vgpud.sock"
    paths.grpc_socket(paths.make_private_dir(own)).touch()
    assert paths.default_host(env) == f"unix://{own}/vgpud.sock"
    own.chmod(0o777)
    assert paths.default_host(env) == "unix:///run/vgpud/vgpud.sock"
    own.chmod(0o700)
    own.rename(tmp_path / "theirs")
    own.symlink_to(tmp_path / "theirs")
    assert paths.default_host(env) == "unix:///run/vgpud/vgpud.sock"


def test_mps_is_found_by_its_process(tmp_path: Path) -> None:
    for pid, name in ((1, "init"), (77, "nvidia-cuda-mps"), (80, "python")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "version").write_text("")
    assert mps_pid(tmp_path) == 77
    (tmp_path / "77" / "comm").unlink()
    assert mps_pid(tmp_path) == 0


def test_context_cost_comes_from_the_simulated_page(tmp_path: Path) -> None:
    page = tmp_path / "state"
    head, stride = state_page.HEADER.size, state_page.DEVICE.size + state_page.PROCESSES_MAX * state_page.PROCESS.size
    raw = bytearray(head + state_page.DEVICES_MAX * stride)
    struct.pack_into("<IIiI", raw, 0, state_page.MAGIC, state_page.VERSION, 1, 2)
    for index, context_bytes in ((0, 111), (1, 222)):
        struct.pack_into("<II64s16sIIQQ", raw, head + index * stride, 0, 1, b"", b"", 0, 0, 1 << 30, context_bytes)
    page.write_bytes(raw)
    assert [sim_context_bytes(page, index) for index in (0, 1)] == [111, 222]
    with pytest.raises(DriverError, match="another version"):
        sim_context_bytes(page, 2)
    page.write_bytes(b"")
    with pytest.raises(DriverError, match="state"):
        sim_context_bytes(page, 0)


def test_example_configuration_shows_every_key_with_its_default(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent.parent / "docker" / "vgpud.toml"
    lines = [line[1:] if line.startswith("#") and "=" in line.split(" ")[1:2] else line for line in example.open()]
    shown = tmp_path / "shown.toml"
    shown.write_text("".join(lines))
    assert config.load(shown) == config.load(example) == config.Config()
    keys = {line.split(" ")[0] for line in lines if " = " in line and not line.startswith("#")}
    known = [config.Config, *config._TABLES.values()]
    assert keys == {f.name for cls in known for f in fields(cls)} - config._TABLES.keys()
