"""The layout of what shim and daemon share, frozen per ABI version: a running tenant may be older than its daemon.

A change here needs a new VG_ABI_VERSION: then both sides refuse each other with a reason instead of misreading words.
"""

from __future__ import annotations

import pytest

from vgpud import _shim

VERSION, OLDEST_VERSION = 4, 3
#: structure -> size in bytes, then every field with its offset
LAYOUT = {
    "vg_attach_device": "24 uuid@0 held_bytes@16",
    "vg_attach_request": (
        "472 magic@0 abi_version@4 bytes@8 resume@12 library_copy@16 device_count@20 program@24 devices@88"
    ),
    "vg_slice_device": (
        # kind was the upper half of max_milli: of a GPU it is 0, so the same bytes say the same
        "56 uuid@0 min_milli@16 max_milli@20 kind@22 mem_min_bytes@24 mem_max_bytes@32 context_bytes@40 "
        "granule_bytes@48"
    ),
    "vg_attach_reply": (
        "1312 magic@0 abi_version@4 bytes@8 status@12 mode@16 device_count@20 process_id@24 "
        "slice@32 node@96 text@160 devices@416"
    ),
    "vg_usage_process": "32 host_pid@0 pid@4 device@8 copies@12 used_bytes@16 ledger_bytes@24",
    "vg_attach_usage": (
        "16592 magic@0 bytes@4 device_count@8 process_count@12 used_bytes@16 busy_milli@144 processes@208"
    ),
    "vg_control_header": "20 magic@0 abi_version@4 device_count@8 mode@12 helper_wake@16",
    "vg_coast_slot": "8 begin_us@0 end_us@4",
    "vg_control_device": (
        # of a daemon from before pass_serial both are 0, and nothing passes
        "264 gate@0 neighbour_waits@4 heartbeat_ns@8 bound_ns@16 min_milli@24 max_milli@28 "
        "granted_bytes@32 limit_bytes@40 slice_used_bytes@48 want_answered@56 memory_pressure@60 "
        "coast_bytes@64 coast_seq@72 coast_period_us@76 coast_slot_count@80 watch@84 coast_slots@88 "
        "pass_collectives@152 unread@156 pass_serial@160 pass_work_ns@168 "
        # of a daemon from before these both are 0: it is not known how long others used the device
        "others_busy_ns@176 others_since_ns@184 "
        # since version 4; a process of version 3 does not look at it
        "residence@192 copy_bytes_per_ms@200 "
        "reclaim_serial@216 reclaim_bytes@224 reclaim_deadline_ns@232 want_deadline_ns@240 "
        "move_word@248 pinned_limit@256"
    ),
    "vg_report_header": "8 magic@0 abi_version@4",
    "vg_run_shown": "16 begin_ns@0 end_ns@8",
    "vg_report_device": (
        # a process from before overdue_ns leaves it 0: its work is never overdue; one from before run_count shows none
        "1344 waiting@0 outstanding@4 given_up_word@8 drained_word@12 drained_ns@16 busy_ns@24 "
        "busy_since_ns@32 launches@40 waited_ns@48 used_bytes@56 peak_bytes@64 returned_bytes@72 "
        "want_bytes@80 want_seq@88 contexts@92 denied@96 noticed_word@104 collectives@108 drain_expected_ns@112 "
        "done_ns@120 active_ns@128 active_since_ns@136 wait_counts@144 overdue_ns@208 passed_serial@216 "
        "run_count@224 runs@232 "
        # since version 4; a process of version 3 leaves them 0: it never says that it has left the driver
        "waiting_calls@1256 left_word@1260 calls@1264 copy_bytes@1272 copies_delayed@1288 pinned_bytes@1296 "
        "want_least_bytes@1304 watchers@1312 moved_word@1316 moved_state@1320 stays_reason@1324 movable_bytes@1328 "
        "pinned_denied@1336"
    ),
}


@pytest.mark.parametrize("name", LAYOUT)
def test_layout_is_frozen(name: str) -> None:
    kind = _shim.ffi.typeof(f"struct {name}")
    fields = " ".join(f"{field}@{where.offset}" for field, where in kind.fields)
    assert f"{_shim.ffi.sizeof(kind)} {fields}" == LAYOUT[name]


def test_version() -> None:
    assert (_shim.lib.VG_ABI_VERSION, _shim.lib.VG_ABI_VERSION_OLDEST) == (VERSION, OLDEST_VERSION)


def test_pages_hold_their_structures() -> None:
    for name in ("vg_control_header", "vg_control_device", "vg_report_header", "vg_report_device"):
        assert _shim.ffi.sizeof(f"struct {name}") <= _shim.lib.VG_PAGE_BYTES
