/* lifecycle.c - what the parts of the gate forget when a context ends, and in a forked child. */
#include "context/context.h"
#include "gate/state.h"

void vg_gate_context_gone(struct vg_device *device, CUcontext context) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_forget_context(device, context);
  vg_probe_forget_context(&device->gate->probes, context);
  pthread_mutex_unlock(&device->gate->mutex);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE); /* closes the short path of all threads */
}

void vg_gate_forked_child(void) {
  vg_gate_lines_forked_child();
  vg_gate_capture_forked_child();
  vg_gate_sync_forked_child();
  vg_gate_graphs_forked_child();
  VG_STORE(&vg_gate_only_device, NULL);
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) vg_session.devices[i].gate = NULL;
}
