/* outputs.c - see outputs.h. */
#include "arbiter/outputs.h"

#include <stddef.h>

#include "arbiter/gates.h"
#include "arbiter/lags.h"
#include "arbiter/maximum.h"

/* Least time between two looks at a drain, whose forecast moves while the hardware gives the device to others. */
#define LOOK_LEAST_NS 25000

/* ---- the slices of the device, counted ---- */

static void note_behind(struct vg_core_crowd *crowd, const struct vg_core_slice *slice) {
  int64_t behind_ns = vg_core_time_behind_ns(slice);
  if (!crowd->furthest || behind_ns > crowd->furthest_ns) {
    crowd->next_furthest_ns = crowd->furthest ? crowd->furthest_ns : -VG_CORE_FAR_NS;
    crowd->furthest_ns = behind_ns;
    crowd->furthest = slice;
  } else if (behind_ns > crowd->next_furthest_ns) {
    crowd->next_furthest_ns = behind_ns;
  }
}

struct vg_core_crowd vg_core_count_slices(const struct vg_core *core, uint64_t now_ns) {
  struct vg_core_crowd crowd = {
      .throttles = core->slot_reserved, .slot_mean_ns = vg_core_slot_mean_ns(core), .least_behind_ns = VG_CORE_FAR_NS};
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool active = vg_core_active(slice), lately = vg_core_lately_active(slice, now_ns);
    crowd.attached_count += slice->in.attached;
    crowd.on_device_count += slice->in.attached || vg_core_drains(slice);
    crowd.latency += slice->in.attached && slice->params.latency;
    crowd.lately_active_count += lately;
    crowd.free_active += active && !slice->saturating;
    crowd.turns += active && slice->saturating;
    crowd.saturating_lately += lately && slice->saturating;
    crowd.capped_count += lately && !vg_core_is_uncapped(slice);
    crowd.ready_count += vg_core_in_slot(slice) && vg_core_waits(slice) && vg_core_may_run(core, slice);
    crowd.throttles |= active && slice->free.throttled;
    crowd.has_limited_slice |= lately && slice->bucket.limited;
    if (!lately || slice->saturating) continue;
    int64_t behind_ns = vg_core_time_behind_ns(slice);
    if (behind_ns < crowd.least_behind_ns) crowd.least_behind_ns = behind_ns;
    if (slice->free.lag_ns > VG_CORE_SHORT_NS) note_behind(&crowd, slice);
  }
  return crowd;
}

static bool is_contended(const struct vg_core_crowd *crowd) {
  return crowd->attached_count > 1 && (crowd->turns > 1 || crowd->throttles);
}

static bool is_crowded(const struct vg_core_crowd *crowd) {
  return crowd->saturating_lately || is_contended(crowd);
}

static uint32_t regime_of(const struct vg_core_crowd *crowd) {
  if (crowd->attached_count > 1 && crowd->turns > 1) return VG_REGIME_ARBITRATED;
  if (is_contended(crowd) || crowd->has_limited_slice) return VG_REGIME_THROTTLED;
  if (!crowd->attached_count) return VG_REGIME_IDLE;
  return crowd->attached_count == 1 ? VG_REGIME_SOLO : VG_REGIME_OPEN;
}

/* A gang that has reached its maximum on one device stops on the others. And a follower has precedence over all other
 * saturating slices: so that a gang whose leader lets it run does not starve them, the leader is to stop it when it is
 * a lease ahead of a slice that waits here, or when the slot is to be empty. */
static bool gang_veto(const struct vg_core *core, const struct vg_core_slice *slice) {
  if (vg_core_leads_or_follows(slice) && !vg_core_below_maximum(core, slice)) return true;
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

/* ---- what its processes report ---- */

/* Another slice runs only since this one pauses, and waits for it when it resumes: that must be known at once. */
static bool may_resume(const struct vg_core_slice *slice, const struct vg_core_crowd *crowd) {
  return slice->free.lag_ns > VG_CORE_SHORT_NS &&
         vg_core_time_behind_ns(slice) > crowd->least_behind_ns + VG_CORE_AHEAD_NS;
}

/* If it began to run now, its tokens could be used up before the next step. */
static bool cap_may_end(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  int64_t low_ns = vg_core_scale_ns(core->params.cap_depth_ns, slice->params.max_milli) / 2;
  return !vg_core_is_uncapped(slice) && (slice->bucket.cap_ns < low_ns || !vg_core_lately_active(slice, now_ns));
}

/* Usage, if it shares the device, has a maximum or rotates. Edges (when work begins and ends), if the arbiter must know
 * at once: also when a slice resumes that another one has to wait for. Collectives, if it is of a gang. Calls, if it
 * rotates. */
static uint32_t watch(const struct vg_core *core, const struct vg_core_slice *slice, const struct vg_core_crowd *crowd,
                      uint64_t now_ns) {
  bool others = crowd->attached_count > slice->in.attached;
  bool at_once = is_crowded(crowd) || crowd->latency || may_resume(slice, crowd);
  bool edges = (!slice->saturating && others && at_once) || cap_may_end(core, slice, now_ns);
  uint32_t usage = others || !vg_core_is_uncapped(slice) || slice->params.rotates ? VG_WATCH_USAGE : 0;
  uint32_t calls = slice->params.rotates ? VG_WATCH_CALLS : 0;
  return usage | calls | (edges ? VG_WATCH_EDGES : 0) | (slice->params.gang ? VG_WATCH_GANG : 0);
}

/* ---- how much work each process may have outstanding ---- */

/* The bound of a slice that runs only since another one, further behind, pauses: its outstanding work would delay the
 * other one when that continues, so the bound is the tighter the further behind the other one is. */
static uint64_t lag_bound_ns(const struct vg_core *core, const struct vg_core_slice *self,
                             const struct vg_core_crowd *crowd) {
  int64_t own_ns = self->saturating ? vg_core_slot_behind(core) : vg_core_time_behind_ns(self);
  if (!crowd->furthest) return core->params.open_bound_ns;
  int64_t further_ns = (crowd->furthest != self ? crowd->furthest_ns : crowd->next_furthest_ns) - own_ns;
  if (further_ns <= VG_CORE_AHEAD_NS) return core->params.open_bound_ns;
  uint64_t part = further_ns > 3 * VG_CORE_AHEAD_NS ? 4 : further_ns > 2 * VG_CORE_AHEAD_NS ? 2 : 1;
  return core->params.latency_bound_ns / part;
}

static uint64_t bound_ns(const struct vg_core *core, const struct vg_core_slice *slice,
                         const struct vg_core_crowd *crowd) {
  uint64_t found_ns = lag_bound_ns(core, slice, crowd);
  if (crowd->latency > (slice->in.attached && slice->params.latency))
    found_ns = vg_core_least(found_ns, core->params.latency_bound_ns);
  else if (!vg_core_is_uncapped(slice) || (is_crowded(crowd) && vg_core_others_active(core, slice)))
    found_ns = vg_core_least(found_ns, core->params.bound_ns);
  return slice->in.running > 1 ? found_ns / slice->in.running : found_ns; /* it holds for each process */
}

void vg_core_set_outputs(struct vg_core *core, const struct vg_core_crowd *crowd, uint64_t now_ns) {
  core->regime = regime_of(crowd);
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    bool alone = crowd->on_device_count == (slice->in.attached || vg_core_drains(slice));
    uint32_t wanted = alone && !vg_core_is_counted(slice) ? VG_GATE_SOLO : VG_GATE_COUNT;
    if (slice->gate.state == VG_CORE_OPEN && (slice->out.word & VG_GATE_STATE_MASK) != wanted)
      vg_core_set_word(slice, wanted);
    bool keeps = slice->saturating && crowd->ready_count > (vg_core_waits(slice) && vg_core_may_run(core, slice));
    slice->out.neighbour_waits = keeps ? VG_NEIGHBOUR_WAITS : VG_NO_NEIGHBOUR_WAITS;
    slice->out.gang_veto = gang_veto(core, slice);
    slice->out.watch = watch(core, slice, crowd, now_ns);
    slice->out.bound_ns = bound_ns(core, slice, crowd);
    slice->out.lag_ns = vg_core_lag_of(core, slice, crowd->slot_mean_ns);
    bool solo = (slice->out.word & VG_GATE_STATE_MASK) == VG_GATE_SOLO; /* launches are not counted there */
    slice->out.shown_ppm = solo ? VG_CORE_PPM : slice->out.entitlement_ppm;
  }
}

/* ---- when the next step is due at the latest ---- */

/* When a slice shut for its cap may run again, or one that runs will have used up its cap. Other devices of a gang wait
 * for the former, whether it is active here or not. */
static uint64_t cap_deadline(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  if (vg_core_is_uncapped(slice) || slice->params.paused || !(vg_core_active(slice) || slice->out.gang_veto))
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

/* Shares are looked at every tick, else demands at the end of their window; of one slice alone neither. */
static uint64_t regular_deadline(const struct vg_core *core, const struct vg_core_crowd *crowd, uint64_t now_ns) {
  if ((crowd->lately_active_count > 1 && crowd->free_active) || crowd->capped_count) return now_ns + VG_CORE_TICK_NS;
  bool measures = crowd->lately_active_count && crowd->attached_count > 1;
  return measures ? core->window_ns + VG_CORE_WINDOW_NS : VG_CORE_NEVER;
}

static uint64_t slice_deadline(const struct vg_core *core, const struct vg_core_slice *slice, uint64_t now_ns) {
  uint64_t deadline_ns = cap_deadline(core, slice, now_ns);
  uint64_t open_from_ns = vg_core_may_open_from(slice);
  if (vg_core_active(slice) && open_from_ns > now_ns) deadline_ns = vg_core_least(deadline_ns, open_from_ns);
  if (slice->gate.state == VG_CORE_OVERLAP) deadline_ns = vg_core_least(deadline_ns, slice->gate.rescue_ns);
  if (slice->gate.state == VG_CORE_DRAINING) {
    uint64_t look_ns = vg_core_overlap_from(core, slice);
    deadline_ns = vg_core_least(deadline_ns, look_ns > now_ns + LOOK_LEAST_NS ? look_ns : now_ns + LOOK_LEAST_NS);
  }
  if (!vg_core_in_slot(slice) || slice->gate.state != VG_CORE_OPEN || !slice->out.lease_end_ns) return deadline_ns;
  deadline_ns = vg_core_least(deadline_ns, slice->out.lease_end_ns);
  if (!slice->in.outstanding && now_ns < slice->gate.grant_ns + VG_CORE_WAKE_GRACE_NS)
    deadline_ns = vg_core_least(deadline_ns, slice->gate.grant_ns + VG_CORE_WAKE_GRACE_NS);
  return deadline_ns;
}

uint64_t vg_core_next_deadline(const struct vg_core *core, const struct vg_core_crowd *crowd, uint64_t now_ns) {
  uint64_t deadline_ns = regular_deadline(core, crowd, now_ns);
  if (core->slot_hold_until_ns > now_ns) deadline_ns = vg_core_least(deadline_ns, core->slot_hold_until_ns);
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present)
      deadline_ns = vg_core_least(deadline_ns, slice_deadline(core, &core->slices[i], now_ns));
  return deadline_ns;
}
