/*
 * device.c - simulated NVML: which devices there are and what identifies them. Called by programs. As in NVIDIA's
 * library, exported functions call each other by their exported names, so a preloaded hook could meet these calls, too.
 */
#include "simgpu/nvml/page.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PCI_DEVICE_ID 0x233510deu /* H200 SXM */

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *ret_count) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_count = sim_nvml_count();
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *ret_count) {
  return nvmlDeviceGetCount_v2(ret_count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *ret_device) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (ret_device == NULL || index >= sim_nvml_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_device = sim_nvml_handle(index);
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *ret_device) {
  return nvmlDeviceGetHandleByIndex_v2(index, ret_device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *ret_text, unsigned bytes) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_text == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (bytes < NVML_UUID_TEXT_BYTES) return NVML_ERROR_INSUFFICIENT_SIZE;
  sim_nvml_uuid_text(&state, ret_text);
  return NVML_SUCCESS;
}

static bool is_named(nvmlDevice_t device, const char *text) {
  char known[NVML_UUID_TEXT_BYTES];
  return nvmlDeviceGetUUID(device, known, sizeof known) == NVML_SUCCESS && strcasecmp(text, known) == 0;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *text, nvmlDevice_t *ret_device) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (text == NULL || ret_device == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned count = 0;
  nvmlDevice_t found;
  nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count; i++) {
    if (nvmlDeviceGetHandleByIndex_v2(i, &found) != NVML_SUCCESS) continue;
    if (!is_named(found, text)) continue;
    *ret_device = found;
    return NVML_SUCCESS;
  }
  for (uint32_t i = sim_nvml_count(); i < sim_nvml_page()->device_count; i++) {
    if (!is_named(sim_nvml_handle(i), text)) continue;
    *ret_device = sim_nvml_handle(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *ret_info) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_info == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_t info = {.bus = state.pci_bus, .pciDeviceId = PCI_DEVICE_ID};
  snprintf(info.busId, sizeof info.busId, "00000000:%02X:00.0", state.pci_bus & 0xff);
  snprintf(info.busIdLegacy, sizeof info.busIdLegacy, "0000:%02X:00.0", state.pci_bus & 0xff);
  *ret_info = info;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *ret_info) {
  nvmlPciInfo_t info;
  if (ret_info == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &info);
  if (result != NVML_SUCCESS) return result;
  memset(ret_info, 0, sizeof *ret_info);
  memcpy(ret_info->busIdLegacy, info.busIdLegacy, sizeof info.busIdLegacy);
  ret_info->bus = info.bus;
  ret_info->pciDeviceId = info.pciDeviceId;
  return NVML_SUCCESS;
}

/* Any spelling of domain:bus:device.function with 4 or 8 digits of domain, or none. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *ret_device) {
  unsigned domain = 0, bus, device, function;
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (text == NULL || ret_device == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
    domain = function = 0;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
      domain = 0;
      if (sscanf(text, "%x:%x.%x", &bus, &device, &function) != 3) return NVML_ERROR_INVALID_ARGUMENT;
    }
  }
  unsigned count = 0;
  nvmlDevice_t found;
  nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count; i++) {
    nvmlPciInfo_t info;
    if (nvmlDeviceGetHandleByIndex_v2(i, &found) != NVML_SUCCESS) continue;
    if (nvmlDeviceGetPciInfo_v3(found, &info) != NVML_SUCCESS) continue;
    if (domain != info.domain || device != info.device || function != 0 || bus != info.bus) continue;
    *ret_device = found;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *ret_device) {
  return nvmlDeviceGetHandleByPciBusId_v2(text, ret_device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *ret_text, unsigned bytes) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_text == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (bytes <= strnlen(state.name, sizeof state.name)) return NVML_ERROR_INSUFFICIENT_SIZE;
  snprintf(ret_text, bytes, "%.*s", (int)sizeof state.name, state.name);
  return NVML_SUCCESS;
}

static nvmlReturn_t answer(nvmlDevice_t device, unsigned value, unsigned *ret_value) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_value == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_value = value;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *ret_index) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  return result != NVML_SUCCESS ? result : answer(device, state.parent ? state.number : device->index, ret_index);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *ret_number) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  return result != NVML_SUCCESS ? result : answer(device, state.parent ? state.parent - 1 : device->index, ret_number);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *ret_major, int *ret_minor) {
  struct sim_page_device state;
  if (ret_major == NULL || ret_minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  *ret_major = (int)state.compute_major;
  *ret_minor = (int)state.compute_minor;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *ret_architecture) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  unsigned major = state.compute_major, minor = state.compute_minor;
  /* NVML_DEVICE_ARCH_...: VOLTA and TURING, AMPERE and ADA, HOPPER and what follows */
  return answer(device, major == 7 ? 5 + (minor >= 5) : major == 8 ? 7 + (minor == 9) : major, ret_architecture);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *ret_brand) {
  return answer(device, 14, ret_brand); /* NVML_BRAND_NVIDIA */
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *ret_cores) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  return result != NVML_SUCCESS ? result : answer(device, state.sm_count * 128, ret_cores); /* FP32 cores of an SM */
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *ret_multi) {
  return answer(device, 0, ret_multi);
}
