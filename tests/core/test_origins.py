"""For whom a slice is made: each kind of origin with its name, what may change and what may end its slice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vgpud.core import origins
from vgpud.core.model import Denied, Origin, Reason, Share, Slice, Spec
from vgpud.core.origins import Allocation, Claim, Job, KubernetesOrigin, SlurmStep, User

GIB = 1 << 30
UID = "0b9f4f6e-7a3e-4f5e-8d1a-52d0c3b5c111"
POD = "aaaaaaaa-0000-1111-2222-333333333333"
SHARE = Share("GPU-0", 500, 500, GIB, GIB)
CLAIM = Claim(UID, "team", "half", (POD,), (SHARE,), "boot", pod_names=("train-0",))
ALLOCATION = Allocation(UID, "vgpu.dev", "tenth", (), (SHARE,), "boot", ("GPU-0-tenth-0", "GPU-0-tenth-1"))
ONE_OF_EACH: tuple[Origin, ...] = (
    User("a"),
    Job(7, 1),
    CLAIM,
    ALLOCATION,
    SlurmStep(12, "0"),
    origins.Container("c-1"),
)


def message(denial: Denied | None) -> str:
    assert denial and denial.reason in (Reason.PRECONDITION, Reason.DENIED, Reason.INVALID), denial
    return denial.message


def test_each_kind_is_known() -> None:
    assert tuple(type(one) for one in ONE_OF_EACH) == origins.KINDS
    names = {kind.__name__ for base in (Origin, KubernetesOrigin) for kind in base.__subclasses__()}
    assert names - {KubernetesOrigin.__name__} == {kind.__name__ for kind in origins.KINDS}


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        (User("a", "slice-1"), "a"),
        (User("", "slice-1"), "slice-1"),
        (Job(7), "j-7"),
        (Job(7, 0), "j-7-0"),
        (CLAIM, f"k-{UID}"),
        (ALLOCATION, f"k-{UID}"),
        (SlurmStep(12, ""), "slurm-12"),
        (SlurmStep(12, "batch"), "slurm-12.batch"),
        (origins.Container("train"), "train"),
    ],
)
def test_its_name(origin: Origin, name: str) -> None:
    assert origin.slice_name() == Slice(origin, "u", 1, Spec(1), (), 0, 0).name == name
    assert origin.refuse_name() is None
    other = replace(Slice(origin, "u", 1, Spec(1), (), 0, 0), origin=User("b"))
    assert other.name == "b", "a name that is another than its origin's cannot be"


@pytest.mark.parametrize("kind", [User, origins.Container])
@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("j-7", "a job"),
        ("j-7-0", "a job"),
        ("j-7-0-1", "a job"),
        (f"k-{UID}", "a Kubernetes claim"),
        ("slurm-12", "a Slurm job"),
        ("slurm-12.0", "a Slurm job"),
        ("slurm-12.batch", "a Slurm job"),
        ("slurm-12.interactive", "a Slurm job"),
    ],
)
def test_names_of_others_are_kept_for_them(kind: type[User] | type[origins.Container], name: str, whose: str) -> None:
    denied = kind(name).refuse_name()
    assert denied == Denied(Reason.INVALID, f"'{name}' is the name of {whose}'s slice: choose another one", "name")


@pytest.mark.parametrize(
    "name", ["j", "j-", "j-x", "job-1", "k-1", f"k-{UID}0", "k", "slurm", "slurm-", "slurm-x", "slurm-1.", "slurm-1.x"]
)
def test_names_that_only_look_like_it_are_free(name: str) -> None:
    assert User(name).refuse_name() is None and origins.Container(name).refuse_name() is None


def test_what_ends_with_its_programs_and_what_has_a_cdi_device() -> None:
    ephemeral = {type(one).__name__ for one in ONE_OF_EACH if one.ephemeral}
    assert ephemeral == {"SlurmStep", "Container"}
    assert User("a", ephemeral=True).ephemeral and not SlurmStep(12, "").ephemeral, "that ends with its Epilog"
    assert {type(one).__name__ for one in ONE_OF_EACH if one.cdi_device} == {"Claim", "Allocation"}
    assert User("a", cdi_device=True).cdi_device


def test_the_queue_alone_changes_and_ends_a_jobs_slice() -> None:
    origin = Job(7, 1)
    for refuse in (origin.refuse_change, origin.refuse_suspension, origin.refuse_end):
        assert refuse(7) is None
        assert message(refuse(0)).startswith("slice j-7-1 is that of job 7: ")
        assert message(refuse(8)) == message(refuse(0))
    assert message(origin.refuse_change(0)).endswith(
        "run `vgpu job set 7 --gpus N`; its memory stays what the job asked for"
    )
    assert message(origin.refuse_suspension(0)).endswith("the queue decides when it runs")
    assert message(origin.refuse_end(0)).endswith("end the job (vgpu job cancel 7), and it goes")


def test_only_kubernetes_ends_a_claims_slice() -> None:
    said = f"slice k-{UID} is that of the ResourceClaim team/half: delete its pods (kubectl delete pod), and it goes"
    assert message(CLAIM.refuse_end(0)) == said
    assert ALLOCATION.refuse_end(0) is None, "kubelet's device plugin is not notified when devices are free"


def test_others_are_changed_and_ended_by_whoever_may() -> None:
    for one in ONE_OF_EACH:
        if not isinstance(one, Job):
            assert one.refuse_change(0) is one.refuse_suspension(0) is None
        if not isinstance(one, Job | Claim):
            assert one.refuse_end(0) is None


def test_a_claim_fixes_what_the_scheduler_counts() -> None:
    assert CLAIM.refuse_fields(origins.RESIZABLE) is None
    assert CLAIM.refuse_fields(("max_milli", "gpus_milli")) == Denied(
        Reason.PRECONDITION,
        f"gpus_milli of slice k-{UID} is fixed by the ResourceClaim team/half: make another claim",
        field="gpus_milli",
    )
    assert "fixed by 2 of vgpu.dev/tenth" in message(ALLOCATION.refuse_fields(("spread",)))
    assert CLAIM.refuse_minima(500, GIB) is None
    assert "min 0.501 is above the 0.5 of the ResourceClaim team/half" in message(CLAIM.refuse_minima(501, GIB))
    assert "mem-min 2GiB is above the 1GiB of the Res" in message(CLAIM.refuse_minima(500, 2 * GIB))


def test_what_kubernetes_granted_is_kept_free() -> None:
    less = (replace(SHARE, min_milli=100),)
    for one in ONE_OF_EACH:
        granted = one.find_reserved_shares(less)
        assert granted == ((SHARE,) if one.is_from_kubernetes else less)
    assert replace(ALLOCATION, is_lent=True).find_reserved_shares(less) == less


def test_slurm_counts_devices_and_minima() -> None:
    step = SlurmStep(12, "0")
    assert step.refuse_shares((SHARE,), (replace(SHARE, min_milli=100, max_milli=1000, mem_max_bytes=2 * GIB),)) is None
    for change in ({"min_milli": 501}, {"mem_min_bytes": GIB + 1}, {"device_uuid": "GPU-1"}):
        denied = step.refuse_shares((SHARE,), (replace(SHARE, **change),))
        assert "slice slurm-12.0 is a Slurm job's" in message(denied) and denied and denied.field == "min_milli"
        assert User("a").refuse_shares((SHARE,), (replace(SHARE, **change),)) is None


def test_which_pods_may_use_it() -> None:
    assert CLAIM.refuse_pod(POD) is None and ALLOCATION.refuse_pod(POD) is None
    assert message(CLAIM.refuse_pod("")).endswith("the ResourceClaim team/half, and this container is in none")
    denied = CLAIM.refuse_pod("other")
    assert denied and (denied.field, denied.subject) == ("pod", f"k-{UID}"), "the driver reads the claim again"
    assert message(ALLOCATION.refuse_pod("")).endswith("2 of vgpu.dev/tenth, and this container is in none")


def test_the_pod_that_it_is_counted_for() -> None:
    assert CLAIM.name_pod() == ("team", "train-0")
    assert replace(CLAIM, pods=(POD, "b")).name_pod() == ("team", "")
    assert all(one.name_pod() == ("", "") for one in ONE_OF_EACH if not isinstance(one, Claim))


def test_steps_join_the_slice_of_their_batch_script() -> None:
    assert SlurmStep(12, "3").whole_job == (SlurmStep(12, "batch"), SlurmStep(12, "interactive"))
    assert SlurmStep(12, "batch").whole_job == SlurmStep(12, "").whole_job == ()
