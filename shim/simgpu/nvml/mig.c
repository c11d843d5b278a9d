/*
 * mig.c - simulated NVML: GPUs in MIG mode and their instances, each a compute instance that has its GPU instance to
 * itself. Called by programs. Instances are made by the configuration of vgpu-simd alone: nothing here makes or ends
 * one.
 */
#include "simgpu/constants.h"
#include "simgpu/nvml/page.h"

static nvmlReturn_t give(unsigned value, unsigned *ret_value) {
  if (ret_value == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_value = value;
  return NVML_SUCCESS;
}

uint32_t sim_nvml_instance_id(const struct sim_page_device *state) {
  return state->parent != 0 ? state->number + 1 : NVML_NO_INSTANCE; /* NVIDIA's 0 is the whole GPU */
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *ret_current, unsigned *ret_pending) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS) return result;
  if (sim_nvml_mode(device) != SIM_MODE_MIG) return NVML_ERROR_NOT_SUPPORTED;
  result = give(1, ret_current);
  return result != NVML_SUCCESS ? result : give(1, ret_pending);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *ret_count) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result == NVML_ERROR_NOT_SUPPORTED) return give(0, ret_count);
  if (result != NVML_SUCCESS) return result;
  return give(sim_nvml_mode(device) == SIM_MODE_MIG ? SIM_MIG_SLICES : 0, ret_count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *ret_is_mig) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_SUPPORTED) return result;
  return give(result == NVML_ERROR_NOT_SUPPORTED, ret_is_mig);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                             nvmlDevice_t *ret_device) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS) return result;
  if (sim_nvml_mode(device) != SIM_MODE_MIG) return NVML_ERROR_NOT_SUPPORTED;
  if (ret_device == NULL || index >= SIM_MIG_SLICES) return NVML_ERROR_INVALID_ARGUMENT;
  const struct sim_page *page = sim_nvml_page();
  for (uint32_t i = sim_nvml_count(); i < page->device_count; i++) {
    if (page->devices[i].parent != device->index + 1 || page->devices[i].number != index) continue;
    *ret_device = sim_nvml_handle(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *ret_gpu) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_ERROR_NOT_SUPPORTED) return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
  if (ret_gpu == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_gpu = sim_nvml_parent(device);
  return NVML_SUCCESS;
}

/* The copy of an instance's state; a GPU is refused as NVIDIA's library refuses one. */
static nvmlReturn_t instance(nvmlDevice_t device, struct sim_page_device *ret_state) {
  nvmlReturn_t result = sim_nvml_device(device, ret_state);
  if (result != NVML_SUCCESS) return result;
  return ret_state->parent != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *ret_id) {
  struct sim_page_device state;
  nvmlReturn_t result = instance(device, &state);
  return result != NVML_SUCCESS ? result : give(sim_nvml_instance_id(&state), ret_id);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *ret_id) {
  struct sim_page_device state;
  nvmlReturn_t result = instance(device, &state);
  return result != NVML_SUCCESS ? result : give(0, ret_id);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *ret_attributes) {
  struct sim_page_device state;
  nvmlReturn_t result = instance(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_attributes == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = state.sm_count,
                                             .sharedCopyEngineCount = SIM_COPY_ENGINES,
                                             .gpuInstanceSliceCount = state.slices,
                                             .computeInstanceSliceCount = state.slices,
                                             .memorySizeMB = state.memory_bytes >> 20};
  return NVML_SUCCESS;
}
