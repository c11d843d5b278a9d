/*
 * collectives.c - launches of collectives on the devices of a gang (DESIGN D6, arbiter/gang.h). The gates of the
 * devices close a moment apart; a kernel on one device that waits for a kernel on another, whose launch waits at the
 * gate there, would keep the drain from ending. So launches of such kernels are counted, and for a moment the arbiter
 * lets launches through the closed gate of a device that is behind, until it has as many.
 *
 * Kernels that wait for other devices are known by name: those below, and what VGPU_COLLECTIVES adds (parts of names
 * with commas between them). Drivers before 12.3 have no names. How many are in a graph: hooks/graph_memory.c.
 *
 * Kernels of all other names are known by what they do: their drain does not end, and their forecast moves on with the
 * clock. The arbiter is notified, and lets launches through closed gates, one at first, until the drain makes progress
 * (arbiter/gang.c). It does not matter which of the kernels it was, so a launch of any kind is such a one.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "gate/state.h"
#include "gen/abi/real.h"
#include "session/helper_wake.h"

#define OVERDUE_NS 300000ull /* later than by the estimates: it waits for something */

static const char *const names[] = {
    "ncclKernel",
    "ncclDevKernel",
    "ncclSymDevKernel",
    "ncclSymkDevKernel",   /* NCCL: until 2.18, since 2.19, and for symmetric memory in 2.27 and since 2.28 */
    "cross_device_reduce", /* vLLM, SGLang, FlashInfer */
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "multimem_all_reduce",
    "multimem_all_gather", /* symmetric memory of PyTorch, which vLLM uses; also Triton's kernels after it */
    "oneShotAllReduceKernel",
    "twoShotAllReduceKernel",
    "one_shot_prenorm_all_reduce",
    "allreduce_fusion_kernel",
    "oneshotAllreduceFusionKernel",
    "twoshotAllreduceKernel",
    "moeAllToAllKernel",
    "moeA2ADispatchKernel",
    "moeA2ACombineKernel", /* TensorRT-LLM, and FlashInfer after it */
    "10mixed_comm",
    "8pcie_ipc",
    "ulysses_a2a_kernel", /* FlashInfer; the first two are namespaces, as they are mangled */
    "allreduce_1shotLL",  /* MSCCL++ in SGLang */
    "barrier_on_stream_kernel",
    "sync_on_stream_kernel",
    "rdxn_on_stream_kernel",
    "reducescatter_on_stream_kernel",
    "fcollect_on_stream_kernel",
    "broadcast_on_stream_kernel",
    "alltoall_on_stream_kernel",
    "nvshmemi_reduce_kernel", /* NVSHMEM */
    "userbuffers_fp16_sum_inplace_gpu",
    "kuserbuffers_push", /* Transformer Engine */
    "notify_dispatch",
    "cached_notify",
    "intranode8dispatch",
    "intranode7combine",
    "intranode7barrier",
    "internode8dispatch",
    "internode7combine",
    "internode_ll8dispatch",
    "internode_ll7combine",
    "7elastic13dispatch_impl",
    "7elastic12combine_impl",
    "7elastic20hybrid_dispatch_impl",
    "7elastic19hybrid_combine_impl",
    "7elastic12barrier_impl", /* DeepEP, whose kernels' own names are short ones */
    "meet_",                  /* the simulated device */
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

/* While the piece of work that runs takes its time, the forecast stays; when it should have ended, the forecast moves
 * on with the clock. Without a marker behind it, it moves at once. */
bool vg_gate_gang_report_overdue(struct vg_device *device, uint64_t remaining_ns, uint64_t now_ns) {
  if (VG_LIKELY(!vg_gate_gang_counts(device))) return false;
  struct vg_gate_state *gate = device->gate;
  uint64_t left_ns = vg_gate_outstanding(device), patience_ns = OVERDUE_NS;
  if (left_ns != gate->drain_left_ns || !gate->drain_forecast_ns) {
    gate->drain_left_ns = left_ns;
    gate->drain_forecast_ns = now_ns + remaining_ns;
  }
  for (struct vg_work *work = VG_LOAD(&gate->works); work; work = work->next) {
    vg_work_lock(work);
    patience_ns += vg_work_unmarked(work);
    vg_unlock(&work->lock);
  }
  bool overdue = now_ns + remaining_ns > gate->drain_forecast_ns + patience_ns;
  VG_STORE(&VG_LOAD(&device->report)->overdue_ns, overdue ? now_ns : 0);
  if (overdue) vg_prim_eventfd_ring(device->doorbell_fd);
  return overdue;
}

/* The arbiter lets a launch through that others may wait for. */
static bool is_awaited(const struct vg_control_device *control, const struct vg_report_device *report) {
  return (int32_t)(VG_LOAD(&control->pass_serial) - VG_LOAD(&report->passed_serial)) > 0;
}

/* Whether the arbiter lets one more launch through: of a device that has launched fewer collectives than others, or
 * that others may wait for, or about as many as they have still to run. */
static bool may_pass(const struct vg_device *device, const struct vg_control_device *control,
                     const struct vg_report_device *report) {
  uint32_t upto = VG_LOAD(&control->pass_collectives);
  if (upto && (int32_t)(upto - VG_LOAD(&report->collectives)) > 0) return true;
  if (is_awaited(control, report)) return true;
  return VG_LOAD(&control->pass_work_ns) &&
         vg_prim_now_ns() + vg_gate_outstanding(device) < device->gate->pass_until_ns;
}

bool vg_gate_gang_passes(struct vg_device *device, uint32_t word) {
  struct vg_gate_state *gate = device->gate;
  const struct vg_control_device *control = VG_LOAD(&device->control);
  struct vg_report_device *report = VG_LOAD(&device->report);
  if (VG_LIKELY(!vg_gate_gang_counts(device))) return false;
  pthread_mutex_lock(&gate->mutex);
  bool passes = VG_LOAD(&control->gate) == word && may_pass(device, control, report);
  if (passes) { /* a drain under way has one more launch to wait for; one that had ended has not ended any more */
    gate->drain = VG_DRAIN_NONE;
    if (VG_LOAD(&report->drained_word) == word) VG_STORE(&report->drained_word, VG_GATE_NO_WORD);
    vg_gate_become_busy(device, vg_prim_now_ns());
    if (is_awaited(control, report)) { /* the work is counted from when it passes: it may have been late to wake up */
      gate->pass_until_ns = vg_prim_now_ns() + VG_LOAD(&control->pass_work_ns);
      VG_STORE(&report->passed_serial, VG_LOAD(&control->pass_serial));
    }
  }
  pthread_mutex_unlock(&gate->mutex);
  if (passes) vg_helper_wake(); /* the helper continues the drain */
  return passes;
}
