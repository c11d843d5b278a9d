"""`vgpu setup`: what it writes, that it leaves the rest as it was, that it can be shown and undone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import vgpud
from vgpud import paths
from vgpud.setup import docker, dockerd, in_use, install, plan
from vgpud.setup.site import SetupError, Site, resolve_in_root

DOCKER = """{
\t"log-driver":   "json-file",
\t"log-opts": {"max-size": "10m", "max-file": "3"},
\t"runtimes": {
\t\t"other": { "path": "/usr/bin/other" }
\t}
}
"""


def test_docker_gets_one_entry_and_keeps_every_other_byte(everything: Any, setup: Any, host: Path) -> None:
    config = host / "etc/docker/daemon.json"
    config.write_text(DOCKER)
    config.chmod(0o600)
    before = everything(host)
    assert setup("docker").code == 0
    assert json.loads(config.read_text())["runtimes"]["vgpu"] == {"path": "/usr/lib/vgpu/current/vgpu-runtime"}
    front = '"path": "/usr/lib/vgpu/current/vgpu-runtime"'
    added = f'"other": {{ "path": "/usr/bin/other" }},\n\t\t"vgpu": {{\n\t\t\t{front}\n\t\t}}'
    assert config.read_text() == DOCKER.replace('"other": { "path": "/usr/bin/other" }', added)
    assert config.stat().st_mode & 0o777 == 0o600
    assert (host / "usr/lib/vgpu/current/vgpu-runtime").read_text() == "first vgpu-runtime"
    assert setup("docker", "--undo").code == 0
    (host / "usr/lib").rmdir()
    (host / "usr").rmdir()
    assert everything(host) == before


def test_cdi_alone_touches_no_engine(everything: Any, setup: Any, host: Path) -> None:
    (host / "etc/docker/daemon.json").write_text(DOCKER)
    before = everything(host)
    assert setup("cdi", "--socket", "/run/other/runtime.sock").code == 0
    folder = host / "usr/lib/vgpu/current"
    assert "socket = /run/other/runtime.sock" in (folder / "vgpu-runtime.conf").read_text()
    assert (host / "etc/docker/daemon.json").read_text() == DOCKER and os.access(folder / "vgpu-runtime", os.X_OK)
    assert setup("cdi", "--undo").code == 0
    (host / "usr/lib").rmdir()
    (host / "usr").rmdir()
    assert everything(host) == before


def test_a_dry_run_changes_nothing_and_shows_all(everything: Any, setup: Any, host: Path) -> None:
    (host / "etc/docker/daemon.json").write_text(DOCKER)
    before = everything(host)
    shown = setup("docker", "--dry-run")
    assert shown.code == 0
    assert everything(host) == before
    assert "--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n" in shown.stdout
    assert '+\t\t\t"path": "/usr/lib/vgpu/current/vgpu-runtime"\n' in shown.stdout
    assert f"# install /usr/lib/vgpu/{vgpud.__version__}: libvgpu.so" in shown.stdout


def test_twice_is_once(everything: Any, setup: Any, host: Path) -> None:
    setup("docker")
    before = everything(host)
    again = setup("docker")
    assert "nothing to do" in again.stderr
    assert everything(host) == before
    setup("docker", "--undo")
    assert "nothing to undo" in setup("docker", "--undo").stderr
    assert not (host / "etc/docker/daemon.json").exists()


# ---- docker: files that are there, and what is refused ----


@pytest.mark.parametrize("text", ["", "\n", "{}", "{\n}\n", None])
def test_an_empty_daemon_json_is_none(setup: Any, host: Path, text: str | None) -> None:
    config = host / "etc/docker/daemon.json"
    if text is not None:
        config.write_text(text)
    assert setup("docker").code == 0
    assert json.loads(config.read_text()) == {"runtimes": {"vgpu": {"path": "/usr/lib/vgpu/current/vgpu-runtime"}}}
    setup("docker", "--undo")
    assert (config.read_text() if config.exists() else None) == text
    assert os.listdir(host / "etc/docker") == ([] if text is None else ["daemon.json"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"runtimes": {,}}', "is not JSON: Expecting property name enclosed in double quotes at line 1, column 15"),
        ('{"log-driver": "local",}', "line 1"),
        (f'{{"mtu": {"9" * 5000}}}', "cannot be read"),
        ("[]", "is list, not an object"),
        ('{"runtimes": []}', "runtimes = [] is not an object of objects"),
        ('{"runtimes": {"a": "/bin/a"}}', "is not an object of objects"),
        (
            '{"runtimes": {"vgpu": {"path": "/opt/other/gpu"}}}',
            "runtimes.vgpu is '/opt/other/gpu', which is not vgpud's",
        ),
        (b"\xff{}", "is not text (UTF-8)"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    everything: Any, setup: Any, host: Path, text: Any, message: str
) -> None:
    (host / "etc/docker/daemon.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = everything(host)
    result = setup("docker")
    assert (result.code, result.stdout) == (1, "")
    assert message in result.stderr
    assert "daemon.json" in result.stderr
    assert result.stderr.count("\n") == 1
    assert everything(host) == before


def test_runtimes_on_the_command_line(setup: Any, host: Path) -> None:
    """A key both there and in the file makes dockerd refuse the file, at the next boot at the latest."""
    drop_ins = host / "etc/systemd/system/docker.service.d"
    drop_ins.mkdir(parents=True)
    (drop_ins / "override.conf").write_text("ExecStart=/usr/bin/dockerd --add-runtime a=/bin/a --default-runtime=a\n")
    result = setup("docker")
    assert (result.code, "override.conf starts dockerd with --add-runtime" in result.stderr) == (1, True)
    (drop_ins / "override.conf").write_text("ExecStart=/usr/bin/dockerd --default-runtime=a\n")
    assert setup("docker", "--dry-run").code == 0
    assert "--default-runtime: move it into" in setup("docker", "--set-as-default").stderr


def test_links_lead_within_the_host(setup: Any, host: Path) -> None:
    (host / "etc/real").mkdir()
    (host / "etc/docker/daemon.json").symlink_to("/etc/real/docker.json")
    (host / "etc/real/docker.json").write_text(DOCKER)
    setup("docker")
    assert (host / "etc/docker/daemon.json").is_symlink()
    assert "vgpu" in (host / "etc/real/docker.json").read_text()
    (host / "a").symlink_to("b")
    (host / "b").symlink_to("a")
    with pytest.raises(SetupError, match="a cycle"):
        resolve_in_root(host, Path("/a/c"))
    assert resolve_in_root(host, Path("/etc/../../../etc/docker/daemon.json")) == host / "etc/real/docker.json"


def test_what_the_user_changed_since_stays(setup: Any, host: Path) -> None:
    config = host / "etc/docker/daemon.json"
    config.write_text(DOCKER)
    setup("docker", "--set-as-default")
    assert json.loads(config.read_text())["default-runtime"] == "vgpu"
    config.write_text(config.read_text().replace("json-file", "local"))
    setup("docker", "--undo")
    assert config.read_text() == DOCKER.replace("json-file", "local")


def test_the_default_that_was_there_comes_back(setup: Any, host: Path) -> None:
    config = host / "etc/docker/daemon.json"
    config.write_text('{"default-runtime": "other", "runtimes": {"other": {"path": "/bin/other"}}}')
    before = config.read_text()
    setup("docker", "--set-as-default")
    config.write_text(config.read_text().replace("/bin/other", "/bin/another"))
    setup("docker", "--undo")
    assert config.read_text() == before.replace("/bin/other", "/bin/another")


def test_not_writable_is_said_before_anything_is_changed(
    everything: Any, setup: Any, host: Path, monkeypatch: Any
) -> None:
    before = everything(host)
    monkeypatch.setattr("vgpud.setup.site.os.access", lambda path, mode: "docker" not in str(path))
    result = setup("docker")
    assert (result.code, everything(host)) == (5, before)
    assert "cannot write /etc/docker/daemon.json" in result.stderr


def test_a_user_without_root_reads_what_to_type(vgpu: Any, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Site().for_user  # or the machine itself would be changed
    for engine in ("docker", "containerd", "systemd"):
        result = vgpu("setup", engine)
        assert (result.code, result.stdout) == (5, "")
        assert f"run `sudo vgpu setup {engine}`" in result.stderr


def test_as_data(setup: Any, host: Path) -> None:
    data = setup("docker", "--dry-run", "-o", "json").json
    assert (data["schema_version"], data["engine"], data["dry_run"], data["undo"]) == (1, "docker", True, False)
    assert [change["kind"] for change in data["changes"]] == ["tree", "link", "file"]
    assert "+++ /etc/docker/daemon.json" in data["changes"][-1]["diff"]
    assert "/etc/docker/daemon.json" in setup("docker", "--dry-run", "-o", "name").stdout.splitlines()


# ---- a dockerd that runs ----


class FakeDockerd:
    """Takes over what is in its file on request, if it is valid."""

    def __init__(self, config: Path, *options: str) -> None:
        self.config = config
        self.argv = ("dockerd", "--config-file", str(config), *options)
        self.info: dict[str, Any] = {"Runtimes": {"runc": {}}, "DefaultRuntime": "runc"}
        self.refuses = False
        self.signals = 0

    def reload(self, *_: Any) -> None:
        self.signals += 1
        document = json.loads(self.config.read_text()) if self.config.exists() else {}
        if not self.refuses and "runtimes" in document:
            self.info["Runtimes"] = {"runc": {}, **document["runtimes"]}
        if not self.refuses and "default-runtime" in document:
            self.info["DefaultRuntime"] = document["default-runtime"]


@pytest.fixture
def running(host: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDockerd:
    """A dockerd for the host's daemon.json. As the real one it keeps what it knows when a key is gone."""
    fake = FakeDockerd(host / "etc/docker/daemon.json")
    one = dockerd.Dockerd(4711, fake.argv)
    monkeypatch.setattr(dockerd, "all_dockerds", lambda: [one])
    monkeypatch.setattr(dockerd.Dockerd, "reads", lambda self, config: config == fake.config)
    monkeypatch.setattr(dockerd.Dockerd, "reload", fake.reload)
    monkeypatch.setattr(dockerd.Dockerd, "socket_path", lambda self, hosts: Path("/nowhere"))
    monkeypatch.setattr(dockerd, "ask", lambda path: fake.info)
    monkeypatch.setattr(dockerd, "_RELOAD_S", 0.1)
    return fake


def test_dockerd_is_notified_and_asked(setup: Any, host: Path, running: FakeDockerd) -> None:
    running.config.write_text(DOCKER)
    assert "SIGHUP" in setup("docker").stderr
    assert "vgpu" in running.info["Runtimes"]
    assert "nothing to do" in setup("docker").stderr
    running.info["Runtimes"].pop("vgpu")  # restarted with another file in between, say
    assert "SIGHUP" in setup("docker").stderr
    assert "vgpu" in running.info["Runtimes"]


@pytest.mark.parametrize("text", [DOCKER, "{}\n", None])
def test_dockerd_forgets_though_dropping_the_key_keeps_the_old_set(
    setup: Any, running: FakeDockerd, text: str | None
) -> None:
    if text is not None:
        running.config.write_text(text)
    setup("docker", "--set-as-default")
    assert running.info["DefaultRuntime"] == "vgpu"
    assert setup("docker", "--undo").code == 0
    assert (running.info["DefaultRuntime"], "vgpu" in running.info["Runtimes"]) == ("runc", False)
    assert (running.config.read_text() if running.config.exists() else None) == text


def test_what_dockerd_does_not_take_over_is_put_back(setup: Any, host: Path, running: FakeDockerd) -> None:
    """It would refuse to start with that file."""
    running.config.write_text(DOCKER)
    running.refuses = True
    result = setup("docker")
    assert (result.code, running.config.read_text(), running.signals) == (1, DOCKER, 2)
    assert "did not accept" in result.stderr.splitlines()[-1]
    running.refuses = False
    setup("docker")
    running.refuses = True
    kept = running.config.read_text()
    result = setup("docker", "--undo")
    assert (result.code, running.config.read_text()) == (1, kept)
    assert (host / "usr/lib/vgpu/current/vgpu-runtime").exists()


def test_the_dockerd_that_docker_asks_is_chosen(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: FakeDockerd
) -> None:
    """Snap's, say, has its file elsewhere. Where no dockerd answers it is the usual file."""
    monkeypatch.setattr(dockerd, "DEFAULT_CONFIG", tmp_path / "usual.json")
    monkeypatch.setattr(dockerd.Dockerd, "socket_path", lambda self, hosts: tmp_path / "sock")
    (tmp_path / "sock").touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/sock")
    assert docker.config_file(Site(), None) == running.config
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/other")
    assert docker.config_file(Site(), None) == tmp_path / "usual.json"
    assert docker.config_file(Site(), Path("named.json")) == Path.cwd() / "named.json"


def test_a_dockerd_that_cannot_be_looked_at_is_not_the_one_at_a_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The root directory of a process that has ended, or of root's for other users."""

    def refuse(root: Path, path: Path) -> Path:
        raise PermissionError(f"{root}{path}")

    monkeypatch.setattr(dockerd, "resolve_in_root", refuse)
    monkeypatch.setattr(dockerd, "all_dockerds", lambda: [dockerd.Dockerd(1, ("dockerd",))])
    assert dockerd.find_by_socket(tmp_path / "docker.sock") is None


def test_options_of_a_dockerds_command_line() -> None:
    one = dockerd.Dockerd(1, ("dockerd", "-H", "tcp://a:1", "--host=unix:///run/x.sock", "--add-runtime", "a=/b"))
    assert one.option("--add-runtime") == ["a=/b"]
    assert one.option("-H", "--host") == ["tcp://a:1", "unix:///run/x.sock"]
    assert one.config == dockerd.DEFAULT_CONFIG


# ---- the libraries ----


def test_another_version_comes_beside_and_undo_takes_both(setup: Any, host: Path, monkeypatch: Any) -> None:
    lib = host / "usr/lib/vgpu"
    setup("docker", "--runtime", "/usr/sbin/runc")
    monkeypatch.setattr(vgpud, "__version__", "99.1")
    setup("docker")
    assert os.readlink(lib / "current") == "99.1"
    assert [*install.versions(Site(host)), "current"] == sorted(os.listdir(lib))
    conf = install.read_conf((lib / "current/vgpu-runtime.conf").read_text())
    assert conf["runtime"] == "/usr/sbin/runc"
    setup("docker", "--undo")
    assert not lib.exists()


def test_what_containers_use_stays_and_is_said(setup: Any, host: Path, monkeypatch: Any) -> None:
    lib = host / "usr/lib/vgpu"
    first = vgpud.__version__
    setup("docker")
    monkeypatch.setattr(vgpud, "__version__", "99.1")
    setup("docker")
    monkeypatch.setattr(install, "containers_of", lambda site: {"current": ["0123456789ab", "another"]})
    result = setup("docker", "--undo")
    assert result.code == 0
    assert "/usr/lib/vgpu/99.1 stays: container 0123456789ab was started by it (and 1 more)" in result.stderr
    assert sorted(os.listdir(lib)) == ["99.1", "current"]
    monkeypatch.setattr(install, "containers_of", lambda site: {})
    setup("docker", "--undo")
    assert not lib.exists()
    assert first != "99.1"


def test_versions_stay_where_processes_cannot_be_seen(setup: Any, host: Path, monkeypatch: Any) -> None:
    setup("docker")
    monkeypatch.setattr(install, "containers_of", in_use.containers_of)
    result = setup("docker", "--undo")
    assert "/usr/lib/vgpu stays: containers that use it are not visible from here" in result.stderr
    assert os.listdir(host / "etc/docker") == []
    assert (host / "usr/lib/vgpu/current/vgpu-runtime").is_file()
    monkeypatch.setattr(in_use, "_sees_host", lambda site: True)
    setup("docker", "--undo")
    assert not (host / "usr/lib/vgpu").exists()


def test_damaged_files_are_repaired_by_rename(setup: Any, host: Path, libraries: Path) -> None:
    setup("docker")
    library = host / "usr/lib/vgpu/current/libvgpu.so"
    with library.open() as used:
        (libraries / "libvgpu.so").write_text("second build")
        (host / "usr/lib/vgpu/current/vgpu-runtime").chmod(0o600)
        said = setup("docker").stderr
        assert used.read() == "first libvgpu.so"  # a process that has it mapped keeps it
    assert f"repair /usr/lib/vgpu/{vgpud.__version__}: libvgpu.so, vgpu-runtime\n" in said
    assert library.read_text() == "second build"
    assert (host / "usr/lib/vgpu/current/vgpu-runtime").stat().st_mode & 0o777 == 0o755


def test_an_installation_that_fails_leaves_nothing_behind(
    everything: Any, setup: Any, host: Path, monkeypatch: Any
) -> None:
    before = everything(host)
    real = plan.replace_file

    def full(target: Path, data: bytes, mode: int | None = None) -> None:
        if target.name == "vgpu-runtime":
            raise OSError(28, "No space left on device")
        real(target, data, mode)

    monkeypatch.setattr(plan, "replace_file", full)
    result = setup("docker")
    assert (result.code, "No space left on device" in result.stderr) == (1, True)
    (host / "usr/lib/vgpu").rmdir()
    (host / "usr/lib").rmdir()
    (host / "usr").rmdir()
    assert everything(host) == before


def test_libraries_that_are_not_built(setup: Any, libraries: Path) -> None:
    (libraries / "vgpu-runtime").unlink()
    result = setup("docker")
    assert (result.code, "pip install ." in result.stderr) == (1, True)


def test_the_sockets_of_this_site(setup: Any, host: Path, monkeypatch: Any, tmp_path: Path) -> None:
    def conf() -> dict[str, str]:
        return install.read_conf((host / "usr/lib/vgpu/current/vgpu-runtime.conf").read_text())

    config = tmp_path / "vgpud.toml"
    config.write_text('runtime_dir = "/srv/vgpud"\n')
    monkeypatch.setattr(paths, "config_file", lambda uid=None: Path("/etc/vgpud/vgpud.toml") if uid == 0 else config)
    setup("docker")
    assert conf() == {"socket": "/run/vgpud/runtime.sock"}  # the host's daemon, not that of where we are
    (host / "etc/vgpud").mkdir()
    config.rename(host / "etc/vgpud/vgpud.toml")
    setup("docker")
    assert conf() == {"socket": "/srv/vgpud/runtime.sock"}
    setup("docker", "--socket", "/run/x.sock", "--runtime", "crun")
    assert conf() == {"socket": "/run/x.sock", "runtime": "crun"}


def test_a_socket_named_before_is_kept_while_it_is_there(setup: Any, host: Path) -> None:
    """The second engine that is set up does not take the first one's daemon away."""

    def read_socket() -> str:
        return install.read_conf((host / "usr/lib/vgpu/current/vgpu-runtime.conf").read_text())["socket"]

    (host / "srv").mkdir()
    (host / "srv/runtime.sock").touch()
    setup("docker", "--socket", "/srv/runtime.sock")
    setup("podman")
    assert read_socket() == "/srv/runtime.sock"
    (host / "srv/runtime.sock").unlink()
    setup("podman")
    assert read_socket() == "/run/vgpud/runtime.sock"


@pytest.mark.parametrize(("runtime", "code"), [("/usr/bin/nvidia-container-runtime", 1), ("./runc", 2)])
def test_low_level_runtimes_that_cannot_be(setup: Any, host: Path, runtime: str, code: int) -> None:
    result = setup("docker", "--runtime", runtime)
    assert (result.code, (host / "usr").exists()) == (code, False)
    assert f"--runtime {runtime}: " in result.stderr


@pytest.mark.parametrize("runtime", ["runc", "/opt/runc"])
def test_a_low_level_runtime_that_is_not_there_is_reported(setup: Any, host: Path, runtime: str) -> None:
    complaint = f"--runtime {runtime} does not exist"
    assert complaint in setup("docker", "--runtime", runtime).stderr
    place = host / ("opt/runc" if "/" in runtime else "usr/local/bin/runc")
    place.parent.mkdir(parents=True)
    place.touch(0o755)
    assert complaint not in setup("docker", "--runtime", runtime).stderr


def test_elsewhere(setup: Any, host: Path) -> None:
    setup("docker", "--prefix", "/opt/vgpu")
    front = json.loads((host / "etc/docker/daemon.json").read_text())["runtimes"]["vgpu"]["path"]
    assert (front, resolve_in_root(host, Path(front)).is_file()) == ("/opt/vgpu/current/vgpu-runtime", True)
    setup("docker", "--prefix", "/opt/vgpu", "--undo")
    assert not (host / "opt/vgpu").exists()
