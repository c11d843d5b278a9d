"""Parts that may be missing on a machine, and not in CI: `.ci/run` sets CI=true where it runs as root."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skips the test with the reason, or fails it where it must run."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI=true, and this must run: {reason}", pytrace=False)
    pytest.skip(reason)
