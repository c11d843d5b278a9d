/* charges.c - see charges.h. */
#include "arbiter/charges.h"

/* Least cost of a turn that keeps others waiting: what the hand-over takes; and if the slice has reported little work
 * for its last turns. */
#define TURN_LEAST_NS (VG_CORE_MS / 4)
#define TURN_IDLE_NS VG_CORE_MS

/* Charges lag and virtual time, which decide which slice runs next; not the maximum. */
static void charge_share(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns) {
  slice->demand.window_work_ns += used_ns;
  if (!slice->saturating) {
    slice->free.lag_ns = vg_core_max(slice->free.lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    slice->free.owed_ns = vg_core_max(slice->free.owed_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
    return;
  }
  slice->slot.unpaid_ns -= used_ns;
  uint64_t most_ns = core->floor_ns + (uint64_t)VG_CORE_DEBT_MAX_NS * VG_CORE_PPM / slice->out.entitlement_ppm;
  uint64_t next_ns = slice->slot.virtual_ns + (uint64_t)used_ns * VG_CORE_PPM / slice->out.entitlement_ppm;
  if (next_ns > most_ns) next_ns = most_ns;
  if (next_ns > slice->slot.virtual_ns) slice->slot.virtual_ns = next_ns;
  core->slot_lag_ns = vg_core_max(core->slot_lag_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
}

void vg_core_charge(struct vg_core *core, struct vg_core_slice *slice, int64_t used_ns, int64_t idle_ns) {
  int64_t before_ns = vg_core_max(slice->turn.least_ns, slice->turn.used_ns);
  slice->turn.used_ns += used_ns;
  charge_share(core, slice, vg_core_max(slice->turn.least_ns, slice->turn.used_ns) - before_ns);
  slice->charged_ns += used_ns - idle_ns;
  if (slice->charged_ns > (int64_t)slice->stats.charged_ns) slice->stats.charged_ns = (uint64_t)slice->charged_ns;
  slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - used_ns, -VG_CORE_DEBT_MAX_NS);
  slice->bucket.guarantee_ns -= used_ns - idle_ns;
  if (slice->bucket.guarantee_ns < 0) {
    if (slice->params.max_milli > slice->params.min_milli) /* else nothing can be borrowed */
      slice->stats.borrowed_ns += (uint64_t)-slice->bucket.guarantee_ns;
    slice->bucket.guarantee_ns = 0;
  }
  if (slice->saturating) slice->slot.over_cap_ns -= used_ns;
}

void vg_core_begin_turn(struct vg_core *core, struct vg_core_slice *slice) {
  bool has_credit = slice->turn.credit_ns >= VG_CORE_TURN_CREDIT_NS;
  if (has_credit) slice->turn.credit_ns -= VG_CORE_TURN_CREDIT_NS;
  slice->turn.used_ns = 0;
  slice->turn.least_ns = has_credit ? TURN_LEAST_NS : TURN_IDLE_NS;
  charge_share(core, slice, slice->turn.least_ns);
  if (!has_credit) /* its page reports no work: its maximum bounds how often others wait without result */
    slice->bucket.cap_ns = vg_core_max(slice->bucket.cap_ns - slice->turn.least_ns, -VG_CORE_DEBT_MAX_NS);
}
