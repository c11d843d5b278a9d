"""What a suspended job waits for, in databases of daemons that wrote two fields for it."""

from __future__ import annotations

import pytest

from vgpud.core.checksums import seal, unseal
from vgpud.core.jobs.model import Ask, Job, JobSpec, UserWait
from vgpud.core.model import Spec
from vgpud.core.queue.record import encode
from vgpud.store.jobs import _state, job_of


@pytest.mark.parametrize(
    ("old", "wait"),
    [({}, None), ({"is_idle": True}, UserWait.USE), ({"awaits_resume": True}, UserWait.RESUME)],
)
def test_old_fields_are_read(old: dict[str, bool], wait: UserWait | None) -> None:
    spec = JobSpec(Ask(Spec(500)))
    body = {name: value for name, value in unseal(_state(Job(7, spec, 0))).items() if name != "user_wait"}
    found = job_of(seal(encode(spec)), None, seal({**body, **old}))
    assert (found.job_id, found.user_wait) == (7, wait)
    assert job_of(seal(encode(spec)), None, _state(found)).user_wait is wait
