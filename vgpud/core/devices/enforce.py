"""What is done about a program that uses a device past its ledger, or without one (DESIGN D10): the decisions.

Pure. strangers.py finds such programs; devices/enforcement.py looks at one again and carries out what is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vgpud.core.observed import Seen
from vgpud.core.slices.containers import id_in

LOG, FREEZE, KILL = VERBS = ("log", "freeze", "kill")
#: causes: uses a device and is attached to no slice; is attached, and its slice uses more than its limit through it
STRANGER, EXCESS = "stranger", "excess"


@dataclass(frozen=True, slots=True)
class Act:
    """To be done to a process now. `first`: it was not asked for in the reading before."""

    verb: str  # FREEZE or KILL
    cause: str
    pid: int
    slice_name: str  # container of a stranger; "": none
    device_uuid: str
    first: bool
    start_ticks: int = 0  # start time of a stranger (Seen): its pid may have been reused


def why_spared(act: Act, who: Seen) -> str:
    """Why nothing is done to this process after all, "" when it is to be done.

    A stranger that root runs on the host itself is a service (a display, a monitor): a user who starts those could stop
    the daemon as well. Root of a container is not root here. A stopped process needs no freezing.
    """
    if who.uid < 0:
        return "cannot be inspected from here"
    if who.is_stopped and act.verb == FREEZE:
        return "is stopped"
    if act.cause == STRANGER and who.uid == 0 and not act.slice_name and not id_in(who.cgroups):
        return "is root's own, outside of any container"
    return ""


def freezer_of(who: Seen, own: Collection[str], attached_cgroups: Collection[str]) -> str:
    """The cgroup by which to freeze a program, that of its container; "" when the process itself must be stopped,
    because the daemon or an attached program is in that cgroup. `own`, `attached_cgroups`: paths of the daemon's, and
    of all attached programs'."""
    path = next((path for path in who.cgroups if id_in((path,))), "")
    if not path or any((other + "/").startswith(path + "/") for other in (*own, *attached_cgroups)):
        return ""
    return path
