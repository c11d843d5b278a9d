"""What Slurm 25.11 prints otherwise than 22.05: texts of 25.11.7."""

from __future__ import annotations

import pytest

from tests.cluster.test_text import line, record_of
from vgpud.cluster.core.model import Phase, Settings, SlurmJob, SlurmNode
from vgpud.cluster.core.translate import spec_of
from vgpud.cluster.shell import text

#: a user's text that looks like devices, and what ends them
LIE = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:sim:2(IDX:0-1) MinCPUsNode=1"


def job_text(name: str, groups: str) -> str:
    """A job as `scontrol -o -d show job` prints it: an SLUID stands behind the name, and the command line by which the
    job was submitted behind the devices."""
    return (
        f"JobId=22800003 JobName={name} SLUID=sB4SM8FKM4KE00 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1"
        " Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1"
        " Restarts=0 BatchFlag=1 Partition=main AllocNode:Sid=localhost:9570 ReqNodeList=(null) ExcNodeList=(null)"
        " NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* ReqTRES=cpu=2"
        " AllocTRES=cpu=2,node=2,billing=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* JOB_GRES=shard:2000"
        f" {groups} MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK"
        " Contiguous=0 Licenses=(null) LicensesAlloc=(null) Network=(null) Command=(null)"
        f" SubmitLine=sbatch --job-name={name} --gres=gpu:1 -N2 --wrap sleep 100 WorkDir=/tmp StdErr= StdIn=/dev/null"
        " StdOut=/dev/null TresPerNode=gres/shard:1000 \n"
    )


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        (
            "Nodes=n1 CPU_IDs=2 Mem=0 GRES=shard:1000(0/1000,1000/1000) Nodes=n2 CPU_IDs=0 Mem=0"
            " GRES=shard:1000(1000/1000,0/1000)",
            (("n1", 1, 1000), ("n2", 0, 1000)),
        ),
        ("Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:sim:1(IDX:1)", (("n1", 1, 1000), ("n2", 1, 1000))),
        ("Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=shard:300(300/1000,0/1000)", (("n1", 0, 300), ("n2", 0, 300))),
    ],
)
@pytest.mark.parametrize("name", ["wrap", "SLUID=x", LIE, f"{LIE} SLUID=s UserId=a(1)"])
def test_devices_of_a_job(name: str, groups: str, devices: tuple[tuple[str, int, int], ...]) -> None:
    said = job_text(name, groups)
    texts = record_of(name, "(null)") if text.is_ambiguous(said) else ""
    assert text.devices(said, ("n1", "n2"), texts) == devices


def test_a_job() -> None:
    values = {"JobArrayID": "22800001", "State": "RUNNING", "Reason": "None", "PriorityLong": "1", "UserID": "0"}
    values |= {"NumNodes": "1", "NumCPUs": "1", "TimeLimit": "365-00:00:00", "NodeList": "n1", "Requeue": "1"}
    values |= {"RestartCnt": "0", "StartTime": "2026-11-27T22:57:09", "exit_code": "0:0", "Dependency": "(null)"}
    values |= {"admin_comment": "(null)", "tres-per-node": "gres/shard:300", "Account": "(null)"}
    values |= {"Comment": "vgpu duration=2h"}
    (job,) = text.jobs(line(**values))
    spec = spec_of(job, {"default"}, Settings())
    assert (spec.ask.spec.gpus_milli, spec.duration_ns, job.exit_code) == (300, 7200 * 10**9, 0)


def test_a_node() -> None:
    """Both GRES with their type, and the shards in use of each device."""
    values = {"NodeList": "n1", "StateLong": "mixed", "Gres": "gpu:sim:2,shard:sim:2000", "CPUs": "8"}
    values |= {"GresUsed": "gpu:sim:0(IDX:N/A),shard:sim:1700(700/1000,1000/1000)"}
    values |= {"FreeMem": "18856", "Reason": "none", "Comment": "(null)"}
    (node,) = text.nodes("".join(f"{values[name]:<{width}}" for name, width in text.NODE_COLUMNS.items()))
    assert node == SlurmNode("n1", "mixed", 2, "sim", 2000, cpus=8, used_milli=(700, 1000), reason="none")


def test_a_job_whose_reservation_is_gone_waits() -> None:
    assert SlurmJob("1", state="RESV_DEL_HOLD").phase is Phase.WAITS


@pytest.mark.parametrize("uid", ["3000000000", "-1294967296"])
def test_users_with_large_numbers(uid: str) -> None:
    """As 26.05 prints them, and as releases before did."""
    (job,) = text.jobs(line(UserID=uid))
    assert job.uid == 3_000_000_000
