/*
 * hook_device.c - NVML of a slice: which devices there are. Called by programs instead of the real functions. Handles
 * are the real library's; a program gets only those of its slice, so what takes a handle needs no hook.
 */
#include <string.h>

#include "nvml/resolve_ml.h"
#include "nvml/slice.h"

#define UUID_VERSION_BYTES 4

static nvmlReturn_t opened(nvmlReturn_t result) {
  return result == NVML_SUCCESS ? vg_ml_slice_open() : result;
}

VG_ML_HOOK nvmlReturn_t nvmlInit(void) {
  return opened(VG_ML_REAL(nvmlInit));
}

VG_ML_HOOK nvmlReturn_t nvmlInit_v2(void) {
  return opened(VG_ML_REAL(nvmlInit_v2));
}

VG_ML_HOOK nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  return opened(VG_ML_REAL(nvmlInitWithFlags, flags));
}

/* A handle that the real library found, if it is the slice's. */
static nvmlReturn_t own(nvmlReturn_t result, nvmlDevice_t found, nvmlDevice_t *ret_device) {
  if (result != NVML_SUCCESS) return result;
  struct vg_ml_device device;
  if (vg_ml_in_slice() && !vg_ml_find(found, &device)) return NVML_ERROR_NOT_FOUND;
  *ret_device = found;
  return NVML_SUCCESS;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *ret_count) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetCount_v2, ret_count);
  if (result == NVML_SUCCESS && vg_ml_in_slice()) *ret_count = vg_ml_count();
  return result;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetCount(unsigned *ret_count) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetCount, ret_count);
  if (result == NVML_SUCCESS && vg_ml_in_slice()) *ret_count = vg_ml_count();
  return result;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *ret_device) {
  if (!vg_ml_in_slice()) return VG_ML_REAL(nvmlDeviceGetHandleByIndex_v2, index, ret_device);
  nvmlDevice_t handle = vg_ml_handle(index);
  if (ret_device == NULL || handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_device = handle;
  return NVML_SUCCESS;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *ret_device) {
  if (!vg_ml_in_slice()) return VG_ML_REAL(nvmlDeviceGetHandleByIndex, index, ret_device);
  return nvmlDeviceGetHandleByIndex_v2(index, ret_device);
}

/* The real function writes into a variable of ours: a foreign handle is never handed out. */
#define HANDLE_ML_HOOK(name, key_type)                                                                                 \
  NVML_EXPORT nvmlReturn_t name(key_type key, nvmlDevice_t *ret_device) {                                              \
    nvmlDevice_t found;                                                                                                \
    nvmlReturn_t result = VG_ML_REAL(name, key, ret_device == NULL ? NULL : &found);                                   \
    return own(result, found, ret_device);                                                                             \
  }
HANDLE_ML_HOOK(nvmlDeviceGetHandleByUUID, const char *)
HANDLE_ML_HOOK(nvmlDeviceGetHandleByUUIDV, const void *)
HANDLE_ML_HOOK(nvmlDeviceGetHandleByPciBusId, const char *)
HANDLE_ML_HOOK(nvmlDeviceGetHandleByPciBusId_v2, const char *)
HANDLE_ML_HOOK(nvmlDeviceGetHandleBySerial, const char *)

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *ret_index) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetIndex, device, ret_index);
  for (uint32_t i = 0; result == NVML_SUCCESS && vg_ml_in_slice() && i < vg_ml_count(); i++)
    if (vg_ml_handle(i) == device) *ret_index = i;
  return result;
}

/* Lists of neighbouring devices, without those that the slice does not have. */
static nvmlReturn_t own_list(nvmlReturn_t result, unsigned *count, nvmlDevice_t *devices) {
  if (result != NVML_SUCCESS || !vg_ml_in_slice() || devices == NULL) return result;
  struct vg_ml_device device;
  unsigned kept = 0;
  for (unsigned i = 0; i < *count; i++)
    if (vg_ml_find(devices[i], &device)) devices[kept++] = devices[i];
  *count = kept;
  return result;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned level, unsigned *count,
                                                         nvmlDevice_t *devices) {
  return own_list(VG_ML_REAL(nvmlDeviceGetTopologyNearestGpus, device, level, count, devices), count, devices);
}

VG_ML_HOOK nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, nvmlDevice_t *devices) {
  return own_list(VG_ML_REAL(nvmlSystemGetTopologyGpuSet, cpu, count, devices), count, devices);
}
