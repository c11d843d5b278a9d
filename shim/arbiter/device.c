/* device.c - see device.h. */
#include "arbiter/device.h"

void vg_core_sum_slot(struct vg_core *core) {
  core->slot_ppm = 0;
  for (int i = 0; i < core->slice_count; i++)
    if (vg_core_in_slot(&core->slices[i])) core->slot_ppm += core->slices[i].out.entitlement_ppm;
}

void vg_core_count_lately(struct vg_core *core) {
  core->recent_active = 0;
  for (int i = 0; i < core->slice_count; i++)
    core->recent_active += vg_core_lately_active(&core->slices[i], core->last_ns);
}

bool vg_core_another_in_slot(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && vg_core_in_slot(&core->slices[i])) return true;
  return false;
}

bool vg_core_another_waits(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++)
    if (&core->slices[i] != self && vg_core_in_slot(&core->slices[i]) && vg_core_waits(&core->slices[i])) return true;
  return false;
}

bool vg_core_is_alone(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count; i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && other->present && (other->in.attached || vg_core_drains(other))) return false;
  }
  return true;
}

bool vg_core_leads_beside_others(const struct vg_core *core, const struct vg_core_slice *self) {
  for (int i = 0; i < core->slice_count && vg_core_leads(self); i++) {
    const struct vg_core_slice *other = &core->slices[i];
    if (other != self && other->present && other->in.attached && vg_core_leads(other)) return true;
  }
  return false;
}
