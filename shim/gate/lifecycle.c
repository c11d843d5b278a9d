/* lifecycle.c - what the parts of the gate forget when a context ends, and in a forked child. */
#include "context/context.h"
#include "gate/state.h"

void vg_gate_context_gone(struct vg_device *device, CUcontext context) {
  pthread_mutex_lock(&device->gate->mutex);
  vg_gate_forget_context(device, context);
  vg_probe_forget_context(&device->gate->probes, context);
  vg_context_clock_forget(&device->gate->clock, context);
  pthread_mutex_unlock(&device->gate->mutex);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE); /* closes the short path of all threads */
}

static void mark_gone(struct vg_work *work, CUstream handle) {
  vg_work_lock(work);
  for (int i = 0; i < VG_WORK_STREAMS; i++)
    if (work->streams[i].used && work->streams[i].handle == handle) work->streams[i].is_gone = true;
  vg_unlock(&work->lock);
}

/* The helper records events in streams under the mutex. */
void vg_gate_stream_gone(CUstream stream) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_gate_state *gate = vg_session.devices[i].gate;
    if (!gate) continue;
    pthread_mutex_lock(&gate->mutex);
    for (struct vg_work *work = VG_LOAD(&gate->works); work; work = work->next) mark_gone(work, stream);
    pthread_mutex_unlock(&gate->mutex);
  }
}

void vg_gate_forked_child(void) {
  vg_gate_lines_forked_child();
  vg_gate_capture_forked_child();
  vg_gate_sync_forked_child();
  vg_gate_graphs_forked_child();
  VG_STORE(&vg_gate_only_device, NULL);
  VG_STORE(&vg_residence_watched, 0);
  VG_STORE(&vg_residence_moves, 0);
  VG_STORE(&vg_residence_is_out, 0);
  VG_STORE(&vg_residence_has_movable, 0);
  VG_STORE(&vg_residence_shared, 0);
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) vg_session.devices[i].gate = NULL;
}
