"""What squeue, sinfo and topology.conf say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from vgpud.cluster.core.model import (
    Cancel,
    Hold,
    Phase,
    Register,
    Release,
    Request,
    Requeue,
    SetComment,
    Settings,
    SlurmJob,
    SlurmNode,
)
from vgpud.cluster.core.translate import NotOurs, spec_of
from vgpud.cluster.shell import slurm as shell
from vgpud.cluster.shell import text, topology
from vgpud.cluster.shell.slurm import TELL_CHARS_MAX, commands, run
from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.queue.check import ARRAY_JOBS_MAX
from vgpud.userfiles import rates
from vgpud.userfiles.bounded import FileError

NOTHING = dict.fromkeys(text.JOB_COLUMNS, "(null)")


def line(**values: str) -> str:
    given = NOTHING | {"JobArrayID": "12", "PriorityLong": "0"} | values
    return "".join(f"{given[name]:<{width}}"[:width] for name, width in text.JOB_COLUMNS.items())


def test_a_row_of_squeue() -> None:
    values = {
        "JobArrayID": "12_3",
        "State": "RUNNING",
        "UserID": "1001",
        "Account": "team",
        "tres-per-node": "gres:gpu:a100:2",
        "NumNodes": "2",
        "NumCPUs": "16",
        "TimeLimit": "1-02:00:00",
        "NodeList": "n[08-09]",
        "PriorityLong": "4294901759",
        "Requeue": "0",
        "BatchFlag": "1",
        "RestartCnt": "3",
        "StartTime": "2026-11-27T20:00:00",
        "exit_code": "256",
        "Comment": "vgpu model=resnet50",
    }
    (job,) = text.jobs(line(**values) + "\n")
    assert job == SlurmJob(
        "12_3",
        state="RUNNING",
        uid=1001,
        account="team",
        request=Request("gres:gpu:a100:2", 2, 16, 26 * 3600 * SECOND_NS, "vgpu model=resnet50"),
        node_names=("n08", "n09"),
        requeues=False,
        restarts=3,
        start="2026-11-27T20:00:00",
        exit_code=1,
    )
    assert job.number == (12, 3) and job.phase is Phase.RUNS


def test_a_text_cannot_pass_for_a_column_or_a_row() -> None:
    """The comment is the last column, and what follows a line break in it is too short to be a row."""
    (job,) = text.jobs(line(Comment="x PENDING 0\n99 RUNNING"))
    assert (job.key, job.state, job.request.comment) == ("12", "", "x PENDING 0")


@pytest.mark.parametrize("text_of", ["Account", "Comment", "tres-per-node"])
@pytest.mark.parametrize("forged_row", ["x", "12", "99", "7".ljust(40) + "COMPLETED", "\n12\n\n99 RUNNING"])
def test_a_line_break_makes_no_row(text_of: str, forged_row: str) -> None:
    """Neither an unreadable one, which would be the whole look's end, nor a job's that there is or is not, and the
    job itself stays."""
    values = {"UserID": "1000", "State": "RUNNING", "admin_comment": "vgpu: queued"}
    shown = line(UserID="0") + "\n" + line(JobArrayID="13", **values, **{text_of: f"team\n{forged_row}"}) + "\n"
    found = list(text.jobs(shown + line(JobArrayID="7", UserID="2000")))
    assert [(job.key, job.uid) for job in found] == [("12", 0), ("13", 1000), ("7", 2000)]
    assert (found[1].phase, found[1].user_held) == (Phase.RUNS, False)


def test_each_job_once() -> None:
    """The first row of a number counts, and a row without one is no reason to see nothing."""
    shown = "\n".join([line(JobArrayID="x"), line(UserID="1000"), line(UserID="1", State="COMPLETED")])
    assert [(job.key, job.uid) for job in text.jobs(shown)] == [("12", 1000)]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_every_character_of_a_program_is_one(ends: str) -> None:
    """Also those that end lines elsewhere: columns would be shorter."""
    assert run(["printf", "%s", f"team{ends}\xe9"]) == f"team{ends}\xc3\xa9"


@pytest.mark.parametrize(
    ("reason", "admin_comment", "held"),
    [
        ("JobHeldUser", "", True),
        ("JobHeldUser", "vgpu: queued", False),
        ("JobHeldAdmin", "", False),
        ("None", "x", False),
    ],
)
def test_whose_hold_it_is(reason: str, admin_comment: str, held: bool) -> None:
    (job,) = text.jobs(line(Reason=reason, admin_comment=admin_comment))
    assert job.user_held is held and job.held


def test_what_is_no_job() -> None:
    with pytest.raises(text.SlurmTextError, match="'JOBID'"):
        list(text.jobs(line(JobArrayID="JOBID")))
    assert list(text.jobs("")) == []


@pytest.mark.parametrize(
    ("host_list", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7]-ib,m4", ["n1-ib", "n2-ib", "n3-ib", "n7-ib", "m4"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
    ],
)
def test_names_of_nodes(host_list: str, names: list[str]) -> None:
    assert list(text.host_names(host_list)) == names


@pytest.mark.parametrize("host_list", ["n[0-999999999]", "n" + "[1]" * 2000])
def test_too_many_nodes(host_list: str) -> None:
    with pytest.raises(text.SlurmTextError):
        list(text.host_names(host_list))


@pytest.mark.parametrize(("exit_text", "code"), [("0", 0), ("256", 1), ("15", 143), ("3:0", 3), ("0:9", 137), ("", 0)])
def test_exit_codes(exit_text: str, code: int) -> None:
    (job,) = text.jobs(line(exit_code=exit_text))
    assert job.exit_code == code


@pytest.mark.parametrize(
    ("gres", "used", "node"),
    [
        ("gpu:2", "gpu:0", SlurmNode("n1", "idle", 2, used_milli=(0, 0))),
        (
            "gpu:a100:2(S:0-1),shard:a100:2000(S:0-1)",
            "gpu:a100:1(IDX:0),shard:a100:300(0/1000,300/1000)",
            SlurmNode("n1", "idle", 2, "a100", 2000, used_milli=(1000, 300)),
        ),
        (
            "gpu:4,shard:4000",
            "gpu:(null):3(IDX:0,2-3),shard:(null):0(0/1000,0/1000,0/1000,0/1000)",
            SlurmNode("n1", "idle", 4, "", 4000, used_milli=(1000, 0, 1000, 1000)),
        ),
        ("gpu:2,shard:2000", "gpu:0,shard:(null):0(IDX:N/A)", SlurmNode("n1", "idle", 2, "", 2000, used_milli=(0, 0))),
        # 22.05 says where, and not how much; or how many, and not where
        ("gpu:2,shard:2000", "gpu:0,shard:(null):2(IDX:0-1)", SlurmNode("n1", "idle", 2, "", 2000)),
        ("gpu:2,shard:2000", "gpu:1,shard:(null):1(IDX:0)", SlurmNode("n1", "idle", 2, "", 2000)),
        ("gpu:1,shard:8", "gpu:0(IDX:N/A),shard:3(3/8)", SlurmNode("n1", "idle", 1, "", 8, used_milli=(375,))),
        ("(null)", "gpu:0", SlurmNode("n1", "idle", 0)),
    ],
)
def test_nodes(gres: str, used: str, node: SlurmNode) -> None:
    values = {"NodeList": "n1", "StateLong": "idle", "Gres": gres, "GresUsed": used, "CPUs": "0"}
    values |= {"Comment": "", "FreeMem": "7", "Reason": ""}
    shown = "".join(f"{values[name]:<{width}}" for name, width in text.NODE_COLUMNS.items())
    assert list(text.nodes(f"{shown}\n{shown}\n")) == [node]  # a node of two partitions appears twice


@pytest.mark.parametrize(
    ("comment", "memory_bytes"),
    [
        ("vgpu memory=42949672960", 40 << 30),
        ("(null)", 0),
        ("rack 7", 0),
        ("vgpu memory=much", 0),
        ("rack 7 vgpu memory=42949672960", 0),
    ],
)
def test_memory_that_a_node_publishes(comment: str, memory_bytes: int) -> None:
    values = {"NodeList": "n1", "StateLong": "idle", "Gres": "gpu:2", "GresUsed": "gpu:0", "CPUs": "8"}
    shown = "".join(f"{values.get(name, comment):<{width}}" for name, width in text.NODE_COLUMNS.items())
    (node,) = text.nodes(shown)
    assert (node.cpus, node.memory_bytes) == (8, memory_bytes)


def test_a_line_break_in_a_nodes_comment() -> None:
    values = {"NodeList": "n1", "StateLong": "idle", "Gres": "gpu:2", "FreeMem": "7", "Comment": "rack 7\nrow 3"}
    shown = "".join(f"{values.get(name, ''):<{width}}" for name, width in text.NODE_COLUMNS.items())
    assert [(node.name, node.gpus, node.is_registered) for node in text.nodes(shown)] == [("n1", 2, True)]


@pytest.mark.parametrize("reason", ["ECC\nXid 79", "\nn1", "a\n" + "n9".ljust(64) + "idle"])
def test_a_line_break_in_a_nodes_reason(reason: str) -> None:
    values = {"StateLong": "drained", "Gres": "gpu:2", "FreeMem": "7", "Comment": "vgpu memory=1"}

    def row(**changes: str) -> str:
        return "".join(
            f"{(values | changes).get(name, ''):<{width}}"[:width] for name, width in text.NODE_COLUMNS.items()
        )

    first, node, last = text.nodes(
        "\n".join([row(NodeList="n1"), row(NodeList="n2", Reason=reason), row(NodeList="n3")])
    )
    assert [one.name for one in (first, node, last)] == ["n1", "n2", "n3"]
    assert (node.drained, node.gpus, node.reason) == (True, 2, reason.partition("\n")[0])


@pytest.mark.parametrize(("memory", "is_registered"), [("0", True), ("N/A", False)])
def test_whether_a_node_has_registered(memory: str, is_registered: bool) -> None:
    values = {"NodeList": "n1", "StateLong": "idle", "Gres": "gpu:1", "FreeMem": memory, "Reason": "Duplicate jobid"}
    shown = "".join(f"{values.get(name, ''):<{width}}" for name, width in text.NODE_COLUMNS.items())
    (node,) = text.nodes(shown)
    assert (node.is_registered, node.reason) == (is_registered, "Duplicate jobid")


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "completing", "idle+planned", "mixed-"])
def test_nodes_that_take_jobs(state: str) -> None:
    assert SlurmNode("n1", state, 1).is_schedulable


@pytest.mark.parametrize(
    "state", ["down", "idle*", "drained", "draining", "mixed+drain", "maint", "fail", "unknown", ""]
)
def test_nodes_that_do_not(state: str) -> None:
    assert not SlurmNode("n1", state, 1).is_schedulable


@pytest.mark.parametrize(
    ("gres", "devices"),
    [
        ("gpu:1(IDX:1)", (("n1", 1, 1000),)),
        ("gpu:a100:2(IDX:0-1)", (("n1", 0, 1000), ("n1", 1, 1000))),
        ("shard:700(IDX:1)", (("n1", 1, 700),)),
        ("shard:a100:700(0/1000,700/1000)", (("n1", 1, 700),)),
        ("", ()),
    ],
)
def test_devices_of_a_job(gres: str, devices: tuple[tuple[str, int, int], ...]) -> None:
    said = f"JobId=2 JobName=x NodeList=n1 JOB_GRES=gpu Nodes=n1 CPU_IDs=1-2 Mem=0 GRES={gres} MinCPUsNode=1"
    assert text.devices(said, ("n1",)) == devices
    assert text.devices(said, ("n2",)) == ()


def test_devices_on_several_nodes() -> None:
    said = "JobId=2 JOB_GRES=gpu:2   Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    assert text.devices(said, ("n1", "n2")) == (("n1", 0, 1000), ("n2", 0, 1000))
    said = said.replace(" MinCPUs", "   Nodes=n3 CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:1) MinCPUs")
    assert text.devices(said, ("n1", "n2", "n3")) == (("n1", 0, 1000), ("n2", 0, 1000), ("n3", 1, 1000))


@pytest.mark.parametrize(
    "lie",
    [
        "Nodes=n[1-9999999] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)",
        "Nodes=[1]" + "[1]" * 300 + " CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)",
        "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0-9999999)",
        "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0]x)",
        "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:\xb2)",
        "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:)",
    ],
)
def test_devices_that_a_text_makes_up(lie: str) -> None:
    """In a name, an account or a comment, with and without what follows devices."""
    for end in ("", " MinCPUsNode=1", " MinCPUsNode=1 MinCPUsNode=1", "\nJobId=2 MinCPUsNode=1"):
        name, account, comment = f"x UserId=a(1) {lie}{end}", f"x\n {lie}{end}", f"vgpu {lie}{end}"
        for texts in ((name, "x", "x"), ("x", account, "x"), ("x", "x", comment), (name, account, comment)):
            said = job_text(*texts)
            assert text.is_ambiguous(said) == ("MinCPUsNode" in end), "other jobs need no second question"
            assert text.devices(said, ("n1",), record_of(*texts[:2])) == (("n1", 1, 1000),)


def job_text(name: str, account: str, comment: str, gres: str = "gpu:1(IDX:1)", **rest: str) -> str:
    """A job as scontrol shows it, with all that may stand around its devices."""
    array, joined = rest.get("array", "ArrayJobId=2 ArrayTaskId=1 "), rest.get("joined", "")
    of_slurm = f"JOB_GRES=gpu:1   Nodes=n1 CPU_IDs=0-1 Mem=0 GRES={gres} MinCPUsNode=1"
    return (
        f"JobId=2 {array}JobName={name} {joined}UserId=ann(1000) GroupId=domain users(1000) MCS_label=N/A Priority=1"
        f" Nice=0 Account={account} QOS=(null){rest.get('wckey', '')} JobState=RUNNING Reason=None"
        f" Partition=gpu AllocNode:Sid={rest.get('host', 'h')}:1 {of_slurm} Comment={comment} \n"
    )


def record_of(name: str, account: str, wckey: str = "(null)", host: str = "h") -> str:
    """These as squeue shows them."""
    values = {"Name": name, "Account": account, "WCKey": wckey, "AllocNodes": host}
    return "".join(f"{values.get(column, '(null)'):<{width}}" for column, width in text.TEXT_COLUMNS.items())


@pytest.mark.parametrize("is_tracked", [False, True])
@pytest.mark.parametrize("gres", ["gpu:2(IDX:0-1)", ""])
@pytest.mark.parametrize("wckey", ["x MinCPUsNode=y", "x MinCPUsNode= MinCPUsNode=", "x\r\n JobState=y MinCPUsNode=1"])
def test_a_wckey_is_not_always_shown(wckey: str, gres: str, is_tracked: bool) -> None:
    """By scontrol, only with TrackWCKey=yes; a user may set one in any case."""
    lie = f"vgpu Nodes=n1 CPU_IDs=0 Mem=0 GRES={gres} MinCPUsNode=1"
    said = job_text("x", "x", lie, wckey=f" WCKey={wckey}" if is_tracked else "")
    assert text.devices(said, ("n1",), record_of("x", "x", wckey)) == (("n1", 1, 1000),)


def test_a_host_that_looks_like_devices() -> None:
    """That of the submission stands between the account and the devices."""
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    assert text.devices(job_text("x", "x", lie, host=lie), ("n1",), record_of("x", "x", host=lie)) == (("n1", 1, 1000),)


def test_a_job_of_several_components_has_devices() -> None:
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    said = job_text("x", "x", lie, array="HetJobId=2 HetJobOffset=0 ", joined="HetJobIdSet=2-3 ")
    assert text.devices(said, ("n1",), record_of("x", "x")) == (("n1", 1, 1000),)


def test_what_ends_no_devices() -> None:
    """An account or a name that only looks so in squeue's column."""
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    for words in ("MinCPUsNode=1", " MinCPUsNode=1", "x MinCPUsNode=1 "):
        for texts in ((words, "x"), ("x", words), (words, words)):
            assert text.devices(job_text(*texts, lie), ("n1",), record_of(*texts)) == (("n1", 1, 1000),)


def test_a_name_that_changes_meanwhile() -> None:
    """What was a name while scontrol was asked must not pass for Slurm's words: it is asked again."""
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    assert text.devices(job_text(lie, "x", "x"), ("n1",), record_of("x", "x")) is None
    assert text.devices(job_text(f"{lie} JobName=x", "x", "x"), ("n1",), record_of("x", "x")) is None
    assert text.devices(job_text("", "x", lie), ("n1",), record_of("", "x")) == (("n1", 1, 1000),)
    assert text.devices(job_text("(null)", "x", lie), ("n1",), record_of("", "x")) == (("n1", 1, 1000),)


def test_a_job_without_devices_has_none_of_its_texts() -> None:
    """As one of another release whose devices end otherwise."""
    lie = "x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) MinCPUsNode=1"
    said = job_text("x", "x", lie).replace(" Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:1) MinCPUsNode=1", "", 1)
    assert not text.is_ambiguous(said)
    assert text.devices(said.replace(lie, "x"), ("n1",)) == ()
    assert text.devices(job_text("x", "x", "x", gres=""), ("n1",)) == ()


def test_devices_are_asked_for_once_for_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where slurmctld was killed, has forgotten a start, and began the job again: its restarts are not more."""
    at, asked = 0, 0
    row = {"State": "RUNNING", "UserID": "1000", "RestartCnt": "0", "StartTime": "20:00:00", "NodeList": "n1"}

    def programs(words: list[str], **options: object) -> str:
        nonlocal asked
        if words[0] == "scontrol":
            asked += 1
            group = f"Nodes={row['NodeList']} CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:{at}) MinCPUsNode=1"
            return f"JobId=12 JobName=x JOB_GRES=x  {group}"
        if words[0] == "squeue":
            return line(**row)
        values = {"NodeList": "n1", "StateLong": "idle", "FreeMem": "7"}
        return "".join(f"{values.get(name, ''):<{width}}" for name, width in text.NODE_COLUMNS.items())

    monkeypatch.setattr(shell, "run", programs)
    slurm = shell.Slurm("gpu")
    for number, change in enumerate(
        ({}, {"StartTime": "20:00:09"}, {"UserID": "2000"}, {"NodeList": "n2"}, {"RestartCnt": "1"})
    ):
        row |= change
        at = number
        for _ in range(2):
            (job,) = slurm.look().jobs
            assert job.devices == ((row["NodeList"], at, 1000),)
        assert asked == number + 1


# ---- jobs ----


def spec(**values: object):  # type: ignore[no-untyped-def]
    of_request = {field.name for field in fields(Request)}
    request = Request(**{"gres": "gres:gpu:1", **{name: values.pop(name) for name in of_request & values.keys()}})  # type: ignore[arg-type]
    return spec_of(SlurmJob("5", request=request, **values), {"default", "team"}, Settings())  # type: ignore[arg-type]


def test_what_a_job_asks_for() -> None:
    found = spec(gres="gres:gpu:a100:2", nodes=2, cpus=8, account="team", time_limit_ns=60, requeues=False)
    assert (found.ask.spec.gpus_milli, found.ask.gpu_models, found.ask.cpu_milli) == (2000, ("a100",), 4000)
    assert (found.members, found.one_per_node, found.queue, found.duration_ns) == (2, True, "team", 60)
    assert not found.preemptible
    assert spec(gres="gres:shard:250").ask.spec.gpus_milli == 250
    assert spec(gres="gpu").ask.spec.gpus_milli == 1000
    assert spec().kinds and spec(uid=1).kinds[0] != spec(uid=2).kinds[0]


@pytest.mark.parametrize(
    ("gres", "words"),
    [
        ("", "no GPU"),
        ("gres:gpu:0", "write --gres"),
        ("gres:shard:0", "write --gres"),
        ("gres:shard:1500", "write 1 to 1000"),
        ("gres:gpu:1,gres:shard:1", "either"),
        ("gres:tape:1", "write --gres"),
    ],
)
def test_what_the_queue_cannot_place(gres: str, words: str) -> None:
    with pytest.raises(NotOurs, match=words):
        spec(gres=gres)


def test_jobs_of_several_components() -> None:
    with pytest.raises(NotOurs, match="one by one"):
        spec_of(SlurmJob("5+0", request=Request("gpu:1")), {"default"}, Settings())


def test_a_comment_says_what_the_queue_cannot_know() -> None:
    said = spec(comment="vgpu model=vgg16 skew=0.75 duration=2h", time_limit_ns=1)
    assert (said.model, said.skew_ppm, said.duration_ns) == ("vgg16", 750_000, 7200 * SECOND_NS)
    for skew in ("much", ".5.0", "0.5."):
        wrong = spec(comment=f"vgpu skew={skew} duration=-1h")
        assert (wrong.skew_ppm, wrong.duration_ns) == (-1, 0)


def test_an_element_of_an_array() -> None:
    found = spec_of(SlurmJob("12_3", request=Request("gres:gpu:1"), array_limit=4), {"default"}, Settings())
    assert (found.array, found.array_limit, found.name) == (12, 4, "12_3")
    assert spec_of(SlurmJob("12_3", request=Request("gres:gpu:1")), {"default"}, Settings()).array == 0
    most = spec_of(SlurmJob("12_3", request=Request("gres:gpu:1"), array_limit=99_999), {"default"}, Settings())
    assert most.array_limit == ARRAY_JOBS_MAX


@pytest.mark.parametrize(
    ("output", "limit"),
    [
        ("JobId=12 ArrayJobId=12 ArrayTaskId=0-99%4 ArrayTaskThrottle=4 JobName=x", 4),
        ("JobId=12 ArrayJobId=12 ArrayTaskId=7,9 ArrayTaskThrottle=2 JobName=x", 2),
        ("JobId=12 ArrayJobId=12 ArrayTaskId=0-9%" + "9" * 5000, 999_999_999),
        ("JobId=12 ArrayJobId=12 ArrayTaskId=0-99 JobName=x ArrayTaskThrottle=1", 0),
        ("JobId=13 ArrayJobId=12 ArrayTaskId=3 JobName=x\nJobId=12 ArrayJobId=12 ArrayTaskId=4-9%2 JobName=x", 2),
        ("JobId=13 ArrayJobId=12 ArrayTaskId=3 JobName=x Comment=ArrayTaskId=0-9%9", None),
        ("JobId=12 JobName=x", None),
        ("", None),
    ],
)
def test_how_many_elements_run_at_once(output: str, limit: int | None) -> None:
    assert text.array_limit(output) == limit


# ---- scontrol ----


def test_orders_as_commands() -> None:
    bind, release = commands(Release("5", ("n1", "n2")))
    assert bind == ["scontrol", "update", "JobId=5", "ReqNodeList=n1,n2", "StartTime=now"] and release == [
        "scontrol",
        "release",
        "5",
    ]
    assert commands(Hold("5"))[1][-1] == "ReqNodeList="
    assert [words[1] for words in commands(Requeue("5"))] == ["requeue", "hold"] and commands(Cancel("5")) == [
        ["scancel", "5"]
    ]
    ((*_, comment_text),) = commands(SetComment("5", "x" * 999))
    assert len(comment_text) == len("AdminComment=vgpu: ") + TELL_CHARS_MAX


def test_nodes_of_a_large_cluster_are_asked_in_blocks() -> None:
    """Linux takes arguments of up to 128 KiB."""
    names = tuple(f"{number:064}" for number in range(5001))
    found = commands(Register(names, ""))
    assert [word for words in found for word in words[2].removeprefix("NodeName=").split(",")] == list(names)
    assert max(len(word) for words in found for word in words) < 128 << 10
    assert {tuple(words[:2] + words[3:]) for words in found} == {("scontrol", "update", "State=UNDRAIN")}
    assert commands(Register((), "")) == []


def test_each_block_of_nodes_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind one of which slurmctld has forgotten the state."""
    asked_nodes: list[str] = []

    def refusing(words: list[str], **options: object) -> str:
        if words[0] == "sinfo":
            return ""
        asked_nodes.append(words[2])
        raise shell.SlurmError("slurm_update error: Invalid node state specified")

    monkeypatch.setattr(shell, "run", refusing)
    shell.Slurm("gpu").tell(Register(tuple(f"n{number}" for number in range(shell.NAMES_MAX + 1)), ""))
    assert [len(words.split(",")) for words in asked_nodes] == [shell.NAMES_MAX, 1]


# ---- files ----


def test_switches(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(
        "# the fabric\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3 LinkSpeed=9\nSwitchName=top Switches=s[1-2]\n"
    )
    assert topology.read(path) == {"n1": ("s1", "top"), "n2": ("s1", "top"), "n3": ("s2", "top")}


@pytest.mark.parametrize(
    "content",
    ["Nodes=n1", "SwitchName=s1", "SwitchName=a Switches=a\nSwitchName=a Nodes=n1", "SwitchName=a Nodes=n[0-99999]"],
)
def test_switches_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(content)
    with pytest.raises(topology.TopologyError, match=r"topology\.conf"):
        topology.read(path)
    with pytest.raises(FileError):
        topology.read(tmp_path / "missing")


def test_speeds(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("model,gpu,rate\nresnet50,V100,9\nresnet50,K80,1\n\nvgg16,K80,2\n")
    assert rates.read(path) == {"resnet50": (("K80", 111), ("V100", 1000)), "vgg16": (("K80", 1000),)}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "model,gpu\n",
        "model,gpu,rate\nx,y,0",
        "model,gpu,rate\nx,y",
        "model,gpu,rate\nx,y,1\nx,y,2",
        "model,gpu,rate\nx,y,nan",
    ],
)
def test_speeds_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(content)
    if not content:
        assert rates.read(path) == {}
        return
    with pytest.raises(rates.RatesError, match=r"rates\.csv:"):
        rates.read(path)
