/* entitlements.c - see entitlements.h. */
#include "arbiter/entitlements.h"

#define SEEN_LEAST_NS 100000ull /* less is what clocks differ by */
#define DEADLINE_NS (4ull * VG_CORE_MS)
#define ENTITLEMENT_MIN_PPM 1000

/* ---- demand ---- */

void vg_core_set_deadline(struct vg_core_slice *slice, uint64_t now_ns) {
  if (slice->params.min_milli) slice->free.deadline_ns = now_ns + DEADLINE_NS * VG_CORE_MILLI / slice->params.min_milli;
}

void vg_core_note_activity(struct vg_core_slice *slice, uint64_t now_ns) {
  bool active = vg_core_active(slice);
  if (active) {
    if (!slice->step.last_active_ns ||
        now_ns >= slice->step.last_active_ns + VG_CORE_IDLE_NS) { /* its demand before the pause no longer counts */
      slice->demand.ppm = VG_CORE_PPM;
      slice->demand.work_ns = slice->demand.idle_ns = slice->demand.window_idle_ns = 0;
      slice->demand.window_work_ns = 0;
      slice->free.lag_ns = vg_core_min(slice->free.lag_ns, 0);
      slice->free.owed_ns = vg_core_min(slice->free.owed_ns, 0);
    }
    slice->step.last_active_ns = now_ns;
    if (!slice->step.was_active) vg_core_set_deadline(slice, now_ns);
  }
  slice->step.was_active = active;
}

/* Time at the closed gate says nothing about demand. */
void vg_core_measure_demand(struct vg_core_slice *slice) {
  uint64_t worked_ns = (uint64_t)vg_core_max(0, vg_core_min(slice->demand.window_work_ns, VG_CORE_DEBT_MAX_NS));
  if (worked_ns + slice->demand.window_idle_ns < SEEN_LEAST_NS) return;
  slice->demand.work_ns = slice->demand.work_ns * 3 / 4 + worked_ns;
  slice->demand.idle_ns = slice->demand.idle_ns * 3 / 4 + slice->demand.window_idle_ns;
  slice->demand.window_work_ns = 0;
  slice->demand.window_idle_ns = 0;
  slice->demand.ppm = (uint32_t)(slice->demand.work_ns * VG_CORE_PPM / (slice->demand.work_ns + slice->demand.idle_ns));
}

/* ---- entitlements ---- */

/* The most that water-filling gives a slice. */
static uint32_t limit_of(const struct vg_core_slice *slice) {
  uint64_t wanted_ppm = VG_CORE_PPM;
  if (!slice->saturating) wanted_ppm = vg_core_least(VG_CORE_PPM, (uint64_t)slice->demand.ppm * 103 / 100 + 5000);
  return (uint32_t)vg_core_least(wanted_ppm, (uint64_t)slice->params.max_milli * VG_CORE_MILLI);
}

/* Fills the slices of one priority by weight; returns the capacity that is left. */
static uint32_t fill_level(struct vg_core *core, const uint32_t *limits, uint32_t priority, uint32_t left) {
  while (left) {
    uint64_t weights = 0;
    for (int i = 0; i < core->slice_count; i++) {
      const struct vg_core_slice *slice = &core->slices[i];
      if (limits[i] > slice->out.entitlement_ppm && slice->params.priority == priority)
        weights += vg_core_weight(slice);
    }
    if (!weights) break;
    uint32_t before = left;
    for (int i = 0; i < core->slice_count; i++) {
      struct vg_core_slice *slice = &core->slices[i];
      if (limits[i] <= slice->out.entitlement_ppm || slice->params.priority != priority) continue;
      uint32_t room = limits[i] - slice->out.entitlement_ppm;
      if ((uint64_t)before * vg_core_weight(slice) / weights < room) continue;
      slice->out.entitlement_ppm += room;
      left = left > room ? left - room : 0;
    }
    if (left != before) continue;
    for (int i = 0; i < core->slice_count; i++) {
      struct vg_core_slice *slice = &core->slices[i];
      if (limits[i] <= slice->out.entitlement_ppm || slice->params.priority != priority) continue;
      slice->out.entitlement_ppm += (uint32_t)((uint64_t)before * vg_core_weight(slice) / weights);
    }
    return 0;
  }
  return left;
}

void vg_core_set_entitlements(struct vg_core *core, uint64_t now_ns) {
  uint32_t limits[VG_SLICES_MAX] = {0};
  int64_t left = VG_CORE_PPM;
  uint64_t level = UINT64_MAX; /* the priority that has been filled last */
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present) continue;
    limits[i] = vg_core_lately_active(slice, now_ns) ? limit_of(slice) : 0; /* 0: it takes no part */
    slice->out.entitlement_ppm = slice->params.min_milli * VG_CORE_MILLI;
    if (!limits[i]) continue;
    if (slice->out.entitlement_ppm > limits[i]) slice->out.entitlement_ppm = limits[i];
    left -= slice->out.entitlement_ppm;
  }
  while (left > 0) {
    int64_t next = -1;
    for (int i = 0; i < core->slice_count; i++)
      if (limits[i] && core->slices[i].params.priority < level && (int64_t)core->slices[i].params.priority > next)
        next = core->slices[i].params.priority;
    if (next < 0) break;
    level = (uint64_t)next;
    left = fill_level(core, limits, (uint32_t)next, (uint32_t)left);
  }
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].out.entitlement_ppm < ENTITLEMENT_MIN_PPM)
      core->slices[i].out.entitlement_ppm = ENTITLEMENT_MIN_PPM;
  vg_core_sum_slot(core);
}

static bool is_stopped(const struct vg_core_slice *slice, uint64_t now_ns) {
  if (!vg_core_in_slot(slice) || slice->gate.state == VG_CORE_SHUT) return false;
  return !vg_core_shares_device(slice, now_ns);
}

void vg_core_raise_floor(struct vg_core *core, uint64_t now_ns) {
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    bool turns = vg_core_in_slot(slice) && (vg_core_active(slice) || slice->gate.state != VG_CORE_SHUT);
    if (turns && !is_stopped(slice, now_ns) && slice->slot.virtual_ns < least_ns) least_ns = slice->slot.virtual_ns;
  }
  if (least_ns != UINT64_MAX && least_ns > core->floor_ns) core->floor_ns = least_ns;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (is_stopped(slice, now_ns) && slice->slot.virtual_ns < core->floor_ns) slice->slot.virtual_ns = core->floor_ns;
  }
}
