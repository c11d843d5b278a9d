"""A limit that falls below what is used: nothing is taken, nothing more is given, and it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import ledger
from tests.command_line import ask
from vgpud.cli.demo.private_system import OwnSystem, last_line, wait_for
from vgpud.simdevice import state_page

LOWERED = 256 << 20


def show_device(system: OwnSystem) -> dict[str, Any]:
    """The slice on its device, as `vgpu slice show` has it."""
    device: dict[str, Any] = ask(system, "slice", "show", "held")["slice"]["devices"][0]
    return device


def test_a_limit_below_what_is_used_takes_nothing_and_gives_no_more(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(ledger.DEVICE)
    system.vgpu("slice", "create", "held", "--gpus", "0.5", "--mem", "2G")
    part = system.run("held", (), [str(ledger.build()), "once"], talk=True)
    tenant = ledger.Tenant("held", part)
    wait_for("the tenant", tenant.is_quiet)
    counted = state_page.read(system.sim_dir / state_page.PAGE_NAME).devices[0].process_used_bytes
    used = counted[tenant.quiet["pid"]] + counted[tenant.quiet["peer"]]
    assert used > LOWERED
    wait_for("the account", lambda: bool(show_device(system)["mem_used_bytes"] == used))
    assert show_device(system)["mem_over_limit_bytes"] == 0
    system.vgpu("slice", "set", "held", "--mem", str(LOWERED))
    wait_for("the new limit", lambda: show_device(system)["mem_over_limit_bytes"] == used - LOWERED)
    assert show_device(system)["mem_used_bytes"] == used
    late = system.run("held", (), [str(ledger.build()), "large", str(2 << 20)])
    wait_for("who comes too late", lambda: not late.running)
    assert late.process.returncode == 1
    assert last_line(late.error_file) == "cuDevicePrimaryCtxRetain(&worker->context, 0): 2"  # not even its context
    assert show_device(system)["mem_used_bytes"] == used
    part.check()
