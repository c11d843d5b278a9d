"""`vgpu`: the table of commands, and the one place where errors become one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise, takewhile

import click

import vgpud
from vgpud.cli.common.exits import epilog, error_word
from vgpud.cli.common.interrupts import by_interrupt
from vgpud.cli.common.options import LazyGroup, Settings
from vgpud.cli.common.suggestions import WORDS_OF_OTHERS, describe_unknown_option
from vgpud.errors import ExitCode, VgpudError, missing_part
from vgpud.project.addresses import ask_for_report, describe_addresses

#: as a shell has it of a command that Ctrl-C ended
INTERRUPTED = 130

#: title in `vgpu --help` -> name -> (module:attribute, its line there)
SECTIONS = {
    "Programs and slices": {
        "run": ("vgpud.cli.slices.run:run", "Run a command on a slice of the GPUs."),
        "status": ("vgpud.cli.slices.status:status", "Show devices, slices and their use on one screen."),
        "top": ("vgpud.cli.slices.top:top", "Watch shares and memory live."),
        "ps": ("vgpud.cli.slices.ps:ps", "List the processes that use a slice."),
        "slice": ("vgpud.cli.slices.slice:slice_group", "Create, list, show, change and remove slices."),
        "gpu": ("vgpud.cli.slices.gpu:gpu", "List devices, take them out of use and back."),
        "trace": ("vgpud.cli.slices.trace:trace", "Record leases, drains and launches for Perfetto."),
        "history": (
            "vgpud.cli.slices.history:history",
            "Plot what devices, slices, jobs and users have used.",
        ),
        "events": ("vgpud.cli.slices.events:events", "Show what happened to slices, processes and devices."),
    },
    "Jobs and queues": {
        "submit": ("vgpud.cli.jobs.submit:submit", "Queue a job; it starts when enough capacity is free."),
        "job": ("vgpud.cli.jobs.job:job", "List, show, change, cancel, hold and follow jobs."),
        "session": ("vgpud.cli.jobs.session:session", "Notebooks and editors on a slice, at an address of their own."),
        "env": ("vgpud.cli.jobs.environments:env", "Environments of the site: images and commands with defaults."),
        "service": (
            "vgpud.cli.services.service:service_group",
            "Programs that answer requests at one address, on slices.",
        ),
        "queue": ("vgpud.cli.jobs.queue:queue", "Show and set queues: guarantees, limits, policies."),
        "explain": ("vgpud.cli.jobs.explain:explain", "Say why a job waits, runs where it does, and has its size."),
        "usage": ("vgpud.cli.jobs.usage:usage", "Show GPU time asked for, granted and used."),
        "reserve": ("vgpud.cli.jobs.reserve:reserve", "Reserve devices for a queue, or for maintenance."),
        "predict": ("vgpud.cli.predict.predict:predict", "Predict a model's use of a GPU before it runs."),
        "tune": ("vgpud.cli.tune.tune:tune", "Find size, batch and workers of a command by short runs."),
        "whatif": ("vgpud.cli.jobs.whatif:whatif", "Replay a trace of jobs under another policy."),
        "cluster": ("vgpud.cli.cluster.cluster:cluster", "Run and show the queue over the nodes of a Slurm cluster."),
    },
    "Containers": {
        "alloc": ("vgpud.cli.slices.alloc:alloc", "Create a one-time CDI device of any size for one container."),
        "claim": ("vgpud.cli.slices.claim:claim", "Print a Kubernetes ResourceClaim for a part of a GPU."),
        "setup": ("vgpud.cli.system.setup:setup", "Register vgpud with docker, podman, containerd or systemd."),
    },
    "The daemon": {
        "doctor": ("vgpud.cli.system.doctor:doctor", "Find what is wrong and how to fix it."),
        "console": ("vgpud.cli.system.console:console", "Serve and open the console in the browser."),
        "context": ("vgpud.cli.system.context:context", "Choose among daemons of several machines."),
        "cert": ("vgpud.cli.system.cert:cert", "Issue and revoke certificates for users of other machines."),
        "backup": ("vgpud.cli.system.backup:backup", "Copy the daemon's state to a file while it runs."),
        "restore": ("vgpud.cli.system.backup:restore", "Put a copy of the state back while no daemon runs."),
        "version": ("vgpud.cli.system.version:version", "Show the versions of client, daemon and ABI."),
    },
    "Without a GPU": {
        "demo": ("vgpud.cli.demo.demo:demo", "Two training programs share one device, each held to its slice."),
        "sim": ("vgpud.cli.system.sim:sim", "Simulated devices: start, stop, and run programs on them."),
    },
    "Help": {
        "docs": ("vgpud.cli.system.docs:docs", "List the documents of this version, or read one."),
        "completion": ("vgpud.cli.system.completion:completion", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: entry for commands in SECTIONS.values() for name, entry in commands.items()}
#: names of before the first release
OLD_NAMES = {
    "quota": ("vgpud.cli.jobs.queue:queue", "vgpu queue"),
    "simulate": ("vgpud.cli.jobs.whatif:whatif", "vgpu whatif"),
}


@click.group(
    "vgpu",
    cls=LazyGroup,
    lazy=COMMANDS,
    sections={title: list(commands) for title, commands in SECTIONS.items()},
    old_names=OLD_NAMES,
    words_of_others=WORDS_OF_OTHERS,
    epilog="\n\n".join(filter(None, (epilog(), describe_addresses()))),
)
@click.version_option(vgpud.__version__, prog_name="vgpu")
def cli() -> None:
    """One GPU shared by several programs, each held to its own slice of SM time and memory.

    \b
    vgpu run --gpus 0.5 -- python train.py
    vgpu run --gpus 0.25 --max 1 --mem 8G -- python train.py
    vgpu status
    """


#: characters of a text in a message
_SHOWN = 200


def complain(settings: Settings, message: str, exit_code: int) -> int:
    """Prints one line on stderr, whatever the text holds: with -o json an object, else a sentence, on a terminal broken
    between words. Returns the exit code."""
    from vgpud.cli.common.output import say

    line = " ".join(message.split())
    if settings.output == "json":
        import json

        error = {"code": error_word(exit_code), "message": line}
        print(json.dumps({"error": error}), file=sys.stderr)
    else:
        say(line)
    return int(exit_code)


def _has_options_anywhere(ctx: click.Context) -> bool:
    """Whether what follows the first argument is vgpu's own, not of a command that it runs."""
    return ctx.allow_interspersed_args or isinstance(ctx.command, click.Group)


def _asks_for_json(args: Sequence[str]) -> bool:
    """Whether -o json is among the words of a command line that could not be read to its end."""
    words = list(takewhile(lambda word: word != "--", args))
    pairs = {*pairwise(words)}
    return any((name, "json") in pairs for name in ("-o", "--output")) or not {"-ojson", "--output=json"}.isdisjoint(
        words
    )


def _usage_line(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx else "vgpu"
    if isinstance(error, click.NoSuchOption):
        text = describe_unknown_option(error)
    else:
        text = error.format_message().rstrip(".")
    return f"{text} (see {where} --help)"


def invoke(args: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    settings = Settings()
    try:
        result = cli.main(args=words, prog_name="vgpu", standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except click.UsageError as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return error.exit_code
        if error.ctx and _has_options_anywhere(error.ctx) and _asks_for_json(words):
            settings.output = "json"
        return complain(settings, _usage_line(error), error.exit_code)
    except click.ClickException as error:
        return complain(settings, error.format_message(), error.exit_code)
    except VgpudError as error:
        return complain(settings, str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone: `vgpu ps | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return int(ExitCode.OTHER)  # as click prints when it catches this itself
    except UnicodeEncodeError as error:  # of bytes that are no text, which Python keeps as surrogates
        text = f"{error.object[:_SHOWN]!a} is not UTF-8, and cannot be sent: choose another name or directory"
        return complain(settings, text, ExitCode.USAGE)
    except Exception as error:
        if by_interrupt(error):
            return INTERRUPTED
        if os.environ.get("VGPU_DEBUG"):
            raise
        if missing := missing_part(error):
            return complain(settings, missing, ExitCode.USAGE)
        text = f"internal error: {type(error).__name__}: {error}; VGPU_DEBUG=1 prints a traceback, {ask_for_report()}"
        return complain(settings, text, ExitCode.OTHER)
    return result if isinstance(result, int) else int(ExitCode.OK)


def main() -> None:
    """Entry point."""
    sys.exit(invoke())


if __name__ == "__main__":
    main()
