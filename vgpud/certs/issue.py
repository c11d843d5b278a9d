"""Makes certificates: an authority of this site's own, the server's, and one for each user who connects from afar.

Keys are P-256. Needs `cryptography` (pip install 'vgpud[remote]'), which the daemon does not.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vgpud.certs.register import AUTHORITY, SCHEMA_VERSION, SERVER, USER, Issued, Register, check_private_file, when
from vgpud.errors import ConfigError, ConflictError, VgpudError
from vgpud.host import private_files
from vgpud.host.users import User
from vgpud.paths import cannot_make

_DAY_S = 86_400
AUTHORITY_DAYS, SERVER_DAYS, USER_DAYS = 3650, 365, 30
#: longest life of a user's or server's certificate
DAYS_MAX = 397
#: clocks of two machines may differ by so much
EARLY_S = 3600
_ORGANIZATION = "vgpud"
_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class _Signer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def init(register: Register, names: Sequence[str], days: int, renew: bool) -> Issued:
    """Makes the authority and the server's certificate for these host names and addresses; `renew`: the latter alone,
    for the same names if none are given. Raises VgpudError."""
    alternatives = [_host(name) for name in names]
    register.make()
    exists = register.authority.exists()
    if exists and not renew:
        text = (
            f"{register.directory} has an authority already: `vgpu cert init --renew` renews the server's certificate"
        )
        raise ConflictError(f"{text}; another authority needs another directory (--tls-dir)")
    if renew and not exists:
        raise ConfigError(f"there is nothing to renew in {register.directory}: run `vgpu cert init`")
    with register.changing() as listed:
        if not exists:
            _make_authority(register)
        signer = _signer(register)
        authority = _make_list_entry(AUTHORITY, _ORGANIZATION, -1, signer.certificate)
        listed.setdefault(authority.sha256, authority)
        before = [i for i in listed.values() if i.kind == SERVER and not i.revoked_s]
        if not names and before:
            names = before[-1].name.split(",")
            alternatives = [_host(name) for name in names]
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign(signer, key.public_key(), names[0], alternatives, days, ExtendedKeyUsageOID.SERVER_AUTH)
        _write(register.server, _key_text(key) + _text(certificate))
        issued = _make_list_entry(SERVER, ",".join(names), -1, certificate)
        listed[issued.sha256] = issued
    return issued


def user(register: Register, who: User, days: int, file: Path) -> Issued:
    """A certificate for this user, written with its key to a new file (0600). Raises VgpudError."""
    if not register.authority_key.exists():
        raise ConfigError(f"there is no authority in {register.directory}: run `vgpu cert init`")
    check_private_file(register.authority_key)
    signer = _signer(register)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"vgpud:user:{who.uid}")]
    certificate = _sign(signer, key.public_key(), who.name, alternatives, days, ExtendedKeyUsageOID.CLIENT_AUTH)
    issued = _make_list_entry(USER, who.name, who.uid, certificate)
    bundle = {
        "schema_version": SCHEMA_VERSION,
        "user": who.name,
        "uid": who.uid,
        "expires": issued.not_after_s,
        "authority": _text(signer.certificate),
        "certificate": _text(certificate),
        "key": _key_text(key),
    }
    try:
        private_files.create_with(file, json.dumps(bundle, indent=1) + "\n")
    except FileExistsError as error:
        raise ConflictError(f"{file} exists: remove it or name another file") from error
    except OSError as error:
        raise cannot_make(file, error) from error
    try:
        with register.changing() as listed:
            listed[issued.sha256] = issued
    except BaseException:
        file.unlink(missing_ok=True)  # a certificate that is not listed belongs to no user
        raise
    return issued


def _make_authority(register: Register) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION)])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _begin(AUTHORITY_DAYS, key.public_key(), name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(register.authority_key, _key_text(key))
    _write(register.authority, _text(certificate))


def _signer(register: Register) -> _Signer:
    """The authority. Raises VgpudError."""
    check_private_file(register.authority_key)
    try:
        key = serialization.load_pem_private_key(register.authority_key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(register.authority.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot read the authority in {register.directory}: {error}; restore it") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{register.authority_key} is not a key that `vgpu cert init` made: restore it")
    if time.time_ns() / 1e9 >= certificate.not_valid_after_utc.timestamp():
        ended = when(certificate.not_valid_after_utc.timestamp())
        raise VgpudError(f"the authority in {register.directory} expired on {ended}: make one in another directory")
    return _Signer(certificate, key)


def _begin(days: int, key: ec.EllipticCurvePublicKey, name: x509.Name) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(seconds=EARLY_S))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _sign(
    signer: _Signer,
    key: ec.EllipticCurvePublicKey,
    name: str,
    alternatives: Sequence[x509.GeneralName],
    days: int,
    usage: x509.ObjectIdentifier,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    return (
        _begin(days, key, subject)
        .issuer_name(signer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(authority, critical=False)
        .sign(signer.key, hashes.SHA256())
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not _HOST_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no host name and no address: write for example --name gpu1.example.org")
    return x509.DNSName(name)


def _make_list_entry(kind: str, name: str, uid: int, certificate: x509.Certificate) -> Issued:
    return Issued(
        kind,
        name,
        uid,
        f"{certificate.serial_number:x}",
        certificate.fingerprint(hashes.SHA256()).hex(),
        int(certificate.not_valid_before_utc.timestamp()),
        int(certificate.not_valid_after_utc.timestamp()),
    )


def _write(path: Path, text: str) -> None:
    try:
        private_files.replace(path, text)
    except OSError as error:
        raise cannot_make(path, error) from error


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()
