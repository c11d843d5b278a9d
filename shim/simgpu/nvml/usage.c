/*
 * usage.c - simulated NVML: memory, processes and how busy the device and they are. Called by programs.
 */
#include "base/prim.h"
#include "simgpu/nvml/page.h"
#include <string.h>
#include <time.h>

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *ret_memory) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  ret_memory->total = state.memory_bytes;
  ret_memory->used = state.used_bytes;
  ret_memory->free = state.memory_bytes - state.used_bytes;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *ret_memory) {
  nvmlMemory_t memory;
  if (ret_memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (ret_memory->version != NVML_VERSION(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &memory);
  if (result != NVML_SUCCESS) return result;
  sim_nvml_apply_limits(device, &memory); /* of the two calls NVIDIA's documents name this one */
  ret_memory->total = memory.total;
  ret_memory->reserved = 0; /* the simulated driver keeps nothing for itself */
  ret_memory->used = memory.used;
  ret_memory->free = memory.free;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *ret_memory) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (ret_memory == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_memory = (nvmlBAR1Memory_t){.bar1Total = 256ull << 30, .bar1Free = 256ull << 30};
  return NVML_SUCCESS;
}

/* The processes with a context, in the form that all versions can be made from. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *ret_infos, unsigned *ret_found) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned found = 0;
  for (uint32_t i = 0; i < SIM_PROCESSES_MAX; i++) {
    const struct sim_page_process *process = &state.processes[i];
    if (process->pid == 0 || process->contexts == 0) continue;
    ret_infos[found++] = (nvmlProcessInfo_t){.pid = process->pid,
                                             .usedGpuMemory = process->used_bytes,
                                             .gpuInstanceId = sim_nvml_instance_id(&state),
                                             .computeInstanceId = state.parent ? 0 : NVML_NO_INSTANCE};
  }
  unsigned room = *count;
  *ret_found = *count = found;
  return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_t *ret_infos) {
  nvmlProcessInfo_t found[SIM_PROCESSES_MAX];
  unsigned number;
  nvmlReturn_t result = list(device, count, found, &number);
  if (result != NVML_SUCCESS) return result;
  if (number != 0 && ret_infos == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (number != 0) memcpy(ret_infos, found, number * sizeof found[0]);
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_t *ret_infos) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, ret_infos);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v1_t *ret_infos) {
  nvmlProcessInfo_t found[SIM_PROCESSES_MAX];
  unsigned number;
  nvmlReturn_t result = list(device, count, found, &number);
  if (result != NVML_SUCCESS) return result;
  if (number != 0 && ret_infos == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < number; i++) {
    ret_infos[i].pid = found[i].pid;
    ret_infos[i].usedGpuMemory = found[i].usedGpuMemory;
  }
  return NVML_SUCCESS;
}

static nvmlReturn_t nobody(nvmlDevice_t device, unsigned *count) {
  struct sim_page_device state;
  nvmlReturn_t result = sim_nvml_device(device, &state);
  if (result != NVML_SUCCESS) return result;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

#define NOBODY(name)                                                                                                   \
  NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *ret_infos) {                               \
    (void)ret_infos;                                                                                                   \
    return nobody(device, count);                                                                                      \
  }
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)

/* With MPS one, for which the server stands. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                                    nvmlProcessInfo_t *ret_infos) {
  unsigned room = count == NULL ? 0 : *count;
  nvmlReturn_t result = nobody(device, count);
  if (result != NVML_SUCCESS || sim_nvml_mode(device) != SIM_MODE_MPS) return result;
  *count = 1;
  if (room == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (ret_infos == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  *ret_infos = (nvmlProcessInfo_t){.pid = (unsigned)sim_nvml_page()->server_pid,
                                   .gpuInstanceId = NVML_NO_INSTANCE,
                                   .computeInstanceId = NVML_NO_INSTANCE};
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                                    nvmlProcessInfo_t *ret_infos) {
  return nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, ret_infos);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                                 nvmlProcessInfo_v1_t *ret_infos) {
  nvmlProcessInfo_t found;
  nvmlReturn_t result = nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, &found);
  if (result != NVML_SUCCESS || *count == 0) return result;
  if (ret_infos == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  ret_infos->pid = found.pid;
  ret_infos->usedGpuMemory = found.usedGpuMemory;
  return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_v1_t *details) {
  nvmlProcessInfo_t found[SIM_PROCESSES_MAX];
  unsigned number;
  if (details == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (details->version != NVML_VERSION(nvmlProcessDetailList_v1_t, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (details->mode != 0) return nobody(device, &details->numProcArrayEntries);
  nvmlReturn_t result = list(device, &details->numProcArrayEntries, found, &number);
  if (result != NVML_SUCCESS) return result;
  if (number != 0 && details->procArray == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  for (unsigned i = 0; i < number; i++)
    details->procArray[i] = (nvmlProcessDetail_v1_t){.pid = found[i].pid,
                                                     .usedGpuMemory = found[i].usedGpuMemory,
                                                     .gpuInstanceId = found[i].gpuInstanceId,
                                                     .computeInstanceId = found[i].computeInstanceId};
  return NVML_SUCCESS;
}

static unsigned percent(uint64_t part_ns, uint64_t whole_ns) {
  uint64_t value = whole_ns == 0 ? 0 : (part_ns * 100 + whole_ns / 2) / whole_ns;
  return value > 100 ? 100 : (unsigned)value;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *ret_utilization) {
  struct sim_nvml_sample old, new;
  if (ret_utilization == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = sim_nvml_gpu(device); /* NVIDIA's does not know it of an instance either */
  if (result == NVML_SUCCESS) result = sim_nvml_samples(device, &old, &new);
  if (result != NVML_SUCCESS) return result;
  uint64_t span_ns = new.taken_ns - old.taken_ns;
  ret_utilization->gpu = percent(new.busy_ns - old.busy_ns, span_ns);
  ret_utilization->memory = percent(new.copy_busy_ns - old.copy_busy_ns, span_ns);
  return NVML_SUCCESS;
}

static uint64_t busy_before(const struct sim_nvml_sample *sample, int32_t pid) {
  for (uint32_t i = 0; i < sample->process_count; i++)
    if (sample->processes[i].pid == pid) return sample->processes[i].busy_ns;
  return 0;
}

static uint64_t wall_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* One sample for each process: its share of the SMs between the last two looks. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                         nvmlProcessUtilizationSample_t *ret_samples, unsigned *count,
                                                         unsigned long long last_seen_us) {
  struct sim_nvml_sample old, new;
  if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result == NVML_SUCCESS) result = sim_nvml_samples(device, &old, &new);
  if (result != NVML_SUCCESS) return result;
  unsigned room = *count;
  *count = new.process_count;
  if (ret_samples == NULL && new.process_count != 0) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (room < new.process_count) return NVML_ERROR_INSUFFICIENT_SIZE;
  uint64_t stamp_us = wall_us() - (vg_prim_now_ns() - new.taken_ns) / 1000u;
  if (new.process_count == 0 || stamp_us <= last_seen_us) {
    *count = 0;
    return NVML_ERROR_NOT_FOUND; /* nothing newer */
  }
  uint64_t span_ns = new.taken_ns - old.taken_ns;
  for (uint32_t i = 0; i < new.process_count; i++) {
    int32_t pid = new.processes[i].pid;
    uint64_t busy_ns = new.processes[i].busy_ns - busy_before(&old, pid);
    ret_samples[i] =
        (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = stamp_us, .smUtil = percent(busy_ns, span_ns)};
  }
  return NVML_SUCCESS;
}
