"""Becomes the client of the container engine for one member of a job: `container_client.py REQUEST`, as the daemon's
user, below the job's supervisor and outside of the daemon's sandbox.

Before that it opens the job's volumes and credentials with the user's rights, and pulls the image. A refusal is one
line: in the job's log, and in a file for the daemon.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

if not __package__:  # run as a program, which does not know where its package is
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from vgpud.jobs.container_mounts import hold, release

#: as engines have it of errors of their own
REFUSED_CODE = 125
CREDENTIALS_BYTES_MAX, REGISTRIES_MAX, LINE_CHARACTERS_MAX = 64 << 10, 100, 300
#: between looks whether the container has begun
LOOK_S = 0.2
#: within which an engine says so
ANSWER_S = 10.0
#: of an entry of `auths`: nothing that names a program
_KEYS = ("auth", "username", "password", "identitytoken", "registrytoken")


class RefusedError(Exception):
    """The container is not started: one line for the user."""


@contextlib.contextmanager
def rights_of(uid: int, gid: int, *groups: int) -> Iterator[None]:
    """Files are opened as this user; a daemon of a user's own is that user."""
    if os.geteuid() != 0:
        yield
        return
    own = os.getgroups()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(own)


def open_mount(user: list[int], host: str, roots: list[str]) -> int:
    """A descriptor of what is to be mounted, which lies where the site allows it. Raises RefusedError."""
    try:
        with rights_of(*user):
            fd = os.open(host, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(f"volume {host}: {error.strerror} (with your own rights)") from error
    real = os.readlink(f"/proc/self/fd/{fd}")
    if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in map(os.path.realpath, roots)):
        text = f"volume {host} is {real}, which is not below a directory that jobs may have"
        raise RefusedError(f"{text}: name {' or one below '.join(roots)}")
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise RefusedError(f"volume {host} is neither a directory nor a regular file: name one of these")
    return fd


def mount_options(descriptors: list[int], mounts: list[Any], directory: str) -> list[str]:
    """The engine's options, and what they name in `directory`. Raises OSError."""
    options = []
    if mounts and os.geteuid() == 0:
        os.mkdir(directory, 0o700)
    for number, (fd, (_, container, is_read_only, _)) in enumerate(zip(descriptors, mounts, strict=True)):
        source = os.readlink(f"/proc/self/fd/{fd}")
        if os.geteuid() == 0:  # a daemon of a user's own has no more rights than the user
            source = os.path.join(directory, str(number))
            hold(fd, source)
        os.close(fd)
        options += ["--mount", f"type=bind,source={source},target={container}{',readonly' if is_read_only else ''}"]
    return options


def has_begun(look: list[str]) -> bool:
    """Whether the container has its first process; not, as far as an engine says that does not answer."""
    try:
        done = subprocess.run(look, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    pid = done.stdout.strip()
    return pid.isdecimal() and int(pid) > 0


def release_later(directory: str, look: list[str]) -> None:
    """In a process of its own, which the supervisor adopts: what the container's volumes were bound to is released when
    the container has its first process, or this one, which becomes the client, has ended. `look`: prints that pid."""
    client = os.pidfd_open(os.getpid())
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(client)
        return
    try:
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):  # the job's log or terminal
                os.dup2(nothing, fd)
            while not select.select([client], [], [], LOOK_S)[0]:
                if has_begun(look):
                    break
            release(directory)
    finally:
        os._exit(0)


def read_credentials(user: list[int], path: str, is_of_site: bool) -> dict[str, Any]:
    """The registries' credentials in a file such as ~/.docker/config.json, and nothing else of it. Raises
    RefusedError."""
    whose = "the site's credentials" if is_of_site else f"credentials {path}"  # where the site has them is its own
    try:
        with contextlib.nullcontext() if is_of_site else rights_of(*user):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
            raw = file.read(CREDENTIALS_BYTES_MAX + 1) if is_regular else b""
    except OSError as error:
        raise RefusedError(f"{whose}: {error.strerror}") from error
    if not is_regular or len(raw) > CREDENTIALS_BYTES_MAX:
        raise RefusedError(f"{whose} are not a regular file of at most {CREDENTIALS_BYTES_MAX >> 10} KiB")
    try:
        known = json.loads(raw)
        auths = known["auths"]
        found = {
            str(name): {key: str(value) for key, value in entry.items() if key in _KEYS}
            for name, entry in auths.items()
        }
        for entry in found.values():
            base64.b64decode(entry.get("auth", ""), validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        remedy = "write one by `docker login`"
        raise RefusedError(f"{whose} are not the JSON that `docker login` writes (auths): {remedy}") from error
    if not any(found.values()) or len(found) > REGISTRIES_MAX:
        text = "have no password of a registry, or too many: `docker login` without a credential store writes one"
        raise RefusedError(f"{whose} {text}")
    return {"auths": found}


@contextlib.contextmanager
def credentials_of(request: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The environment of a client that pulls the image: its credentials are there for so long, and not later. Raises
    RefusedError, OSError."""
    if not request["auth_file"]:
        yield dict(os.environ)
        return
    found = read_credentials(request["user"], request["auth_file"], request["is_of_site"])
    try:
        yield {**os.environ, **write_credentials(request["credentials"], found)}
    finally:
        shutil.rmtree(request["credentials"], ignore_errors=True)


def write_credentials(directory: str, credentials: dict[str, Any]) -> dict[str, str]:
    """The client's variables. Raises OSError."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, "config.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(credentials, file)
    return {"DOCKER_CONFIG": directory, "REGISTRY_AUTH_FILE": path}


def has_image(engine: list[str], image: str) -> bool:
    return subprocess.run([*engine, "image", "inspect", image], capture_output=True, check=False).returncode == 0


def pull(engine: list[str], image: str, environment: dict[str, str]) -> None:
    """The client's words go to the log. Raises RefusedError with the last of them."""
    words = [*engine, "pull", image]
    with subprocess.Popen(words, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr
        last = ""
        for line in client.stderr:
            sys.stderr.write(line)
            last = line.strip() or last
    if client.returncode:
        shown = "".join(sign for sign in last if sign.isprintable())[:LINE_CHARACTERS_MAX]
        raise RefusedError(f"image {image} cannot be pulled: {shown or f'exit code {client.returncode}'}")


def run(request: dict[str, Any]) -> NoReturn:
    """Raises RefusedError, OSError."""
    engine, mounts = request["engine"], request["mounts"]
    # what they are is decided now, and stays so, however long the image takes
    descriptors = [open_mount(request["user"], host, roots) for host, _, _, roots in mounts]
    if not has_image(engine, request["image"]):
        with credentials_of(request) as environment:
            pull(engine, request["image"], environment)
    options = mount_options(descriptors, mounts, request["volumes"])
    if options:
        release_later(request["volumes"], request["look"])
    words = request["run"]
    at = len(engine) + 1  # behind `run`
    os.execv(words[0], [*words[:at], *options, *words[at:]])


def refuse(path: str, text: str) -> int:
    """In the job's log, and for the daemon, unless its disk is full."""
    sys.stderr.write(f"vgpu: {text}\n")
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
    return REFUSED_CODE


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    try:
        run(request)
    except RefusedError as error:
        text = str(error)
    except OSError as error:
        text = f"the container cannot be started: {error}"
    release(request["volumes"])
    return refuse(request["refusal"], text)


if __name__ == "__main__":
    sys.exit(main())
