"""The balancer of the service whose record is in a folder: `__main__.py FOLDER`. `vgpu service` submits it as
`python -m vgpud.services FOLDER`, for which the daemon starts this file, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

if not __package__:  # run as a file by the daemon, isolated from what its user could put before it
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from vgpud.errors import ExitCode, VgpudError
from vgpud.services.balancer import keep
from vgpud.services.shell.folder import Folder


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if len(sys.argv) != 2:
        print("usage: python -m vgpud.services FOLDER: `vgpu service start` does it", file=sys.stderr)
        return int(ExitCode.USAGE)
    try:
        asyncio.run(keep(Folder(Path(sys.argv[1]))))
    except (VgpudError, OSError) as error:
        print(f"vgpu service: {error}", file=sys.stderr)
        # the queue starts what has failed again: not what cannot go better then
        is_final = isinstance(error, VgpudError) and error.exit_code in (ExitCode.CONFLICT, ExitCode.NOT_FOUND)
        return 0 if is_final else int(ExitCode.OTHER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
