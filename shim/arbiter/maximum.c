/* maximum.c - see maximum.h. */
#include "arbiter/maximum.h"

bool vg_core_any_waits(const struct vg_core *core, const struct vg_core_slice *but) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other == but || !other->present || !other->in.wants || other->gate.state == VG_CORE_OPEN) continue;
    if (vg_core_may_run(core, other)) return true;
  }
  return false;
}

bool vg_core_keeps_others_waiting(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && vg_core_in_slot(other) && vg_core_waits(other) && vg_core_may_run(core, other)) return true;
  }
  return false;
}

void vg_core_note_limits(struct vg_core *core) {
  for (int i = 0; i < core->slice_count; i++) {
    struct vg_core_slice *slice = &core->slices[i];
    int64_t full_ns = vg_core_scale_ns(core->params.cap_depth_ns, slice->params.max_milli);
    slice->bucket.limited =
        !vg_core_is_uncapped(slice) && slice->bucket.cap_ns < (slice->bucket.limited ? full_ns * 3 / 4 : 1);
  }
}
