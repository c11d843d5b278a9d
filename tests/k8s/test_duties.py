"""The duties of a DRA driver that only Go's helper library documents, and the tests that notice when one is neglected.

Each was tried: the code was changed as the mutant says, and the test failed. T: tests/core/test_claims.py,
M: tests/k8s/core/test_machine.py, P: tests/k8s/core/test_published.py, D: tests/k8s/test_driver.py,
F: tests/k8s/test_faults.py, A: tests/k8s/test_api_server.py, C: tests/k8s/core/test_claim_objects.py,
G: tests/k8s/core/test_registration.py, R: tests/k8s/test_replace.py.

| duty | mutant | found by |
| --- | --- | --- |
| 1 calls | an unknown claim is no success | T the_slice_ends_with_the_claim_and_not_before |
| | calls about one claim at the same time | M calls_about_one_claim_are_served_one_after_another |
| | a claim of a call has no answer | D each_claim_of_a_call_has_its_own_answer |
| | an answer after 45 s | F an_answer_comes_within_kubelets_45_seconds |
| | firstAvailable: the answer has the alternative | D an_alternative_is_answered_by_the_name_of_its_request |
| | fixed parts of one GPU are taken for one GPU twice | C fixed_parts_of_one_gpu_are_one_share_of_it |
| 2 two phases | answered before it is saved; not saved | T it_is_saved_before_it_has_a_device_and_answered_after_both |
| | answered before vgpud has the slice | M prepare_makes_one_slice_and_answers_with_one_cdi_id |
| | the boot id is not kept | T after_a_boot_it_is_the_same_slice_and_an_event_says_so |
| 3 restarts | another answer the second time | M prepare_makes_one_slice_and_answers_with_one_cdi_id |
| | a second slice | T preparing_again_gives_the_same_slice_and_writes_the_cdi_file_again |
| | a driver that starts knows no claims | M a_driver_that_starts_compares_the_claims_that_vgpud_has |
| | other amounts under the same uid | T other_amounts_under_the_same_uid_are_refused |
| 4 boots | no CDI files when vgpud starts | D after_a_boot_the_cdi_files_are_there_before_kubelet_asks |
| | none when kubelet asks again | T preparing_again_gives_the_same_slice_and_writes_the_cdi_file_again |
| 5 capacity | a device is given away twice | T a_device_that_the_scheduler_gave_away_twice_is_refused_here |
| 6 reconcile | never | M every_ten_minutes_the_claims_are_compared_with_the_api_server |
| | another uid is the same claim | the same |
| | any 404 is a claim that is gone | A a_claim_is_gone_only_if_the_server_says_so_of_that_claim |
| | two answers about a claim end the slice twice | M a_second_answer_about_a_claim_ends_no_slice_that_was_just_made |
| | an API server that is away ends slices | M an_api_server_that_is_away_ends_no_slice |
| 7 slices | no owner | D what_is_published_belongs_to_the_node |
| | the generation stays | M a_watch_that_shows_nothing_does_not_make_the_driver_write_again_and_again |
| | a wrong count; names without index; one slice of a generation | M it_is_published_once_and_again_... |
| | obsolete ones stay | P every_difference_is_a_new_generation_of_the_whole_pool |
| | edits are never repaired, or at once | M others_edits_are_put_right_after_half_a_minute_and_not_at_once |
| | deletions are repaired late | M it_is_published_once_and_again_after_each_change_of_the_node |
| | dropped fields are not noticed | P fields_that_the_server_drops_are_reported_and_not_written_for_ever |
| | they are not reported | M fields_that_the_server_does_not_store_are_reported_once |
| | other nodes' slices are watched | A only_the_nodes_own_slices_are_watched |
| | published before kubelet knows the driver | G nothing_is_published_before_kubelet_knows_the_driver |
| 8 updates | two drivers publish at a time | R the_next_one_answers_before_the_former_one_ends |
| | the new one is ready before kubelet knows it | the same |
| | calls under way are lost | R one_that_ends_answers_the_calls_under_way |
| | sockets of a killed one stay | R sockets_of_one_that_was_killed_are_removed_by_the_next |
| | SIGTERM is ignored | the same |
| | the registration without the service | D killed_and_started_again_it_answers_the_same_and_writes_nothing |
| 9 two processes | the driver ends slices when it stops | D it_is_there_once_and_sigterm_takes_... |
| | a vgpud that goes takes devices or claims with it | M a_vgpud_that_goes_takes_nothing_with_it |

Not a mutant: without the driver's own removal of its sockets gRPC removes them, a moment later.
"""

from __future__ import annotations

import re
from pathlib import Path


def test_the_table_names_tests_that_there_are() -> None:
    here = Path(__file__).parent
    files = {"T": here.parent / "core" / "test_claims.py", "D": here / "test_driver.py", "F": here / "test_faults.py"}
    files |= {"M": here / "core" / "test_machine.py", "P": here / "core" / "test_published.py"}
    files |= {"A": here / "test_api_server.py", "C": here / "core" / "test_claim_objects.py"}
    files |= {"G": here / "core" / "test_registration.py", "R": here / "test_replace.py"}
    named = re.findall(r"\b([TMPDFACGR]) ([a-z0-9_]{8,})", __doc__ or "")
    missing = [name for letter, name in named if f"def test_{name}" not in files[letter].read_text()]
    assert len(named) >= 25 and not missing
