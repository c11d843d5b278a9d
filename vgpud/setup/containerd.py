"""containerd: a runtime of the CRI plugin in config.toml, for Kubernetes; `ctr` and `nerdctl` take a path.

The entry is in the file itself, not in an imported one: with 1.x an imported file replaces the plugin's whole table. It
is copied from the site's own `runc` entry, so that it has the same cgroup driver. Tried with 1.6: a first entry in the
file replaces the built-in `runc`, and every other pod would fail, so `runc` is written as well. containerd's reading of
the new file must equal its reading of the old one, plus the new entry.
"""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from vgpud.setup.plan import Plan
from vgpud.setup.site import SetupError, Site, command_line, processes, read_text
from vgpud.setup.tomltext import append_table, dig, drop_table, marked_tables, parse

NAME = "vgpu"
DEFAULT_CONFIG = Path("/etc/containerd/config.toml")
#: version of the file -> the plugin that holds the runtimes
_PLUGIN = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_ANNOTATIONS = ["dev.vgpu/*"]
_DUMP_S = 20


def _keys(path: Path, document: dict[str, Any]) -> tuple[str, ...]:
    """The table of the runtimes, by the file's version."""
    version = document.get("version", 1)
    if version not in _PLUGIN:
        remedy = "recreate it: containerd config default >" + str(path)
        raise SetupError(f"{path} is of version {version}, but 2 or 3 is needed: {remedy}; nothing was changed")
    return ("plugins", _PLUGIN[version], "containerd", "runtimes")


def _entry(document: dict[str, Any], keys: tuple[str, ...], front: Path) -> dict[str, Any]:
    runc = dig(document, (*keys, "runc"))
    entry = copy.deepcopy(runc) if isinstance(runc, dict) else {}
    options = entry.get("options")
    entry["runtime_type"] = "io.containerd.runc.v2"
    for name in ("pod_annotations", "container_annotations"):
        given = entry.get(name)
        entry[name] = [*(a for a in given if a not in _ANNOTATIONS), *_ANNOTATIONS] if given else _ANNOTATIONS
    entry["options"] = {**(options if isinstance(options, dict) else {}), "BinaryName": str(front)}
    return entry


def plan_setup(site: Site, config: Path) -> Plan:
    """Adds the runtime. Raises SetupError, DeniedError."""
    at = site.at(config)
    old = read_text(at)
    text = old if old and old.strip() else "version = 2\n"
    document = parse(config, text)
    keys = _keys(config, document)
    plan = Plan()
    if _is_disabled(document):
        plan.notes.append(f"{config} disables the CRI plugin: Kubernetes does not see the runtime, ctr and nerdctl do")
    if dig(document, (*keys, NAME)) == _entry(document, keys, site.front):
        return plan
    text = _without_ours(config, text, keys)
    before = None if site.is_mounted else _runtimes_and_rest(config, text)
    if not dig(parse(config, text), keys):
        built_in = before[0] if before else {"runc": {"runtime_type": "io.containerd.runc.v2"}}
        for name, table in built_in.items():
            text = append_table(config, text, (*keys, name), table)
    text = append_table(config, text, (*keys, NAME), _entry(parse(config, text), keys, site.front))
    site.check_writable(config, "containerd")
    if before is not None:
        _check_same(config, before, _runtimes_and_rest(config, text))
    plan.write(config, at, old, text)
    _plan_restart(site, plan, config)
    return plan


def plan_undo(site: Site, config: Path) -> Plan:
    """Removes the runtime, and the file if it held nothing else."""
    at = site.at(config)
    old = read_text(at)
    document = parse(config, old)
    plan = Plan()
    if old is None or document.get("version", 1) not in _PLUGIN:
        return plan
    keys = _keys(config, document)
    if dig(document, (*keys, NAME)) is None:
        return plan
    text = _without_ours(config, old, keys)
    site.check_writable(config, "containerd --undo")
    plan.write(config, at, old, None if text == "version = 2\n" else text)
    _plan_restart(site, plan, config)
    return plan


def _is_disabled(document: dict[str, Any]) -> bool:
    names = document.get("disabled_plugins", [])
    return any(str(name) in ("cri", *_PLUGIN.values()) for name in names if isinstance(names, list))


def find_runtime_path(config: Path) -> str | None:
    """The path of the runtime `vgpu` in a config.toml; None if it is not in it. Raises SetupError, DeniedError."""
    document = parse(config, read_text(config))
    plugin = _PLUGIN.get(document.get("version", 1), "")
    found = dig(document, ("plugins", plugin, "containerd", "runtimes", NAME, "options", "BinaryName"))
    return None if found is None else str(found)


def running(config: Path) -> int | None:
    """The pid of the containerd that reads this file."""
    for pid in processes("containerd"):
        words = command_line(pid)
        named = [b for a, b in zip(words, [*words[1:], ""], strict=True) if a in ("-c", "--config")]
        named += [word.partition("=")[2] for word in words if word.startswith("--config=")]
        if Path(named[-1] if named else DEFAULT_CONFIG) == config:
            return pid
    return None


def _plan_restart(site: Site, plan: Plan, config: Path) -> None:
    """A note for the user: containerd reads its file only when it starts, and is not restarted by setup."""
    pid = None if site.is_mounted else running(config)
    who = f"containerd (pid {pid})" if pid else "containerd"
    plan.notes.append(f"{who} reads it when it starts: systemctl restart containerd (containers keep running)")


def _without_ours(config: Path, text: str, keys: tuple[str, ...]) -> str:
    """The text without the runtime `vgpu` and the entries written beside it."""
    for name in dict.fromkeys((NAME, *marked_tables(text, keys))):
        if dig(parse(config, text), (*keys, name)) is not None:
            text = drop_table(config, text, (*keys, name))
    return text


def _drop_empty_values(table: dict[str, Any]) -> dict[str, Any]:
    """An entry as containerd shows it, without its empty values."""
    inner = {key: _drop_empty_values(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in inner.items() if value}


def _runtimes_and_rest(config: Path, text: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """A file as this machine's containerd reads it: its runtimes, all the rest. None without containerd.

    Raises SetupError with containerd's own message if it refuses the file.
    """
    program = shutil.which("containerd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/bin")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(text)
        command = [program, "--config", str(path), "config", "dump"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DUMP_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1].replace(str(path), str(config))
        raise SetupError(f"{said}: fix {config} first, nothing was changed")
    dumped = parse(config, done.stdout.replace(str(path), str(config)))  # it lists the file among its imports
    runtimes: dict[str, Any] = {}
    for plugin in _PLUGIN.values():  # 2.x shows a file of version 2 as version 3
        holder = dig(dumped, ("plugins", plugin, "containerd"))
        if holder:
            runtimes |= holder.pop("runtimes", {})
    return _drop_empty_values(runtimes), dumped


def _check_same(
    config: Path, old_contents: tuple[dict[str, Any], Any], new_contents: tuple[dict[str, Any], Any] | None
) -> None:
    """Raises SetupError unless the runtime's entry is the only difference."""
    assert new_contents is not None
    others = {name: table for name, table in new_contents[0].items() if name != NAME}
    if NAME not in new_contents[0] or others != old_contents[0] or old_contents[1] != new_contents[1]:
        what = f"with the runtime containerd would read the rest of {config} differently (does it import another file?)"
        raise SetupError(f"{what}: nothing was changed, add the runtime {NAME} beside the others")
