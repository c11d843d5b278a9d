"""The file of environments as the daemon has it: read, read again, and kept when the file is damaged."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vgpud.config import JobsConfig
from vgpud.core import events as ev
from vgpud.core.jobs.container_parts import Allowance, parse_parts
from vgpud.core.jobs.environments import Audience, Catalog, Registry
from vgpud.core.jobs.facts import Launch
from vgpud.daemon.jobs import environments
from vgpud.daemon.jobs.environments import EnvironmentList, find_member
from vgpud.daemon.jobs.launch import LaunchError, find_needs
from vgpud.jobs.messages import Mount

GOOD = '[environment.shell]\ncommand = ["bash"]\n'


class File:
    """A list on a file, and what it has noted."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "environments.toml"
        self.notes: list[ev.Log] = []
        self.copy = folder / "state" / "environments.toml"
        self.copy.parent.mkdir()
        self.restart()

    def restart(self) -> None:
        """As a daemon that starts again."""
        self.list = EnvironmentList(self.path, self.copy, Allowance(), self.notes.append)

    def write(self, text: str, mode: int = 0o644) -> None:
        new = self.path.with_suffix(".new")  # another inode, so that a change within the clock's step is seen
        new.write_text(text)
        new.chmod(mode)
        new.replace(self.path)
        self.refresh()

    def refresh(self) -> None:
        asyncio.run(self.list.refresh())

    @property
    def names(self) -> list[str]:
        return list(self.list.catalog.environments)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def test_none_is_no_problem(file: File) -> None:
    file.refresh()
    assert not file.names and not file.list.problem and not file.notes


def test_it_is_read_again(file: File) -> None:
    file.write(GOOD)
    assert file.names == ["shell"]
    file.write(GOOD + '[environment.more]\nimage = "x"\n')
    assert file.names == ["more", "shell"]
    file.path.unlink()
    file.refresh()
    assert not file.names and not file.list.problem


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[environment.shell\n", "is not TOML"),
        (GOOD + 'x = "', "is not TOML"),
        ("[environment.shell]\n", "environment.shell has neither an image nor a command"),
        ("\x00\x01", "is not TOML"),
        ("# " + "x" * (600 << 10), "which is the limit"),
    ],
)
def test_a_damaged_file_keeps_the_last_good_one(file: File, text: str, why: str) -> None:
    file.write(GOOD)
    file.write(text)
    assert file.names == ["shell"] and why in file.list.problem and str(file.path) in file.list.problem
    file.refresh()
    assert [note.kind for note in file.notes] == ["environments.damaged"]  # once
    file.write(GOOD)
    assert not file.list.problem and [note.kind for note in file.notes][-1] == "environments.read"


def test_a_daemon_that_starts_again_has_the_last_valid_list(file: File) -> None:
    file.write(GOOD)
    file.write("[")
    file.restart()
    file.refresh()
    assert file.names == ["shell"] and "is not TOML" in file.list.problem
    file.path.unlink()
    file.restart()
    file.refresh()
    assert not file.names and not file.list.problem  # its administrator has removed it


def test_a_damaged_copy_is_none(file: File) -> None:
    file.write("[")
    for text in ("[", "\x00", "x = 1"):
        file.copy.write_text(text)
        file.restart()
        file.refresh()
        assert not file.names and "is not TOML" in file.list.problem


def test_bytes_that_are_no_text(file: File) -> None:
    file.path.write_bytes(b"\xff\xfe")
    file.refresh()
    assert "is not text (UTF-8) at byte 0" in file.list.problem


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: os.mkfifo(path)])
def test_what_is_no_file(file: File, make: Callable[[Path], None]) -> None:
    """A pipe that never says anything does not keep the daemon waiting."""
    make(file.path)
    file.refresh()
    assert file.list.problem


def test_one_that_others_may_write_decides_nothing(file: File) -> None:
    file.write(GOOD, 0o666)
    assert not file.names and "can be written by users other than its administrator" in file.list.problem


def test_users_who_are_gone_are_looked_for_again(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, str] = {}
    monkeypatch.setattr(environments, "find_member", lambda word: known.get(word, ""))
    file.write('[environment.a]\ncommand = ["x"]\nmembers = ["ann"]\n')
    assert file.list.catalog.unknown == ("ann",)
    assert [note.message for note in file.notes] == [f"{file.path} names members that do not exist: ann"]
    known["ann"] = "uid:5"
    monkeypatch.setattr(environments, "MEMBERS_S", 0.0)
    file.refresh()
    assert file.list.catalog.unknown == () and file.list.catalog.environments["a"].audience.keys == {"uid:5"}


def test_members() -> None:
    assert find_member("root") == "uid:0" and find_member("@root") == "gid:0"
    assert find_member("uid:12") == "uid:12" and find_member("gid:7") == "gid:7"
    for word in ("no-such-user", "@no-such-group", "uid:x", "uid:-1", "a\0b", ""):
        assert find_member(word) == ""


def launch(site: str = "", own: str = "") -> Launch:
    parts, site_parts = parse_parts(["/home/a:/h"], ["20000:80"], own), parse_parts(["/sets:/data:ro"], [], site)
    return Launch(1, 1, (), (), "x", "/", (), 0, (), "/l", parts=parts, site_parts=site_parts)


def test_what_a_container_is_given() -> None:
    jobs = JobsConfig(volumes=("/home", "/data:ro"), ports=("20000-20009",), port_address="0.0.0.0")
    catalog = Catalog(registries={"site": Registry("site", "/etc/auth.json")})
    needs = find_needs(launch("site"), catalog, jobs)
    assert needs.mounts == (Mount("/sets", "/data", True, ("/sets",)), Mount("/home/a", "/h", False, ("/home",)))
    assert (needs.ports, needs.address, needs.auth_file) == (((20_000, 80),), "0.0.0.0", "/etc/auth.json")
    assert needs.is_of_site
    own = find_needs(launch("site", "/home/a/auth.json"), catalog, jobs)
    assert (own.auth_file, own.is_of_site) == ("/home/a/auth.json", False)
    with pytest.raises(LaunchError, match="no registry 'site' any more"):
        find_needs(launch("site"), Catalog(), jobs)
    others = replace(catalog.registries["site"], audience=Audience(("@ml",), frozenset({"gid:77"})))
    with pytest.raises(LaunchError, match="is not for this user any more"):
        find_needs(launch("", "site"), Catalog(registries={"site": others}), jobs)
    member = replace(launch("", "site"), gids=(77,))
    assert find_needs(member, Catalog(registries={"site": others}), jobs).is_of_site
    assert find_needs(launch("site"), Catalog(registries={"site": others}), jobs).is_of_site, "its environment's"
