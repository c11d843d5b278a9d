"""The database's version says which daemons can read what is in it."""

from __future__ import annotations

from dataclasses import fields

from vgpud.core import origins
from vgpud.core.model import Container, Share, Slice, Spec
from vgpud.core.origins import Allocation, Claim, Job, SlurmStep, User
from vgpud.store.database import MIGRATIONS

FIELDS = {
    Allocation: "boot_id device_ids granted is_lent name namespace pod_names pods uid",
    Claim: "boot_id granted name namespace pod_names pods uid",
    Job: "job_id member",
    SlurmStep: "job_id step",
    User: "cdi_device cdi_used ephemeral name spare_name",
    origins.Container: "name",
    Container: "cgroup container_id created_wall_ns engine_dir engine_name own_slice pid pid_start slice_name started",
    Share: "device_uuid max_milli mem_max_bytes mem_min_bytes min_milli",
    Slice: "asleep_wall_ns away_wall_ns created_wall_ns name origin owner_uid queue residency revision serial shares"
    " spec suspended uid",
    Spec: "copy_max_milli copy_min_milli device_uuids gpus_milli idle_after_ns max_milli mem_max_bytes mem_min_bytes"
    " mem_swap min_milli priority service_class spread weight",
}


def test_a_further_field_is_a_further_version() -> None:
    """An older daemon sets aside what has a field that it does not know, whereas it leaves a newer version alone."""
    stored = {kind: " ".join(sorted(field.name for field in fields(kind))) for kind in FIELDS}
    assert stored == FIELDS, "add an entry to MIGRATIONS, and change both here"
    assert len(MIGRATIONS) == 24
