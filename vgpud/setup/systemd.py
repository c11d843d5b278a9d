"""systemd: the unit vgpud.service, and those of the console and of jobs, with the installed paths.

The user starts them, not setup.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from vgpud import paths
from vgpud.setup.plan import Act, Plan
from vgpud.setup.site import SetupError, Site, read_text

UNIT = Path("/etc/systemd/system/vgpud.service")
#: beside UNIT; off until it is enabled
CONSOLE_UNIT = "vgpud-console.service"
#: beside UNIT; without them jobs cannot be started
JOB_UNITS = ("vgpu-job.socket", "vgpu-job@.service")
#: paths in the templates
_PLACEHOLDER = "/usr/local/bin/vgpud"
_VGPU_PLACEHOLDER = "/usr/local/bin/vgpu "
_JOB_PLACEHOLDER = "/usr/local/lib/vgpud/vgpu-job"
_RUNNING = Path("/run/systemd/system")
_COMMAND_S = 60
#: systemd reads these in a command line as something else
_SPECIAL = " \t\"'\\%$;"


def daemon_program(site: Site) -> Path:
    """The vgpud of this installation. Raises SetupError if there is none on the host."""
    beside = Path(sys.executable).with_name("vgpud")
    found = beside if beside.is_file() else Path(shutil.which("vgpud") or "/nowhere")
    if not site.at(found).is_file():
        where = f"on the host below {site.root}" if site.is_mounted else "beside this Python or in PATH"
        raise SetupError(f"no vgpud {where}: install it there first (pip install .)")
    if any(c in str(found) for c in _SPECIAL):
        raise SetupError(
            f"systemd cannot start {str(found)!r}: install vgpud at a path without blanks and special characters"
        )
    return found


def supervisor_program() -> Path:
    """The vgpu-job of this installation."""
    return paths.lib_dir() / "vgpu-job"


def unit_text(name: str, program: Path, supervisor: Path | None = None) -> str:
    """A unit with the paths of vgpud, which vgpu lies beside, and of vgpu-job (None: this installation's)."""
    text = Path(__file__).with_name(name).read_text().replace(_PLACEHOLDER, str(program))
    text = text.replace(_VGPU_PLACEHOLDER, f"{program.with_name('vgpu')} ")
    return text.replace(_JOB_PLACEHOLDER, str(supervisor or supervisor_program()))


def plan_setup(site: Site) -> Plan:
    """Writes the units and lets systemd read them. Raises SetupError, DeniedError."""
    program = daemon_program(site)
    names = [UNIT.name, CONSOLE_UNIT]
    plan = Plan()
    if site.at(supervisor_program()).is_file():
        names += JOB_UNITS
    else:
        plan.notes.append(f"no {supervisor_program()} on the host: `vgpu submit` cannot start jobs there")
    for name in names:
        unit = UNIT.with_name(name)
        plan.write(unit, site.at(unit), read_text(site.at(unit)), unit_text(name, program))
    if plan.changes:
        site.check_writable(UNIT, "systemd")
        _plan_reload(site, plan)
    return plan


def plan_undo(site: Site) -> Plan:
    """Stops the daemon, disables the unit and removes the files. Programs in slices, and jobs, continue."""
    at = site.at(UNIT)
    units = [UNIT, *(UNIT.with_name(name) for name in (CONSOLE_UNIT, *JOB_UNITS))]
    old = {unit: read_text(site.at(unit)) for unit in units}
    plan = Plan()
    if all(text is None for text in old.values()):
        return plan
    site.check_writable(UNIT, "systemd --undo")
    if _runs(site):
        text = "systemctl disable --now vgpud (programs continue without the daemon)"
        names = [unit.name for unit in units[:3] if old[unit] is not None]
        plan.changes.append(Act(UNIT, text, lambda: _systemctl("disable", "--now", *names)))
    else:
        for link in sorted(at.parent.glob("*.wants/vgpud.service")):
            plan.notes.append(f"{link} enables the unit: remove it (systemctl disable vgpud)")
    for unit in units:
        if old[unit] is not None:
            plan.write(unit, site.at(unit), old[unit], None)
    _plan_reload(site, plan)
    return plan


def _runs(site: Site) -> bool:
    return _RUNNING.is_dir() and not site.is_mounted


def _plan_reload(site: Site, plan: Plan) -> None:
    if _runs(site):
        plan.changes.append(Act(UNIT, "systemctl daemon-reload", lambda: _systemctl("daemon-reload")))
    else:
        plan.notes.append(
            "systemd is not running here: it reads the unit when it starts, or after systemctl daemon-reload"
        )


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(f"systemctl {' '.join(words)}: {said}: fix it and run the same command again")
