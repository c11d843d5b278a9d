"""grpc, imported so that it prints nothing in users' programs: import it from here in code that users run.

grpc reads the environment when it is imported. Its own log lines would mix with the program's, and its fork
handlers deadlock with a channel that is being closed (grpc issue 37259), while no child uses vgpud's connections: the
command line forks only to exec, and a job's program for its data loaders. The settings do not stay in the environment,
which programs of `vgpu run` inherit; a user's own settings are kept.
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
