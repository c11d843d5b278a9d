"""The API server, by `kubectl` itself: it knows contexts, credentials and plugins of log-in."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.errors import CliError, ExitCode
from vgpud.view.text import plain

#: for one call, beyond what kubectl itself waits for a server
CALL_S = 60.0
_CODES = {
    "NotFound": ExitCode.NOT_FOUND,
    "Forbidden": ExitCode.DENIED,
    "Unauthorized": ExitCode.DENIED,
    "Conflict": ExitCode.CONFLICT,
}


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Calls of kubectl with options for all of them. Each raises CliError with what kubectl says."""

    options: tuple[str, ...] = ()

    def get(self, *words: str, namespace: str = "") -> dict[str, Any]:
        """An object, or a list of them ("items")."""
        text = self._run("get", *words, *_namespace_words(namespace), "--request-timeout=30s", "-o", "json")
        try:
            found = json.loads(text)
        except ValueError as error:
            raise CliError(f"kubectl get {words[0]} has written no JSON") from error
        return found if isinstance(found, dict) else {}

    def list_items(self, *words: str, namespace: str = "") -> list[dict[str, Any]]:
        return list(self.get(*words, namespace=namespace).get("items") or [])

    def execute(self, pod: str, namespace: str, container: str, command: Sequence[str]) -> str:
        """What a command in a container writes."""
        return self._run("exec", pod, *_namespace_words(namespace), "-c", container, "--", *command)

    def _run(self, verb: str, *words: str) -> str:
        command = ["kubectl", *self.options, verb, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, stdin=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise CliError("there is no kubectl in PATH: install it, or call this as `kubectl vgpu`") from error
        except subprocess.TimeoutExpired as error:
            text = f"kubectl {verb} has not answered within {CALL_S:.0f} s"
            raise CliError(f"{text}: is the API server there?", ExitCode.TIMED_OUT) from error
        if done.returncode:
            said = done.stderr.strip().splitlines()
            text = next((line for line in said if "Error" in line or "error" in line), said[0] if said else "no reason")
            code = next((code for name, code in _CODES.items() if f"({name})" in text), ExitCode.OTHER)
            raise CliError(plain(text), code)
        return done.stdout


def _namespace_words(namespace: str) -> list[str]:
    return ["--all-namespaces"] if namespace == "*" else ["--namespace", namespace] if namespace else []
