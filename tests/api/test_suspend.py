"""The RPCs that suspend slices: what they take."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from vgpud.api.rpc import RefusedError
from vgpud.api.server import DEADLINE_S, _deadline_s
from vgpud.core.model import Reason


def test_deadlines_are_taken_as_they_are_or_refused() -> None:
    assert _deadline_s(Duration(), False) == DEADLINE_S
    assert _deadline_s(Duration(seconds=2, nanos=500_000_000), True) == 2.5
    for given in (Duration(), Duration(seconds=1, nanos=999_999_999), Duration(seconds=601), Duration(seconds=1 << 62)):
        with pytest.raises(RefusedError) as refused:
            _deadline_s(given, True)
        assert (refused.value.refusal.reason, refused.value.refusal.field) == (Reason.INVALID, "deadline")
