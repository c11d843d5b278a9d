/*
 * fake_driver.c - the little of libcuda and NVML that the daemon asks for when it starts, in one library, steered by
 * environment variables. Tests give its path to vgpud as `driver` and `nvml`; nothing runs on it.
 *   FAKE_CUINIT=n        cuInit returns n          FAKE_DEVICES=n       how many devices (default 1)
 *   FAKE_MEMORY=bytes    of each device            FAKE_COMPUTE_MODE=n  nvmlComputeMode_t
 *   FAKE_MIG=bits        devices in MIG mode       FAKE_LOST=FILE       while FILE exists every reading fails
 *   FAKE_LISTED=FILE     the pids in FILE, two at most, are listed as compute processes
 *   FAKE_NODE=n                     devices of another n are others: n is a part of their UUIDs
 *   FAKE_XID=FILE        the number in FILE is reported as a fault of the first device, once: FILE goes
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOST 15 /* NVML_ERROR_GPU_IS_LOST */

static long number(const char *name, long fallback) {
  const char *text = getenv(name);
  return text ? atol(text) : fallback;
}

static int lost(void) {
  const char *path = getenv("FAKE_LOST");
  return path && access(path, F_OK) == 0;
}

/* ---- CUDA ---- */

int cuInit(unsigned flags) {
  (void)flags;
  return (int)number("FAKE_CUINIT", 0);
}

int cuGetErrorName(int code, const char **ret_name) {
  *ret_name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  return 0;
}

int cuDriverGetVersion(int *ret_version) {
  *ret_version = 13000;
  return 0;
}

/* ---- NVML ---- */

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct rates {
  unsigned gpu, memory;
};

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return 0;
}
int nvmlShutdown(void) {
  return 0;
}
const char *nvmlErrorString(int code) {
  return code == LOST ? "GPU is lost" : "error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
  snprintf(text, bytes, "999.1");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned *ret_count) {
  *ret_count = (unsigned)number("FAKE_DEVICES", 1);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret_device) {
  *ret_device = (void *)(unsigned long)(index + 1);
  return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned bytes) {
  snprintf(text, bytes, "GPU-%08lx-0000-0000-0000-0000000000%02lx", number("FAKE_NODE", 0), (unsigned long)device - 1);
  return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned bytes) {
  snprintf(text, bytes, "FAKE %lu", (unsigned long)device - 1);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *ret_info) {
  memset(ret_info, 0, sizeof(*ret_info));
  snprintf(ret_info->bus_id, sizeof(ret_info->bus_id), "00000000:%02lX:00.0", (unsigned long)device);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret_memory) {
  (void)device;
  if (lost()) return LOST;
  ret_memory->total = (unsigned long long)number("FAKE_MEMORY", 80l << 30);
  ret_memory->used = 1 << 20;
  ret_memory->free = ret_memory->total - ret_memory->used;
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *ret_memory) {
  (void)device;
  if (lost()) return LOST;
  ret_memory->total = (unsigned long long)number("FAKE_MEMORY", 80l << 30);
  ret_memory->reserved = 0;
  return 0;
}
struct process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *ret_count, struct process *ret_processes) {
  (void)device;
  unsigned room = *ret_count, pids[2];
  const char *path = getenv("FAKE_LISTED");
  FILE *file = path ? fopen(path, "r") : NULL;
  int found = file ? fscanf(file, "%u %u", &pids[0], &pids[1]) : 0;
  if (file) fclose(file);
  *ret_count = found > 0 ? (unsigned)found : 0;
  if (*ret_count > room) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  for (unsigned i = 0; i < *ret_count; i++) ret_processes[i] = (struct process){.pid = pids[i]};
  return 0;
}
int nvmlDeviceGetNumGpuCores(void *device, unsigned *ret_cores) {
  (void)device;
  *ret_cores = 132 * 128;
  return 0;
}
int nvmlDeviceGetComputeMode(void *device, int *ret_mode) {
  (void)device;
  *ret_mode = (int)number("FAKE_COMPUTE_MODE", 0);
  return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *ret_current, unsigned *ret_pending) {
  *ret_current = *ret_pending = (unsigned)(number("FAKE_MIG", 0) >> ((unsigned long)device - 1)) & 1u;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct rates *ret_rates) {
  (void)device;
  if (lost()) return LOST;
  ret_rates->gpu = 50;
  ret_rates->memory = 10;
  return 0;
}

/* ---- events ---- */

struct event {
  void *device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
int nvmlEventSetCreate(void **ret_set) {
  *ret_set = ret_set;
  return 0;
}
static unsigned long long registered;
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)device, (void)set;
  registered = types;
  return 0;
}
int nvmlEventSetWait_v2(void *set, struct event *ret_event, unsigned timeout_ms) {
  (void)set, (void)timeout_ms;
  const char *path = getenv("FAKE_XID");
  FILE *file = path && registered ? fopen(path, "r") : NULL;
  if (!file) return 10; /* NVML_ERROR_TIMEOUT */
  *ret_event = (struct event){.device = (void *)1, .type = registered};
  int found = fscanf(file, "%llu", &ret_event->data);
  fclose(file);
  unlink(path);
  return found == 1 ? 0 : 10;
}
