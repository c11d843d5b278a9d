"""grpc, imported so that it keeps quiet in programs that are not its own: import it from here in whatever users run.

grpc reads the environment when it is imported. Its own log lines would mix with the program's, and what it does around
a fork deadlocks with a channel that is being closed (grpc issue 37259), while no child uses a connection of ours: the
command line forks only to exec, and of a job's program the data loaders do. Nothing of it stays in the environment,
which programs that `vgpu run` starts inherit; what a user has set himself holds.
"""

from __future__ import annotations

import os

_wanted = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
_set = {name: value for name, value in _wanted.items() if name not in os.environ}
os.environ.update(_set)
import grpc  # noqa: E402

for _name in _set:
    del os.environ[_name]

__all__ = ["grpc"]
