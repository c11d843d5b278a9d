"""`make deb`: a Debian package of the wheel, with units, completion, manual pages and documents.

`tools/build_deb.py [--machine aarch64] [--python 3.11] [--wheel FILE] [--out DIRECTORY]`. The Python packages that
vgpud needs are in it: Debian's are older. They lie in a virtual environment, /usr/lib/vgpud, of Debian's own
interpreter, so that vgpud finds itself and them wherever it starts a further interpreter. Compiled ones are for one
version of Python: a package is for the distributions that have it, by default that of /usr/bin/python3 here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import build_wheel  # noqa: E402
import man_pages  # noqa: E402
from build_wheel import WheelError  # noqa: E402
from click.shell_completion import get_completion_class  # noqa: E402

import vgpud  # noqa: E402
from vgpud.cli.main import cli  # noqa: E402
from vgpud.project import addresses  # noqa: E402
from vgpud.setup import systemd  # noqa: E402

DEBIAN = ROOT / "deploy" / "debian"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: what `vgpu console serve` and `vgpu cert` need as well
EXTRAS = "console,remote"
#: wheels of the packages that vgpud needs may ask for this much: libc6 in the control file says the same
PLATFORMS = ("manylinux_2_28", "manylinux2014")
#: where the environment is on the machine
PREFIX = Path("/usr/lib/vgpud")
PROGRAMS = {"vgpu": "vgpud.cli.main", "vgpud": "vgpud.serve", "kubectl-vgpu": "vgpud.kubectl.main"}
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/vgpu",
    "zsh": "usr/share/zsh/vendor-completions/_vgpu",
    "fish": "usr/share/fish/vendor_completions.d/vgpu.fish",
}
SCRIPTS = ("postinst", "prerm", "postrm")


def system_python() -> str:
    """The version of this system's own Python, as 3.11. Raises WheelError."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(["/usr/bin/python3", "-c", program], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WheelError("there is no /usr/bin/python3 here: name the version of the target with --python") from error
    return done.stdout.strip()


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def environment(root: Path, wheel: Path, machine: str, python: str) -> None:
    """The virtual environment, made without running that Python, which may be another machine's. Raises WheelError."""
    prefix = root / PREFIX.relative_to("/")
    site = prefix / "lib" / f"python{python}" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(site), "--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    command += [word for platform in PLATFORMS for word in ("--platform", f"{platform}_{machine}")]
    done = subprocess.run([*command, f"{wheel}[{EXTRAS}]"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"pip cannot install what vgpud needs on Python {python}:\n{done.stderr[-4000:]}")
    shutil.rmtree(site / "bin", ignore_errors=True)  # with the first line of the Python that runs pip
    _write(prefix / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    (prefix / "bin").mkdir()
    (prefix / "bin/python3").symlink_to(f"/usr/bin/python{python}")
    (root / "usr/bin").mkdir(parents=True)
    for name, module in PROGRAMS.items():
        text = f"#!{PREFIX}/bin/python3\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
        _write(prefix / "bin" / name, text, 0o755)
        (root / "usr/bin" / name).symlink_to(f"../lib/vgpud/bin/{name}")


def units(root: Path, python: str) -> None:
    """Those of `vgpu setup systemd`, with the paths of the package."""
    job = PREFIX / "lib" / f"python{python}" / "site-packages/vgpud/lib/vgpu-job"
    for name in (systemd.UNIT.name, systemd.CONSOLE_UNIT, *systemd.JOB_UNITS):
        text = systemd.unit_text(name, PREFIX / "bin/vgpud", job)
        _write(root / "usr/lib/systemd/system" / name, text)


def documents(root: Path) -> None:
    """Completion, manual pages, documents, examples, and the commented configuration."""
    for shell, place in COMPLETIONS.items():
        kind = get_completion_class(shell)
        assert kind
        _write(root / place, kind(cli, {}, "vgpu", "_VGPU_COMPLETE").source() + "\n")
    for name, text in man_pages.pages().items():
        if not name.startswith("vgpud-k8s"):  # which runs in the pods of the Helm chart
            _write_compressed(root / f"usr/share/man/man{name[-1]}" / name, text)
    folder = root / "usr/share/doc/vgpud"
    for name in build_wheel.known_files():
        if name.startswith("docs/") or name in ("README.md", "SECURITY.md"):
            _copy(name, folder / name)
        elif name.startswith("deploy/") and not name.startswith("deploy/debian/"):
            _copy(name, folder / "examples" / name.removeprefix("deploy/"))
        elif name.startswith("integrations/"):
            _copy(name, folder / "examples" / name.removeprefix("integrations/"))
    _write_compressed(folder / "changelog", (ROOT / "CHANGELOG.md").read_text())
    for name in ("copyright", "README.Debian"):
        _copy(f"deploy/debian/{name}", folder / name)
    _copy("docker/vgpud.toml", root / "etc/vgpud/vgpud.toml")


def _copy(name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / name, target)
    target.chmod(0o644)


def _write_compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def control(root: Path, machine: str, python: str) -> None:
    """DEBIAN/: the control file, scripts, checksums."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    size_kib = sum(path.stat().st_size for path in files) // 1024
    sums = [f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(root)}" for p in files]  # noqa: S324  dpkg's
    values = {"version": version(python), "architecture": ARCHITECTURES[machine], "installed_kib": size_kib}
    homepage = f"Homepage: {addresses.REPOSITORY_URL}\n" if addresses.REPOSITORY_URL else ""
    values |= {"maintainer": addresses.MAINTAINER, "homepage": homepage}
    _write(root / "DEBIAN/control", (DEBIAN / "control").read_text().format(python=python, **values))
    _write(root / "DEBIAN/conffiles", "/etc/vgpud/vgpud.toml\n")
    _write(root / "DEBIAN/md5sums", "\n".join(sums) + "\n")
    for name in SCRIPTS:
        _write(root / "DEBIAN" / name, (DEBIAN / name).read_text(), 0o755)


def version(python: str) -> str:
    """Of the package: one for each Python, so that an upgrade of the distribution is an upgrade of the package."""
    return f"{vgpud.__version__}-1+py{python}"


def build(wheel: Path, machine: str, python: str, output_folder: Path) -> Path:
    """The package of a wheel. Raises WheelError."""
    if shutil.which("dpkg-deb") is None:
        raise WheelError("there is no dpkg-deb here: apt-get install dpkg")
    output_folder.mkdir(parents=True, exist_ok=True)
    made = output_folder / f"vgpud_{version(python)}_{ARCHITECTURES[machine]}.deb"
    with tempfile.TemporaryDirectory(prefix="vgpud-deb-") as work:
        root = Path(work) / "root"
        root.mkdir(mode=0o755)
        environment(root, wheel, machine, python)
        units(root, python)
        documents(root)
        for path in root.rglob("*"):  # pip and we have followed the umask of whoever builds
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        control(root, machine, python)
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "--build", str(root), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WheelError(f"dpkg-deb failed: {done.stderr}")
    return made


def main() -> int:
    """0: a package was made, whose name is printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=ARCHITECTURES, default=os.uname().machine)
    parser.add_argument("--python", help="version of the target's Python, as 3.11 (default: that of /usr/bin/python3)")
    parser.add_argument("--wheel", type=Path, help="one that `make wheel` made (default: it is built)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="vgpud-deb-") as work:
            wheel = args.wheel
            if wheel is None:
                wheel = build_wheel.build(build_wheel.source_distribution(Path(work)), args.machine, args.out)
            build_wheel.check(wheel, args.machine)
            print(build(wheel, args.machine, args.python or system_python(), args.out))
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
