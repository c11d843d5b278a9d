/*
 * instances.c - GPUs in MIG mode: the instances that the configuration lists become devices of their own, behind the
 * GPUs. Called once by config.c. Each has SMs, memory and a busy log of its own, so instances do not slow each other.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <string.h>

/* "3g.71gb": 3 of the GPU's compute slices and 71 GiB. */
static int profile_read(const char *text, unsigned *ret_slices, uint64_t *ret_bytes) {
  unsigned gibibytes;
  int length = 0;
  if (sscanf(text, "%1ug.%4ugb%n", ret_slices, &gibibytes, &length) != 2 || length == 0 || text[length]) return -EINVAL;
  if (*ret_slices < 1 || *ret_slices > SIM_MIG_SLICES || gibibytes < 1) return -EINVAL;
  *ret_bytes = (uint64_t)gibibytes << 30;
  return 0;
}

static int refuse(uint32_t gpu, const char *profile, const char *why) {
  fprintf(stderr, "vgpu-simd: device.%u.mig: %s %s\n", gpu, profile, why);
  return -EINVAL;
}

static void add(struct config *config, uint32_t gpu, uint32_t number, unsigned slices, uint64_t memory_bytes,
                const char *profile) {
  struct config_device *made = &config->devices[config->device_count++];
  const struct config_device *parent = &config->devices[gpu];
  *made = (struct config_device){.memory_bytes = memory_bytes, .parent = gpu + 1, .number = number, .slices = slices};
  made->compute_major = parent->compute_major;
  made->compute_minor = parent->compute_minor;
  made->sm_count = slices == SIM_MIG_SLICES ? parent->sm_count : parent->sm_count * slices / SIM_MIG_SM_PARTS;
  if (made->sm_count == 0) made->sm_count = 1;
  snprintf(made->name, sizeof made->name, "%.40s MIG %.15s", parent->name, profile);
  memcpy(made->uuid, parent->uuid, sizeof made->uuid);
  made->uuid[14] ^= (uint8_t)(number + 1);
}

static int of_gpu(struct config *config, uint32_t gpu) {
  char list[sizeof config->devices[gpu].instances], *rest = list, *profile;
  uint32_t number = 0;
  unsigned slices_left = SIM_MIG_SLICES, slices;
  uint64_t bytes_left = config->devices[gpu].memory_bytes, bytes;
  memcpy(list, config->devices[gpu].instances, sizeof list);
  while ((profile = strsep(&rest, ", "))) {
    if (!*profile) continue;
    if (profile_read(profile, &slices, &bytes) < 0) return refuse(gpu, profile, "is no profile such as 1g.18gb");
    if (slices > slices_left || bytes > bytes_left) return refuse(gpu, profile, "does not fit beside the others");
    if (config->device_count == SIM_DEVICES_MAX) return refuse(gpu, profile, "is one device too many");
    add(config, gpu, number++, slices, bytes, profile);
    slices_left -= slices;
    bytes_left -= bytes;
  }
  return 0;
}

int instances_make(struct config *config) {
  uint32_t gpus = config->device_count;
  int rc = 0;
  for (uint32_t gpu = 0; rc == 0 && gpu < gpus; gpu++) rc = of_gpu(config, gpu);
  return rc;
}
