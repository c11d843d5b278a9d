/* outputs.c - what follows from the gates that policy.c has set: the bound on outstanding work, what the shims are to
 * report, the regime as users see it, and when the next step is due. */
#include <stddef.h>

#include "arbiter/policy.h"
#include "arbiter/shares.h"

/* Least time between two looks at a drain, whose forecast moves while the hardware gives the device to others. */
#define LOOK_LEAST_NS 25000

/* A gang that has reached its maximum on one device stops on the others. And a follower has precedence over all other
 * saturating slices: so that a gang whose leader lets it run does not starve them, the leader is to stop it when it is
 * a lease ahead of a slice that waits here, or when the slot is to be empty. */
static bool must_stop(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (vg_core_led(slice) && !vg_core_below_maximum(core, slice)) return true;
  if (!vg_core_in_slot(slice) || !vg_core_follows(slice)) return false;
  uint64_t ahead_ns = slice->out.gang_veto ? 0 : core->params.quantum_ns * VG_CORE_PPM / slice->out.entitlement_ppm;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    bool waiting =
        vg_core_in_slot(other) && !vg_core_follows(other) && vg_core_waits(other) && vg_core_may_run(core, other);
    if (waiting && other->slot.virtual_ns + ahead_ns < slice->slot.virtual_ns) return true;
  }
  return core->slot_reserved;
}

/* ---- bounds, watches and the regime ---- */

struct crowd { /* the slices on the device, counted */
  int attached, on_device, latency, lately, free_active, turns, takers, capped, ready;
  bool throttles, limited;
  int64_t slot_mean_ns;
  /* lately active free slices that are behind: the one furthest behind, how far, and how far the next one is */
  const struct vg_core_slice *last;
  int64_t last_ns, next_ns;
  int64_t least_ns; /* the lately active free slice that is least behind, or furthest ahead */
};

static void note_behind(struct crowd *crowd, const struct vg_core_slice *slice) {
  int64_t behind_ns = vg_core_behind(slice);
  if (!crowd->last || behind_ns > crowd->last_ns) {
    crowd->next_ns = crowd->last ? crowd->last_ns : -VG_CORE_FAR_NS;
    crowd->last_ns = behind_ns;
    crowd->last = slice;
  } else if (behind_ns > crowd->next_ns) {
    crowd->next_ns = behind_ns;
  }
}

static struct crowd count_slices(const struct vg_core *core, uint64_t now_ns) {
  struct crowd crowd = {
      .throttles = core->slot_reserved, .slot_mean_ns = vg_core_slot_mean(core), .least_ns = VG_CORE_FAR_NS};
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool active = vg_core_active(slice), lately = vg_core_lately_active(slice, now_ns);
    crowd.attached += slice->in.attached;
    crowd.on_device += slice->in.attached || vg_core_drains(slice);
    crowd.latency += slice->in.attached && slice->params.latency;
    crowd.lately += lately;
    crowd.free_active += active && !slice->saturating;
    crowd.turns += active && slice->saturating;
    crowd.takers += lately && slice->saturating;
    crowd.capped += lately && !vg_core_uncapped(slice);
    crowd.ready += vg_core_in_slot(slice) && vg_core_waits(slice) && vg_core_may_run(core, slice);
    crowd.throttles |= active && slice->free.throttled;
    crowd.limited |= lately && slice->bucket.limited;
    if (!lately || slice->saturating) continue;
    int64_t behind_ns = vg_core_behind(slice);
    if (behind_ns < crowd.least_ns) crowd.least_ns = behind_ns;
    if (slice->free.lag_ns > VG_CORE_SHORT_NS) note_behind(&crowd, slice);
  }
  return crowd;
}

/* Another slice runs only since this one pauses, and waits for it when it resumes: that must be known at once. */
static bool may_resume(const struct vg_core_slice *slice, const struct crowd *crowd) {
  return slice->free.lag_ns > VG_CORE_SHORT_NS && vg_core_behind(slice) > crowd->least_ns + VG_CORE_AHEAD_NS;
}

/* The bound of a slice that runs only since another one, further behind, pauses: its outstanding work would delay the
 * other one when that continues, so the bound is the tighter the further behind the other one is. */
static uint64_t way_bound(const struct vg_core *core, const struct vg_core_slice *self, const struct crowd *crowd) {
  int64_t own_ns = self->saturating ? vg_core_slot_behind(core) : vg_core_behind(self);
  if (!crowd->last) return core->params.open_bound_ns;
  int64_t further_ns = (crowd->last != self ? crowd->last_ns : crowd->next_ns) - own_ns;
  if (further_ns <= VG_CORE_AHEAD_NS) return core->params.open_bound_ns;
  uint64_t part = further_ns > 3 * VG_CORE_AHEAD_NS ? 4 : further_ns > 2 * VG_CORE_AHEAD_NS ? 2 : 1;
  return core->params.latency_bound_ns / part;
}

static bool is_crowded(const struct crowd *crowd) {
  return crowd->takers || (crowd->attached > 1 && (crowd->turns > 1 || crowd->throttles));
}

static uint32_t regime_of(const struct crowd *crowd) {
  if (crowd->attached > 1 && crowd->turns > 1) return VG_REGIME_ARBITRATED;
  if ((crowd->attached > 1 && crowd->throttles) || crowd->limited) return VG_REGIME_THROTTLED;
  if (!crowd->attached) return VG_REGIME_IDLE;
  return crowd->attached == 1 ? VG_REGIME_SOLO : VG_REGIME_OPEN;
}

/* If it began to run now, its tokens could be used up before the next step. */
static bool cap_may_end(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  int64_t low_ns = vg_core_scaled(core->params.cap_depth_ns, slice->params.max_milli) / 2;
  return !vg_core_uncapped(slice) && (slice->bucket.cap_ns < low_ns || !vg_core_lately_active(slice, now_ns));
}

static void set_outputs(struct vg_core *core, struct vg_core_slice *slice, const struct crowd *crowd, uint64_t now_ns) {
  bool alone = crowd->on_device == (slice->in.attached || vg_core_drains(slice));
  bool counted = !vg_core_uncapped(slice) || slice->params.gang; /* of a gang collectives are counted */
  uint32_t wanted = alone && !counted ? VG_GATE_SOLO : VG_GATE_COUNT;
  if (slice->gate.state == VG_CORE_OPEN && (slice->out.word & VG_GATE_STATE_MASK) != wanted)
    vg_core_set_word(slice, wanted);
  bool keeps = slice->saturating && crowd->ready > (vg_core_waits(slice) && vg_core_may_run(core, slice));
  slice->out.neighbour_waits = keeps ? VG_NEIGHBOUR_WAITS : VG_NO_NEIGHBOUR_WAITS;
  bool others = crowd->attached > slice->in.attached;
  bool latency = crowd->latency > (slice->in.attached && slice->params.latency);
  bool crowded = is_crowded(crowd);
  bool at_once = crowded || crowd->latency || may_resume(slice, crowd);
  bool edges = (!slice->saturating && others && at_once) || cap_may_end(core, slice, now_ns);
  slice->out.gang_veto = must_stop(core, slice);
  slice->out.watch = others || !vg_core_uncapped(slice) ? VG_WATCH_USAGE : 0;
  if (edges) slice->out.watch |= VG_WATCH_EDGES;
  if (slice->params.gang) slice->out.watch |= VG_WATCH_GANG;
  slice->out.bound_ns = way_bound(core, slice, crowd);
  if (latency)
    slice->out.bound_ns = vg_core_least(slice->out.bound_ns, core->params.latency_bound_ns);
  else if (!vg_core_uncapped(slice) || (crowded && vg_core_others_active(core, slice)))
    slice->out.bound_ns = vg_core_least(slice->out.bound_ns, core->params.bound_ns);
  if (slice->in.running > 1) slice->out.bound_ns /= slice->in.running; /* it holds for each process */
  slice->out.lag_ns = vg_core_lag(core, slice, crowd->slot_mean_ns);
  slice->out.shown_ppm = slice->out.entitlement_ppm;
  if ((slice->out.word & VG_GATE_STATE_MASK) == VG_GATE_SOLO)
    slice->out.shown_ppm = VG_CORE_PPM; /* launches are not counted there */
}

/* When a slice shut for its cap may run again, or one that runs will have used up its cap. Other devices of a gang wait
 * for the former, whether it is active here or not. */
static uint64_t cap_deadline(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  if (vg_core_uncapped(slice) || slice->params.paused || !(vg_core_active(slice) || slice->out.gang_veto))
    return VG_CORE_NEVER;
  if (vg_core_is_rescued(core, slice)) return slice->gate.rescue_ns;
  uint32_t max_milli = slice->params.max_milli;
  if (slice->gate.state == VG_CORE_OPEN) {
    uint64_t left_ns = slice->bucket.cap_ns > 0 ? (uint64_t)slice->bucket.cap_ns : 0;
    return now_ns + left_ns * VG_CORE_MILLI / (VG_CORE_MILLI - max_milli) + 1000;
  }
  if (vg_core_below_maximum(core, slice)) return VG_CORE_NEVER;
  int64_t need_ns = vg_core_cap_needed(core, slice) - slice->bucket.cap_ns;
  return now_ns + (uint64_t)need_ns * VG_CORE_MILLI / max_milli + 1000;
}

static uint64_t next_deadline(const struct vg_core *core, const struct crowd *crowd, uint64_t now_ns) {
  uint64_t deadline_ns = VG_CORE_NEVER;
  if ((crowd->lately > 1 && crowd->free_active) || crowd->capped)
    deadline_ns = now_ns + VG_CORE_TICK_NS;
  else if (crowd->lately && crowd->attached > 1)
    deadline_ns = core->window_ns + VG_CORE_WINDOW_NS;
  if (core->slot_hold_until_ns > now_ns) deadline_ns = vg_core_least(deadline_ns, core->slot_hold_until_ns);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    deadline_ns = vg_core_least(deadline_ns, cap_deadline(core, slice, now_ns));
    uint64_t open_from_ns = vg_core_may_open_from(slice);
    if (vg_core_active(slice) && open_from_ns > now_ns) deadline_ns = vg_core_least(deadline_ns, open_from_ns);
    if (slice->gate.state == VG_CORE_OVERLAP) deadline_ns = vg_core_least(deadline_ns, slice->gate.rescue_ns);
    if (slice->gate.state == VG_CORE_DRAINING) {
      uint64_t look_ns = vg_core_overlap_from(core, slice);
      deadline_ns = vg_core_least(deadline_ns, look_ns > now_ns + LOOK_LEAST_NS ? look_ns : now_ns + LOOK_LEAST_NS);
    }
    if (!slice->saturating || slice->gate.state != VG_CORE_OPEN || !slice->out.lease_end_ns) continue;
    deadline_ns = vg_core_least(deadline_ns, slice->out.lease_end_ns);
    if (!slice->in.outstanding && now_ns < slice->gate.grant_ns + VG_CORE_WAKE_GRACE_NS)
      deadline_ns = vg_core_least(deadline_ns, slice->gate.grant_ns + VG_CORE_WAKE_GRACE_NS);
  }
  return deadline_ns;
}

uint64_t vg_core_outputs(struct vg_core *core, uint64_t now_ns) {
  struct crowd crowd = count_slices(core, now_ns);
  core->regime = regime_of(&crowd);
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present) set_outputs(core, &core->slices[i], &crowd, now_ns);
  return next_deadline(core, &crowd, now_ns);
}
