/* gate.c - see gate.h. The gate of a device from its attach on, and whether launches pass it uncounted. */
#include "gate/gate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context/context.h"
#include "gate/state.h"

struct vg_device *vg_gate_only_device;

int vg_gate_attach(struct vg_device *device) {
  if (!device->gate) {
    device->gate = aligned_alloc(64, sizeof *device->gate);
    if (!device->gate) return -ENOMEM;
    memset(device->gate, 0, sizeof *device->gate);
    pthread_mutex_init(&device->gate->mutex, NULL);
    pthread_mutex_init(&device->gate->clock.mutex, NULL);
  }
  vg_prim_membarrier_register();
  vg_gate_set_open_word(device, VG_GATE_NO_WORD);
  vg_residence_review();
  VG_STORE(&device->gate_word, &device->control->gate);
  if (vg_session.device_count == 1) VG_STORE(&vg_gate_only_device, device);
  return 0;
}

bool vg_gate_solo_slow(void) {
  const struct vg_device *device = vg_context_device();
  return !device || vg_gate_solo_device(device);
}

bool vg_gate_solo_launch_slow(void) {
  const struct vg_device *device = vg_context_device();
  return !device || (vg_gate_solo_device(device) && vg_gate_solo_credit());
}
