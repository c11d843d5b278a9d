"""Moments on the local clock, in the hours that it skips and shows twice."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator

import pytest

from vgpud.cli.common.times import Begin, When
from vgpud.simulate.readers import Row
from vgpud.simulate.sacct import _moment_ns

_NS = 1_000_000_000


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


#: text on each zone's clock -> the moment: the hour that is skipped counts from before it, of one shown twice the first
MOMENTS = {
    "Europe/Berlin": {
        "2096-03-25T02:30": "2096-03-25T01:30Z",  # 03:30 there
        "2096-03-25T01:30": "2096-03-25T00:30Z",
        "2096-03-25T03:30": "2096-03-25T01:30Z",
        "2096-10-28T02:30": "2096-10-28T00:30Z",
    },
    "America/New_York": {"2096-03-11T02:30": "2096-03-11T07:30Z", "2096-11-04T01:30": "2096-11-04T05:30Z"},
    "Australia/Lord_Howe": {"2096-10-07T02:15": "2096-10-06T15:45Z"},
    "UTC": {"2096-03-25T02:30": "2096-03-25T02:30Z", "2096-03-25T02:30+05:00": "2096-03-24T21:30Z"},
}


def _seconds(moment: str) -> int:
    return int(datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp())


def test_no_moment_is_an_hour_early(zone: str) -> None:
    """For --begin, reservations, --since, and what sacct prints."""
    for text, moment in MOMENTS[zone].items():
        wanted_ns = _seconds(moment) * _NS
        assert Begin().convert(text, None, None) == wanted_ns, text
        assert When().convert(text, None, None) == wanted_ns, text
        assert _moment_ns(Row("here", {"Submit": text}), "Submit") == wanted_ns, text


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_a_time_of_the_day_that_is_skipped(zone: str) -> None:
    """Said on the evening before, and that night."""
    for said, moment in (("2096-03-24T20:00Z", "2096-03-25T01:30Z"), ("2096-03-25T00:30Z", "2096-03-25T01:30Z")):
        now = datetime.datetime.fromtimestamp(_seconds(said), datetime.timezone.utc)
        assert Begin._moment("02:30", now).timestamp() == _seconds(moment), (zone, said)
