"""`vgpu backup` and `vgpu restore` as an operator types them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.store.test_damaged_state import fill_state
from vgpud.errors import ExitCode
from vgpud.host.directories import DirectoryLock
from vgpud.store import database


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir(0o700)
    fill_state(directory)
    return directory


def test_there_and_back(vgpu: Any, state: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    made = vgpu("backup", copy, "--state-dir", str(state))
    assert made.code == 0 and made.stdout.splitlines()[1].split()[-3:] == ["4", "1", "4"]
    again = vgpu("backup", copy, "--state-dir", str(state))
    assert again.code == ExitCode.CONFLICT and "choose a name that is not taken" in again.stderr
    back = vgpu("restore", copy, "--state-dir", str(state))
    assert back.code == 0 and f"is kept as {state}/{database.FILE_NAME}.replaced-" in back.stderr
    assert "the daemon starts or continues 4 jobs that had not ended at that time" in back.stderr


def test_as_json(vgpu: Any, state: Path, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    made = vgpu("backup", copy, "--state-dir", str(state), "-o", "json").json
    back = vgpu("restore", copy, "--state-dir", str(state), "-o", "json").json
    assert (made["file"], made["slices"], made["database_version"]) == (copy, 4, len(database.MIGRATIONS))
    assert Path(back.pop("replaced")).exists() and back == made


def test_the_directory_is_the_configurations(vgpu: Any, state: Path, tmp_path: Path) -> None:
    config = tmp_path / "vgpud.toml"
    config.write_text(f'state_dir = "{state}"\n')
    assert vgpu("backup", str(tmp_path / "copy"), "--config", str(config)).code == 0
    assert vgpu("restore", str(tmp_path / "copy"), "--config", str(config)).code == 0


def test_a_daemon_in_the_way(vgpu: Any, state: Path, tmp_path: Path) -> None:
    lock = DirectoryLock(state, "--state-dir")
    copy = str(tmp_path / "copy")
    assert vgpu("backup", copy, "--state-dir", str(state)).code == 0
    refused = vgpu("restore", copy, "--state-dir", str(state))
    assert refused.code == ExitCode.CONFLICT and "stop it" in refused.stderr
    lock.close()


def test_no_such_state_and_no_such_copy(vgpu: Any, tmp_path: Path) -> None:
    none = vgpu("backup", str(tmp_path / "copy"), "--state-dir", str(tmp_path))
    assert none.code == ExitCode.NOT_FOUND and "--state-dir" in none.stderr
    assert vgpu("restore", str(tmp_path / "copy"), "--state-dir", str(tmp_path / "s")).code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("host", ["unix:///elsewhere/vgpud.sock", "/elsewhere/vgpud.sock", "node7:7070"])
@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize("by", ["--host", "VGPU_HOST"])
def test_the_state_of_another_daemon_than_the_chosen_one_stays(
    vgpu: Any, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, command: str, by: str
) -> None:
    """Every other command would connect to that one."""
    config, copy = tmp_path / "vgpud.toml", tmp_path / "copy"
    config.write_text(f'state_dir = "{state}"\nruntime_dir = "{tmp_path}/run"\n')
    monkeypatch.setattr("vgpud.paths.config_file", lambda: config)
    assert vgpu("backup", str(copy)).code == 0
    before = sorted(state.iterdir())

    def call(host: str) -> Any:
        if by == "--host":
            return vgpu(command, str(copy), host=host)
        monkeypatch.setenv("VGPU_HOST", host)
        return vgpu(command, str(copy))

    refused = call(host)
    assert refused.code == ExitCode.USAGE and f"is not of the daemon at {host.removeprefix('unix://')}" in (
        refused.stderr.replace("unix://", "")
    )
    assert sorted(state.iterdir()) == before and "--state-dir" in refused.stderr
    copy.rename(tmp_path / "other") if command == "backup" else None
    assert call(f"unix://{tmp_path}/run/vgpud.sock").code == 0
