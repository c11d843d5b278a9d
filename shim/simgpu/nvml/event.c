/*
 * event.c - simulated NVML: event sets. Nothing ever goes wrong on this device, so a wait ends with its timeout.
 */
#include "page.h"
#include "prim.h"
#include <stdlib.h>

#define EVENT_XID 8ull /* critical errors: what health monitors register for */
#define EVENT_KNOWN (EVENT_XID | 1 | 2 | 4 | 16)
#define SET_MAGIC 0x4e565345u

struct vg_nvml_event_set {
  uint32_t magic;
};

NVML_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *ret_set) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_set == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlEventSet_t set = malloc(sizeof *set);
  if (set == NULL) return NVML_ERROR_MEMORY;
  set->magic = SET_MAGIC;
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
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || set->magic != SET_MAGIC) return NVML_ERROR_INVALID_ARGUMENT;
  return (types & ~EVENT_KNOWN) != 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *ret_event, unsigned timeout_ms) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (set == NULL || set->magic != SET_MAGIC || ret_event == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  vg_prim_sleep_until_ns(vg_prim_now_ns() + timeout_ms * VG_NS_PER_MS);
  return NVML_ERROR_TIMEOUT;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *ret_event, unsigned timeout_ms) {
  return nvmlEventSetWait_v2(set, ret_event, timeout_ms);
}
