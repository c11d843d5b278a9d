"""What leads a gang: one device for all gangs that are connected, or none and they run open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.model import Share, Slice, Spec
from vgpud.core.origins import User
from vgpud.core.slices.gangs import Role, roles

DEVICES = tuple("abcde")
INDEX = {uuid: index for index, uuid in enumerate(DEVICES)}


def slice_on(serial: int, devices: str, milli: int = 100) -> Slice:
    shares = tuple(Share(uuid, milli, milli, 0, 0) for uuid in devices)
    return Slice(User(f"s{serial}"), f"u{serial}", serial, Spec(1), shares, -1, 0)


def given_roles(*devices: str) -> dict[int, str]:
    """Serial -> roles on its devices, by their first letters."""
    slices = [slice_on(serial, each) for serial, each in enumerate(devices)]
    found = roles(slices, INDEX)
    return {s.serial: "".join(found[s.serial, share.device_uuid].name[0] for share in s.shares) for s in slices}


def test_one_device_is_no_gang() -> None:
    assert given_roles("a", "a", "b") == {0: "N", 1: "N", 2: "N"}


def test_the_lowest_device_leads() -> None:
    assert given_roles("ab", "ab") == {0: "LF", 1: "LF"}


def test_the_crowded_device_leads() -> None:
    """The device on which others wait for their turn decides: on the other one none does."""
    assert given_roles("ab", "b") == {0: "FL", 1: "N"}


def test_gangs_that_share_one_device_are_led_by_it() -> None:
    assert given_roles("ab", "bc") == {0: "FL", 1: "LF"}


def test_gangs_without_a_device_in_common_run_open() -> None:
    assert given_roles("ab", "bc", "cd", "de", "a") == {0: "OO", 1: "OO", 2: "OO", 3: "OO", 4: "N"}
    assert given_roles("ab", "bc", "ac") == {0: "OO", 1: "OO", 2: "OO"}


def test_gangs_that_do_not_touch_are_led_apart() -> None:
    assert given_roles("ab", "cd") == {0: "LF", 1: "LF"}


def test_whole_devices_are_not_shared() -> None:
    shares = (Share("a", 1000, 1000, 0, 0), Share("b", 500, 500, 0, 0))
    two_and_a_half = Slice(User("s"), "u", 1, Spec(1), shares, -1, 0)
    assert set(roles([two_and_a_half], INDEX).values()) == {Role.NONE}


@given(st.lists(st.sets(st.sampled_from(DEVICES), min_size=1), max_size=6))
def test_gangs_on_one_device_agree(sets: list[set[str]]) -> None:
    """Each gang has one leader or is open everywhere, and gangs that meet have the same leader."""
    slices = [slice_on(serial, "".join(sorted(devices))) for serial, devices in enumerate(sets)]
    found = roles(slices, INDEX)
    leaders: dict[int, str] = {}
    for serial, devices in enumerate(sets):
        mine = {uuid: found[serial, uuid] for uuid in devices}
        leading = [uuid for uuid, role in mine.items() if role is Role.LEADER]
        if len(devices) == 1:
            assert set(mine.values()) == {Role.NONE}
        elif leading:
            leaders[serial] = leading[0]
            assert sorted(role.name for role in mine.values()) == ["FOLLOWER"] * (len(devices) - 1) + ["LEADER"]
        else:
            assert set(mine.values()) == {Role.OPEN}
    for one, led_by in leaders.items():
        for other, devices in enumerate(sets):
            if len(devices) > 1 and devices & sets[one]:
                assert leaders.get(other) == led_by
