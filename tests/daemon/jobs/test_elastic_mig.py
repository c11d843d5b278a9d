"""Workers of elastic jobs on a node with MIG instances."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.core.test_machine import GIB, device
from tests.core.test_mig import instance, make_mig_state
from vgpud.core.jobs.model import Place
from vgpud.core.model import Share, Spec
from vgpud.daemon.jobs.elastic import ElasticController


def test_a_slow_worker_does_not_move_to_a_mig_instance() -> None:
    """The queue places on GPUs alone: half of an instance would be less, and it does not count what is there."""
    place = Place("n", (Share("GPU-1", 500, 500, GIB, GIB),))

    def find_other_devices(*devices: Any) -> list[str]:
        host = SimpleNamespace(slices=SimpleNamespace(state=make_mig_state(*devices)))
        jobs: Any = SimpleNamespace(host=host, machine=SimpleNamespace(may_borrow=lambda _job, _place: True))
        job: Any = SimpleNamespace(job_id=1, spec=SimpleNamespace(ask=SimpleNamespace(spec=Spec(500))))
        found = ElasticController(jobs, {})._find_other_place(job, place)
        return [share.device_uuid for share in found.shares] if found else []

    assert find_other_devices(device(1), instance(0, 0)) == ["GPU-1"]
    assert find_other_devices(device(1), device(2), instance(0, 0)) == ["GPU-2"]
