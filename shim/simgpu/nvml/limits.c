/*
 * limits.c - simulated NVML: limits of cgroups on device memory, which vgpu-simd keeps. Called by programs.
 */
#define _GNU_SOURCE
#include "simgpu/nvml/page.h"
#include "simgpu/wire_send.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static nvmlReturn_t code_of(int status) {
  switch (status) {
  case 0:
    return NVML_SUCCESS;
  case -EPERM:
    return NVML_ERROR_NO_PERMISSION;
  case -EOPNOTSUPP:
    return NVML_ERROR_NOT_SUPPORTED;
  case -ENOENT:
    return NVML_ERROR_NOT_FOUND;
  case -EINVAL:
    return NVML_ERROR_INVALID_ARGUMENT;
  default:
    return NVML_ERROR_UNKNOWN;
  }
}

/* One request about a device, with the descriptor of a cgroup's directory or -1. */
static nvmlReturn_t ask(enum sim_request_kind kind, nvmlDevice_t device, int fd, struct sim_wire_limits *limits) {
  struct sim_request request = {
      .magic = SIM_WIRE_MAGIC, .version = SIM_WIRE_VERSION, .kind = kind, .device = device->index, .limits = *limits};
  struct sim_reply reply;
  int link = sim_nvml_connect();
  if (link < 0) return NVML_ERROR_GPU_IS_LOST;
  bool answered = sim_wire_send(link, &request, fd) == 0 && recv(link, &reply, sizeof reply, 0) == sizeof reply;
  close(link);
  if (!answered) return NVML_ERROR_GPU_IS_LOST;
  if (reply.status == 0) *limits = reply.limits;
  return code_of(reply.status);
}

static nvmlReturn_t ask_about(enum sim_request_kind kind, nvmlDevice_t device, const char *directory,
                              struct sim_wire_limits *limits) {
  nvmlReturn_t result = sim_nvml_gpu(device);
  if (result != NVML_SUCCESS) return result;
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
  result = ask(kind, device, fd, limits);
  close(fd);
  return result;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (limits == NULL || limits->nameSpace == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  struct sim_wire_limits wanted = {.soft = limits->softLimit, .hard = limits->hardLimit};
  return ask_about(SIM_REQUEST_LIMITS_SET, device, limits->nameSpace, &wanted);
}

/* Where no limit is above a cgroup it is reported as not supported, as NVIDIA's does with its own accounting. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
  nvmlReturn_t result = sim_nvml_ready();
  if (result != NVML_SUCCESS) return result;
  if (limits == NULL || limits->nameSpace == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  struct sim_wire_limits found = {0};
  result = ask_about(SIM_REQUEST_LIMITS_GET, device, limits->nameSpace, &found);
  if (result == NVML_ERROR_NOT_FOUND && access(limits->nameSpace, F_OK) == 0) return NVML_ERROR_NOT_SUPPORTED;
  if (result != NVML_SUCCESS) return result;
  limits->softLimit = found.soft;
  limits->hardLimit = found.hard;
  limits->currentUsed = found.used;
  return NVML_SUCCESS;
}

void sim_nvml_apply_limits(nvmlDevice_t device, nvmlMemory_t *memory) {
  struct sim_wire_limits own = {0};
  if (sim_nvml_page()->limit_count == 0 || sim_nvml_gpu(device) != NVML_SUCCESS) return;
  if (ask(SIM_REQUEST_LIMITS_OWN, device, -1, &own) != NVML_SUCCESS || own.hard >= memory->total) return;
  uint64_t left = own.used < own.hard ? own.hard - own.used : 0;
  memory->total = own.hard;
  memory->free = left < memory->free ? left : memory->free;
  memory->used = memory->total - memory->free;
}
