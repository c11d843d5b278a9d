/*
 * gate_gang.c - the gates of several devices that a slice has together (DESIGN D6, arbiter_gang.h). They close a moment
 * apart; a kernel on one device that waits for one on another, whose launch stands at the gate there, would keep the
 * drain from ending. So launches of such kernels are counted, and for a moment the arbiter lets a device that is behind
 * have launches through its closed gate until it has as many.
 *
 * Kernels that wait for other devices are known by name: NCCL's and those of the simulated device. In a graph they are
 * not seen.
 */
#include <limits.h>
#include <string.h>

#include "gate_state.h"
#include "gen/real.h"

static const char *const collectives[] = {"ncclDevKernel", "ncclKernel", "meet_"};

static bool is_collective(const void *function) {
  const char *name = NULL;
  if (!REAL(cuFuncGetName) || REAL(cuFuncGetName)(&name, (CUfunction)(uintptr_t)function) != CUDA_SUCCESS || !name)
    return false;
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
    if (strstr(name, collectives[i])) return true; /* a mangled name begins with something else */
  return false;
}

bool vg_gate_gang_counts(const struct vg_device *device, struct vg_estimate *estimate, bool kernel) {
  if (VG_LIKELY(!(VG_LOAD_RELAXED(&VG_LOAD(&device->control)->watch) & VG_WATCH_GANG)) || !kernel) return false;
  if (estimate->collective == VG_COLLECTIVE_UNKNOWN)
    estimate->collective = is_collective(estimate->function) ? VG_COLLECTIVE : VG_COLLECTIVE_NOT;
  return estimate->collective == VG_COLLECTIVE;
}

bool vg_gate_gang_passes(struct vg_device *device, uint32_t word) {
  struct vg_gate_state *gate = device->gate;
  const struct vg_control_device *control = VG_LOAD(&device->control);
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (VG_LIKELY(!VG_LOAD(&control->pass_collectives))) return false;
  pthread_mutex_lock(&gate->mutex);
  uint32_t upto = VG_LOAD(&control->pass_collectives);
  bool passes = upto && VG_LOAD(&control->gate) == word && (int32_t)(upto - VG_LOAD(&report->collectives)) > 0;
  if (passes) { /* a drain under way has one launch more to wait for, one that was done is so no more */
    gate->drain = VG_DRAIN_NONE;
    if (VG_LOAD(&report->drained_word) == word) VG_STORE(&report->drained_word, VG_GATE_NO_WORD);
    vg_gate_become_busy(device, vg_prim_now_ns());
  }
  pthread_mutex_unlock(&gate->mutex);
  if (passes) vg_prim_futex_wake(&VG_LOAD(&vg_session.header)->bell, INT_MAX); /* the helper sees to the drain */
  return passes;
}
