/*
 * step.c - one step of the core, in order: leave out a gap in which the arbiter stood still, charge the time that has
 * passed, note which slices have drained, judge demands, then open and close gates: free slices first, then the slot;
 * last what follows from the gates. No gate is opened for a slice whose cap bucket is empty. Mirrors step() of
 * models/arbiter/policy.py.
 */
#include "arbiter/policy.h"
#include "arbiter/shares.h"

uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns) {
  if (now_ns < core->last_ns) now_ns = core->last_ns;
  vg_core_skip_gap(core, now_ns);
  vg_core_count_lately(core);
  vg_core_charge(core, now_ns);
  core->last_ns = now_ns;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present) vg_core_note_activity(&core->slices[i], now_ns);
  vg_core_count_lately(core);
  vg_core_note_drains(core, now_ns);
  vg_core_judge_demands(core, now_ns);
  vg_core_entitle(core, now_ns);
  vg_core_raise_floor(core, now_ns);
  vg_core_forgive(core);
  vg_core_note_debts(core);
  vg_core_review_slot(core);
  vg_core_review_free(core, now_ns);
  struct vg_core_slice *holder = vg_core_find_in_slot(core, VG_CORE_OPEN);
  if (holder) vg_core_review_holder(core, holder, now_ns);
  vg_core_grant(core, now_ns);
  vg_core_note_turns(core);
  vg_core_rescue(core, now_ns);
  return vg_core_outputs(core, now_ns);
}
