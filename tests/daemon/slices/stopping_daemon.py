"""The command `vgpud`, which stops at the steps of moves that a test names, and whose turns are short.

Run as a module, in the folder of a private system.
"""

from __future__ import annotations

from pathlib import Path

from tests.daemon.slices.steps import pass_step
from vgpud.core import events as ev
from vgpud.core.model import Denied, Process, Slice
from vgpud.core.slices import rotation as turns
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.daemon.slices.rotation import RotationController
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import AWAY, RUNS, Moved
from vgpud.serve import main

#: instead of two seconds
TURN_NS = 200_000_000


def stop_at_steps(folder: Path) -> None:
    """Each thing that the daemon does for a move is a step: what it saves, and what it asks."""
    submit, drain, move = SliceMachine.submit, RotationController._drain, RotationController._move_program

    async def submit_and_stop(self: SliceMachine, event: ev.Event) -> Slice | Denied | None:
        steps = event.steps if isinstance(event, ev.MoveMemory) else ()
        for name, residency in steps:
            pass_step(folder, f"saves-{residency or 'resident'}", name)
        answer = await submit(self, event)
        for name, residency in steps:
            pass_step(folder, f"saved-{residency or 'resident'}", name)
        return answer

    async def drain_and_stop(self: RotationController, slice_: Slice, uuid: str) -> bool:
        pass_step(folder, "drains", slice_.name)
        return await drain(self, slice_, uuid)

    async def move_and_stop(
        self: RotationController, action: str, slice_: Slice, program: Process, deadline_s: float
    ) -> Moved:
        moved = await move(self, action, slice_, program, deadline_s)
        if moved.state == {"evict": AWAY, "restore": RUNS}.get(action):
            pass_step(folder, f"{action}-answered", slice_.name)
        return moved

    SliceMachine.submit = submit_and_stop  # type: ignore[method-assign]
    RotationController._drain = drain_and_stop  # type: ignore[method-assign]
    RotationController._move_program = move_and_stop  # type: ignore[method-assign]


if __name__ == "__main__":
    turns.QUANTUM_MIN_NS = TURN_NS
    checkpoint_runner.HELPER = Path(__file__).with_name("stopping_helper.py")
    stop_at_steps(Path.cwd())
    main(prog_name="vgpud")
