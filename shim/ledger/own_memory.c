/* own_memory.c - see session/own_memory.h. Exported; called by the NVML shim of the same process. */
#include "session/own_memory.h"

#include <string.h>

#include "ledger/credit.h"

bool vg_shim_memory(const uint8_t *uuid, struct vg_own_memory *ret_memory) {
  if (!VG_LOAD(&vg_session.attached)) return false;
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_device *device = &vg_session.devices[i];
    const struct vg_report_device *report = VG_LOAD(&device->report);
    if (!VG_LOAD(&device->control) || memcmp(device->resolved.uuid, uuid, VG_UUID_BYTES)) continue;
    vg_memory_info(device, &ret_memory->free_bytes, &ret_memory->total_bytes);
    ret_memory->own_bytes = VG_LOAD_RELAXED(&report->used_bytes);
    ret_memory->contexts = VG_LOAD_RELAXED(&report->contexts);
    return true;
  }
  return false;
}
