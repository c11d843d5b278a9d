"""Jobs as they were written before fields of Job had other names."""

from __future__ import annotations

from typing import Any

from vgpud.core.jobs.model import UserWait


def rename_fields(body: dict[str, Any]) -> dict[str, Any]:
    """What was written before December 2026 has two fields for what a job waits for."""
    past = {"is_idle": UserWait.USE, "awaits_resume": UserWait.RESUME}
    waits = [wait for name, wait in past.items() if body.get(name)]
    rest = {name: value for name, value in body.items() if name not in past}
    return rest | {"user_wait": waits[0].value} if waits else rest
