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
HANDLE_ML_HOOK(nvmlDeviceGetHandleBySerial, const char *)
HANDLE_ML_HOOK(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t)

/* A MIG instance has its GPU's bus id: in a slice on one, that of the GPU means the instance. */
static nvmlDevice_t meant(nvmlDevice_t found) {
  for (uint32_t i = 0; i < vg_ml_count(); i++) {
    nvmlDevice_t handle = vg_ml_handle(i), gpu;
    if (handle == NULL) break;
    nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, &gpu);
    if (result == NVML_SUCCESS && gpu == found) return handle;
  }
  return found;
}

#define BUS_ML_HOOK(name)                                                                                              \
  NVML_EXPORT nvmlReturn_t name(const char *bus_id, nvmlDevice_t *ret_device) {                                        \
    nvmlDevice_t found;                                                                                                \
    nvmlReturn_t result = VG_ML_REAL(name, bus_id, ret_device == NULL ? NULL : &found);                                \
    return own(result, result == NVML_SUCCESS ? meant(found) : NULL, ret_device);                                      \
  }
BUS_ML_HOOK(nvmlDeviceGetHandleByPciBusId)
BUS_ML_HOOK(nvmlDeviceGetHandleByPciBusId_v2)

/* A MIG instance in a slice is shown as a GPU: it is one of those that are counted, and has no instances. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                            nvmlDevice_t *ret_device) {
  nvmlDevice_t found;
  nvmlReturn_t result =
      VG_ML_REAL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, ret_device == NULL ? NULL : &found);
  return own(result, found, ret_device);
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *ret_is_mig) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceIsMigDeviceHandle, device, ret_is_mig);
  if (result == NVML_SUCCESS && vg_ml_in_slice()) *ret_is_mig = 0;
  return result;
}

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
