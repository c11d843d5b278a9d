/*
 * fault.c - kernels that fault: the context's work is dropped, and an XID is shown on the state page, where NVML finds
 * it, as it finds there what has a whole device. Called by client.c. Other contexts and processes on the device notice
 * nothing.
 */
#include "simgpu/server/server.h"
#include <errno.h>

/* What the kernel log says beside a CUresult; 13 (graphics engine exception) for all the others. */
static const struct {
  uint64_t code;
  uint32_t xid;
} xids[] = {
    {214, 48}, /* ECC_UNCORRECTABLE: double-bit error */
    {220, 74}, /* NVLINK_UNCORRECTABLE */
    {226, 94}, /* CONTAINED */
    {700, 31}, /* ILLEGAL_ADDRESS: page fault */
    {702, 8},  /* LAUNCH_TIMEOUT: the watchdog */
    {710, 43}, /* ASSERT: stopped by the program's own doing */
};

static uint32_t xid_of(uint64_t code) {
  for (size_t i = 0; i < sizeof xids / sizeof xids[0]; i++)
    if (xids[i].code == code) return xids[i].xid;
  return 13;
}

int fault_tell(const struct device *device, uint64_t xid) {
  if (xid == 0 || xid > UINT32_MAX) return -EINVAL;
  struct sim_page *page = server.page;
  page->faults[page->fault_count % SIM_FAULTS_MAX] = (struct sim_page_fault){device->index, (uint32_t)xid};
  VG_STORE(&page->fault_count, page->fault_count + 1);
  vg_prim_futex_wake(&page->fault_count, 1 << 30);
  return 0;
}

int mode_tell(const struct device *device, uint64_t mode) {
  if (mode > SIM_MODE_MPS) return -EINVAL;
  if (server.config.devices[device->index].instances[0]) return -EBUSY; /* MIG mode lasts while there are instances */
  uint32_t shift = 2 * device->index, others = server.page->modes & ~(3u << shift);
  VG_STORE(&server.page->modes, others | (uint32_t)mode << shift);
  return 0;
}

int time_slice_tell(const struct process *process, struct device *device, uint64_t length) {
  if (process->uid != 0) return -EPERM;
  if (length > SIM_TIME_SLICE_LONG) return -EINVAL;
  if (server.config.devices[device->index].parent || server.config.devices[device->index].instances[0])
    return -EOPNOTSUPP; /* instances have SMs of their own */
  device->time_slice = (enum sim_time_slice)length;
  device->changed = true;
  return 0;
}

int fault_context(struct process *process, uint32_t id, uint64_t code) {
  struct context *context = id < SIM_CONTEXTS_MAX ? process->contexts[id] : NULL;
  if (!context) return -EINVAL;
  queue_take(process); /* what was submitted before goes, too */
  if (process->dead) return -EPROTO;
  queue_fault_context(context);
  queue_bells();
  return fault_tell(context->device, xid_of(code));
}
