"""`vgpu doctor`: checks the prerequisites of slices, reports what is wrong and how to fix it."""

from __future__ import annotations

import sys

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.errors import ExitCode

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command("doctor", cls=VgpuCommand, short_help="Find what is wrong and how to fix it.")
@pass_settings
def doctor(settings: Settings) -> int:
    """Find what is wrong and how to fix it. Changes nothing; exit code 1 if a line says fail."""
    from vgpud.cli.common.findings import Finding
    from vgpud.cli.common.output import emit
    from vgpud.cli.system.checks import all_findings
    from vgpud.view.fit import Cell, Grid

    findings: list[Finding] = []
    for finding in all_findings(settings):
        findings.append(finding)
        if settings.output == "table" and sys.stderr.isatty():
            print(f"\r\x1b[K{len(findings)} checks ...", end="", file=sys.stderr, flush=True)
    if settings.output == "table" and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def grid() -> Grid:
        table = Grid(("RESULT", "CHECK", "FOUND", "FIX"), own_line_columns=("FOUND", "FIX"))
        for f in findings:
            table.rows.append((Cell(f.level, _STYLES[f.level]), f.check, f.text, f.remedy or "-"))
        return table

    failed = [f for f in findings if f.level == "fail"]
    checks = [{"check": f.check, "level": f.level, "text": f.text, "fix": f.remedy} for f in findings]
    data = {"ok": not failed, "checks": checks}
    emit(settings, data, [f.check for f in findings if f.level != "ok"], grid)
    return int(ExitCode.OTHER if failed else ExitCode.OK)
