/*
 * hook_sessions.c - NVML of a slice: the accounting of its processes and their sessions at the device's encoders and
 * frame buffer capture, with the pids that the caller's pid namespace has for them. Called by programs instead of the
 * real functions. Only processes that the slice has now are reported: the daemon keeps no pids of ended ones.
 */
#include <stdlib.h>
#include <string.h>

#include "nvml/processes.h"
#include "nvml/resolve_ml.h"

struct list {
  nvmlReturn_t (*real)(nvmlDevice_t device, unsigned *count, void *entries);
  nvmlDevice_t device;
};

static nvmlReturn_t ask_list(const void *question, unsigned *count, void *ret_entries) {
  const struct list *list = question;
  return list->real(list->device, count, ret_entries);
}

/* The slice's own entries of a list of the real library; free() them. pid_offset: where in an entry its pid is. */
static nvmlReturn_t own_entries(const char *name, nvmlDevice_t device, size_t entry_bytes, size_t pid_offset,
                                unsigned *ret_count, void **ret_entries) {
  struct vg_attach_usage usage;
  unsigned found, kept = 0;
  void *real = vg_ml_symbol(name);
  struct list list = {(__typeof__(list.real))real, device};
  nvmlReturn_t result = real == NULL ? vg_ml_missing() : vg_ml_all(ask_list, &list, entry_bytes, &found, ret_entries);
  if (result != NVML_SUCCESS) return result;
  vg_ml_usage(&usage);
  for (unsigned i = 0; i < found; i++) {
    char *entry = (char *)*ret_entries + i * entry_bytes;
    unsigned pid;
    memcpy(&pid, entry + pid_offset, sizeof pid);
    pid = vg_ml_own_pid(&usage, pid);
    if (pid == 0) continue;
    memcpy(entry + pid_offset, &pid, sizeof pid);
    memmove((char *)*ret_entries + kept++ * entry_bytes, entry, entry_bytes);
  }
  *ret_count = kept;
  return NVML_SUCCESS;
}

/* Copies a list of the slice's own entries to the caller; ret_own NULL: only their number. */
static nvmlReturn_t hand_out(const char *name, nvmlDevice_t device, size_t entry_bytes, size_t pid_offset,
                             unsigned *count, void *ret_own) {
  void *entries;
  unsigned found;
  nvmlReturn_t result = own_entries(name, device, entry_bytes, pid_offset, &found, &entries);
  if (result != NVML_SUCCESS) return result;
  if (ret_own != NULL && found != 0) memcpy(ret_own, entries, (found < *count ? found : *count) * entry_bytes);
  free(entries);
  return vg_ml_fitted(found, count, ret_own);
}

/* ---- accounting ---- */

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *ret_pids) {
  if (!vg_ml_in_slice() || count == NULL) return VG_ML_REAL(nvmlDeviceGetAccountingPids, device, count, ret_pids);
  return hand_out("nvmlDeviceGetAccountingPids", device, sizeof *ret_pids, 0, count, ret_pids);
}

/* The pid by which the real library is to be asked, tried in this order; 0: there is no such process in the slice. */
static void known_as(unsigned pid, unsigned ret_pids[2]) {
  struct vg_attach_usage usage;
  vg_ml_usage(&usage);
  ret_pids[0] = ret_pids[1] = 0;
  for (uint32_t i = 0; i < usage.process_count && ret_pids[0] == 0; i++) {
    if ((unsigned)usage.processes[i].pid != pid) continue;
    ret_pids[0] = (unsigned)usage.processes[i].host_pid;
    ret_pids[1] = pid;
  }
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid,
                                                     nvmlAccountingStats_t *ret_stats) {
  struct vg_ml_device own;
  if (!vg_ml_in_slice() || !vg_ml_find(device, &own))
    return VG_ML_REAL(nvmlDeviceGetAccountingStats, device, pid, ret_stats);
  unsigned pids[2];
  nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
  known_as(pid, pids);
  for (int i = 0; i < 2 && pids[i] != 0 && result == NVML_ERROR_NOT_FOUND; i++)
    result = VG_ML_REAL(nvmlDeviceGetAccountingStats, device, pids[i], ret_stats);
  if (result != NVML_SUCCESS) return result;
  ret_stats->gpuUtilization = vg_ml_percent(ret_stats->gpuUtilization, &own);
  ret_stats->memoryUtilization = vg_ml_percent(ret_stats->memoryUtilization, &own);
  return NVML_SUCCESS;
}

/* The sums over samples go with the shares that they are sums of. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
  struct vg_ml_device own;
  if (!vg_ml_in_slice() || stats == NULL || !vg_ml_find(device, &own))
    return VG_ML_REAL(nvmlDeviceGetAccountingStats_v2, device, stats);
  unsigned asked = stats->pid, pids[2];
  nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
  known_as(asked, pids);
  for (int i = 0; i < 2 && pids[i] != 0 && result == NVML_ERROR_NOT_FOUND; i++) {
    stats->pid = pids[i];
    result = VG_ML_REAL(nvmlDeviceGetAccountingStats_v2, device, stats);
  }
  stats->pid = asked;
  if (result != NVML_SUCCESS) return result;
  stats->gpuUtilization = vg_ml_percent(stats->gpuUtilization, &own);
  stats->memoryUtilization = vg_ml_percent(stats->memoryUtilization, &own);
  unsigned milli = own.numbers.max_milli;
  if (milli != 0) stats->sumGpuUtil = stats->sumGpuUtil * 1000 / milli;
  if (milli != 0) stats->sumFbUtil = stats->sumFbUtil * 1000 / milli;
  return NVML_SUCCESS;
}

/* ---- sessions ---- */

/* Unlike other lists, one that is only counted is a success. */
static nvmlReturn_t own_sessions(const char *name, nvmlDevice_t device, size_t entry_bytes, size_t pid_offset,
                                 unsigned *count, void *ret_sessions) {
  bool counted = *count == 0;
  nvmlReturn_t result = hand_out(name, device, entry_bytes, pid_offset, count, ret_sessions);
  return counted && result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : result;
}

#define SESSIONS_ML_HOOK(name, session_type)                                                                           \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, session_type *ret_sessions) {                    \
    if (!vg_ml_in_slice() || count == NULL) return VG_ML_REAL(name, device, count, ret_sessions);                      \
    return own_sessions(#name, device, sizeof(session_type), offsetof(session_type, pid), count, ret_sessions);        \
  }
SESSIONS_ML_HOOK(nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t)
SESSIONS_ML_HOOK(nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t)

static unsigned mean(unsigned long long sum, unsigned count) {
  return count == 0 ? 0 : (unsigned)(sum / count);
}

/* The means over the slice's own sessions; the real statistics are asked for their errors. */
VG_ML_HOOK nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *ret_count, unsigned *ret_fps,
                                                  unsigned *ret_latency_us) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetEncoderStats, device, ret_count, ret_fps, ret_latency_us);
  if (result != NVML_SUCCESS || !vg_ml_in_slice()) return result;
  nvmlEncoderSessionInfo_t *sessions;
  unsigned long long fps = 0, latency_us = 0;
  result = own_entries("nvmlDeviceGetEncoderSessions", device, sizeof *sessions,
                       offsetof(nvmlEncoderSessionInfo_t, pid), ret_count, (void **)&sessions);
  if (result != NVML_SUCCESS) return result;
  for (unsigned i = 0; i < *ret_count; i++) {
    fps += sessions[i].averageFps;
    latency_us += sessions[i].averageLatency;
  }
  free(sessions);
  *ret_fps = mean(fps, *ret_count);
  *ret_latency_us = mean(latency_us, *ret_count);
  return NVML_SUCCESS;
}

VG_ML_HOOK nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *ret_stats) {
  nvmlReturn_t result = VG_ML_REAL(nvmlDeviceGetFBCStats, device, ret_stats);
  if (result != NVML_SUCCESS || !vg_ml_in_slice()) return result;
  nvmlFBCSessionInfo_t *sessions;
  unsigned count;
  unsigned long long fps = 0, latency_us = 0;
  result = own_entries("nvmlDeviceGetFBCSessions", device, sizeof *sessions, offsetof(nvmlFBCSessionInfo_t, pid),
                       &count, (void **)&sessions);
  if (result != NVML_SUCCESS) return result;
  for (unsigned i = 0; i < count; i++) {
    fps += sessions[i].averageFPS;
    latency_us += sessions[i].averageLatency;
  }
  free(sessions);
  *ret_stats = (nvmlFBCStats_t){count, mean(fps, count), mean(latency_us, count)};
  return NVML_SUCCESS;
}
