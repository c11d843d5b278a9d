"""Contexts: names that lead elsewhere, links, permissions, and which daemon is used."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from vgpud.client import contexts
from vgpud.errors import ConfigError, ConflictError, DeniedError, ExitCode, VgpudError
from vgpud.host import private_files

HOST = "gpu1.example.org:7443"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "vgpud" / "contexts"


def bundle(folder: Path, **fields: Any) -> Path:
    """A file as `vgpu cert user` writes it."""
    document = {"user": "alice", "uid": 61001, "expires": time.time_ns() // 10**9 + 1000, "authority": "A"}
    file = folder / "alice.json"
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text(json.dumps(document | {"certificate": "C", "key": "K"} | fields))
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_first_one_is_in_use_and_all_is_private(home: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = contexts.add("lab", HOST, bundle(tmp_path))
    finally:
        os.umask(before)
    assert (made.host, made.user, made.uid, made.key) == (HOST, "alice", 61001, "K")
    assert contexts.current() == made
    assert "K" not in repr(made).replace("Context", ""), "a key in a traceback is a key that others read"
    contexts.add("other", "gpu2:7443", bundle(tmp_path))
    assert contexts.current_name() == "lab"
    assert mode(home) == 0o700
    assert {path.name: mode(path) for path in home.iterdir()} == dict.fromkeys(
        (".current", "lab.json", "other.json"), 0o600
    )
    contexts.use("other")
    assert contexts.current_name() == "other"
    contexts.remove("other")
    assert contexts.current() is None
    assert contexts.names() == ["lab"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc/passwd", ".current", "-x", "a\0b", "a\nb", "x" * 65, "é", "~", "a b"]
)
def test_names_lead_nowhere_else(home: Path, tmp_path: Path, name: str) -> None:
    file = bundle(tmp_path)
    for work in (lambda: contexts.add(name, HOST, file), lambda: contexts.get(name), lambda: contexts.remove(name)):
        with pytest.raises(ConfigError, match="is no name of a context"):
            work()
    assert not home.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.json"]


@pytest.mark.parametrize(
    "host", ["", "gpu1", "gpu1:", ":7443", "gpu1:7443/x", "unix:///x", "a b:1", "gpu1:123456", "dns:///gpu1:1", "é:1"]
)
def test_addresses_that_are_none(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="write HOST:PORT"):
        contexts.add("lab", host, bundle(tmp_path))


def test_a_link_in_the_way_is_not_followed(home: Path, tmp_path: Path) -> None:
    contexts.add("lab", HOST, bundle(tmp_path))
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    (home / "x.json").symlink_to(victim)
    with pytest.raises(ConflictError, match="there is a context 'x' already"):
        contexts.add("x", HOST, bundle(tmp_path))
    with pytest.raises(ConfigError, match="it is a symbolic link, which is not followed"):
        contexts.get("x")
    (home / ".current").unlink()
    (home / ".current").symlink_to(victim)
    with pytest.raises(ConfigError, match="symbolic link"):
        contexts.current()
    contexts.use("lab")  # replaces the link
    assert not (home / ".current").is_symlink()
    link = tmp_path / "link.json"
    link.symlink_to(bundle(tmp_path))
    with pytest.raises(ConfigError, match="symbolic link"):
        contexts.add("y", HOST, link)
    assert victim.read_text() == "as it was"


def test_a_folder_that_is_a_link_or_others_write_to(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    home.parent.mkdir(parents=True)
    home.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeniedError, match="is not a directory"):
        contexts.add("lab", HOST, bundle(tmp_path))
    assert not list((tmp_path / "elsewhere").iterdir())
    home.unlink()
    home.mkdir()
    home.chmod(0o777)
    for work in (contexts.names, lambda: contexts.get("lab"), lambda: contexts.add("lab", HOST, bundle(tmp_path))):
        with pytest.raises(DeniedError, match="is writable by others"):
            work()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away: only root can")
def test_files_of_other_users_are_not_believed(home: Path, tmp_path: Path) -> None:
    file = bundle(tmp_path)
    os.chown(file, 61001, 61001)
    with pytest.raises(DeniedError, match="belongs to uid 61001"):
        contexts.add("lab", HOST, file)
    home.mkdir(0o700, parents=True)
    os.chown(home, 61001, 61001)
    with pytest.raises(DeniedError, match="belongs to uid 61001"):
        contexts.names()


def test_keys_that_others_can_read(home: Path, tmp_path: Path) -> None:
    file = bundle(tmp_path)
    file.chmod(0o640)
    with pytest.raises(DeniedError, match="holds a key and has mode 640: run chmod 600"):
        contexts.add("lab", HOST, file)
    file.chmod(0o600)
    contexts.add("lab", HOST, file)
    (home / "lab.json").chmod(0o644)
    with pytest.raises(DeniedError, match="run chmod 600"):
        contexts.current()


def test_an_expired_certificate_is_not_added(tmp_path: Path) -> None:
    with pytest.raises(DeniedError, match="has expired, or this machine's clock is ahead"):
        contexts.add("lab", HOST, bundle(tmp_path, expires=time.time_ns() // 10**9 - 1))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"user": "alice"}', "[" * 50_000, "\xff\xfe", "x" * 70_000])
def test_files_that_are_no_certificate(tmp_path: Path, text: str) -> None:
    file = bundle(tmp_path)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="name the file that `vgpu cert user` wrote"):
        contexts.add("lab", HOST, file)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(ConfigError, match="is not a regular file"):
        contexts.add("lab", HOST, fifo)


def test_which_certificate_an_address_gets(tmp_path: Path) -> None:
    with pytest.raises(DeniedError, match="ask its admin for one"):
        contexts.for_host(HOST)
    contexts.add("one", HOST, bundle(tmp_path))
    contexts.add("two", HOST, bundle(tmp_path, user="bob"))
    contexts.add("three", "gpu2:1", bundle(tmp_path))
    assert contexts.for_host(HOST).name == "one", "the one in use"
    contexts.use("three")
    with pytest.raises(ConfigError, match="contexts one, two have the address"):
        contexts.for_host(HOST)
    with pytest.raises(VgpudError) as error:
        contexts.use("four")
    assert error.value.exit_code == ExitCode.NOT_FOUND
    with pytest.raises(ConflictError):
        contexts.add("one", "gpu3:1", bundle(tmp_path))


def test_a_full_disk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = bundle(tmp_path)
    monkeypatch.setattr(private_files.os, "fsync", full)
    with pytest.raises(VgpudError, match="No space left on device; free space"):
        contexts.add("lab", HOST, file)
    assert list(home.iterdir()) == []
