"""podman: a separate drop-in file; podman reads it at every command, so no process has to be signalled.

Tried with 4.3: tables of drop-ins merge, lists replace. `runtime_supports_json` therefore repeats the site's list and
adds vgpu: with it podman shows a refusal in its own error message, without it as the runtime's stderr.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vgpud.setup.plan import Plan
from vgpud.setup.site import Site, read_text
from vgpud.setup.tomltext import MARK, dig, parse, table_text

NAME = "vgpu"
DROP_IN = "vgpu.conf"
#: podman's default without any configuration (containers-common 4 and 5)
_SUPPORTS_JSON = ("crun", "runc", "kata", "runsc", "youki", "krun")
_KEY = "runtime_supports_json"


def _folders(site: Site) -> list[Path]:
    """Directories with containers.conf, weakest first."""
    system = [Path("/usr/share/containers"), Path("/etc/containers")]
    given = os.environ.get("XDG_CONFIG_HOME", "")
    own = Path(given) if os.path.isabs(given) else site.home / ".config"
    return [*system, own / "containers"] if site.for_user else system


def drop_in(site: Site) -> Path:
    return _folders(site)[-1] / "containers.conf.d" / DROP_IN


def _supports_json(site: Site, own: Path) -> list[str]:
    """The list as podman has it without the drop-in."""
    found = list(_SUPPORTS_JSON)
    for path in config_files(site):
        value = dig(parse(path, read_text(site.at(path))), ("engine", _KEY)) if path != own else None
        if isinstance(value, list):
            found = [name for name in value if isinstance(name, str)]
    return [*found, *([NAME] if NAME not in found else [])]


def config_files(site: Site) -> Iterator[Path]:
    """Every file that podman reads, in its order: later ones override."""
    for folder in _folders(site):
        yield folder / "containers.conf"
        drop_ins = site.at(folder / "containers.conf.d")
        if drop_ins.is_dir():
            yield from (folder / "containers.conf.d" / name.name for name in sorted(drop_ins.glob("*.conf")))


def plan_setup(site: Site, config: Path) -> Plan:
    """Writes the drop-in. Raises SetupError, DeniedError."""
    runtimes = table_text(("engine", "runtimes"), {NAME: [str(site.front)]})
    supports = table_text(("engine",), {_KEY: _supports_json(site, config)})
    plan = Plan()
    plan.write(config, site.at(config), read_text(site.at(config)), f"{MARK}\n{supports}\n{runtimes}")
    if plan.changes:
        site.check_writable(config, "podman")
    return plan


def plan_undo(site: Site, config: Path) -> Plan:
    """Removes the drop-in."""
    plan = Plan()
    plan.write(config, site.at(config), read_text(site.at(config)), None)
    if plan.changes:
        site.check_writable(config, "podman --undo")
    return plan
