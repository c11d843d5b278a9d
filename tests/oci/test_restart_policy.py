"""Whether docker starts a container again, by its files: as docker 28 wrote them in each of these cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vgpud.oci.engine_name import find_docker_folder
from vgpud.oci.restart_policy import will_restart

RUNS = {"Running": True, "Restarting": False, "RemovalInProgress": False, "Dead": False, "ExitCode": 0}
AWAY = RUNS | {"Restarting": True, "ExitCode": 3}
EXITED = RUNS | {"Running": False}


def folder(path: Path, policy: Any, state: Any, **fields: Any) -> str:
    (path / "hostconfig.json").write_text(json.dumps({"RestartPolicy": policy}))
    (path / "config.v2.json").write_text(json.dumps({"State": state, **fields}))
    return str(path)


@pytest.mark.parametrize(
    ("policy", "state", "fields", "restarts"),
    [
        ("always", RUNS, {}, True),  # docker has not noticed its end yet, or is away
        ("always", AWAY, {}, True),
        ("unless-stopped", EXITED, {}, True),  # when dockerd was stopped
        ("always", RUNS, {"HasBeenManuallyStopped": True}, False),
        ("unless-stopped", RUNS | {"RemovalInProgress": True}, {}, False),
        ("always", EXITED | {"Dead": True}, {}, False),
        ("on-failure", RUNS, {"RestartCount": 3}, True),
        ("on-failure", AWAY, {"RestartCount": 3}, True),
        ("on-failure", EXITED | {"ExitCode": 3}, {"RestartCount": 3}, False),
        ("on-failure", EXITED | {"ExitCode": 3}, {"RestartCount": 2}, True),
        ("on-failure", EXITED, {"RestartCount": 0}, False),  # it has succeeded
        ("no", RUNS, {}, False),
        ("", RUNS, {}, False),
    ],
)
def test_by_policy_and_state(tmp_path: Path, policy: str, state: Any, fields: dict[str, Any], restarts: bool) -> None:
    made = folder(tmp_path, {"Name": policy, "MaximumRetryCount": 3}, state, **fields)
    assert will_restart(made) == restarts


@pytest.mark.parametrize("noise", [b"", b"{", b"[]", b'{"State": 5}', b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_says_no(tmp_path: Path, noise: bytes) -> None:
    assert not will_restart(str(tmp_path / "removed"))
    made = folder(tmp_path, {"Name": "always"}, RUNS)
    assert will_restart(made)
    (tmp_path / "config.v2.json").write_bytes(noise)
    assert not will_restart(made)


def test_its_folder_is_where_docker_mounts_from() -> None:
    def config(source: str) -> bytes:
        return json.dumps({"mounts": [{"destination": "/etc/hosts", "source": source}]}).encode()

    assert find_docker_folder(config("/data/containers/abc/hosts"), "abc") == "/data/containers/abc"
    assert find_docker_folder(config("/home/user/hosts"), "abc") == ""
    assert find_docker_folder(config("abc/hosts"), "abc") == ""
    assert find_docker_folder(b"[]", "abc") == find_docker_folder(b"{", "abc") == ""
