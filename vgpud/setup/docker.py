"""docker: `runtimes.vgpu` in daemon.json, merged into the file; a SIGHUP makes a running dockerd reload it.

Tried with 20.10: without the key dockerd keeps the old set, so removal passes through `"runtimes": {}`. If dockerd does
not accept the file, the old one is restored, because dockerd would refuse the new one at its next start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.setup import dockerd
from vgpud.setup.install import RUNTIME
from vgpud.setup.jsontext import drop_member, set_member
from vgpud.setup.plan import Act, Plan, WriteText, replace_file
from vgpud.setup.site import SetupError, Site, read_text

NAME = "vgpu"
BACKUP_SUFFIX = ".before-vgpu"
#: files that may give options to a dockerd that does not run now
_STARTED_BY = (
    "/etc/systemd/system/docker.service",
    "/etc/systemd/system/docker.service.d",
    "/lib/systemd/system/docker.service",
    "/etc/default/docker",
    "/etc/sysconfig/docker",
)


@dataclass(frozen=True, slots=True)
class _Now:
    """The present state: the file, its contents, and the dockerd that reads it."""

    path: Path
    at: Path
    text: str | None
    document: dict[str, Any]
    engine: dockerd.Dockerd | None

    @property
    def runtimes(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("runtimes", {})
        return found

    @property
    def backup_path(self) -> Path:
        return self.path.with_name(self.path.name + BACKUP_SUFFIX)

    @property
    def backup(self) -> Path:
        return self.at.with_name(self.at.name + BACKUP_SUFFIX)

    @property
    def socket(self) -> Path:
        assert self.engine is not None
        return self.engine.socket_path(dockerd.hosts_of(self.document))


def parse(path: Path, text: str | None) -> dict[str, Any]:
    """The contents of a daemon.json. Raises SetupError naming the place of what dockerd would refuse as well."""
    if text is None or not text.strip():
        return {}
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SetupError(f"{path} is not JSON: {error.msg} at {where}: fix it first, nothing was changed") from error
    except (ValueError, RecursionError) as error:  # a number of more digits than Python reads, lists in lists in lists
        raise SetupError(f"{path} cannot be read: {error}: fix it first, nothing was changed") from error
    if not isinstance(document, dict):
        raise SetupError(f"{path} is {type(document).__name__}, not an object: write {{}} into it, nothing was changed")
    runtimes = document.get("runtimes", {})
    if not isinstance(runtimes, dict) or not all(isinstance(value, dict) for value in runtimes.values()):
        remedy = '"runtimes": {"NAME": {"path": "..."}} is the form'
        raise SetupError(f"{path}: runtimes = {json.dumps(runtimes)} is not an object of objects: {remedy}")
    return document


def config_file(site: Site, config_option: Path | None) -> Path:
    """The daemon.json to change: the one named, or that of the dockerd that `docker` uses, or the usual one."""
    if config_option is not None:
        return config_option.absolute()
    if site.is_mounted or dockerd.find_dockerd(site.at(dockerd.DEFAULT_CONFIG)):
        return dockerd.DEFAULT_CONFIG
    asked = dockerd.find_by_socket(dockerd.asked_socket())
    return asked.config if asked and asked.reads(asked.config) else dockerd.DEFAULT_CONFIG


def _look(site: Site, config: Path) -> _Now:
    at = site.at(config)
    text = read_text(at)
    return _Now(config, at, text, parse(config, text), dockerd.find_dockerd(at))


def _check_command_line(site: Site, now: _Now, as_default: bool) -> None:
    """A key both in the file and on the command line makes dockerd refuse the file."""
    options = ["--add-runtime", *(["--default-runtime"] if as_default else [])]
    for option in options:
        key = "runtimes" if option == "--add-runtime" else "default-runtime"
        if now.engine:
            if now.engine.option(option):
                where = f"the command line of dockerd (pid {now.engine.pid}) has {option}"
                raise SetupError(
                    f"{where}, so {now.path} must not have {key} as well: move the option into that file first"
                )
            continue
        for place in _STARTED_BY if now.path == dockerd.DEFAULT_CONFIG else ():
            at = site.at(Path(place))
            for file in sorted(at.glob("*.conf")) if at.is_dir() else [at]:
                if option in (read_text(file) or ""):
                    raise SetupError(f"{file} starts dockerd with {option}: move it into {now.path} as {key} first")


def plan_setup(site: Site, config: Path, as_default: bool) -> Plan:
    """Registers the runtime. Raises SetupError, DeniedError before anything is changed."""
    now = _look(site, config)
    _check_command_line(site, now, as_default)
    entry = {"path": str(site.front)}
    mine = now.runtimes.get(NAME)
    if mine is not None and Path(str(mine.get("path"))).name != RUNTIME:
        what = f"{now.path}: runtimes.{NAME} is {mine.get('path')!r}, which is not vgpud's"
        raise SetupError(f"{what}: rename or remove it first")
    text = now.text if now.text and now.text.strip() else "{}\n"
    if mine != entry:
        text = set_member(text, ("runtimes", NAME), entry)
    if as_default and now.document.get("default-runtime") != NAME:
        text = set_member(text, ("default-runtime",), NAME)
    plan = Plan()
    if mine != entry or text != now.text:
        site.check_writable(now.path, "docker")
        if now.text is not None and not now.backup.exists():
            plan.changes.append(WriteText(now.backup_path, now.backup, None, now.text, is_copy=True))
        plan.write(now.path, now.at, now.text, text)
    _plan_reload(plan, now, as_default)
    return plan


def _plan_reload(plan: Plan, now: _Now, as_default: bool) -> None:
    if now.engine is None:
        plan.notes.append(f"no dockerd that reads {now.path} is running: the runtime takes effect at its next start")
        for one in dockerd.all_dockerds():
            if one.reads(one.config):
                plan.notes.append(f"dockerd (pid {one.pid}) reads {one.config}: use --config {one.config} to set it up")
        return
    engine, socket = now.engine, now.socket

    def taken_over(info: dict[str, Any]) -> bool:
        known = NAME in (info.get("Runtimes") or {})
        return known and (not as_default or info.get("DefaultRuntime") == NAME)

    def do() -> None:
        engine.reload()
        if dockerd.wait_for(socket, taken_over):
            return
        _put_back(now)
        engine.reload()
        remedy = "see its log (journalctl -u docker); the file was restored"
        raise SetupError(f"dockerd (pid {engine.pid}) did not accept {now.path}: {remedy}")

    if plan.changes or not dockerd.knows(socket, taken_over):
        plan.changes.append(
            Act(now.path, f"reload dockerd (pid {engine.pid}, SIGHUP) and check that it has {NAME}", do)
        )


def _put_back(now: _Now) -> None:
    if now.text is None:
        now.at.unlink(missing_ok=True)
    else:
        replace_file(now.at, now.text.encode())


def plan_undo(site: Site, config: Path) -> Plan:
    """Removes what setup added, and nothing else; the former bytes are restored if possible."""
    now = _look(site, config)
    plan = Plan()
    mine = now.runtimes.get(NAME)
    ours = mine is not None and Path(str(mine.get("path"))).name == RUNTIME
    is_default = ours and now.document.get("default-runtime") == NAME
    backup = read_text(now.backup)
    text = now.text or ""
    before = parse(now.backup, backup)
    if ours:
        text = drop_member(text, ("runtimes", NAME))
        if not json.loads(text)["runtimes"] and "runtimes" not in before:
            text = drop_member(text, ("runtimes",))
    if is_default:
        default = before.get("default-runtime")
        known = default in json.loads(text).get("runtimes", {}) or default == "runc"
        text = set_member(text, ("default-runtime",), default) if known else drop_member(text, ("default-runtime",))
    if ours:
        site.check_writable(now.path, "docker --undo")
        final = None if not json.loads(text) and backup is None else text
        if backup is not None and parse(now.path, text) == before:
            final = backup
        _plan_forget(plan, now, text)
        plan.write(now.path, now.at, now.text, final)
    if backup is not None:
        plan.changes.append(WriteText(now.backup_path, now.backup, backup, None, is_copy=True))
    return plan


def _plan_forget(plan: Plan, now: _Now, text: str) -> None:
    """A running dockerd removes a runtime only when it reads `runtimes` without it."""
    if now.engine is None:
        return
    engine, socket = now.engine, now.socket
    document = json.loads(text)
    for key, empty in (("runtimes", {}), ("default-runtime", "runc")):
        if key in now.document and key not in document:
            text = set_member(text, (key,), empty)

    def is_removed(info: dict[str, Any]) -> bool:
        return NAME not in (info.get("Runtimes") or {}) and info.get("DefaultRuntime") != NAME

    def do() -> None:
        WriteText(now.path, now.at, now.text, text).apply()
        engine.reload()
        if dockerd.wait_for(socket, is_removed):
            return
        _put_back(now)
        engine.reload()
        remedy = "see its log (journalctl -u docker); nothing was changed"
        raise SetupError(f"dockerd (pid {engine.pid}) does not remove the runtime: {remedy}")

    plan.changes.append(Act(now.path, f"make dockerd (pid {engine.pid}, SIGHUP) remove {NAME}", do))
