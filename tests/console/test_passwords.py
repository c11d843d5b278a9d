"""Password files as htpasswd -B writes them."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest

from vgpud.console.login import passwords


def write(path: Path, text: str, mode: int = 0o640) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def line(name: str, password: str) -> str:
    return f"{name}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"


def test_the_right_password_of_a_name_matches(tmp_path: Path) -> None:
    hashes = passwords.read(write(tmp_path / "p", "# users\n\n" + line("alice", "secret") + line("bob", "other")))
    assert passwords.matches(hashes, "alice", "secret")
    assert not passwords.matches(hashes, "alice", "other")
    assert not passwords.matches(hashes, "carol", "secret")
    assert not passwords.matches(hashes, "alice", "")


@pytest.mark.parametrize("password", ["x" * 73, "a\0b", "\ud800"])
def test_passwords_that_bcrypt_does_not_take_are_wrong(tmp_path: Path, password: str) -> None:
    hashes = passwords.read(write(tmp_path / "p", line("alice", "x" * 72)))
    assert not passwords.matches(hashes, "alice", password)


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(passwords.PasswordFileError, match="chmod 640"):
        passwords.read(write(tmp_path / "p", line("alice", "secret"), mode))


@pytest.mark.parametrize("text", ["alice:secret\n", "alice:{SHA}abc\n", ":$2y$05$abc\n", "alice\n"])
def test_other_hashes_are_refused_with_their_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(passwords.PasswordFileError, match="line 2 has no bcrypt hash"):
        passwords.read(write(tmp_path / "p", "#\n" + text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(passwords.PasswordFileError, match="cannot read"):
        passwords.read(tmp_path / "none")
