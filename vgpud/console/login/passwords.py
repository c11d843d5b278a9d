"""A password file as `htpasswd -B` writes it: NAME:HASH lines with bcrypt hashes. A name is that of a local user."""

from __future__ import annotations

from pathlib import Path

#: of a password file
FILE_BYTES_MAX = 1 << 20
#: bcrypt looks at no more
PASSWORD_BYTES_MAX = 72
#: compared with when there is no such user, so that this takes as long: of a random secret
_NO_USER = b"$2b$12$l61wNSo4qhysiuaqO4FFD.vr/KsuW8vXH9CD5aeaxatCNrV8dJOly"


class PasswordFileError(Exception):
    """The file cannot be used; one line with the fix."""


def read(path: Path) -> dict[str, bytes]:
    """The hashes by name, read again at each log-in. Raises PasswordFileError."""
    try:
        info = path.stat()
        if info.st_mode & 0o027:
            raise PasswordFileError(f"{path} can be read or written by others: chmod 640 {path}")
        if info.st_size > FILE_BYTES_MAX:
            raise PasswordFileError(f"{path} has {info.st_size} bytes, at most {FILE_BYTES_MAX} are read")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PasswordFileError(f"cannot read {path}: {error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, hashed = line.strip().partition(":")
        if not (name and colon and hashed.startswith(("$2a$", "$2b$", "$2y$"))):
            raise PasswordFileError(f"{path} line {number} has no bcrypt hash: write it with htpasswd -B {path} NAME")
        found[name] = hashed.encode()
    return found


def matches(hashes: dict[str, bytes], name: str, password: str) -> bool:
    """Whether this is the password of that name."""
    import bcrypt  # `vgpu console open` comes by here, and does without

    secret = password.encode(errors="replace")
    if len(secret) > PASSWORD_BYTES_MAX:
        return False
    try:
        right = bcrypt.checkpw(secret, hashes.get(name, _NO_USER))
    except ValueError:  # a damaged hash, or a NUL in the password
        return False
    return right and name in hashes
