"""Certificates and their list: what is made, with which permissions, and what a full disk or a crash leaves."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from vgpud.certs import issue
from vgpud.certs.register import AUTHORITY, SERVER, USER, Register
from vgpud.errors import ConfigError, ConflictError, DeniedError, ExitCode, VgpudError
from vgpud.host import private_files
from vgpud.host.users import User

ALICE = User("alice", 61001, 61001, ())


@pytest.fixture
def register(tmp_path: Path) -> Register:
    made = Register(tmp_path / "tls")
    issue.init(made, ["gpu1.example.org", "10.0.0.5", "::1"], 365, renew=False)
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        register = Register(tmp_path / "deep" / "tls")
        issue.init(register, ["h"], 1, renew=False)
        issue.user(register, ALICE, 1, tmp_path / "alice.json")
        register.revoke("alice", time.time_ns() / 1e9)
    finally:
        os.umask(before)
    assert mode(register.directory) == 0o700
    assert {path.name: mode(path) for path in register.directory.iterdir()} == dict.fromkeys(
        ("authority.crt", "authority.key", "certificates.json", "lock", "server.pem"), 0o600
    )
    assert mode(tmp_path / "alice.json") == 0o600


def test_what_certificates_are_for(register: Register, tmp_path: Path) -> None:
    issue.user(register, ALICE, 7, tmp_path / "alice.json")
    bundle = json.loads((tmp_path / "alice.json").read_text())
    authority = x509.load_pem_x509_certificate(register.authority.read_bytes())
    server = x509.load_pem_x509_certificate(register.server.read_bytes().partition(b"-----END PRIVATE KEY-----\n")[2])
    alice = x509.load_pem_x509_certificate(bundle["certificate"].encode())
    assert bundle["authority"].encode() == register.authority.read_bytes()
    for certificate, usage in ((server, ExtendedKeyUsageOID.SERVER_AUTH), (alice, ExtendedKeyUsageOID.CLIENT_AUTH)):
        certificate.verify_directly_issued_by(authority)
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gpu1.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "::1"]
    days = (alice.not_valid_after_utc - alice.not_valid_before_utc).total_seconds() / 86_400
    assert 7 < days < 7.1, "an hour earlier, for clocks that differ"
    assert {issued.kind for issued in register.read_certificates().values()} == {AUTHORITY, SERVER, USER}
    assert (bundle["user"], bundle["uid"]) == ("alice", 61001)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_authority_is_not_replaced(register: Register) -> None:
    before = register.authority.read_bytes()
    with pytest.raises(ConflictError, match="--renew"):
        issue.init(register, ["h"], 1, renew=False)
    renewed = issue.init(register, [], 1, renew=True)
    assert renewed.name == "gpu1.example.org,10.0.0.5,::1", "the names of before"
    assert register.authority.read_bytes() == before
    with pytest.raises(ConfigError, match="nothing to renew"):
        issue.init(Register(register.directory.with_name("other")), ["h"], 1, renew=True)
    with pytest.raises(ConfigError, match="no authority"):
        issue.user(Register(register.directory.with_name("other")), ALICE, 1, register.directory / "a")


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 300])
def test_names_that_no_host_has(tmp_path: Path, name: str) -> None:
    register = Register(tmp_path / "tls")
    with pytest.raises(ConfigError, match="is no host name and no address"):
        issue.init(register, [name], 1, renew=False)
    assert not register.directory.exists()


def test_an_authority_that_a_crash_left_unlisted_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register = Register(tmp_path / "tls")
    with monkeypatch.context() as patch:
        patch.setattr(issue, "_sign", full)
        with pytest.raises(VgpudError):
            issue.init(register, ["h"], 1, renew=False)
    with pytest.raises(ConfigError, match="run `vgpu cert init`"):
        register.check(time.time_ns() / 1e9)
    issue.init(register, ["h"], 1, renew=True)
    register.check(time.time_ns() / 1e9)


def test_a_full_disk_leaves_what_there_was(register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issue.user(register, ALICE, 1, tmp_path / "first.json")
    before = {path: path.read_bytes() for path in register.directory.iterdir()}
    works: list[Callable[[], Any]] = [
        lambda: issue.user(register, ALICE, 1, tmp_path / "second.json"),
        lambda: issue.init(register, [], 1, renew=True),
        lambda: register.revoke("alice", time.time_ns() / 1e9),
    ]
    for work in works:
        with monkeypatch.context() as patch:
            patch.setattr(private_files.os, "fsync", full)
            with pytest.raises(VgpudError, match="No space left on device; free space on its disk") as error:
                work()
        assert error.value.exit_code == ExitCode.OTHER
        assert {path: path.read_bytes() for path in register.directory.iterdir()} == before
    assert not (tmp_path / "second.json").exists()
    register.revoke("alice", time.time_ns() / 1e9)


def test_a_certificate_whose_entry_could_not_be_saved_is_not_handed_out(
    register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "replace", full)
    with pytest.raises(VgpudError, match="No space"):
        issue.user(register, ALICE, 1, tmp_path / "alice.json")
    assert not (tmp_path / "alice.json").exists()


def test_files_are_not_written_through_links(register: Register, tmp_path: Path) -> None:
    """Neither a user's nor the list: what lies there may be another's doing."""
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    (tmp_path / "alice.json").symlink_to(victim)
    with pytest.raises(ConflictError, match=r"alice\.json exists"):
        issue.user(register, ALICE, 1, tmp_path / "alice.json")
    (register.directory / "lock").unlink()
    (register.directory / "lock").symlink_to(victim)
    with pytest.raises(VgpudError):
        register.revoke("alice", time.time_ns() / 1e9)
    assert victim.read_text() == "as it was"


def test_what_is_revoked_is_reported_as_it_is_then(register: Register, tmp_path: Path) -> None:
    issue.user(register, ALICE, 7, tmp_path / "alice.json")
    (told,) = register.revoke("alice", time.time_ns() / 1e9)
    assert (told.state(time.time_ns() / 1e9), told) == ("revoked", register.read_certificates()[told.sha256])


def test_many_at_the_same_time_are_all_listed(register: Register, tmp_path: Path) -> None:
    works = [
        threading.Thread(target=issue.user, args=(Register(register.directory), ALICE, 1, tmp_path / f"{i}.json"))
        for i in range(8)
    ]
    for work in works:
        work.start()
    for work in works:
        work.join()
    assert [issued.kind for issued in register.read_certificates().values()].count(USER) == 8


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"certificates": [{}]}', '{"certificates": [3]}', "[" * 100_000])
def test_a_list_that_is_none(register: Register, text: str) -> None:
    private_files.replace(register.directory / "certificates.json", text)
    with pytest.raises(ConfigError, match="restore it from a backup") as error:
        register.read_certificates()
    assert "\n" not in str(error.value)


def test_revoking(register: Register, tmp_path: Path) -> None:
    one, two = (issue.user(register, ALICE, 1, tmp_path / f"{n}.json") for n in "12")
    (revoked,) = register.revoke(one.serial, time.time_ns() / 1e9)
    assert revoked.serial == one.serial
    assert [i.serial for i in register.revoke("alice", time.time_ns() / 1e9)] == [two.serial]
    for what in ("alice", one.serial, "vgpud", "nobody", ""):
        with pytest.raises(VgpudError, match="`vgpu cert ls` lists them") as error:
            register.revoke(what, time.time_ns() / 1e9)
        assert error.value.exit_code == ExitCode.NOT_FOUND
    assert {i.state(time.time_ns() / 1e9) for i in register.read_certificates().values() if i.kind == USER} == {
        "revoked"
    }


def test_keys_of_wrong_permissions_are_not_used(register: Register, tmp_path: Path) -> None:
    register.authority_key.chmod(0o644)
    with pytest.raises(DeniedError, match="has mode 644, so other users may have read it: run chmod 600"):
        issue.user(register, ALICE, 1, tmp_path / "alice.json")
    register.authority_key.chmod(0o600)
    register.directory.chmod(0o770)
    with pytest.raises(DeniedError, match="writable by others"):
        issue.user(register, ALICE, 1, tmp_path / "alice.json")
    assert not (tmp_path / "alice.json").exists()


def test_the_daemon_needs_no_cryptography() -> None:
    """It is an optional dependency, of `vgpu cert` alone."""
    code = "import sys; import vgpud.daemon.daemon, vgpud.serve; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
