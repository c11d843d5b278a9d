/* lags.c - see lags.h. */
#include "arbiter/lags.h"

#include <stddef.h>

int64_t vg_core_slot_mean_ns(const struct vg_core *core) {
  int64_t total_ns = 0;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!vg_core_in_slot(slice)) continue;
    int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns);
    total_ns += ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  }
  return core->slot_ppm ? total_ns * VG_CORE_MILLI / core->slot_ppm * VG_CORE_MILLI : 0;
}

int64_t vg_core_lag_of(const struct vg_core *core, const struct vg_core_slice *slice, int64_t slot_mean_ns) {
  if (!slice->saturating) return slice->free.lag_ns;
  int64_t ahead_ns = (int64_t)(slice->slot.virtual_ns - core->floor_ns) - slot_mean_ns;
  int64_t part_ns = core->slot_lag_ns * slice->out.entitlement_ppm / core->slot_ppm;
  part_ns -= ahead_ns / VG_CORE_MILLI * slice->out.entitlement_ppm / VG_CORE_MILLI;
  return vg_core_clamp_ns(part_ns, VG_CORE_DEBT_MAX_NS);
}

static bool slot_is_short(const struct vg_core *core) {
  if (core->slot_lag_ns <= VG_CORE_SHORT_NS) return false;
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_is_candidate(core, &core->slices[i])) return true;
  return false;
}

int64_t vg_core_most_behind(const struct vg_core *core, const struct vg_core_slice *but) {
  int64_t most_ns = -VG_CORE_FAR_NS;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (slice != but && vg_core_is_short(core, slice) && vg_core_time_behind_ns(slice) > most_ns)
      most_ns = vg_core_time_behind_ns(slice);
  }
  if (but && slot_is_short(core) && vg_core_slot_behind(core) > most_ns) most_ns = vg_core_slot_behind(core);
  return most_ns;
}

int64_t vg_core_furthest_behind(const struct vg_core *core) {
  int64_t most_ns = core->slot_lag_ns > VG_CORE_SHORT_NS ? vg_core_slot_behind(core) : -VG_CORE_FAR_NS;
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating || slice->free.lag_ns <= VG_CORE_SHORT_NS) continue;
    if (vg_core_time_behind_ns(slice) > most_ns) most_ns = vg_core_time_behind_ns(slice);
  }
  return most_ns;
}

void vg_core_forgive(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *slice = &core->slices[i];
    int64_t behind_ns = slice->saturating ? core->slot_lag_ns : slice->free.lag_ns;
    bool waits = behind_ns > VG_CORE_SHORT_NS && vg_core_lately_active(slice, core->last_ns);
    if (waits && !vg_core_may_precede(core, slice)) return;
  }
  int64_t least_ns = -(VG_CORE_AHEAD_NS * core->slot_ppm / VG_CORE_PPM);
  if (core->slot_lag_ns < least_ns) core->slot_lag_ns = least_ns;
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    if (!slice->present || slice->saturating) continue;
    least_ns = -(VG_CORE_AHEAD_NS * slice->out.entitlement_ppm / VG_CORE_PPM);
    if (slice->free.lag_ns < least_ns) slice->free.lag_ns = least_ns;
    least_ns = -vg_core_scale_ns(VG_CORE_AHEAD_NS, slice->params.min_milli);
    if (slice->free.owed_ns < least_ns) slice->free.owed_ns = least_ns;
  }
}
