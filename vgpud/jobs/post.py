"""Posts a notification to a webhook: `post.py UID GID GROUP,...`, the address in $VGPU_NOTICE_URL, the body in
$VGPU_NOTICE_BODY: whoever has the address can post there, and arguments are every user's to read.

Everything is imported before it becomes the job's user, who may not be able to read the interpreter; the connection is
made as that user. The other side is trusted with nothing: its status is looked at, what else it sends is not read, and
a redirect, which is an address that the user did not give, is a refusal.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  what urllib imports when it needs it
import os
import resource
import signal
import ssl  # noqa: F401
import sys
import urllib.request

#: of the connection, and of each read
TIMEOUT_S = 10
#: of all of it, should the daemon that ends it earlier be gone; and of memory, which the daemon's cgroup is charged
END_S, MEMORY_BYTES = 60, 512 << 20


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error, and its body is not read."""

    def http_error_302(self, *_: object) -> None: ...

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302  # type: ignore[assignment]


def become(uid: int, gid: int, groups: list[int]) -> None:
    """A daemon of a user's own has nothing to give up."""
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


def main() -> int:
    uid, gid, groups = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.alarm(END_S)
    request = urllib.request.Request(  # noqa: S310  http or https: checked by the API
        os.environ["VGPU_NOTICE_URL"], os.environ["VGPU_NOTICE_BODY"].encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(NoRedirect)
    become(int(uid), int(gid), [int(group) for group in groups.split(",") if group])
    with opener.open(request, timeout=TIMEOUT_S) as answer:  # raises for everything but a success
        return 0 if answer.status < 300 else 1


if __name__ == "__main__":
    sys.exit(main())
