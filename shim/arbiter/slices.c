/* slices.c - creates, changes and removes the core's slices, and opens and closes their gates. */
#include <string.h>

#include "arbiter/policy.h"
#include "arbiter/shares.h"

static uint32_t open_state(const struct vg_core *core, const struct vg_core_slice *self) {
  if (!vg_core_uncapped(self) || self->params.gang) return VG_GATE_COUNT; /* collectives are counted */
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && other->present && (other->in.attached || vg_core_drains(other))) return VG_GATE_COUNT;
  }
  return VG_GATE_SOLO;
}

bool vg_core_may_open(const struct vg_core_slice *slice, uint64_t now_ns) {
  return vg_core_may_open_from(slice) <= now_ns;
}

static void spend_word(struct vg_core_slice *slice, uint64_t now_ns) {
  slice->gate.renewed_ns = (slice->gate.renewed_ns > now_ns ? slice->gate.renewed_ns : now_ns) + VG_CORE_RENEWAL_NS;
}

void vg_core_renew_word(const struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_set_word(slice, open_state(core, slice));
  spend_word(slice, now_ns);
}

void vg_core_open_gate(struct vg_core *core, struct vg_core_slice *slice, uint64_t now_ns) {
  vg_core_set_word(slice, open_state(core, slice));
  slice->gate.rescue_ns = now_ns + (vg_core_is_caught(core, slice) ? core->params.quantum_min_ns : 0);
  slice->gate.state = VG_CORE_OPEN;
  spend_word(slice, now_ns);
  slice->in.quiet = false;
  slice->in.wants = false;
  slice->gate.cut_off = false;
  slice->gate.grant_ns = now_ns;
  slice->gate.served = ++core->served;
  slice->stats.grants += slice->in.attached;
  if (slice->saturating && vg_core_any_waits(core, slice)) vg_core_begin_turn(core, slice);
}

void vg_core_overlap(struct vg_core_slice *slice, uint64_t now_ns) {
  slice->gate.state = VG_CORE_OVERLAP;
  slice->gate.rescue_ns = now_ns + VG_CORE_RESCUE_NS;
}

void vg_core_close_gate(struct vg_core_slice *slice, uint64_t now_ns) {
  /* Nothing is outstanding then and nothing can be launched: there is no drain. */
  bool gave_up = slice->in.quiet && slice->gate.state == VG_CORE_OPEN;
  vg_core_set_word(slice, VG_GATE_CLOSED);
  slice->in.quiet = false;
  slice->gate.overran = false;
  slice->gate.cut_off = slice->in.outstanding;
  slice->in.drain_expected_ns = 0;
  slice->gate.late_ns -= slice->gate.late_ns / 8;
  slice->gate.close_ns = now_ns;
  slice->out.lease_end_ns = 0;
  if (gave_up || !slice->in.attached) {
    slice->stats.early_releases += gave_up;
    slice->gate.state = VG_CORE_SHUT;
  } else if (slice->saturating) {
    slice->gate.state = VG_CORE_DRAINING;
  } else {
    vg_core_overlap(slice, now_ns);
  }
}

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

static struct vg_core_slice *free_slot(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++)
    if (!core->slices[i].present) return &core->slices[i];
  return core->slice_count < VG_SLICES_MAX ? &core->slices[core->slice_count++] : NULL;
}

struct vg_core_slice *vg_core_set(struct vg_core *core, uint64_t id, const struct vg_slice_params *given) {
  struct vg_slice_params made = *given, *params = &made;
  made.latency = given->latency && given->gang == VG_GANG_NONE; /* a gang is admitted on all of its devices at once */
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (!slice) {
    slice = free_slot(core);
    if (!slice) return NULL;
    memset(slice, 0, sizeof *slice);
    slice->present = true;
    slice->id = id;
    slice->params = *params;
    slice->bucket.cap_ns = vg_core_scaled(core->params.cap_depth_ns, params->max_milli);
    slice->bucket.guarantee_ns = vg_core_scaled(core->params.guarantee_depth_ns, params->min_milli);
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
    int64_t depth_ns = vg_core_scaled(core->params.cap_depth_ns, params->max_milli);
    if (slice->bucket.cap_ns > depth_ns) slice->bucket.cap_ns = depth_ns;
  }
  slice->params = *params;
  return slice;
}

void vg_core_remove(struct vg_core *core, uint64_t id) {
  struct vg_core_slice *slice = vg_core_find(core, id);
  if (slice) slice->present = false;
}
