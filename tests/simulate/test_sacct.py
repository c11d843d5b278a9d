"""What `sacct -P` prints, as a trace."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import as_it_was, sacct
from vgpud.simulate.trace import TraceError, TraceJob

#: one that no user can know
SEPARATOR = "|3f0c1d5e8a7b4296a1b2c3d4e5f60718|"
HEADER = SEPARATOR.join(sacct.COLUMNS)
USUAL = {
    "JobID": "12",
    "User": "ann",
    "UID": "1000",
    "Account": "team",
    "Partition": "gpu",
    "State": "COMPLETED",
    "Submit": "2026-11-01T08:00:00",
    "Start": "2026-11-01T08:10:00",
    "End": "2026-11-01T09:10:00",
    "Elapsed": "01:00:00",
    "Timelimit": "1-00:00:00",
    "NNodes": "1",
    "AllocTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "Comment": "",
}


def line(**values: str) -> str:
    return SEPARATOR.join((USUAL | values)[column] for column in sacct.COLUMNS)


def read(*lines: str, **options: object) -> sacct.Read:
    return sacct.read("\n".join([HEADER, *lines, ""]), "month.txt", sacct.Asked(**options))  # type: ignore[arg-type]


def job(**values: str) -> TraceJob:
    (found,) = read(line(**values)).jobs
    return found


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock that is neither UTC nor the same all year."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_job() -> None:
    found = job(Comment="vgpu model=resnet50 skew=0.5")
    assert (found.submitted_ns, found.duration_ns, found.jct_ns) == (0, 3600 * SECOND_NS, 4200 * SECOND_NS)
    spec = found.spec
    assert (spec.name, spec.queue, spec.uid, spec.members) == ("12", "team", 1000, 1)
    assert (spec.ask.spec.gpus_milli, spec.ask.gpu_models, spec.width_milli) == (2000, (), 2000)
    assert (spec.model, spec.skew_ppm, found.where) == ("resnet50", 500_000, "month.txt:2")


def test_policies_get_what_a_controller_would_know() -> None:
    assert job().spec.duration_ns == 86_400 * SECOND_NS
    assert job(Comment="vgpu duration=2h").spec.duration_ns == 7200 * SECOND_NS
    assert job(Timelimit="UNLIMITED").spec.duration_ns == job(Timelimit="Partition_Limit").spec.duration_ns == 0


@pytest.mark.parametrize(
    ("nodes", "tres", "members", "milli", "one_per_node"),
    [
        ("4", "gres/gpu=32", 4, 8000, True),
        ("1", "gres/shard=500", 1, 500, False),
        ("2", "cpu=2,gres/shard=1000", 2, 500, True),
        ("1", "gres/gpu:a100=2", 1, 2000, False),
        ("1", "gres/gpu:a100=1,gres/gpu:h100=1,gres/gpu=2", 1, 2000, False),
        ("1", "gres/gpu:a100=1,gres/gpu=2", 1, 2000, False),
        ("2", "gres/gpu=3", 3, 1000, False),
        ("1", "gres/shard:a100=250,gres/shard=250", 1, 250, False),
    ],
)
def test_sizes(nodes: str, tres: str, members: int, milli: int, one_per_node: bool) -> None:
    spec = job(NNodes=nodes, AllocTRES=tres, ReqTRES="").spec
    assert (spec.members, spec.ask.spec.gpus_milli, spec.one_per_node) == (members, milli, one_per_node)


def test_a_model_counts_where_it_was_asked_for() -> None:
    typed = "gres/gpu:a100=2,gres/gpu=2"
    assert job(AllocTRES=typed).spec.ask.gpu_models == ()
    assert job(AllocTRES=typed, ReqTRES=typed).spec.ask.gpu_models == ("a100",)


def test_what_is_asked_for_counts_where_nothing_is_said_of_what_was_given() -> None:
    assert job(AllocTRES="cpu=8,node=1").spec.ask.spec.gpus_milli == 2000


def test_arrays_steps_and_components() -> None:
    found = read(
        line(JobID="12_3"),
        line(JobID="12_3.batch", Submit="never asked"),
        line(JobID="12_3.0"),
        line(JobID="13_[4-9%2]", State="PENDING", Start="Unknown", End="Unknown", Elapsed="00:00:00"),
        line(JobID="14+1"),
    )
    assert [one.spec.name for one in found.jobs] == ["12_3", "14+1"]
    assert found.never_ran == 1


def test_what_is_left_out_is_counted() -> None:
    found = read(
        line(),
        line(JobID="13", AllocTRES="cpu=8", ReqTRES="cpu=8"),
        line(JobID="14", State="CANCELLED by 1000", Start="None", Elapsed="00:00:00"),
        line(JobID="15", Start="2026-11-01T08:10:00", Elapsed="00:00:00"),
        line(JobID="16", Partition="cpu"),
        line(JobID="17", Submit="2026-10-01T08:00:00"),
        since_ns=1_793_000_000 * SECOND_NS,
        partition="gpu",
    )
    assert (len(found.jobs), found.without_gpus, found.never_ran) == (1, 1, 2)


def test_jobs_that_run_count_as_long_as_they_have_run() -> None:
    found = job(State="RUNNING", End="Unknown", Elapsed="1-00:00:00")
    assert (found.duration_ns, found.jct_ns) == (86_400 * SECOND_NS, (86_400 + 600) * SECOND_NS)


def test_a_job_has_not_ended_before_it_has_run() -> None:
    """As by a clock that was set back."""
    assert job(Elapsed="02:00:00").jct_ns == 7200 * SECOND_NS


def test_jobs_of_that_time() -> None:
    given = (line(JobID="1", Submit="1793000000", Start="1793000000", End="1793003600"),)
    assert len(read(*given, since_ns=1_793_000_000 * SECOND_NS).jobs) == 1
    with pytest.raises(TraceError, match="take a longer time"):
        read(*given, since_ns=1_793_000_001 * SECOND_NS)


def test_jobs_are_in_the_order_of_their_submission() -> None:
    """sacct sorts by number; a job that was requeued has been submitted again."""
    times = {"Start": "2026-11-02T08:00:00", "End": "2026-11-02T09:00:00"}
    found = read(line(JobID="1", Submit="2026-11-01T08:05:00", **times), line(JobID="2", **times))
    assert [(one.spec.name, one.submitted_ns // SECOND_NS) for one in found.jobs] == [("2", 0), ("1", 300)]


def test_the_clock_was_changed_that_night() -> None:
    """An hour that there are two of; seconds since 1970 have none."""
    times = {"Submit": "2026-10-25T00:30:00", "Start": "2026-10-25T01:30:00", "End": "2026-10-25T05:30:00"}
    assert job(**times, Elapsed="05:00:00").jct_ns == 6 * 3600 * SECOND_NS
    assert job(Submit="1793000000", Start="1793000060", End="1793003660").jct_ns == 3660 * SECOND_NS


def test_queues_are_accounts() -> None:
    lines = (line(Account="team"), line(JobID="13", Account="x"), line(JobID="14", Account=""))
    assert [one.spec.queue for one in read(*lines).jobs] == ["team", "x", "default"]
    assert [one.spec.queue for one in read(*lines, queues=("default", "team")).jobs] == ["team", "default", "default"]


def test_users_without_numbers() -> None:
    header = HEADER.replace("UID", "Other")
    text = "\n".join([header, line(User="ann"), line(JobID="13", User="bob"), line(JobID="14", User="ann")])
    found = sacct.read(text, "month.txt", sacct.Asked())
    assert [one.spec.uid for one in found.jobs] == [0, 1, 0]


def test_columns_of_any_order_and_separators_at_the_end() -> None:
    columns = ("AllocTRES", "JobID", "Comment", "NNodes", "Elapsed", "Start", "Submit", "End")
    text = "".join(
        SEPARATOR.join(values) + SEPARATOR + "\r\n" for values in (columns, [USUAL[column] for column in columns])
    )
    (found,) = sacct.read(text, "month.txt", sacct.Asked()).jobs
    assert (found.spec.name, found.jct_ns) == ("12", 4200 * SECOND_NS)
    last = "JobID|NNodes|Elapsed|Start|Submit|End|AllocTRES|ReqTRES\n"
    last += "12|1|01:00:00|1793000060|1793000000|Unknown|gres/gpu=1|\n"
    assert sacct.read(last, "month.txt", sacct.Asked()).jobs[0].duration_ns == 3600 * SECOND_NS


def test_a_comment_may_have_anything_in_it() -> None:
    assert job(Comment="vgpu model=a|b|c").spec.model == "a|b|c"
    found = read(line(Comment="vgpu model=a\n\n99\n12|x|y"), line(JobID="13"))
    assert [one.spec.name for one in found.jobs] == ["12", "13"] and found.cut == 2


def test_a_whole_line_behind_a_line_break_is_no_job() -> None:
    """Its writer cannot know the separator."""
    forged = line(JobID="99", AllocTRES="gres/gpu=512").replace(SEPARATOR, "|")
    for given in (line(Comment=f"x\n{forged}"), line(Comment=f"x|\n{forged}|")):
        assert [one.spec.name for one in read(given, line(JobID="13")).jobs] == ["12", "13"]
    split = read(line(Account=f"x\n{forged}\ny"), line(JobID="13"))
    assert [one.spec.name for one in split.jobs] == ["13"] and split.cut == 3


@pytest.mark.parametrize("column", ["Comment", "Account", "JobName"])
def test_a_usual_separator_is_no_guard_for_texts_of_users(column: str) -> None:
    text = "\n".join("|".join((*sacct.NEEDED, column)) for _ in range(2))
    with pytest.raises(TraceError, match=f"^month.txt: column {column} may have a line break in it.*--delimiter="):
        sacct.read(text, "month.txt", sacct.Asked())
    plain = "|".join(sacct.NEEDED) + "\n" + "|".join(USUAL[name] for name in sacct.NEEDED)
    assert len(sacct.read(plain, "month.txt", sacct.Asked()).jobs) == 1


def read_trusted(columns: str, *values: dict[str, str]) -> sacct.Read:
    """A file with the usual separator, whose site trusts its users' texts."""
    header = columns.split(",")
    lines = ["|".join((USUAL | each).get(column, "") for column in header) for each in values]
    return sacct.read("\n".join(["|".join(header), *lines]), "month.txt", sacct.Asked(trusts_texts=True))


ALL = ",".join(sacct.COLUMNS)


def test_a_site_may_trust_its_users_texts() -> None:
    first, second = read_trusted(ALL, {}, {"JobID": "13", "Comment": "vgpu model=a|b|2026-11-01T08:00:00"}).jobs
    assert (first.spec.name, first.spec.queue, second.spec.name, second.spec.model) == (
        "12",
        "team",
        "13",
        "a|b|2026-11-01T08:00:00",
    )
    cut = read_trusted(ALL, {"Comment": "first line\nsecond|line"}, {"JobID": "13"})
    assert [one.spec.name for one in cut.jobs] == ["12", "13"] and cut.cut == 1


def test_separators_in_a_text_between_other_columns() -> None:
    (found,) = read_trusted(f"JobID,JobName,{ALL[6:]}", {"JobName": "a|b|1|||c"}).jobs
    assert (found.spec.uid, found.spec.queue, found.duration_ns) == (1000, "team", 3600 * SECOND_NS)


def test_a_line_that_can_be_divided_in_two_ways_is_refused() -> None:
    with pytest.raises(
        TraceError, match=r"month\.txt:2: 17 values .* 16 columns, and more than one way to divide them"
    ):
        read_trusted(f"{ALL},JobName", {"Comment": "a|b", "JobName": "c"})
    with pytest.raises(TraceError, match="and no way to divide them: write the file with --delimiter="):
        read_trusted(ALL, {"State": "FAILED|0|1"})
    with pytest.raises(TraceError, match="and no way to divide them"):
        read_trusted(ALL, {"Comment": "|" * 1000})


@pytest.mark.parametrize("separator", ["|", ";", "|0f|", SEPARATOR])
def test_the_header_shows_the_separator(separator: str) -> None:
    columns = ("JobIDRaw", *sacct.NEEDED, "ExitCode")
    values = USUAL | {"JobIDRaw": "12", "ExitCode": "0:0"}
    text = separator.join(columns) + "\n" + separator.join(values[column] for column in columns)
    assert sacct.read(text, "month.txt", sacct.Asked()).jobs[0].jct_ns == 4200 * SECOND_NS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"JobID": "x"}, "JobID is 'x'"),
        ({"Submit": "Unknown"}, "Submit is 'Unknown'"),
        ({"Submit": "yesterday"}, "Submit is 'yesterday': write for example 2026-11-01T08:00:00"),
        ({"Submit": "1960-01-01T00:00:00"}, "before 1970"),
        ({"Start": "9999-99-99"}, "Start is '9999-99-99'"),
        ({"Elapsed": "an hour"}, "Elapsed is 'an hour'"),
        ({"Start": "2026-11-01T07:00:00"}, "not in this order"),
        ({"End": "2026-11-01T08:00:00"}, "not in this order"),
        ({"NNodes": "0"}, "NNodes is 0"),
        ({"NNodes": "two"}, "NNodes is 'two'"),
        ({"AllocTRES": "gres/gpu=many"}, "AllocTRES has gres/gpu=many"),
        ({"AllocTRES": f"gres/gpu={10**12}"}, "AllocTRES has gres/gpu"),
        ({"AllocTRES": "gres/gpu=" + "9" * 5000}, "AllocTRES has gres/gpu"),
        ({"End": "99999999999"}, "End is '99999999999': before 1970, or too far away"),
        ({"End": "2026-10-25T02:00:00", "Start": "2026-10-25T02:10:00", "Submit": "2026-10-25T02:10:00"}, "autumn"),
        ({"UID": "ann"}, "UID is 'ann'"),
        ({"State": f"FAILED{SEPARATOR}1"}, "16 values where the header has 15 columns"),
    ],
)
def test_a_bad_line_is_named(values: dict[str, str], words: str) -> None:
    text = "\n".join([HEADER, line(JobID="11"), line(**values)])
    with pytest.raises(TraceError, match=r"month\.txt:3: ") as refused:
        sacct.read(text, "month.txt", sacct.Asked())
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column JobID"),
        ("12|ann\n", "without -n"),
        (HEADER.replace("AllocTRES", "Other"), "no column AllocTRES"),
        (HEADER.replace("User", "JobID"), "column JobID is there twice"),
        (HEADER, "take a longer time"),
        (f"{HEADER}\n{line(AllocTRES='cpu=1', ReqTRES='')}", "AccountingStorageTRES=gres/gpu,gres/shard"),
        (f"{HEADER}\n{line(Start='Unknown')}", "1 never ran"),
    ],
)
def test_what_is_no_trace(text: str, words: str) -> None:
    with pytest.raises(TraceError) as refused:
        sacct.read(text, "month.txt", sacct.Asked())
    assert words in str(refused.value) and str(refused.value).startswith("month.txt")


# ---- as it was ----


def test_what_happened_in_the_figures_of_a_simulation() -> None:
    """One job waits 10 minutes for a GPU and has it for an hour, another has half of one from the beginning."""
    trace = read(
        line(AllocTRES="gres/gpu=1"),
        line(
            JobID="13",
            Start="2026-11-01T08:00:00",
            End="2026-11-01T08:30:00",
            Elapsed="00:30:00",
            AllocTRES="gres/shard=500",
        ),
    ).jobs
    assert as_it_was.is_known(trace)
    found = as_it_was.figures_of(trace, 2000)
    assert (found.jobs, found.jct_s.mean, found.jct_s.maximum, found.makespan_s) == (2, 3000.0, 4200.0, 4200.0)
    assert (found.queueing_s.maximum, found.longest_wait_s) == (600.0, 600.0)
    assert found.utilisation == pytest.approx((3600 + 900) / (2 * 4200))
    assert found.idle_while_waiting == pytest.approx(600 * 1.5 / (2 * 4200))
    assert found.as_json()["fragmentation"] is None
    assert not as_it_was.is_known([]) and not as_it_was.is_known([TraceJob(0, 1, trace[0].spec)])
