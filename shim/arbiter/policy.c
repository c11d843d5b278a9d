/* policy.c - see policy.h. */
#include "arbiter/policy.h"

#include <string.h>

#include "arbiter/accounting.h"
#include "arbiter/entitlements.h"
#include "arbiter/free_slices.h"
#include "arbiter/gaps.h"
#include "arbiter/gates.h"
#include "arbiter/lags.h"
#include "arbiter/maximum.h"
#include "arbiter/outputs.h"
#include "arbiter/slot.h"

void vg_core_init(struct vg_core *core, const struct vg_arbiter_params *params, uint64_t now_ns) {
  memset(core, 0, sizeof *core);
  core->params = *params;
  core->last_ns = now_ns;
}

struct vg_core_slice *vg_core_find(struct vg_core *core, uint64_t id) {
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].id == id) return &core->slices[i];
  return NULL;
}

static struct vg_core_slice *find_place(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++)
    if (!core->slices[i].present) return &core->slices[i];
  return core->slice_count < VG_SLICES_MAX ? &core->slices[core->slice_count++] : NULL;
}

struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *given) {
  struct vg_slice_params made = *given, *params = &made;
  made.latency = given->latency && given->gang == VG_GANG_NONE; /* a gang enters on all of its devices at once */
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (!slice) {
    slice = find_place(core);
    if (!slice) return NULL;
    memset(slice, 0, sizeof *slice);
    slice->present = true;
    slice->id = id;
    slice->params = *params;
    slice->bucket.cap_ns = vg_core_scale_ns(core->params.cap_depth_ns, params->max_milli);
    slice->bucket.guarantee_ns = vg_core_scale_ns(core->params.guarantee_depth_ns, params->min_milli);
    slice->step.last_active_ns = core->last_ns;
    slice->slot.virtual_ns = core->floor_ns;
    slice->free.owed_ns = -VG_CORE_LATENCY_DEBT_NS; /* creating slices repeatedly must not give precedence each time */
    slice->turn.credit_ns = VG_CORE_TURN_CREDITS * VG_CORE_TURN_CREDIT_NS;
    slice->demand.ppm = VG_CORE_PPM;
    slice->out.entitlement_ppm = vg_core_least_ppm(params);
    slice->out.bound_ns = core->params.open_bound_ns;
    vg_core_open_gate(core, slice, core->last_ns);
    if (params->paused) vg_core_close_gate(slice, core->last_ns);
    slice->stats.grants = 0;
  }
  if (params->max_milli < slice->params.max_milli) { /* in force now: the bucket is truncated */
    int64_t depth_ns = vg_core_scale_ns(core->params.cap_depth_ns, params->max_milli);
    if (slice->bucket.cap_ns > depth_ns) slice->bucket.cap_ns = depth_ns;
  }
  slice->params = *params;
  return slice;
}

void vg_core_remove(struct vg_core *core, uint64_t id) {
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (slice) slice->present = false;
}

/* In order: leave out a gap in which the arbiter stood still, charge the time that has passed, note which slices have
 * drained, judge demands, then open and close gates: free slices first, then the slot; last what follows from the
 * gates. No gate is opened for a slice whose cap bucket is empty. */
uint64_t vg_core_step(struct vg_core *core, uint64_t now_ns) {
  if (now_ns < core->last_ns) now_ns = core->last_ns;
  vg_core_skip_gap(core, now_ns);
  vg_core_count_lately(core);
  vg_core_charge_all(core, now_ns);
  core->last_ns = now_ns;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present) vg_core_note_activity(&core->slices[i], now_ns);
  vg_core_count_lately(core);
  vg_core_note_drains(core, now_ns);
  vg_core_review_slot_members(core, now_ns);
  vg_core_set_entitlements(core, now_ns);
  vg_core_raise_floor(core, now_ns);
  vg_core_forgive(core);
  vg_core_note_limits(core);
  vg_core_note_debts(core);
  vg_core_review_vacancy(core);
  vg_core_review_free(core, now_ns);
  struct vg_core_slice *holder = vg_core_find_in_slot(core, VG_CORE_OPEN);
  if (holder) vg_core_review_holder(core, holder, now_ns);
  vg_core_grant(core, now_ns);
  vg_core_note_turns(core);
  vg_core_rescue(core, now_ns);
  struct vg_core_crowd crowd = vg_core_count_slices(core, now_ns);
  vg_core_set_outputs(core, &crowd, now_ns);
  return vg_core_next_deadline(core, &crowd, now_ns);
}
