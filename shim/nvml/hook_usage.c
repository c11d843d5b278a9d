/*
 * hook_usage.c - NVML of a slice: its memory and how busy it is, as of a device of the slice's size. Called by programs
 * instead of the real functions.
 */

#include "nvml/resolve_ml.h"
#include "nvml/slice.h"

/* The slice's limit and use of a device; false when the shim is to show the device as it is. */
static bool numbers(nvmlDevice_t device, uint64_t *ret_total_bytes, uint64_t *ret_used_bytes) {
  struct vg_attach_usage usage;
  struct vg_ml_device own;
  struct vg_own_memory now;
  if (!vg_ml_in_slice()) return false;
  if (vg_ml_find(device, &own) && vg_ml_own_memory(&own, &now)) {
    *ret_total_bytes = now.total_bytes;
    *ret_used_bytes = now.total_bytes - now.free_bytes;
    return true;
  }
  vg_ml_usage(&usage); /* may bring new limits */
  if (!vg_ml_find(device, &own)) return false;
  *ret_total_bytes = own.numbers.mem_max_bytes;
  *ret_used_bytes = own.order < usage.device_count ? usage.used_bytes[own.order] : 0;
  if (*ret_used_bytes > *ret_total_bytes) *ret_used_bytes = *ret_total_bytes;
  return true;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *ret_memory) {
  uint64_t total_bytes, used_bytes;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetMemoryInfo, device, ret_memory);
  if (result != NVML_SUCCESS || !numbers(device, &total_bytes, &used_bytes)) return result;
  *ret_memory = (nvmlMemory_t){.total = total_bytes, .free = total_bytes - used_bytes, .used = used_bytes};
  return result;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *ret_memory) {
  uint64_t total_bytes, used_bytes;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetMemoryInfo_v2, device, ret_memory);
  if (result != NVML_SUCCESS || !numbers(device, &total_bytes, &used_bytes)) return result;
  ret_memory->total = total_bytes;
  ret_memory->reserved = 0;
  ret_memory->free = total_bytes - used_bytes;
  ret_memory->used = used_bytes;
  return result;
}

/* The device time that the slice used, as a share of its maximum: 100 when it used all of it. Memory accesses are not
 * reported by process, so they are divided in the same proportion. Of a MIG instance NVML knows neither. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *ret_utilization) {
  struct vg_attach_usage usage;
  struct vg_ml_device own;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetUtilizationRates, device, ret_utilization);
  bool is_unknown = result == NVML_ERROR_NOT_SUPPORTED && ret_utilization != NULL;
  if ((result != NVML_SUCCESS && !is_unknown) || !vg_ml_in_slice()) return result;
  vg_ml_usage(&usage);
  if (!vg_ml_find(device, &own) || (is_unknown && own.numbers.kind != VG_DEVICE_MIG)) return result;
  if (is_unknown) *ret_utilization = (nvmlUtilization_t){0};
  uint32_t busy_milli = own.order < usage.device_count ? usage.busy_milli[own.order] : 0;
  unsigned whole = ret_utilization->gpu, memory = ret_utilization->memory;
  ret_utilization->gpu = vg_ml_percent(busy_milli / 10.0, &own);
  ret_utilization->memory = whole == 0 ? 0 : vg_ml_percent(memory * (busy_milli / 10.0) / whole, &own);
  return NVML_SUCCESS;
}

/* Samples of the whole device's utilization would show the other slices'. */
#define SAMPLES_UTILIZATION 1 /* NVML_GPU_UTILIZATION_SAMPLES; up to it and the next, of the memory */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, int type, unsigned long long last_seen_us,
                                             int *ret_value_type, unsigned *count, void *ret_samples) {
  bool tells = type == SAMPLES_UTILIZATION || type == SAMPLES_UTILIZATION + 1;
  if (tells && vg_ml_in_slice()) return NVML_ERROR_NOT_SUPPORTED;
  return VG_ML_REAL(nvmlDeviceGetSamples, device, type, last_seen_us, ret_value_type, count, ret_samples);
}
