"""The Debian package: what is in it, and its installation, upgrade, removal and purge by dpkg on a copy of this system.

The copy is an overlay over the root directory in a mount namespace of its own: nothing of this machine changes.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.published import build_packages
from tests.rules.tree import ROOT
from vgpud import __version__

sys.path.insert(0, str(ROOT / "tools"))
import build_deb
import build_wheel

pytestmark = pytest.mark.slow
MACHINE = os.uname().machine
SITE = "usr/lib/vgpud/lib/python{}/site-packages"
#: on a copy of this machine, its first argument; the second is the package
ON_A_COPY = """
set -e
mount -t tmpfs -o mode=755 own "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root" || exit 77
rm -rf "$1/root/var/lib/vgpud" "$1/root/etc/vgpud" # of a vgpud of this machine
mount -t proc proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
cp "$2" "$1/root/vgpud.deb"
shift 2
exec chroot "$OLDPWD/copy/root" sh -euc "$1"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the wheel that `make wheel` builds, for the Python of this system."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here")
    _, wheel = build_packages(tmp_path_factory)
    try:
        return build_deb.build(wheel, MACHINE, build_deb.system_python(), tmp_path_factory.mktemp("deb"))
    except build_wheel.WheelError as error:
        if "/usr/bin/python3" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module")
def unpacked_folder(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
    return folder


def test_control(package: Path, unpacked_folder: Path) -> None:
    python = build_deb.system_python()
    control = email.message_from_string((unpacked_folder / "DEBIAN/control").read_text())
    assert package.name == f"vgpud_{control['Version']}_{control['Architecture']}.deb"
    assert control["Version"] == f"{__version__}-1+py{python}"
    assert control["Architecture"] == build_deb.ARCHITECTURES[MACHINE] and f"python{python}" in control["Depends"]
    assert (unpacked_folder / "DEBIAN/conffiles").read_text() == "/etc/vgpud/vgpud.toml\n"
    assert (
        subprocess.run(["md5sum", "-c", "--quiet", "DEBIAN/md5sums"], cwd=unpacked_folder, check=False).returncode == 0
    )
    for name in build_deb.SCRIPTS:
        subprocess.run(["sh", "-n", unpacked_folder / "DEBIAN" / name], check=True)


def test_contents(unpacked_folder: Path) -> None:
    site = SITE.format(build_deb.system_python())
    wanted = [
        *(
            "usr/bin/vgpu",
            "usr/bin/vgpud",
            "usr/bin/kubectl-vgpu",
            "etc/vgpud/vgpud.toml",
            f"{site}/vgpud/lib/libvgpu.so",
        ),
        *(f"{site}/{name}" for name in ("grpc", "click", "starlette", "cryptography", "vgpud/lib/sim/vgpu-simd")),
        *(f"usr/lib/systemd/system/{name}" for name in ("vgpud.service", "vgpud-console.service", "vgpu-job.socket")),
        *build_deb.COMPLETIONS.values(),
        *("usr/share/man/man1/vgpu.1.gz", "usr/share/man/man1/vgpu-backup.1.gz", "usr/share/man/man8/vgpud.8.gz"),
        *(f"usr/share/doc/vgpud/{name}" for name in ("copyright", "changelog.gz", "README.Debian", "docs/upgrade.md")),
    ]
    assert not [name for name in wanted if not os.path.lexists(unpacked_folder / name)]
    assert not [path for path in unpacked_folder.rglob("*") if path.suffix == ".pyc" or ".git" in path.parts]
    unit = (unpacked_folder / "usr/lib/systemd/system/vgpu-job@.service").read_text()
    assert f"ExecStart=/{site}/vgpud/lib/vgpu-job --here" in unit
    assert "_VGPU_COMPLETE=bash_complete" in (unpacked_folder / build_deb.COMPLETIONS["bash"]).read_text()


def test_only_owners_write(unpacked_folder: Path) -> None:
    loose = [path for path in unpacked_folder.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert not loose


# ---- dpkg ----


def on_a_copy(package: Path, folder: Path, script: str) -> str:
    """What a script prints that runs as root on a copy of this machine with the package as /vgpud.deb."""
    (folder / "copy").mkdir()
    wanted = f"python{build_deb.system_python()}"
    if subprocess.run(["dpkg", "-s", wanted], capture_output=True, check=False).returncode:
        pytest.skip(f"this system's Python is no Debian package {wanted}")
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", ON_A_COPY.replace("$OLDPWD", str(folder))]
    words = [*command, "sh", str(folder / "copy"), str(package), script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 77:
        pytest.skip(f"no overlay over the root directory here: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


INSTALL = """
export LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
dpkg -i /vgpud.deb >/dev/null
vgpu --version
vgpud version
vgpud check-config
test -n "$(find /usr/lib/vgpud/lib -name '*.pyc' | head -1)"
test ! -e /etc/systemd/system/multi-user.target.wants/vgpud.service
if command -v systemd-analyze >/dev/null; then systemd-analyze verify vgpud.service vgpud-console.service; fi
/usr/lib/vgpud/bin/python3 -c 'import sys; print(sys.executable)'
vgpu sim start --dir /tmp/vgpud-deb-sim >/dev/null && vgpu sim stop --dir /tmp/vgpud-deb-sim
echo '# mine' >> /etc/vgpud/vgpud.toml
mkdir -p /var/lib/vgpud && touch /var/lib/vgpud/vgpud.sqlite3
dpkg -i /vgpud.deb >/dev/null
tail -1 /etc/vgpud/vgpud.toml
dpkg -r vgpud >/dev/null
ls -A /usr/lib | grep -x vgpud || echo 'no files left'
ls /var/lib/vgpud /etc/vgpud
dpkg -P vgpud >/dev/null
ls -d /var/lib/vgpud /etc/vgpud 2>/dev/null || echo purged
"""


@pytest.mark.root
def test_installed_upgraded_removed_and_purged(package: Path, tmp_path: Path) -> None:
    said = on_a_copy(package, tmp_path, INSTALL).splitlines()
    assert said[:3] == [f"vgpu, version {__version__}", f"vgpud {__version__}", "/etc/vgpud/vgpud.toml: ok"]
    assert said[3] == "/usr/lib/vgpud/bin/python3"
    rest = [line for line in said[4:] if line]
    assert rest == [
        "# mine",
        "no files left",
        *("/etc/vgpud:", "vgpud.toml", "/var/lib/vgpud:", "vgpud.sqlite3"),
        "purged",
    ]
