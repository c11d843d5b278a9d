"""Exit codes of both programs and the exceptions that end a command with one line for the user."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of `vgpud` and `vgpu`; `vgpu run` otherwise exits with its command's own code (128+n for signal n)."""

    OK = 0
    OTHER = 1  # an error that no other code names
    USAGE = 2  # wrong arguments or configuration
    UNREACHABLE = 3  # vgpu: no daemon answers; vgpud: no working driver
    NOT_FOUND = 4
    DENIED = 5  # file permissions, another user's slice
    NO_CAPACITY = 6
    TIMED_OUT = 7
    CONFLICT = 8  # the name is taken, or another daemon has the socket
    DEVICE_REFUSED = 9  # MPS, exclusive-process mode or MIG mode without instances on a device
    ENGINE = 125  # vgpu run: failed before the command was started
    NOT_RUNNABLE = 126
    COMMAND_NOT_FOUND = 127


class VgpudError(Exception):
    """Ends a command: one line that names the value and the remedy, and the exit code."""

    exit_code = ExitCode.OTHER

    def __init__(self, message: str, exit_code: ExitCode | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class CliError(VgpudError):
    """What a user is shown of a failed command or page: the value and the remedy, in one line."""

    #: whether the daemon may have carried the request out although no answer arrived
    is_unanswered = False

    @property
    def message(self) -> str:
        return str(self)


class ConfigError(VgpudError):
    """The configuration or the command line is invalid."""

    exit_code = ExitCode.USAGE


class DriverError(VgpudError):
    """There is no working driver, or it went away."""

    exit_code = ExitCode.UNREACHABLE


class DeviceRefusedError(VgpudError):
    """A device cannot be shared in the state it is in."""

    exit_code = ExitCode.DEVICE_REFUSED


class ConflictError(VgpudError):
    """Another process holds an exclusive resource."""

    exit_code = ExitCode.CONFLICT


class DeniedError(VgpudError):
    """The operating system denies access to a file or directory."""

    exit_code = ExitCode.DENIED


class StoreError(VgpudError):
    """The state database cannot be read or written."""


class StoreUnwritableError(StoreError):
    """The state database cannot be written now; the write can be retried later."""


class StoreBusyError(StoreError):
    """Another process holds the state database at this moment."""


class StoreFlushingError(StoreBusyError):
    """A flush of this very process holds the state database: it ends when the disk is ready."""


#: what of pyproject.toml's optional parts brings a package that may be missing
_EXTRAS = {
    "bcrypt": "console",
    "cryptography": "remote",
    "cupy": "gpu",
    "h11": "service",
    "httpx": "oidc",
    "jinja2": "console",
    "jwt": "oidc",
    "lightkube": "k8s",
    "matplotlib": "demo",
    "multipart": "console",
    "numpy": "predict",
    "onnx": "predict",
    "python_multipart": "console",
    "ray": "ray",
    "sklearn": "predict",
    "starlette": "console",
    "tinygrad": "demo",
    "torch": "predict",
    "uvicorn": "console",
}


def missing_part(error: BaseException) -> str:
    """What to install when an optional package could not be imported, as one line; "" for any other error."""
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in _EXTRAS:
        return ""
    return f"the package {package} is not installed: run `pip install 'vgpud[{_EXTRAS[package]}]'`"
