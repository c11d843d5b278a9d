/*
 * hook_usage.c - NVML of a slice: its memory and its processes. Called by programs instead of the real functions.
 */
#include <stdlib.h>
#include <string.h>

#include "ml/resolve_ml.h"
#include "ml/slice.h"

#define PROCESSES_MAX 1024 /* of a device, all tenants together */

/* The slice's limit and use of a device; false when the shim is to show the device as it is. */
static bool numbers(nvmlDevice_t device, uint64_t *ret_total_bytes, uint64_t *ret_used_bytes) {
  struct vg_attach_usage usage;
  struct vg_ml_device own;
  if (!vg_ml_in_slice()) return false;
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

static bool is_own(const struct vg_attach_usage *usage, unsigned pid) {
  for (uint32_t i = 0; i < usage->process_count; i++)
    if ((unsigned)usage->pids[i] == pid) return true;
  return false;
}

typedef nvmlReturn_t (*list_function)(nvmlDevice_t device, unsigned *count, void *infos);

/* All versions of the lists: entries of entry_bytes, each beginning with the pid. Takes room for everybody, so that
 * the number of foreign processes shows nowhere. */
static nvmlReturn_t own_processes(const char *name, nvmlDevice_t device, unsigned *count, void *ret_infos,
                                  size_t entry_bytes) {
  list_function real = (list_function)vg_ml_symbol(name);
  if (real == NULL) return vg_ml_missing();
  if (!vg_ml_in_slice() || count == NULL) return real(device, count, ret_infos);
  struct vg_attach_usage usage;
  unsigned found = PROCESSES_MAX, kept = 0, room = *count;
  char *all = calloc(PROCESSES_MAX, entry_bytes);
  if (all == NULL) return NVML_ERROR_MEMORY;
  nvmlReturn_t result = real(device, &found, all);
  vg_ml_usage(&usage);
  for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++) {
    unsigned pid;
    memcpy(&pid, all + i * entry_bytes, sizeof pid);
    if (!is_own(&usage, pid)) continue;
    if (kept < room && ret_infos != NULL)
      memcpy((char *)ret_infos + kept * entry_bytes, all + i * entry_bytes, entry_bytes);
    kept++;
  }
  free(all);
  if (result != NVML_SUCCESS) return result;
  *count = kept;
  return kept > room || (kept != 0 && ret_infos == NULL) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST_ML_HOOK(name, entry_type)                                                                                 \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *ret_infos) {                               \
    return own_processes(#name, device, count, ret_infos, sizeof(entry_type));                                         \
  }
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)
LIST_ML_HOOK(nvmlDeviceGetAccountingPids, unsigned)

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                              nvmlProcessDetailList_v1_t *details) {
  if (!vg_ml_in_slice() || details == NULL) return VG_ML_REAL(nvmlDeviceGetRunningProcessDetailList, device, details);
  struct vg_attach_usage usage;
  nvmlProcessDetailList_v1_t all = *details;
  all.numProcArrayEntries = PROCESSES_MAX;
  all.procArray = calloc(PROCESSES_MAX, sizeof *all.procArray);
  if (all.procArray == NULL) return NVML_ERROR_MEMORY;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetRunningProcessDetailList, device, &all);
  vg_ml_usage(&usage);
  unsigned kept = 0, room = details->procArray == NULL ? 0 : details->numProcArrayEntries;
  for (unsigned i = 0; result == NVML_SUCCESS && i < all.numProcArrayEntries; i++) {
    if (!is_own(&usage, all.procArray[i].pid)) continue;
    if (kept < room) details->procArray[kept] = all.procArray[i];
    kept++;
  }
  free(all.procArray);
  if (result != NVML_SUCCESS) return result;
  details->numProcArrayEntries = kept;
  return kept > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                        nvmlProcessUtilizationSample_t *ret_samples, unsigned *count,
                                                        unsigned long long last_seen_us) {
  if (!vg_ml_in_slice() || count == NULL)
    return VG_ML_REAL(nvmlDeviceGetProcessUtilization, device, ret_samples, count, last_seen_us);
  struct vg_attach_usage usage;
  unsigned found = PROCESSES_MAX, kept = 0, room = ret_samples == NULL ? 0 : *count;
  nvmlProcessUtilizationSample_t *all = calloc(PROCESSES_MAX, sizeof *all);
  if (all == NULL) return NVML_ERROR_MEMORY;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetProcessUtilization, device, all, &found, last_seen_us);
  vg_ml_usage(&usage);
  for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++) {
    if (!is_own(&usage, all[i].pid)) continue;
    if (kept < room) ret_samples[kept] = all[i];
    kept++;
  }
  free(all);
  if (result != NVML_SUCCESS) return result;
  *count = kept;
  if (kept == 0) return NVML_ERROR_NOT_FOUND;
  return kept > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* The newer form of the same. It carries every process, so a slice is told to use the older one, which is filtered. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, void *info) {
  if (vg_ml_in_slice()) return NVML_ERROR_NOT_SUPPORTED;
  return VG_ML_REAL(nvmlDeviceGetProcessesUtilizationInfo, device, info);
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *ret_stats) {
  struct vg_attach_usage usage;
  if (vg_ml_in_slice()) {
    vg_ml_usage(&usage);
    if (!is_own(&usage, pid)) return NVML_ERROR_NOT_FOUND;
  }
  return VG_ML_REAL(nvmlDeviceGetAccountingStats, device, pid, ret_stats);
}
