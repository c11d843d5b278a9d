/* gaps.c - see gaps.h. */
#include "arbiter/gaps.h"

/* What was completed in the gap is not believed for the time before or after it, and what was outstanding before it is
 * not settled by what is reported after it: the charges stay as they are. */
static void drop_work(struct vg_core_slice *slice) {
  slice->report.reported_total_ns = slice->in.done_total_ns;
  slice->report.reportable_ns = 0;
  slice->account.done_seen_ns = slice->report.done_ns;
  slice->account.provisional_ns = slice->account.outstanding_ns = slice->account.alone_ns = 0;
  slice->account.beside_slot = false;
  slice->slot.unpaid_ns = vg_core_max(0, slice->slot.unpaid_ns);
  slice->slot.over_cap_ns = vg_core_max(0, slice->slot.over_cap_ns);
}

/* A lease, a drain or a pause is not longer by the gap that it lasted through. */
static void move_times(struct vg_core_slice *slice, uint64_t gap_ns) {
  slice->gate.grant_ns += gap_ns;
  slice->gate.close_ns += gap_ns;
  slice->gate.rescue_ns += gap_ns;
  if (slice->out.lease_end_ns) slice->out.lease_end_ns += gap_ns;
  if (slice->step.last_active_ns) slice->step.last_active_ns += gap_ns;
}

void vg_core_skip_gap(struct vg_core *core, uint64_t now_ns) {
  if (!vg_core_stood_still(core, now_ns)) return;
  uint64_t gap_ns = now_ns - core->last_ns;
  core->last_ns = now_ns;
  for (int i = 0; i < core->slice_count; i++) {
    if (!core->slices[i].present) continue;
    drop_work(&core->slices[i]);
    move_times(&core->slices[i], gap_ns);
  }
}
