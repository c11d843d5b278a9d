"""Remote use as people have it: `vgpu cert` beside a real daemon, `vgpu --host` and contexts as another user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screen import SHELL, Screen
from tests.ports import find_free_ports
from vgpud import paths
from vgpud.cli.demo.private_system import ROOT, OwnSystem, PartError
from vgpud.cli.main import invoke

BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
ME = pwd.getpwuid(os.geteuid()).pw_name
OTHER = "daemon"  # every system has it
#: the command line as another user, who may not be able to read where it is installed
AS_USER = (
    "import json, os, pwd, grp, socket, grpc_status.rpc_status, vgpud.cli.common.client, vgpud.view.job_tables\n"
    "import vgpud.cli.jobs.submit, vgpud.cli.jobs.job, vgpud.cli.slices.slice, vgpud.cli.slices.status\n"
    "import vgpud.cli.system.context, vgpud.cli.slices.run, vgpud.cli.slices.gpu, vgpud.client.tls, textwrap\n"
    "import google.rpc.error_details_pb2, colorsys, rich.console, rich.table, rich.text\n"
    "from vgpud.cli.main import main\n"
    f"user = pwd.getpwnam({OTHER!r}); os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid); main()"
)


class Site:
    """A daemon that listens, and its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tls = folder, folder / "tls"
        (self.port,) = find_free_ports(1)
        self.host = f"127.0.0.1:{self.port}"
        assert self.cert("init", "--name", "127.0.0.1") == 0
        config = [f'listen = "{self.host}"', f'tls_dir = "{self.tls}"', 'socket_mode = "0600"']
        self.system = OwnSystem(folder / "s", {"devices": "1", "memory_bytes": "8G"}, config)

    def cert(self, *words: str) -> int:
        return invoke(["cert", words[0], *words[1:], "--tls-dir", str(self.tls)])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="vgr-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        made = Site(folder)
        with made.system:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def vgpu_by_context(site: Site, vgpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`vgpu ARGS` of this user, with a context for the daemon."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "me.json"
    assert site.cert("user", ME, str(file)) == 0
    assert vgpu("context", "add", "lab", str(file), "--host", site.host).code == 0
    yield vgpu
    for name in vgpu("slice", "ls", "-o", "name").stdout.split():
        assert vgpu("slice", "rm", name).code == 0


def test_commands_of_this_machine_and_of_another_see_the_same(site: Site, vgpu_by_context: Any, vgpu: Any) -> None:
    assert vgpu_by_context("slice", "create", "far", "--gpus", "0.25").code == 0
    near = vgpu("slice", "ls", "-o", "name", host=site.system.host)
    far = vgpu_by_context("slice", "ls", "-o", "name")
    by_host = vgpu_by_context("slice", "ls", "-o", "name", host=site.host)
    assert near.stdout == far.stdout == by_host.stdout == "far\n"
    (owner,) = [one["owner_uid"] for one in vgpu_by_context("slice", "ls", "-o", "json").json["slices"]]
    assert owner == os.geteuid()
    assert (
        vgpu_by_context("status").code
        == vgpu_by_context("doctor").code
        == vgpu_by_context("job", "ls", "--mine").code
        == 0
    )
    checks = [one["check"] for one in vgpu_by_context("doctor", "-o", "json").json["checks"]]
    assert checks[-1] == "machine", "the files of this machine say nothing of the daemon's"
    assert vgpu_by_context("context", "ls", "-o", "json").json["contexts"][0] | {"expires": 0} == {
        "name": "lab", "host": site.host, "user": ME, "uid": os.geteuid(), "expires": 0, "in_use": True,
    }  # fmt: skip


def test_a_job_from_another_machine(site: Site, vgpu_by_context: Any) -> None:
    made = vgpu_by_context(
        "submit", "--gpus", "0.2", "--directory", "/tmp", "--log", "/dev/null", "--wait", "--", "true"
    )
    assert made.code == 0, made
    job = made.stdout.strip()
    logs = vgpu_by_context("job", "logs", job)
    assert logs.code == 2
    assert f"the output of job {job} is /dev/null on " in logs.stderr and "log in there to read it" in logs.stderr
    run = vgpu_by_context("run", "--gpus", "0.2", "--", "true")
    assert run.code == 125
    assert f"vgpu run needs the daemon of this machine, and {site.host} is another one's" in run.stderr


def test_a_terminal_on_another_machine(site: Site, vgpu_by_context: Any) -> None:
    """Typed at, left and joined again over TLS."""
    words = ("submit", "--pty", "--gpus", "0.2", "--directory", "/tmp", "--log", "/dev/null", "--", *SHELL)
    first = Screen("-m", "vgpud.cli.main", *words)
    second: Screen | None = None
    try:
        first.run("here=$$; stty size", "30 90")
        (job_id,) = vgpu_by_context("job", "ls", "-o", "name").stdout.split()
        first.type("\x1cd")
        assert first.wait() == 0
        second = Screen("-m", "vgpud.cli.main", "job", "attach", job_id, size=(20, 70))
        second.run("test $here = $$ && stty size", "20 70")
        second.type("exit 11\r")
        assert second.wait() == 11
    finally:
        for screen in (first, second):
            if screen:
                screen.end()


def test_addresses_without_a_certificate_or_a_daemon(site: Site, vgpu_by_context: Any, tmp_path: Path) -> None:
    other = vgpu_by_context("status", host="127.0.0.1:1")
    assert (other.code, "there is no certificate for 127.0.0.1:1" in other.stderr) == (5, True)
    assert vgpu_by_context("context", "add", "dead", str(tmp_path / "me.json"), "--host", "127.0.0.1:1").code == 0
    dead = vgpu_by_context("status", host="127.0.0.1:1")
    assert dead.code == 3
    assert dead.stderr == (
        "vgpu: nothing listens on 127.0.0.1:1: start the daemon with `vgpud serve --listen HOST:PORT`, "
        "or correct the port\n"
    )
    assert vgpu_by_context("context", "use", "--none").code == 0
    assert vgpu_by_context("context", "use", "gone").code == 4
    assert vgpu_by_context("context", "use").code == vgpu_by_context("context", "use", "lab", "--none").code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: only root can")
def test_another_user_from_another_machine(site: Site, vgpu: Any, tmp_path: Path) -> None:
    """A user whom the unix socket does not admit: the certificate alone makes the user."""
    user = pwd.getpwnam(OTHER)
    home = site.folder / "home"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("VGPU_")}
        env |= {"XDG_CONFIG_HOME": str(home / "config"), "HOME": str(home), "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", AS_USER, *args],
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    assert site.cert("user", OTHER, str(home / "me.json")) == 0
    refused = call("context", "add", "lab", str(home / "me.json"), "--host", site.host, "-o", "json")
    assert refused.returncode == 2, "the file is root's alone"
    os.chown(home / "me.json", user.pw_uid, user.pw_gid)
    added = call("context", "add", "lab", str(home / "me.json"), "--host", site.host, "-o", "json")
    assert added.returncode == 0, added.stderr
    assert call("--host", site.system.host, "status").returncode == 5
    made = call("slice", "create", "mine", "--gpus", "0.25", "-o", "json")
    assert made.returncode == 0, made.stderr
    assert vgpu("slice", "create", "roots", "--gpus", "0.25", host=site.system.host).code == 0
    listed = json.loads(call("slice", "ls", "-o", "json").stdout)["slices"]
    assert [(one["name"], one["owner_uid"]) for one in listed] == [("mine", user.pw_uid)]
    denied = call("slice", "rm", "roots")
    assert (denied.returncode, f"does not belong to uid {user.pw_uid}" in denied.stderr) == (5, True)
    assert call("gpu", "drain", "0", "--reason", "x").returncode == 5
    assert site.cert("revoke", OTHER) == 0
    ended = call("slice", "ls")
    assert ended.returncode == 5
    assert f"the certificate of {OTHER} with serial number " in ended.stderr and " was revoked on " in ended.stderr
    for name in ("mine", "roots"):
        assert vgpu("slice", "rm", name, host=site.system.host).code == 0


def test_a_second_daemon_on_the_port(site: Site) -> None:
    config = [f'listen = "{site.host}"', f'tls_dir = "{site.tls}"']
    with pytest.raises(PartError, match=r"ended with code 8.*another program listens on"):
        with OwnSystem(site.folder / "t", {"devices": "1", "memory_bytes": "1G"}, config):
            pass


def test_the_commands_of_certificates(site: Site, vgpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("--tls-dir", str(tmp_path / "tls"))
    assert vgpu("cert", "init", *where).code == 0
    again = vgpu("cert", "init", *where)
    assert (again.code, "--renew" in again.stderr) == (8, True)
    monkeypatch.chdir(tmp_path)
    made = vgpu("cert", "user", ME, *where, "-o", "json").json
    assert made["file"] == f"{ME}.json"
    assert (tmp_path / f"{ME}.json").stat().st_mode & 0o777 == 0o600
    assert made["certificate"] | {"not_before": "", "not_after": "", "serial": "", "sha256": ""} == {
        "kind": "user", "name": ME, "uid": os.geteuid(), "serial": "", "sha256": "", "state": "valid",
        "not_before": "", "not_after": "", "revoke_time": None,
    }  # fmt: skip
    assert vgpu("cert", "user", ME, *where).code == 8, "the file exists"
    assert vgpu("cert", "user", "no-such-user", *where).code == 4
    assert vgpu("cert", "user", ME, "x.json", "--days", "9999", *where).code == 2
    assert vgpu("cert", "revoke", "no-such-user", *where).code == 4
    (revoked,) = vgpu("cert", "revoke", made["certificate"]["serial"], *where, "-o", "json").json["certificates"]
    assert revoked["state"] == "revoked" and revoked["revoke_time"]
    shown = vgpu("cert", "ls", *where, "-o", "json").json["certificates"]
    assert sorted((one["kind"], one["state"]) for one in shown) == [
        ("authority", "valid"), ("server", "valid"), ("user", "revoked"),
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "vgpud.certs.issue")
    monkeypatch.delattr("vgpud.certs.issue")
    missing = vgpu("cert", "user", ME, "y.json", *where)
    assert (missing.code, "pip install 'vgpud[remote]'" in missing.stderr) == (1, True)


def test_never_without_certificates(site: Site, vgpu: Any) -> None:
    config = ['listen = "127.0.0.1:0"', f'tls_dir = "{site.folder / "none"}"']
    with pytest.raises(PartError, match=r"ended with code 2.*run `vgpu cert init`"):
        with OwnSystem(site.folder / "u", {"devices": "1", "memory_bytes": "1G"}, config):
            pass
