"""The output of squeue, sinfo and scontrol.

Of the first two columns of fixed width, so that no text of a user's can be taken for another column, and these texts
last, so that what follows a line break in one is too short for a row. Their --json has another form in each release
(its data parser), and scontrol has none before 23.02; the columns are the same from 21.08 on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from vgpud.cluster.core.model import Request, SlurmJob, SlurmNode
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.slurm import comment

#: field of squeue -O -> width, see TEXTS
JOB_COLUMNS = {
    "JobArrayID": 40,
    "State": 24,
    "Reason": 64,
    "PriorityLong": 16,
    "UserID": 16,
    "NumNodes": 16,
    "NumCPUs": 16,
    "TimeLimit": 24,
    "NodeList": 1024,
    "Dependency": 256,
    "Requeue": 8,
    "BatchFlag": 12,
    "RestartCnt": 12,
    "StartTime": 24,
    "exit_code": 16,
    "admin_comment": 64,
    "tres-per-node": 96,
    "Account": 64,
    "Comment": 256,
}
#: reason of a job that its user holds, and of one that vgpu_cluster.lua holds, as older releases have it; how the
#: administrators' comment of the latter begins
USER_HOLD, MARK = "JobHeldUser", "vgpu:"
#: the same of sinfo -O; the node's comment has what publish_memory.sh of integrations/slurm has written there
NODE_COLUMNS = {"NodeList": 64, "StateLong": 48, "Gres": 256, "GresUsed": 512, "CPUs": 12}
NODE_COLUMNS |= {"FreeMem": 24, "Reason": 64, "Comment": 128}
#: columns that may have line breaks in them: users and administrators write them
TEXTS = frozenset({"admin_comment", "tres-per-node", "Account", "Comment", "Reason"})
#: what these programs print where there is nothing
_NOTHING = {"", "(null)", "N/A", "None", "n/a"}
_NODES_MAX = 65_536
#: lists of numbers in one name of nodes: r[1-4]n[1-16]
_LISTS_MAX = 8
#: devices of one node; one with more than units.GPUS_MAX is shown, and not used
_DEVICES_MAX = 4096
#: what follows the devices in `scontrol --oneliner --details show job`
_END = " MinCPUsNode="
#: users' texts before them, as columns of squeue -O that are wider than Slurm lets these texts be; the name is first:
#: it may be changed while the job runs
TEXT_COLUMNS = {"Name": 1100, "MCSLabel": 1100, "Account": 1100, "WCKey": 1100, "AllocNodes": 1100}
_DEVICES = re.compile(r"\s+Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)")
#: the first words of each line of `scontrol --oneliner show job`, before any text of a user
_ARRAY = re.compile(
    r"^JobId=\d+ ArrayJobId=\d+ ArrayTaskId=([^ %]+)(?:%(\d{1,9}))?(?: ArrayTaskThrottle=(\d{1,9}))?", re.M
)


class SlurmTextError(ValueError):
    """Output that is not as expected; the text is one line."""


def columns(widths: Mapping[str, int]) -> str:
    """The argument of -O."""
    return ",".join(f"{name}:{width}" for name, width in widths.items())


def rows(text: str, widths: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Each line by column. A line that is too short is the rest of a text with a line break and no row; of a row that
    was cut the columns behind are empty."""
    names = list(widths)
    while names[-1] in TEXTS:
        names.pop()
    least = sum(widths[name] for name in names)
    for line in text.split("\n"):
        if len(line) < least:
            continue
        at, found = 0, {}
        for name, width in widths.items():
            value = line[at : at + width].strip()
            found[name] = "" if value in _NOTHING else value
            at += width
        yield found


def jobs(text: str) -> Iterator[SlurmJob]:
    """Each once; what is no job is left out. Raises SlurmTextError where that is all there is."""
    seen, other = set[str](), ""
    for row in rows(text, JOB_COLUMNS):
        key = row["JobArrayID"]
        if key in seen:
            continue
        if not re.match(r"[0-9]", key):
            other = other or key
            continue
        seen.add(key)
        yield SlurmJob(
            key=key,
            state=row["State"],
            user_held=row["Reason"] == USER_HOLD and not row["admin_comment"].startswith(MARK),
            held=_number(row["PriorityLong"]) == 0,
            uid=_uid(row["UserID"]),
            account=row["Account"],
            request=Request(
                gres=row["tres-per-node"],
                nodes=max(1, _number(row["NumNodes"].partition("-")[0])),
                cpus=max(1, _number(row["NumCPUs"])),
                time_limit_ns=comment.span_ns(row["TimeLimit"]),
                comment=row["Comment"],
            ),
            node_names=tuple(host_names(row["NodeList"])),
            dependency=row["Dependency"],
            requeues="0" not in (row["Requeue"], row["BatchFlag"]),  # Slurm requeues scripts only
            restarts=_number(row["RestartCnt"]),
            start=row["StartTime"],
            exit_code=_exit_code(row["exit_code"]),
        )
    if other and not seen:
        raise SlurmTextError(f"squeue shows {other[:40]!r} as the id of a job")


def nodes(text: str) -> Iterator[SlurmNode]:
    """Each once. Raises SlurmTextError."""
    seen = set()
    for row in rows(text, NODE_COLUMNS):
        name = row["NodeList"]
        if name in seen:
            continue
        seen.add(name)
        gres = _counts(row["Gres"])
        gpus, model = gres.get("gpu", (0, ""))
        shards, _ = gres.get("shard", (0, ""))
        yield SlurmNode(
            name,
            row["StateLong"],
            gpus,
            model,
            shards,
            _number(row["CPUs"]),
            used_milli(row["GresUsed"], gpus),
            _number(comment.parse_comment(row["Comment"]).get("memory", "")),
            is_registered=bool(row["FreeMem"]),  # slurmctld does not save it, and has it from the node
            reason=row["Reason"],
        )


def _number(text: str) -> int:
    """0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _uid(text: str) -> int:
    """squeue of releases before 26.05 prints those from 2^31 on as negative numbers."""
    return (1 << 32) - _number(text[1:]) if text.startswith("-") else _number(text)


def _exit_code(text: str) -> int:
    """ "3:0" or "0:15": as a shell has it; squeue alone prints wait's status."""
    code, colon, signal = text.partition(":")
    if not colon:
        status = _number(code)
        return status >> 8 or (128 + (status & 127) if status & 127 else 0)
    return 128 + _number(signal) if _number(signal) else _number(code)


def host_names(text: str, names_max: int = _NODES_MAX) -> Iterator[str]:
    """n[1-3,7]-ib,m4 as n1-ib n2-ib n3-ib n7-ib m4. Raises SlurmTextError for more names, by default than any cluster
    has nodes."""
    count = 0
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        if part.count("[") > _LISTS_MAX:
            raise SlurmTextError(f"{part[:80]!r} has more than {_LISTS_MAX} lists in one name")
        for name in _expand_brackets(part):
            count += 1
            if count > names_max:
                raise SlurmTextError(f"{text[:80]!r} is more than {names_max} names")
            yield name


def _expand_brackets(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        yield part
        return
    inner, _, tail = rest.partition("]")
    for span in inner.split(","):
        first, _, last = span.partition("-")
        numbers = range(_number(first), (_number(last) if last else _number(first)) + 1)
        for number in numbers:
            for end in _expand_brackets(tail):
                yield f"{head}{number:0{len(first)}}{end}"


def _counts(text: str) -> dict[str, tuple[int, str]]:
    """ "gpu:a100:2(S:0-1),shard:2000": gpu and shard -> (how many, model)."""
    found: dict[str, tuple[int, str]] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = part.split(":")
        if kind not in ("gpu", "shard"):
            continue
        model = next((word for word in rest if not word.isdigit() and word != "no_consume"), "")
        count, before = sum(_number(word) for word in rest), found.get(kind, (0, ""))
        found[kind] = before[0] + count, before[1] or ("" if model == "(null)" else model)
    return found


def used_milli(text: str, gpus: int) -> tuple[int, ...]:
    """Of each device, from GresUsed: gpu:a100:1(IDX:0),shard:a100:300(0/1000,300/1000); () where that has no amounts
    or no numbers of devices."""
    used = [0] * gpus
    for kind, count, inner in _allocated(text):
        known = _amounts(kind, count, inner)
        if known is None:
            return ()
        for at, milli in known.items():
            if at < gpus:
                used[at] = max(used[at], milli)
    return tuple(used)


def is_ambiguous(text: str) -> bool:
    """Whether devices() needs the texts of this job: one of them looks like what Slurm writes itself."""
    return text.count(_END) > 1


def devices(text: str, nodes: tuple[str, ...], texts: str = "") -> tuple[tuple[str, int, int], ...] | None:
    """What `scontrol -o -d show job` says of a job that has these nodes: Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:1).

    Users' texts stand in the same line, some before that and some behind it. It is found by its end: the first one
    behind the texts before it. `texts`: these, from squeue with TEXT_COLUMNS. None: they are others meanwhile.
    """
    users = 0
    if texts:
        known, rest = dict[str, str](), texts
        for column, width in TEXT_COLUMNS.items():
            known[column], rest = rest[:width], rest[width:]
        head = _head(known).match(text)
        if head is None:
            return None
        text, users = text[head.end() :], known["AllocNodes"].count(_END)
    parts = text.split(_END)
    of_slurm = _END.join(parts[: users + 1]) if len(parts) > users + 1 else ""
    found: dict[tuple[str, int], int] = {}
    for names, gres in _last_devices(of_slurm):
        with contextlib.suppress(SlurmTextError):
            own = [name for name in host_names(names, len(nodes)) if name in nodes]
            for kind, count, inner in _allocated(gres):
                for at, milli in (_amounts(kind, count, inner, exact=True) or {}).items():
                    found |= {(name, at): milli for name in own if milli}
    return tuple((name, at, milli) for (name, at), milli in sorted(found.items()))


def _head(texts: Mapping[str, str]) -> re.Pattern[str]:
    """A line's beginning with these texts, up to the job's state. Its WCKey is shown only with TrackWCKey=yes, while
    squeue shows it always."""
    name, label, account, wckey = (
        r"(?:\(null\)|N/A)?" if (shown := texts[column].rstrip()) in ("", "(null)") else re.escape(shown)
        for column in ("Name", "MCSLabel", "Account", "WCKey")
    )
    return re.compile(
        rf"JobId=\d+ (?:(?:Array|Het)\w+=\S+ )*JobName={name}\s+(?:SLUID=\S+ )?(?:HetJobIdSet=\S+ )?"
        rf"UserId=[^=]*\(\d+\) GroupId=[^=]*\(\d+\) MCS_label={label}\s+Priority=\S+ Nice=\S+ "
        rf"Account={account}\s+QOS=\S+(?: WCKey={wckey})?\s+JobState="
    )


def _last_devices(text: str) -> list[tuple[str, str]]:
    """(nodes, GRES) of the groups of nodes at the very end of a text."""
    found: list[tuple[str, str]] = []
    end = len(text)
    for one in reversed(list(_DEVICES.finditer(text))):
        if text[one.end() : end].strip():
            break
        found.append((one[1], one[2]))
        end = one.start()
    return found


def array_limit(text: str) -> int | None:
    """How many elements of an array run at once, from `scontrol --oneliner show job` of it: 4 of 0-99%4, 0 = all.
    None: it is not said, as when none of them waits undivided any more."""
    found = list(_ARRAY.finditer(text))
    said = [int(one[2] or one[3]) for one in found if one[2] or one[3]]
    if said:
        return said[0]
    return 0 if any(re.search("[-,]", one[1]) for one in found) else None


def _allocated(text: str) -> Iterator[tuple[str, int, str]]:
    """(gpu or shard, how many, what stands in brackets) of each part."""
    for kind, named, inner in re.findall(r"(gpu|shard):((?:\(null\):|[^,:()]+:)*\d+)(?:\(([^)]*)\))?", text):
        yield kind, _number(named.rpartition(":")[2]), inner


def _amounts(kind: str, count: int, inner: str, *, exact: bool = False) -> dict[int, int] | None:
    """Milli-GPU by number of device; None: they are not said. `exact`: the count is that of shards, of one job."""
    if re.fullmatch(r"\d+/\d+(,\d+/\d+)*", inner):
        pairs = (part.split("/") for part in inner.split(","))
        return {at: _number(some) * MILLI_PER_DEVICE // max(1, _number(of)) for at, (some, of) in enumerate(pairs)}
    if not count:
        return {}
    listed = re.fullmatch(r"IDX:(\d{1,9}(?:[,-]\d{1,9})*)", inner, re.A)
    if listed is None:
        return None
    numbers = [int(name) for name in host_names(f"[{listed[1]}]", _DEVICES_MAX)]
    if not numbers:  # 3-1
        return None
    if kind == "gpu":
        return dict.fromkeys(numbers, MILLI_PER_DEVICE)
    return {numbers[0]: count} if exact and len(numbers) == 1 else None
