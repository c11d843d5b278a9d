/*
 * event.c - simulated NVML: event sets. What they hand on are XIDs: of programs whose kernels fault, and those that a
 * test asks the server for (`vgpu sim xid`). The server keeps the last ones on its page; a set reads on from where it
 * was.
 */
#include "base/prim.h"
#include "simgpu/nvml/page.h"
#include <stdlib.h>
#include <string.h>

#define EVENT_XID 8ull                   /* critical errors: what health monitors register for */
#define FAULTS_KEPT (SIM_FAULTS_MAX - 1) /* the next one may be about to take the oldest one's place */
#define EVENT_KNOWN (EVENT_XID | 1 | 2 | 4 | 16)
#define SET_MAGIC 0x4e565345u

struct vg_nvml_event_set {
  uint32_t magic;
  uint32_t seen;                             /* faults of the page that were looked at */
  unsigned long long types[SIM_DEVICES_MAX]; /* registered; 0: not */
};

NVML_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *ret_set) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlEventSet_t set = calloc(1, sizeof *set);
  if (set == NULL) return NVML_ERROR_MEMORY;
  set->magic = SET_MAGIC;
  set->seen = VG_LOAD(&sim_nvml_page()->fault_count);
  *ret_set = set;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || set->magic != SET_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  set->magic = 0;
  free(set);
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *ret_types) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_types == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_types = EVENT_KNOWN;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result == NVML_SUCCESS) result = sim_nvml_gpu(device); /* events of its instances are reported for the GPU */
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || set->magic != SET_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  if ((types & ~EVENT_KNOWN) != 0) return NVML_ERROR_NOT_SUPPORTED;
  set->types[device->index] |= types;
  return NVML_SUCCESS;
}

static nvmlDevice_t gpu_of(uint32_t index) {
  nvmlDevice_t device = sim_nvml_handle(index), parent = sim_nvml_parent(device);
  return parent != NULL ? parent : device;
}

/* The next fault of a device that the set listens to; false: none is left. */
static bool next_fault(nvmlEventSet_t set, struct sim_page_fault *ret_fault) {
  const struct sim_page *page = sim_nvml_page();
  for (;;) {
    uint32_t count = VG_LOAD(&page->fault_count);
    if (count - set->seen > FAULTS_KEPT) set->seen = count - FAULTS_KEPT; /* the oldest are lost */
    if (count == set->seen) return false;
    struct sim_page_fault fault = page->faults[set->seen % SIM_FAULTS_MAX];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (VG_LOAD(&page->fault_count) - set->seen > FAULTS_KEPT) continue; /* overwritten meanwhile */
    set->seen++;
    if (fault.device >= SIM_DEVICES_MAX || (set->types[gpu_of(fault.device)->index] & EVENT_XID) == 0) continue;
    *ret_fault = fault;
    return true;
  }
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, struct sim_page_fault *ret_fault, unsigned timeout_ms) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || set->magic != SET_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t deadline_ns = vg_prim_now_ns() + timeout_ms * VG_NS_PER_MS;
  while (!next_fault(set, ret_fault)) {
    if (vg_prim_now_ns() >= deadline_ns) return NVML_ERROR_TIMEOUT;
    vg_prim_futex_wait(&sim_nvml_page()->fault_count, set->seen, deadline_ns);
  }
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *ret_event, unsigned timeout_ms) {
  struct sim_page_fault fault;
  if (ret_event == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = wait_event(set, &fault, timeout_ms);
  if (result != NVML_SUCCESS) return result;
  const struct sim_page_device *device = &sim_nvml_page()->devices[fault.device];
  *ret_event = (nvmlEventData_t){gpu_of(fault.device), EVENT_XID, fault.xid, sim_nvml_instance_id(device),
                                 device->parent ? 0 : NVML_NO_INSTANCE};
  return NVML_SUCCESS;
}

/* Of the first version: without the two numbers of a MIG instance at the end. */
NVML_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *ret_event, unsigned timeout_ms) {
  nvmlEventData_t event;
  if (ret_event == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlEventSetWait_v2(set, &event, timeout_ms);
  if (result == NVML_SUCCESS) memcpy(ret_event, &event, offsetof(nvmlEventData_t, gpuInstanceId));
  return result;
}
