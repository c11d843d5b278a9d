/* free_slices.c - see free_slices.h. */
#include "arbiter/free_slices.h"

#include <stddef.h>

#include "arbiter/charges.h"
#include "arbiter/entitlements.h"
#include "arbiter/gates.h"
#include "arbiter/lags.h"
#include "arbiter/maximum.h"

static bool is_urgent(const struct vg_core *core, const struct vg_core_slice *slice) {
  return slice->present && vg_core_active(slice) && vg_core_may_precede(core, slice) && vg_core_may_begin_turn(slice);
}

const struct vg_core_slice *vg_core_first_latency(const struct vg_core *core) {
  const struct vg_core_slice *first = NULL;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!is_urgent(core, slice)) continue;
    bool sooner = !first || slice->free.deadline_ns < first->free.deadline_ns ||
                  (slice->free.deadline_ns == first->free.deadline_ns && slice->id < first->id);
    if (sooner) first = slice;
  }
  return first;
}

/* Another slice that wants to run is further behind than this one, by a margin. */
static bool is_ahead(const struct vg_core *core, const struct vg_core_slice *slice, int64_t furthest_ns) {
  int64_t limit_ns = vg_core_time_behind_ns(slice) + (slice->free.throttled ? VG_CORE_BACK_NS : VG_CORE_AHEAD_NS);
  return furthest_ns > limit_ns && vg_core_most_behind(core, slice) > limit_ns;
}

void vg_core_review_free(struct vg_core *core, uint64_t now_ns) {
  const struct vg_core_slice *first = vg_core_first_latency(core);
  int64_t furthest_ns = vg_core_furthest_behind(core);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    slice->free.has_precedence = slice == first;
    bool yields = !vg_core_may_precede(core, slice) && is_ahead(core, slice, furthest_ns);
    slice->free.throttled = !vg_core_may_run(core, slice) || (slice != first && (first || yields));
    if (slice->free.throttled && slice->gate.state == VG_CORE_OPEN)
      vg_core_close_gate(slice, now_ns);
    else if (slice->free.throttled || !vg_core_may_open(slice, now_ns))
      continue;
    else if (slice->gate.state != VG_CORE_OPEN)
      vg_core_open_gate(core, slice, now_ns);
    else if (slice->in.gave_up_while_waiting || (slice->in.quiet && slice->in.wants))
      vg_core_renew_word(core, slice, now_ns);
  }
}

void vg_core_note_turns(struct vg_core *core) {
  bool shut = core->slot_reserved;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating || !slice->free.throttled) continue;
    shut |= vg_core_active(slice) && vg_core_may_run(core, slice);
  }
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    bool held = slice->free.holds, runs = slice->gate.state == VG_CORE_OPEN && vg_core_active(slice);
    slice->free.holds = shut && runs && (slice->free.has_precedence || vg_core_is_short(core, slice));
    if (slice->free.holds && !held) vg_core_begin_turn(core, slice);
  }
}

void vg_core_note_debts(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    bool overdrawn = slice->free.owed_ns <= (slice->free.overdrawn ? VG_CORE_BACK_NS : 0) - VG_CORE_LATENCY_DEBT_NS;
    if (slice->free.overdrawn && !overdrawn) vg_core_set_deadline(slice, core->last_ns);
    slice->free.overdrawn = overdrawn;
  }
}
