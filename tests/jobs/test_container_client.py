"""What becomes the client of the container engine: on a stand-in for the engine, which notes what it is given."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.supervisors import USER
from vgpud.jobs import container_client, container_mounts
from vgpud.jobs.container_client import RefusedError, read_credentials

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with others' rights")]

SECRET = base64.b64encode(b"ann:s3cret").decode()
#: notes its words and its credentials; has no image until it has pulled one; a pull of `nowhere` fails
ENGINE = """#!/bin/sh
echo "$@" >>"$NOTES/words"
case "$1 $2" in
  "image inspect") test -e "$NOTES/pulled" || exit 1;;
  "pull nowhere") echo "Trying" >&2; echo "Error response from daemon: manifest unknown" >&2; exit 18;;
  "pull "*) cat "$DOCKER_CONFIG/config.json" >"$NOTES/credentials" 2>/dev/null; touch "$NOTES/pulled";;
  "inspect "*) cat "$NOTES/pid" 2>/dev/null;;
  "run "*)
    for word in "$@"; do
      case "$word" in *source=*) source=${word#*source=}; ls "${source%%,*}" >"$NOTES/listing";; esac
    done
    ls "$DOCKER_CONFIG" >"$NOTES/left" 2>/dev/null
    exit 7;;
esac
"""


class Place:
    """A directory of the daemon's, and a home of the user's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o711)
        for parent in folder.parents[:-2]:  # pytest's own are closed to other users
            parent.chmod(parent.stat().st_mode | 0o011)
        self.own, self.home, self.notes = folder / "own", folder / "home", folder / "notes"
        for made in (self.own, self.home, self.notes):
            made.mkdir()
        self.own.chmod(0o700)
        os.chown(self.home, USER, USER)
        self.engine = folder / "engine"
        self.engine.write_text(ENGINE)
        self.engine.chmod(0o755)

    def run(self, image: str = "image", **fields: Any) -> subprocess.CompletedProcess[str]:
        """The program, with a request of these fields."""
        request = {
            "user": [USER, USER],
            "engine": [str(self.engine)],
            "image": image,
            "run": [str(self.engine), "run", "--rm", "--", image, "true"],
            "look": [str(self.engine), "inspect", "x"],
            "mounts": [],
            "auth_file": "",
            "is_of_site": False,
            **{name: str(self.own / f"1.1.0.{name}") for name in ("credentials", "refusal", "volumes")},
        }
        path = self.own / "1.1.0.request"
        path.write_text(json.dumps({**request, **fields}))
        words = [sys.executable, "-I", "-S", str(Path(container_client.__file__)), str(path)]
        environment = {"NOTES": str(self.notes), "PATH": os.environ["PATH"], "DOCKER_CONFIG": "/nowhere"}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)

    def read(self, name: str) -> str:
        path = self.notes / name
        return path.read_text() if path.exists() else ""

    def refusal(self) -> str:
        path = self.own / "1.1.0.refusal"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    container_mounts.release(str(made.own / "1.1.0.volumes"))


def volume(place: Place, host: Path, *roots: Path) -> list[Any]:
    return [str(host), "/data", False, [str(root) for root in roots or (place.folder,)]]


def test_it_becomes_the_client(place: Place) -> None:
    done = place.run()
    assert done.returncode == 7, done.stderr
    assert place.read("words").splitlines() == ["image inspect image", "pull image", "run --rm -- image true"]
    assert not place.refusal()


def test_an_image_that_cannot_be_pulled(place: Place) -> None:
    done = place.run("nowhere")
    why = "image nowhere cannot be pulled: Error response from daemon: manifest unknown"
    assert (done.returncode, place.refusal()) == (125, why)
    assert done.stderr.splitlines()[-1] == f"vgpu: {why}"
    assert "run" not in place.read("words")


def test_a_refusal_that_cannot_be_written_is_in_the_log(place: Place) -> None:
    """On a full disk, for example: the exit code is an engine's, and the log has the sentence."""
    done = place.run("nowhere", refusal=str(place.own / "none" / "refusal"))
    assert done.returncode == 125 and "vgpu: image nowhere cannot be pulled" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_volume(place: Place) -> None:
    """It is the directory that was looked at, and released when the container has begun."""
    (place.home / "data").mkdir()
    (place.home / "data" / "file").touch()
    (place.notes / "pid").write_text("123\n")
    done = place.run(mounts=[volume(place, place.home / "data")])
    assert done.returncode == 7, done.stderr
    source = place.own / "1.1.0.volumes" / "0"
    run = place.read("words").splitlines()[-1] if "run" in place.read("words").splitlines()[-1] else place.read("words")
    assert f"run --mount type=bind,source={source},target=/data --rm" in run
    assert place.read("listing") == "file\n"
    _wait(lambda: not (place.own / "1.1.0.volumes").exists())
    assert (place.home / "data" / "file").exists()


def test_an_engine_that_does_not_answer_has_not_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_client, "ANSWER_S", 0.05)
    assert not container_client.has_begun(["sleep", "60"])
    for text, answer in (("123\n", True), ("0\n", False), ("", False), ("no such object", False)):
        assert container_client.has_begun(["printf", "%s", text]) == answer


def _wait(ready: Callable[[], bool]) -> None:
    from tests.runtime.supervisors import wait_until

    wait_until("what was held is released", ready)


def test_a_daemon_that_was_killed_leaves_no_users_files_removed(place: Place) -> None:
    """What is released is not looked into."""
    (place.home / "file").touch()
    directory = place.own / "2.1.0.volumes"
    directory.mkdir()
    for number, target in enumerate((place.home, place.home / "file")):
        fd = os.open(target, os.O_PATH)
        container_mounts.hold(fd, str(directory / str(number)))
        os.close(fd)
    assert (directory / "0" / "file").exists() and (directory / "1").is_file()
    container_mounts.release(str(directory))
    assert not directory.exists() and (place.home / "file").exists()


def test_links_lead_no_further_than_the_site_allows(place: Place) -> None:
    (place.home / "link").symlink_to("/etc")
    (place.home / "inner").mkdir()
    (place.home / "fine").symlink_to("inner")
    done = place.run(mounts=[volume(place, place.home / "link", place.home)])
    assert done.returncode == 125
    assert place.refusal().startswith(f"volume {place.home}/link is /etc, which is not below a directory that jobs may")
    assert place.run(mounts=[volume(place, place.home / "fine", place.home)]).returncode == 7


def test_a_parent_directory_leads_no_further(place: Place) -> None:
    """The API refuses `..` by its text; here the path is what the kernel makes of it."""
    done = place.run(mounts=[volume(place, place.home / ".." / "notes", place.home)])
    assert done.returncode == 125 and f"is {place.notes}, which is not below" in place.refusal()


def test_a_directory_that_is_closed_to_the_user(place: Place) -> None:
    (place.own / "inner").mkdir()
    done = place.run(mounts=[volume(place, place.own / "inner")])
    assert done.returncode == 125 and "Permission denied" in place.refusal()
    assert "run" not in place.read("words")


def test_neither_a_directory_nor_a_file(place: Place) -> None:
    os.mkfifo(place.home / "pipe")
    assert place.run(mounts=[volume(place, place.home / "pipe")]).returncode == 125
    assert "neither a directory nor a regular file" in place.refusal()


def test_credentials_are_there_for_the_pull_alone(place: Place) -> None:
    """Of the user's file the passwords, and nothing that names a program."""
    path = place.home / "config.json"
    known = {"auths": {"r.io": {"auth": SECRET, "email": "x"}}, "credHelpers": {"r.io": "evil"}, "credsStore": "evil"}
    path.write_text(json.dumps(known))
    os.chown(path, USER, USER)
    path.chmod(0o600)
    done = place.run(auth_file=str(path))
    assert done.returncode == 7, done.stderr
    assert json.loads(place.read("credentials")) == {"auths": {"r.io": {"auth": SECRET}}}
    assert not (place.own / "1.1.0.credentials").exists() and not place.read("left")
    for file in (*place.own.iterdir(), place.notes / "words"):
        assert SECRET not in file.read_text()


def test_anothers_credentials(place: Place) -> None:
    path = place.own / "config.json"
    path.write_text(json.dumps({"auths": {"r.io": {"auth": SECRET}}}))
    path.chmod(0o600)
    done = place.run(auth_file=str(path))
    assert done.returncode == 125 and place.refusal() == f"credentials {path}: Permission denied"
    assert place.run(auth_file=str(path), is_of_site=True).returncode == 7


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "are not the JSON that `docker login` writes"),
        ("[]", "are not the JSON that `docker login` writes"),
        ('{"auths": {"r.io": 3}}', "are not the JSON that `docker login` writes"),
        ('{"auths": {"r.io": {"auth": "!"}}}', "are not the JSON that `docker login` writes"),
        ('{"auths": {"r.io": {}}, "credsStore": "desktop"}', "have no password of a registry"),
        ("[" * 30_000, "are not the JSON that `docker login` writes"),
        ("x" * 70_000, "are not a regular file of at most 64 KiB"),
    ],
)
def test_damaged_credentials(place: Place, text: str, why: str) -> None:
    path = place.home / "config.json"
    path.write_text(text)
    with pytest.raises(RefusedError) as refused:
        read_credentials([USER, USER], str(path), False)
    assert why in str(refused.value) and "\n" not in str(refused.value)
    assert os.geteuid() == 0  # whatever happened, the rights are one's own again
