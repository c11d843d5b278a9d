/*
 * collectives.c - launches of collectives on the devices of a gang (DESIGN D6, arbiter/gang.h). The gates of the
 * devices close a moment apart; a kernel on one device that waits for a kernel on another, whose launch waits at the
 * gate there, would keep the drain from ending. So launches of such kernels are counted, and for a moment the arbiter
 * lets launches through the closed gate of a device that is behind, until it has as many.
 *
 * Kernels that wait for other devices are known by name: those below, and what VGPU_COLLECTIVES adds (parts of names
 * with commas between them). Drivers before 12.3 have no names. How many are in a graph: hooks/graph_memory.c.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "gate/state.h"
#include "gen/abi/real.h"
#include "session/helper_wake.h"

static const char *const names[] = {
    "ncclDevKernel",
    "ncclKernel",          /* NCCL */
    "cross_device_reduce", /* vLLM, SGLang */
    "one_shot_all_reduce",
    "two_shot_all_reduce", /* symmetric memory of PyTorch */
    "meet_",               /* the simulated device */
};

static bool is_added(const char *name) {
  const char *part = secure_getenv("VGPU_COLLECTIVES");
  for (size_t length; part && *part; part += length + (part[length] == ',')) {
    length = strcspn(part, ",");
    if (length && memmem(name, strlen(name), part, length)) return true;
  }
  return false;
}

bool vg_gate_gang_is_collective(const void *function) {
  const char *name = NULL;
  if (HAVE(cuFuncGetName)) REAL(cuFuncGetName)(&name, (CUfunction)(uintptr_t)function);
  if (!name && HAVE(cuKernelGetName)) REAL(cuKernelGetName)(&name, (CUkernel)(uintptr_t)function);
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
    if (strstr(name, names[i])) return true; /* a mangled name begins with something else */
  return name && is_added(name);
}

/* The count continues from page to page: a gang's processes re-attach to a daemon one after the other, and counts from
 * zero would never agree again. */
void vg_gate_gang_launched(struct vg_device *device, uint32_t collectives) {
  struct vg_gate_state *gate = device->gate;
  pthread_mutex_lock(&gate->mutex);
  gate->collectives += collectives;
  VG_STORE(&VG_LOAD(&device->report)->collectives, gate->collectives);
  pthread_mutex_unlock(&gate->mutex);
}

void vg_gate_gang_kernel(struct vg_device *device, struct vg_estimate *estimate) {
  if (estimate->collective == VG_COLLECTIVE_UNKNOWN)
    estimate->collective = vg_gate_gang_is_collective(estimate->function) ? VG_COLLECTIVE : VG_COLLECTIVE_NOT;
  if (estimate->collective == VG_COLLECTIVE) vg_gate_gang_launched(device, 1);
}

bool vg_gate_gang_passes(struct vg_device *device, uint32_t word) {
  struct vg_gate_state *gate = device->gate;
  const struct vg_control_device *control = VG_LOAD(&device->control);
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (VG_LIKELY(!VG_LOAD(&control->pass_collectives))) return false;
  pthread_mutex_lock(&gate->mutex);
  uint32_t upto = VG_LOAD(&control->pass_collectives);
  bool passes = upto && VG_LOAD(&control->gate) == word && (int32_t)(upto - VG_LOAD(&report->collectives)) > 0;
  if (passes) { /* a drain under way has one more launch to wait for; one that had ended has not ended any more */
    gate->drain = VG_DRAIN_NONE;
    if (VG_LOAD(&report->drained_word) == word) VG_STORE(&report->drained_word, VG_GATE_NO_WORD);
    vg_gate_become_busy(device, vg_prim_now_ns());
  }
  pthread_mutex_unlock(&gate->mutex);
  if (passes) vg_helper_wake(); /* the helper continues the drain */
  return passes;
}
