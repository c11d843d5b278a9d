"""Lines of sacct with more separators than columns: which values belong to one text of a user."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from vgpud.simulate.trace import TraceError

#: values that a line of a good file may have too many
EXTRA_MAX = 40
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d{9,11}|Unknown|None|N/A|"
_SPAN = r"(\d+-)?(\d+:)?\d+:\d\d(\.\d+)?|"
#: what columns look like that no user writes; others may have anything in them
_FORMS = {
    "JobID": r"\d+([_+.]\S*)?",
    "JobIDRaw": r"\d+(\.\S*)?",
    "UID": r"\d*",
    "GID": r"\d*",
    "State": r"[A-Z_]+( by \d+)?\+?|",
    "ExitCode": r"\d+:\d+|",
    **dict.fromkeys(("Submit", "Start", "End"), _TIME),
    **dict.fromkeys(("Elapsed", "Timelimit"), rf"{_SPAN}UNLIMITED|Partition_Limit|"),
    **dict.fromkeys(("ElapsedRaw", "TimelimitRaw", "AllocCPUS", "NCPUS", "NNodes"), r"\d*|UNLIMITED|Partition_Limit"),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), r"([\w/:.-]+=[^,=|]+(,|$))*"),
    **dict.fromkeys(("User", "Account", "Partition", "Group", "QOS", "NodeList"), r"[^|\s]*( \S+)?"),
}
_READY = {column: re.compile(form) for column, form in _FORMS.items()}


def join_values(where: str, values: Sequence[str], header: Sequence[str], separator: str) -> list[str]:
    """One value for each column. Raises TraceError unless there is exactly one way that leaves every other column as it
    must look."""
    extra = len(values) - len(header)
    ways = _divide(values, header, separator) if extra <= EXTRA_MAX else []
    if len(ways) != 1:
        why = "more than one way" if ways else "no way"
        raise TraceError(
            f"{where}: {len(values)} values where the header has {len(header)} columns, and {why} to divide them: write"
            ' the file with --delimiter="|$(openssl rand -hex 16)|"'
        )
    return ways[0]


def _divide(values: Sequence[str], header: Sequence[str], separator: str) -> list[list[str]]:
    """The first two ways in which columns of any text take several of the values."""
    extra = len(values) - len(header)

    @functools.cache
    def divide_rest(column: int, surplus: int) -> list[list[str]]:
        """From this column on, where those before have taken so many values more than they are."""
        if column == len(header):
            return [[]] if surplus == extra else []
        form, begin = _READY.get(header[column]), column + surplus
        found: list[list[str]] = []
        for more in range(extra - surplus + 1 if form is None else 1):
            value = separator.join(values[begin : begin + more + 1])
            if form is None or form.fullmatch(value):
                found += [[value, *rest] for rest in divide_rest(column + 1, surplus + more)]
        return found[:2]

    return divide_rest(0, 0)
