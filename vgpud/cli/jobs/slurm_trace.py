"""`vgpu whatif --from-slurm`: the jobs that Slurm has accounted, from sacct itself or from a file with its output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpud.simulate.trace import TraceJob

#: what stands for no file
SACCT = "sacct"
DAYS = 30
FILE_BYTES_MAX = 512 << 20


def name(source: str) -> str:
    """For documents and messages."""
    return SACCT if source == SACCT else Path(source).name


def read(
    source: str, since_ns: int | None, partition: str, queues: tuple[str, ...], *, trusts_texts: bool = False
) -> list[TraceJob]:
    """`source`: a file, or SACCT. `since_ns` None: all jobs of a file, and DAYS of sacct. `trusts_texts`: no user has
    written what looks like a job. Raises VgpudError."""
    from vgpud.cli.common.output import say
    from vgpud.simulate import sacct

    if source == SACCT:
        from vgpud.cluster.shell import sacct as shell
        from vgpud.cluster.shell.published import now_s

        if since_ns is None:
            since_ns = (now_s() - DAYS * 86_400) * 10**9
        text = shell.read(sacct.COLUMNS, since_ns // 10**9, partition)
    else:
        from vgpud.userfiles.bounded import read_bytes

        text = read_bytes(Path(source), FILE_BYTES_MAX).decode("utf-8-sig", "replace")  # comments have any bytes
    found = sacct.read(text, source, sacct.Asked(since_ns or 0, partition, queues, trusts_texts))
    left_out = [(found.without_gpus, "had no GPU"), (found.never_ran, "never ran")]
    said = ", ".join(f"{count} {what}" for count, what in left_out if count)
    if said:
        say(f"{name(source)}: {len(found.jobs)} jobs ran with GPUs; left out: {said}")
    if found.cut:
        texts = "comments or accounts with line breaks; a job whose account has one is left out"
        say(f"{name(source)}: {found.cut} lines with too few columns are taken for parts of {texts}")
    return found.jobs
