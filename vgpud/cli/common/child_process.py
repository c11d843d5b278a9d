"""Runs a command as a child: same terminal and process group, signals passed on, exit codes as docker's.

The child stays in the process group of vgpu, so the shell handles the terminal's foreground and job control as without
vgpu: the kernel delivers the terminal's signals (Ctrl-C, Ctrl-Z, hang-up) to the child, and only signals that another
process sends to vgpu alone (kill) are passed on. Call block_signals() before anything starts threads:
threads inherit the mask, so no signal ends this process while a command runs.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence

from vgpud.errors import CliError, ExitCode

#: passed on to the child; SIGTSTP, SIGTTIN and SIGTTOU stop vgpu as usual, SIGKILL and SIGSTOP cannot be caught
FORWARDED = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGWINCH,
        signal.SIGIO,
        signal.SIGPWR,
    }
)
_WAITED = FORWARDED | {signal.SIGCHLD}
#: how late the child's end is noticed if a thread from before block_signals() has taken and dropped SIGCHLD
LOOK_S = 1.0
#: the first look at what it does; each next one waits twice as long, up to LOOK_S
FIRST_LOOK_S = 0.05
#: Python ignores these; a program expects the default
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)


def block_signals() -> set[int]:
    """Blocks the signals that run_child() waits for; returns the previous mask, which the child is started with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited "ignore" would discard the exit status
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED))


def ended_early() -> int:
    """128+N if a terminating signal N arrived before there was a child to receive it; otherwise 0."""
    came = signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
    return 128 + min(came) if came else 0


def start_child(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> int:
    """Starts the command and returns its pid. Raises CliError: 127 not found, 126 cannot be executed."""
    name = command[0]
    try:
        # not fork(): the client library has threads
        return os.posix_spawnp(name, list(command), dict(environment), setsigmask=mask, setsigdef=_PYTHON_IGNORES)
    except FileNotFoundError as error:
        if shutil.which(name):
            raise CliError(f"cannot execute {name!r}: its interpreter was not found", ExitCode.NOT_RUNNABLE) from error
        hint = "check the path" if "/" in name else "check the name and PATH"
        raise CliError(f"command {name!r} not found: {hint}", ExitCode.COMMAND_NOT_FOUND) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CliError(f"cannot execute {name!r}: {reason}", ExitCode.NOT_RUNNABLE) from error


def wait_child(pid: int, look: Callable[[], None] = lambda: None) -> int:
    """Waits for the child, passing signals on, and calls look() while it runs. Returns its exit code, 128+N for
    signal N."""
    wait_s = FIRST_LOOK_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        info = signal.sigtimedwait(_WAITED, wait_s)
        if info is None:
            look()
            wait_s = min(2 * wait_s, LOOK_S)
        # After a stop (Ctrl-Z) longer than LOOK_S, Python reports a signal that never came: garbage of its stack.
        if info is None or info.si_signo not in _WAITED:
            continue
        # si_code > 0: sent by the kernel, to the whole process group, so the child has received it already
        if info.si_signo != signal.SIGCHLD and info.si_code <= 0:
            os.kill(pid, info.si_signo)
