"""Jobs that Slurm has accounted, as a trace: what `sacct -P` prints, by the names of its columns.

Users' texts (comments, accounts) may have line breaks in them, and behind one a whole line. So that it is not taken for
a job, the separator must be one that no user could know: then what follows a line break has too few columns. A file
with a usual separator is read where its columns have no such texts, or where the site trusts its users' texts. Then a
text may have separators in it: the line is divided as its other columns can only be read, and refused if there are two
ways.

Left out are steps, jobs without GPUs and jobs that never ran. Policies know of a job's duration what `vgpu cluster`
would know: what its comment says, or its time limit.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from vgpud.core.jobs.model import DEFAULT_QUEUE, NEVER_NS, SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import sacct_texts
from vgpud.simulate.trace import GPUS_MAX, Row, TraceError, TraceJob, order_jobs
from vgpud.slurm import comment

#: what is asked of sacct
COLUMNS = (
    *("JobID", "User", "UID", "Account", "Partition", "State"),
    *("Submit", "Start", "End", "Elapsed", "Timelimit"),
    *("NNodes", "AllocTRES", "ReqTRES", "Comment"),
)
NEEDED = ("JobID", "Submit", "Start", "Elapsed", "NNodes", "AllocTRES")
#: of a file whose header does not show another
SEPARATOR = "|"
#: characters of a separator that no user guesses
SECRET_LENGTH = 16
#: columns that may have any text of a user in them, and others that have none
_TEXTS = ("Account", "Comment")
_PLAIN = (
    *(column for column in COLUMNS if column not in _TEXTS),
    *("JobIDRaw", "Group", "GID", "ExitCode", "ElapsedRaw", "TimelimitRaw", "AllocCPUS", "NCPUS", "NodeList", "QOS"),
)
#: shards of one device
SHARDS = 1000
_KNOWN = "|".join((*_PLAIN, *_TEXTS))
#: what stands between two columns, unknown ones among it
_BETWEEN = re.compile(rf"\b(?:{_KNOWN})(\W(?:.*?\W)??)(?=(?:{_KNOWN})\b)")
_NEVER = ("", "Unknown", "None", "N/A")
_JOB = re.compile(r"\d{1,10}([_+]\d{1,10})?")
#: elements of an array that wait: 12_[3-9%2]
_WAITING = re.compile(r"\d{1,10}_\[.*")
_GRES = re.compile(r"gres/(gpu|shard)(?::([^=]+))?=(.*)")
_SPAN = re.compile(r"(\d{1,5}-)?(\d{1,6}:)?\d{1,6}:\d\d(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which jobs are wanted, and the queues that there are."""

    since_ns: int = 0  # submitted since then
    partition: str = ""  # "" = all
    queues: tuple[str, ...] = ()  # jobs of other accounts are in `default`, as in a controller; () = one for each
    trusts_texts: bool = False  # no user has written what looks like a job: a usual separator will do


@dataclass(slots=True)
class Read:
    """The jobs in the order of their submission, and how many were left out."""

    jobs: list[TraceJob] = field(default_factory=list)
    without_gpus: int = 0
    never_ran: int = 0
    cut: int = 0  # lines with too few values: parts of texts with line breaks


def read(text: str, name: str, selection: Asked) -> Read:
    """`name`: of the file, for messages. Raises TraceError that names the line."""
    lines = text.split("\n")
    separator = min(_BETWEEN.findall(lines[0]), key=len, default=SEPARATOR)
    ends = lines[0].rstrip("\r").endswith(separator)
    header = _values(lines[0], separator, ends)
    _check(header, name, separator, selection.trusts_texts)
    found, users = Read(), dict[str, int]()
    may_be_cut = len(separator) >= SECRET_LENGTH or selection.trusts_texts
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        where, values = f"{name}:{number}", _values(line, separator, ends)
        if len(values) < len(header) and may_be_cut:
            found.cut += 1
            continue
        if len(values) > len(header) and selection.trusts_texts:
            values = sacct_texts.join_values(where, values, header, separator)
        if len(values) != len(header):
            raise TraceError(f"{where}: {len(values)} values where the header has {len(header)} columns")
        _take(found, Row(where, dict(zip(header, values, strict=True))), selection, users)
    if not found.jobs:
        raise TraceError(f"{name} has no job that ran with GPUs: {_why_none(found)}")
    found.jobs = order_jobs(found.jobs, sort=True)
    return found


def _check(header: list[str], name: str, separator: str, trusts_texts: bool) -> None:
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise TraceError(f"{name}: column {twice[0]} is there twice: name each once")
    missing = [column for column in NEEDED if column not in header]
    if missing:
        columns = ",".join(COLUMNS)
        raise TraceError(
            f"{name}: no column {', '.join(missing)}: write it with `sacct -a -X -P -o {columns}`, without -n"
        )
    free = [column for column in header if column not in _PLAIN]
    if free and len(separator) < SECRET_LENGTH and not trusts_texts:
        raise TraceError(
            f"{name}: column {free[0]} may have a line break in it, and behind that what looks like another job: write"
            ' the file with --delimiter="|$(openssl rand -hex 16)|", or without that column; if you trust what users'
            " have written there, add --trusted-separator"
        )


def _values(line: str, separator: str, ends: bool) -> list[str]:
    """`ends`: each line ends with the separator, as those of `sacct -p`."""
    text = line.rstrip("\r")
    return (text.removesuffix(separator) if ends else text).split(separator)


def _why_none(result: Read) -> str:
    if result.without_gpus:
        text = f"{result.without_gpus} jobs had none"
        return f"{text} (Slurm accounts GPUs with AccountingStorageTRES=gres/gpu,gres/shard in slurm.conf)"
    return f"{result.never_ran} never ran" if result.never_ran else "take a longer time, or another partition"


def _take(result: Read, row: Row, selection: Asked, users: dict[str, int]) -> None:
    key = row.text("JobID")
    if "." in key:
        return  # a step
    if not _JOB.fullmatch(key) and not _WAITING.fullmatch(key):
        raise TraceError(f"{row.where}: JobID is {key!r}: write for example 12, or 12_3 of an array")
    if selection.partition and row.text("Partition") != selection.partition:
        return
    submitted_ns = _moment_ns(row, "Submit")
    if submitted_ns < 0:
        raise TraceError(f"{row.where}: Submit is {row.text('Submit')!r}: it must be a time")
    if submitted_ns < selection.since_ns:
        return
    started_ns, ran_ns = _moment_ns(row, "Start"), _span_ns(row, "Elapsed")
    if started_ns < 0 or not ran_ns or _WAITING.fullmatch(key):
        result.never_ran += 1
        return
    spec = _spec(row, selection.queues, users)
    if spec is None:
        result.without_gpus += 1
        return
    ended_ns = _moment_ns(row, "End")
    if ended_ns < 0:
        ended_ns = started_ns + ran_ns  # it runs: it counts as long as it has run so far
    if not submitted_ns <= started_ns <= ended_ns:
        fix = "a local clock has one hour twice in autumn, SLURM_TIME_FORMAT=%s avoids it"
        raise TraceError(f"{row.where}: Submit, Start and End are not in this order ({fix})")
    jct_ns = max(ended_ns - submitted_ns, ran_ns)
    result.jobs.append(TraceJob(submitted_ns, ran_ns, spec, row.where, jct_ns=jct_ns))


def _spec(row: Row, queues: Collection[str], users: dict[str, int]) -> JobSpec | None:
    """None of a job without GPUs."""
    nodes = row.positive("NNodes")
    kind, count = _gres(row, "AllocTRES") or _gres(row, "ReqTRES") or ("", 0)
    if not count:
        return None
    milli = count * MILLI_PER_DEVICE if kind == "gpu" else count * MILLI_PER_DEVICE // SHARDS
    if milli % nodes or (kind == "gpu" and count % nodes):  # nodes with unequal parts: wherever there are single GPUs
        ask, members, one_per_node = Ask(Spec(MILLI_PER_DEVICE)), -(-milli // MILLI_PER_DEVICE), False
    else:
        ask, members, one_per_node = Ask(Spec(milli // nodes), gpu_models=_model(row)), nodes, nodes > 1
    said = comment.parse_comment(row.text("Comment"))
    account = row.text("Account") or DEFAULT_QUEUE
    return JobSpec(
        ask,
        members,
        one_per_node=one_per_node,
        name=row.text("JobID"),
        queue=account if not queues or account in queues else DEFAULT_QUEUE,
        uid=_uid(row, users),
        duration_ns=comment.parse_duration_ns(said.get("duration", "")) or comment.span_ns(row.text("Timelimit")),
        model=said.get("model", ""),
        skew_ppm=comment.parse_skew_ppm(said.get("skew", "")),
    )


def _uid(row: Row, users: dict[str, int]) -> int:
    """Where there is no column of numbers, users are numbered in the order in which they come."""
    if row.text("UID"):
        return row.whole_number("UID", 1 << 32)
    return users.setdefault(row.text("User"), len(users))


def _gres(row: Row, column: str) -> tuple[str, int] | None:
    """(gpu or shard, how many on all nodes together) of billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=2."""
    plain: dict[str, int] = {}
    typed: dict[str, int] = {}
    for kind, model, amount in _parts(row, column):
        if not re.fullmatch(r"[0-9]{1,15}", amount) or int(amount) > GPUS_MAX * SHARDS:
            raise TraceError(f"{row.where}: {column} has gres/{kind}={amount}: it must be a whole number")
        counts = typed if model else plain
        counts[kind] = counts.get(kind, 0) + int(amount)
    counts = typed | plain
    return next(((kind, counts[kind]) for kind in ("shard", "gpu") if counts.get(kind)), None)


def _model(row: Row) -> tuple[str, ...]:
    """The model of GPU that the job asked for; what it was given it might have had elsewhere, too."""
    return tuple(dict.fromkeys(model for _, model, _ in _parts(row, "ReqTRES") if model))[:1]


def _parts(row: Row, column: str) -> Iterator[tuple[str, str, str]]:
    for part in row.text(column).split(","):
        if found := _GRES.fullmatch(part):
            yield found[1], found[2] or "", found[3]


def _span_ns(row: Row, column: str) -> int:
    text = row.text(column)
    if text in _NEVER:
        return 0
    if not _SPAN.fullmatch(text):
        raise TraceError(f"{row.where}: {column} is {text!r}: write for example 1-02:03:04 or 02:03:04")
    return comment.span_ns(text.partition(".")[0])


def _moment_ns(row: Row, column: str) -> int:
    """ns since 1970 of a time on the local clock, or of seconds since 1970; -1 = it has not come."""
    text = row.text(column)
    if text in _NEVER:
        return -1
    try:
        seconds = re.fullmatch(r"[0-9]{9,11}", text)
        at_s = int(text) if seconds else datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError) as error:
        fix = "write for example 2026-11-01T08:00:00 (SLURM_TIME_FORMAT=standard)"
        raise TraceError(f"{row.where}: {column} is {text!r}: {fix}") from error
    if not 0 <= at_s < NEVER_NS // SECOND_NS:
        raise TraceError(f"{row.where}: {column} is {text!r}: before 1970, or too far away")
    return int(at_s) * SECOND_NS
