"""systemd: the unit vgpud.service with the path of the vgpud that is installed; started by the user, not by us."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from vgpud.setup.plan import Act, Plan
from vgpud.setup.site import SetupError, Site, read_text

UNIT = Path("/etc/systemd/system/vgpud.service")
TEMPLATE = Path(__file__).with_name("vgpud.service")
#: the path in the template
_PLACEHOLDER = "/usr/local/bin/vgpud"
_RUNNING = Path("/run/systemd/system")
_COMMAND_S = 60
#: systemd reads these in a command line as something else
_SPECIAL = " \t\"'\\%$;"


def daemon_program(site: Site) -> Path:
    """The vgpud of this installation. Raises SetupError when there is none on the host."""
    beside = Path(sys.executable).with_name("vgpud")
    found = beside if beside.is_file() else Path(shutil.which("vgpud") or "/nowhere")
    if not site.at(found).is_file():
        where = f"on the host below {site.root}" if site.mounted else "beside this Python or in PATH"
        raise SetupError(f"no program vgpud {where}: install it there first (pip install .)")
    if any(c in str(found) for c in _SPECIAL):
        raise SetupError(f"systemd cannot start {str(found)!r}: install vgpud at a path without blanks and signs")
    return found


def unit_text(program: Path) -> str:
    return TEMPLATE.read_text().replace(_PLACEHOLDER, str(program))


def plan_setup(site: Site) -> Plan:
    """Writes the unit and lets systemd read it. Raises SetupError, DeniedError."""
    at = site.at(UNIT)
    plan = Plan()
    plan.write(UNIT, at, read_text(at), unit_text(daemon_program(site)))
    if plan.changes:
        site.check_writable(UNIT, "systemd")
        _plan_reload(site, plan)
    return plan


def plan_undo(site: Site) -> Plan:
    """Stops the daemon, takes the unit out of the boot, and the file away. Programs in slices go on."""
    at = site.at(UNIT)
    old = read_text(at)
    plan = Plan()
    if old is None:
        return plan
    site.check_writable(UNIT, "systemd --undo")
    if _runs(site):
        text = "systemctl disable --now vgpud (programs go on without the daemon)"
        plan.changes.append(Act(UNIT, text, lambda: _systemctl("disable", "--now", "vgpud.service")))
    else:
        for link in sorted(at.parent.glob("*.wants/vgpud.service")):
            plan.notes.append(f"{link} enables the unit: remove it (systemctl disable vgpud)")
    plan.write(UNIT, at, old, None)
    _plan_reload(site, plan)
    return plan


def _runs(site: Site) -> bool:
    return _RUNNING.is_dir() and not site.mounted


def _plan_reload(site: Site, plan: Plan) -> None:
    if _runs(site):
        plan.changes.append(Act(UNIT, "systemctl daemon-reload", lambda: _systemctl("daemon-reload")))
    else:
        plan.notes.append(
            "systemd does not run here: it reads the unit when it starts, or after systemctl daemon-reload"
        )


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(f"systemctl {' '.join(words)}: {said}: mend it and run the same command again")
