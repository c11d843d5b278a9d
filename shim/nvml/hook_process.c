/*
 * hook_process.c - NVML of a slice: its processes, with the pids that the caller's pid namespace has for them. Called
 * by programs instead of the real functions.
 *
 * Processes and their memory come from the daemon, so that tools show the same as `vgpu ps`. The real library is called
 * all the same: for its errors, and for values that only it has. Its pids may be the host's or the caller's.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml/processes.h"
#include "nvml/resolve_ml.h"

#define SPARE_ENTRIES 16 /* processes that may start between counting them and listing them */
#define TRIES_MAX 8

unsigned vg_ml_own_pid(const struct vg_attach_usage *usage, unsigned reported) {
  unsigned found = 0;
  for (uint32_t i = 0; i < usage->process_count; i++) {
    const struct vg_usage_process *process = &usage->processes[i];
    if ((unsigned)process->host_pid == reported) return (unsigned)process->pid;
    if ((unsigned)process->pid == reported) found = reported;
  }
  return found;
}

nvmlReturn_t vg_ml_all(vg_ml_ask ask, const void *question, size_t entry_bytes, unsigned *ret_count,
                       void **ret_entries) {
  void *entries = NULL;
  unsigned capacity = 0;
  nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
  for (int tries = 0; tries < TRIES_MAX; tries++) {
    *ret_count = capacity;
    result = ask(question, ret_count, entries);
    if (result == NVML_SUCCESS && *ret_count > capacity)
      result = NVML_ERROR_INSUFFICIENT_SIZE; /* it was only counted */
    if (result != NVML_ERROR_INSUFFICIENT_SIZE) break;
    capacity = *ret_count + SPARE_ENTRIES;
    free(entries);
    entries = calloc(capacity, entry_bytes);
    if (entries == NULL) return NVML_ERROR_MEMORY;
  }
  *ret_entries = entries;
  if (result != NVML_SUCCESS) free(entries);
  return result;
}

/* What this process uses now replaces what the daemon knew of it. Where it has several copies of the ledger (dlmopen),
 * the daemon alone knows their sum. */
static void add_itself(struct vg_attach_usage *usage, uint32_t device, const struct vg_own_memory *now) {
  int32_t pid = getpid();
  if (now == NULL) return;
  for (uint32_t i = 0; i < usage->process_count; i++) {
    struct vg_usage_process *process = &usage->processes[i];
    if (process->pid != pid || process->device != device) continue;
    if (process->copies == 1) process->used_bytes += now->own_bytes - process->ledger_bytes;
    return;
  }
  if (now->contexts == 0 || usage->process_count == VG_USAGE_PROCESSES_MAX) return;
  usage->processes[usage->process_count++] =
      (struct vg_usage_process){.pid = pid, .device = device, .used_bytes = now->own_bytes};
}

/* The slice's processes on a device, in the newest form, from which the others are made. Returns their number. */
static unsigned list(nvmlDevice_t device, nvmlProcessInfo_t *ret_infos) {
  struct vg_attach_usage usage;
  struct vg_ml_device own;
  struct vg_own_memory now;
  unsigned found = 0;
  vg_ml_usage(&usage);
  if (!vg_ml_find(device, &own)) return 0;
  add_itself(&usage, own.order, vg_ml_own_memory(&own, &now) ? &now : NULL);
  for (uint32_t i = 0; i < usage.process_count; i++) {
    const struct vg_usage_process *process = &usage.processes[i];
    if (process->device != own.order) continue;
    ret_infos[found++] = (nvmlProcessInfo_t){.pid = (unsigned)process->pid,
                                             .usedGpuMemory = process->used_bytes,
                                             .gpuInstanceId = NVML_NO_INSTANCE,
                                             .computeInstanceId = NVML_NO_INSTANCE};
  }
  return found;
}

nvmlReturn_t vg_ml_fitted(unsigned found, unsigned *count, const void *ret_entries) {
  unsigned capacity = ret_entries == NULL ? 0 : *count;
  *count = found;
  return found > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

typedef nvmlReturn_t (*list_function)(nvmlDevice_t device, unsigned *count, void *infos);

static nvmlReturn_t real_list(const char *name, nvmlDevice_t device, unsigned *count, void *ret_infos) {
  list_function real = (list_function)vg_ml_symbol(name);
  return real == NULL ? vg_ml_missing() : real(device, count, ret_infos);
}

/* All versions of a list: entries of entry_bytes, each beginning as the first version's. `are_listed`: the slice's
 * processes compute, and are in no other list. */
static nvmlReturn_t own_processes(const char *name, bool are_listed, nvmlDevice_t device, unsigned *count,
                                  void *ret_infos, size_t entry_bytes) {
  if (!vg_ml_in_slice() || count == NULL) return real_list(name, device, count, ret_infos);
  unsigned none = 0;
  nvmlReturn_t result = real_list(name, device, &none, NULL);
  if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) return result;
  nvmlProcessInfo_t found[VG_USAGE_PROCESSES_MAX];
  unsigned number = are_listed ? list(device, found) : 0;
  for (unsigned i = 0; ret_infos != NULL && i < number && i < *count; i++)
    memcpy((char *)ret_infos + i * entry_bytes, &found[i], entry_bytes);
  return vg_ml_fitted(number, count, ret_infos);
}

#define LIST_ML_HOOK(name, entry_type, are_listed)                                                                     \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *ret_infos) {                               \
    return own_processes(#name, are_listed, device, count, ret_infos, sizeof(entry_type));                             \
  }
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, true)
LIST_ML_HOOK(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, true)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, false)
LIST_ML_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, false)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, false)
LIST_ML_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, false)

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                              nvmlProcessDetailList_v1_t *details) {
  if (!vg_ml_in_slice() || details == NULL) return VG_ML_REAL(nvmlDeviceGetRunningProcessDetailList, device, details);
  nvmlProcessDetailList_v1_t asked = *details;
  asked.numProcArrayEntries = 0;
  asked.procArray = NULL;
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetRunningProcessDetailList, device, &asked);
  if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) return result;
  nvmlProcessInfo_t found[VG_USAGE_PROCESSES_MAX];
  unsigned number = details->mode == NVML_MODE_COMPUTE ? list(device, found) : 0;
  for (unsigned i = 0; details->procArray != NULL && i < number && i < details->numProcArrayEntries; i++)
    details->procArray[i] = (nvmlProcessDetail_v1_t){.pid = found[i].pid,
                                                     .usedGpuMemory = found[i].usedGpuMemory,
                                                     .gpuInstanceId = NVML_NO_INSTANCE,
                                                     .computeInstanceId = NVML_NO_INSTANCE};
  return vg_ml_fitted(number, &details->numProcArrayEntries, details->procArray);
}

struct samples {
  nvmlDevice_t device;
  unsigned long long last_seen_us;
};

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *ret_samples,
                                             unsigned *count, unsigned long long last_seen_us);

static nvmlReturn_t ask_samples(const void *question, unsigned *count, void *ret_entries) {
  const struct samples *samples = question;
  return VG_ML_REAL(nvmlDeviceGetProcessUtilization, samples->device, ret_entries, count, samples->last_seen_us);
}

/* Shares of the device become shares of the slice's maximum. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                        nvmlProcessUtilizationSample_t *ret_samples, unsigned *count,
                                                        unsigned long long last_seen_us) {
  struct vg_ml_device own;
  if (!vg_ml_in_slice() || count == NULL || !vg_ml_find(device, &own))
    return VG_ML_REAL(nvmlDeviceGetProcessUtilization, device, ret_samples, count, last_seen_us);
  struct vg_attach_usage usage;
  struct samples samples = {device, last_seen_us};
  nvmlProcessUtilizationSample_t *all;
  unsigned found, kept = 0, capacity = ret_samples == NULL ? 0 : *count;
  nvmlReturn_t result = vg_ml_all(ask_samples, &samples, sizeof *all, &found, (void **)&all);
  if (result != NVML_SUCCESS) return result;
  vg_ml_usage(&usage);
  for (unsigned i = 0; i < found; i++) {
    all[i].pid = vg_ml_own_pid(&usage, all[i].pid);
    if (all[i].pid == 0) continue;
    all[i].smUtil = vg_ml_percent(all[i].smUtil, &own);
    all[i].memUtil = vg_ml_percent(all[i].memUtil, &own);
    if (kept < capacity) ret_samples[kept] = all[i];
    kept++;
  }
  free(all);
  if (kept == 0) {
    *count = 0;
    return NVML_ERROR_NOT_FOUND;
  }
  return vg_ml_fitted(kept, count, ret_samples);
}

/* The newer form of the call above. It lists every process, so in a slice it is not supported: programs then use the
 * older one, which is filtered. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, void *info) {
  if (vg_ml_in_slice()) return NVML_ERROR_NOT_SUPPORTED;
  return VG_ML_REAL(nvmlDeviceGetProcessesUtilizationInfo, device, info);
}
