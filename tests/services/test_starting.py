"""A balancer that finds its record in its environment takes it over once, with the address that the service had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vgpud.core.jobs.session import SERVICE_RECORD
from vgpud.errors import ExitCode, VgpudError
from vgpud.services import balancer
from vgpud.services.core.model import Service
from vgpud.services.shell import starting
from vgpud.services.shell.folder import Folder

GIVEN = Service("chat", {"command": ["serve"]}, "new")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "services" / "chat")
    yield made
    made.unlock()


def open_again(folder: Folder, monkeypatch: pytest.MonkeyPatch, service: Service | None) -> Service | None:
    """As the next balancer finds it."""
    folder.unlock()
    if service:
        monkeypatch.setenv(SERVICE_RECORD, service.to_json())
    found = balancer.open_folder(folder)
    assert SERVICE_RECORD not in os.environ, "health commands have the balancer's environment"
    return found


def test_a_new_service_gets_a_port_and_keeps_it(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_again(folder, monkeypatch, GIVEN)
    assert first and first.port in starting.PORTS and first == replace(GIVEN, port=first.port)
    folder.save(replace(first, replicas=5, generation=7))
    again = open_again(folder, monkeypatch, GIVEN)
    assert again and (again.replicas, again.generation) == (5, 7), "the same start: what was changed since stays"
    other = open_again(folder, monkeypatch, replace(GIVEN, token="other", replicas=2))  # noqa: S106
    assert other == replace(GIVEN, replicas=2, port=first.port, generation=8), "another start: its clients know it"
    assert open_again(folder, monkeypatch, None) == other


def test_a_damaged_record_is_written_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.make()
    (folder.path / "service.json").write_text("{")
    assert open_again(folder, monkeypatch, replace(GIVEN, port=8000)) == replace(GIVEN, port=8000)


def test_a_record_that_is_none_ends_the_balancer_for_good(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.make()
    monkeypatch.setenv(SERVICE_RECORD, "{}")
    with pytest.raises(VgpudError, match=SERVICE_RECORD) as caught:
        balancer.open_folder(folder)
    assert caught.value.exit_code == ExitCode.NOT_FOUND


def test_a_second_balancer_changes_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    open_again(folder, monkeypatch, GIVEN)
    monkeypatch.setenv(SERVICE_RECORD, replace(GIVEN, token="other").to_json())  # noqa: S106
    with pytest.raises(VgpudError, match="another balancer"):
        balancer.open_folder(Folder(folder.path))
    found = folder.load()
    assert found and found.generation == 1
