/* arbiter_coast.c - the static timetable that shims follow without a daemon (DESIGN D9): everybody's minimum, and what
 * is left by weight, up to maximum; at least a little for everybody. Gangs come first, in the order of their ids, so
 * that their slots coincide on all their devices. */
#include <stddef.h>

#include "arbiter_share.h"

#define LEAST_MILLI 10

static uint32_t share_milli(const struct vg_core *core, const struct vg_core_slice *slice) {
  uint64_t reserved = 0, weights = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (!other->present || !other->attached) continue;
    reserved += other->params.min_milli > LEAST_MILLI ? other->params.min_milli : LEAST_MILLI;
    if (other->params.max_milli > other->params.min_milli) weights += vg_core_weight(other);
  }
  uint64_t least = slice->params.min_milli > LEAST_MILLI ? slice->params.min_milli : LEAST_MILLI;
  if (reserved > VG_CORE_MILLI) return (uint32_t)(least * VG_CORE_MILLI / reserved);
  uint64_t share = least;
  if (slice->params.max_milli > slice->params.min_milli)
    share += (VG_CORE_MILLI - reserved) * vg_core_weight(slice) / weights;
  uint64_t most = slice->params.max_milli > least ? slice->params.max_milli : least;
  return (uint32_t)(share < most ? share : most);
}

static bool comes_before(const struct vg_core_slice *a, const struct vg_core_slice *b) {
  bool a_gang = a->params.gang != VG_GANG_NONE, b_gang = b->params.gang != VG_GANG_NONE;
  return a_gang != b_gang ? a_gang : a->id < b->id;
}

int vg_core_coast_slots(const struct vg_core *core, uint64_t id, struct vg_coast_slot *ret_slots, int capacity) {
  const struct vg_core_slice *self = NULL;
  for (int i = 0; i < core->slice_count; i++)
    if (core->slices[i].present && core->slices[i].attached && core->slices[i].id == id) self = &core->slices[i];
  if (!self || capacity < 1) return 0;
  uint32_t begin_milli = 0, share = share_milli(core, self);
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (slice != self && slice->present && slice->attached && comes_before(slice, self))
      begin_milli += share_milli(core, slice);
  }
  ret_slots[0].begin_us = begin_milli * VG_CORE_COAST_PERIOD_US / VG_CORE_MILLI;
  ret_slots[0].end_us = (begin_milli + share) * VG_CORE_COAST_PERIOD_US / VG_CORE_MILLI;
  return 1;
}
