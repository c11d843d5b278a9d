"""A service's record, its folder, and its control port."""

from __future__ import annotations

import asyncio
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import h11
import pytest

from vgpud.errors import VgpudError
from vgpud.services.core.model import Health, RecordError, Service, check, read_record
from vgpud.services.shell import folder as folders
from vgpud.services.shell.control import Control
from vgpud.services.shell.folder import Folder
from vgpud.services.shell.queue import parse_template

GOOD = Service("chat", {"command": ["x"]}, "token", replicas=2, health=Health(http_path="/health"), idle_s=60.0)


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(GOOD.to_json()) == GOOD


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nothing", GOOD.to_json()[:-5], GOOD.to_json().replace('"replicas": 2', '"replicas": "2"')]
    + [GOOD.to_json().replace('"replicas"', '"replica"'), GOOD.to_json().replace("2,", "true,", 1)]
    + ['{"health": []}', "x" * (1 << 21)],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        read_record(text)


@pytest.mark.parametrize(
    "template", [{"comand": ["x"]}, {"command": "x"}, {"slice": {"gpusMilli": "many"}}, {"slice": "x"}]
)
def test_a_template_that_is_no_job_is_refused(template: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="its template is no job: "):
        parse_template(template)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": "../etc"}, "use up to 40 small letters"),
        ({"name": "Chat"}, "use up to 40 small letters"),
        ({"name": "x" * 41}, "use up to 40 small letters"),
        ({"replicas": 65}, "use 0 to 64"),
        ({"restart": "sometimes"}, "use one of always"),
        ({"port": 70_000}, "use 1 to 65535"),
        ({"host": "node7.example.org"}, r"address 'node7\.example\.org': write an IP address"),
        ({"host": ""}, "write an IP address"),
        ({"health": Health(http_path="/a", command="b")}, "use one of the two"),
        ({"health": Health(http_path="a b")}, "write it from / on"),
        ({"health": Health(http_path="/a\r\nx: y")}, "without spaces"),
        ({"health": Health(every_s=0.0)}, "interval of its health check is 0 s"),
        ({"wake_s": float("inf")}, "time for waking"),
        ({"wake_s": float("nan")}, "time for waking"),
        ({"idle_s": 0.5}, "use 1s to 30d"),
    ],
)
def test_each_wrong_value_is_named(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(RecordError, match=why):
        check(replace(GOOD, **wrong))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "fe80::1%eth0", "localhost"])
def test_where_a_service_may_listen(host: str) -> None:
    check(replace(GOOD, host=host))


def test_the_folder_keeps_secrets_and_serves_one_balancer(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "services" / "chat")
    folder.make()
    assert folder.load() is None
    folder.save(GOOD)
    assert folder.load() == GOOD
    assert stat.S_IMODE((folder.path / "service.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.lock() and not Folder(folder.path).lock()
    folder.unlock()
    assert Folder(folder.path).lock()


def test_a_damaged_or_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "chat")
    with pytest.raises(VgpudError, match="cannot write"):
        folder.save(GOOD)
    with pytest.raises(VgpudError, match="cannot lock"):
        folder.lock()
    folder.make()
    (folder.path / "service.json").write_text("{")
    with pytest.raises(VgpudError, match="start the service again"):
        folder.load()


def test_old_logs_go_and_those_of_replicas_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LOGS_MAX", 2)
    for number in (1, 2, 3, 10, 11):
        (tmp_path / f"{number}.log").touch()
    (tmp_path / "balancer.log").touch()
    Folder(tmp_path).remove_old_logs({1})
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["1", "10", "11", "balancer"]


async def _ask(control: Control, method: str, path: str, body: bytes, token: str) -> tuple[int, dict[str, Any]]:
    server = await asyncio.start_server(control.serve, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        http = h11.Connection(h11.CLIENT)
        headers = [("host", "x"), ("authorization", f"Bearer {token}"), ("content-length", str(len(body)))]
        sent = http.send(h11.Request(method=method, target=path, headers=headers)) or b""
        writer.write(sent + body)
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(text)


def test_the_control_port_answers_its_owner_only_and_refuses_what_is_wrong() -> None:
    changed: list[Service] = []
    stopped: list[bool] = []

    async def change(service: Service) -> None:
        if service.name != "chat":
            raise RecordError("its name stays")
        changed.append(service)

    control = Control("key", lambda: {"healthy": 3}, lambda: GOOD, change, lambda: stopped.append(True))

    def ask(method: str, path: str, body: str = "", key: str = "key") -> tuple[int, dict[str, Any]]:
        return asyncio.run(_ask(control, method, path, body.encode(), key))

    assert ask("GET", "/status", key="none")[0] == 401 and ask("POST", "/stop", key="other")[0] == 401
    assert ask("GET", "/status") == (200, {"healthy": 3})
    assert read_record(json.dumps(ask("GET", "/record")[1])) == GOOD
    assert ask("PUT", "/record", replace(GOOD, replicas=5).to_json()) == (200, {})
    assert changed[0].replicas == 5 and not stopped
    assert ask("PUT", "/record", replace(GOOD, replicas=65).to_json())[1] == {"error": "65 replicas: use 0 to 64"}
    assert ask("PUT", "/record", replace(GOOD, name="other").to_json()) == (400, {"error": "its name stays"})
    assert ask("PUT", "/record", "{")[0] == 400 and ask("GET", "/elsewhere")[0] == 404
    assert ask("POST", "/stop") == (200, {}) and stopped
