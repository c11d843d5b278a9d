/*
 * config.c - the configuration of vgpu-simd: `key = value` lines, # begins a comment. Called once by main.c. Unknown
 * keys and invalid values are errors that name file, line and fix.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void defaults(struct config *config) {
  memset(config, 0, sizeof *config);
  config->device_count = 1;
  config->slice_ns = SIM_SLICE_NS;
  config->switch_ns = SIM_SWITCH_NS;
  config->launch_cost_ns = SIM_LAUNCH_COST_NS;
  config->link_bytes_per_us = SIM_HOST_LINK_BYTES_PER_US;
  config->context_bytes = SIM_CONTEXT_BYTES;
  config->managed_fault_ns = SIM_MANAGED_FAULT_NS;
  config->speed = 1;
  config->checkpoint = true;
  config->host_memory_bytes = host_memory_default();
  for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
    struct config_device *device = &config->devices[i];
    strcpy(device->name, SIM_DEVICE_NAME);
    device->memory_bytes = SIM_MEMORY_BYTES;
    device->sm_count = SIM_SM_COUNT;
    device->compute_major = SIM_COMPUTE_MAJOR;
    device->compute_minor = SIM_COMPUTE_MINOR;
    memcpy(device->uuid, "SIMULATED-GPU\0\0", 16);
    device->uuid[15] = (uint8_t)i;
  }
}

/* A whole number with an optional binary suffix K, M, G or T. */
static int number(const char *text, uint64_t *ret_value) {
  char *end;
  errno = 0;
  uint64_t value = strtoull(text, &end, 0);
  if (errno || end == text || *text == '-') return -EINVAL;
  static const char suffixes[] = "KMGT";
  const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  unsigned shift = suffix ? 10u * (unsigned)(suffix - suffixes + 1) : 0;
  if (suffix) end++;
  if (*end || value > UINT64_MAX >> shift) return -EINVAL;
  *ret_value = value << shift;
  return 0;
}

/* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, GPU- may be missing. */
static int uuid(const char *text, uint8_t ret_uuid[16]) {
  if (strncmp(text, "GPU-", 4) == 0) text += 4;
  int digits = 0;
  memset(ret_uuid, 0, 16);
  for (; *text; text++) {
    if (*text == '-') continue;
    const char *hex = "0123456789abcdef", *digit = strchr(hex, tolower((unsigned char)*text));
    if (!digit || digits == 32) return -EINVAL;
    ret_uuid[digits / 2] |= (uint8_t)((digit - hex) << (digits % 2 ? 0 : 4));
    digits++;
  }
  return digits == 32 ? 0 : -EINVAL;
}

static int set_name(struct config_device *device, const char *value) {
  const char *prefix = strstr(value, "SIMULATED") ? "" : "SIMULATED ";
  int length = snprintf(device->name, sizeof device->name, "%s%s", prefix, value);
  return length < (int)sizeof device->name ? 0 : -EINVAL;
}

/* A compute capability, as 8.9. */
static int set_compute(struct config_device *device, const char *value) {
  unsigned major, minor;
  int length = 0;
  if (sscanf(value, "%2u.%1u%n", &major, &minor, &length) != 2 || value[length]) return -EINVAL;
  device->compute_major = major;
  device->compute_minor = minor;
  return 0;
}

static int set_device(struct config *config, const char *key, const char *value) {
  char *rest;
  unsigned long index = strtoul(key, &rest, 10);
  if (rest == key || *rest != '.' || index >= SIM_DEVICES_MAX) return -ENOENT;
  struct config_device *device = &config->devices[index];
  uint64_t count = 0;
  rest++;
  if (strcmp(rest, "name") == 0) return set_name(device, value);
  if (strcmp(rest, "uuid") == 0) return uuid(value, device->uuid);
  if (strcmp(rest, "memory_bytes") == 0)
    return number(value, &device->memory_bytes) < 0 || device->memory_bytes < SIM_GRANULE_BYTES ? -EINVAL : 0;
  if (strcmp(rest, "compute") == 0) return set_compute(device, value);
  if (strcmp(rest, "mig") == 0) {
    int length = snprintf(device->instances, sizeof device->instances, "%s", value);
    return length > 0 && length < (int)sizeof device->instances ? 0 : -EINVAL;
  }
  if (strcmp(rest, "nvlink") == 0) {
    if (number(value, &count) < 0 || count > SIM_DEVICES_MAX) return -EINVAL;
    device->nvlink_group = (uint32_t)count;
    return 0;
  }
  if (strcmp(rest, "sm_count") != 0) return -ENOENT;
  if (number(value, &count) < 0 || count < 1 || count > 4096) return -EINVAL;
  device->sm_count = (uint32_t)count;
  return 0;
}

static int set_number(const char *value, uint64_t least, uint64_t most, uint64_t unit, uint64_t *ret_value) {
  uint64_t count;
  if (number(value, &count) < 0 || count < least || count > most) return -EINVAL;
  *ret_value = count * unit;
  return 0;
}

static int set(struct config *config, const char *key, const char *value) {
  uint64_t count = 0;
  int rc = 0;
  if (strncmp(key, "device.", 7) == 0) return set_device(config, key + 7, value);
  if (strcmp(key, "slice_us") == 0) return set_number(value, 10, 1000000, 1000, &config->slice_ns);
  if (strcmp(key, "switch_us") == 0) return set_number(value, 0, 1000000, 1000, &config->switch_ns);
  if (strcmp(key, "launch_cost_ns") == 0) return set_number(value, 0, 1000000000, 1, &config->launch_cost_ns);
  if (strcmp(key, "link_bytes_per_us") == 0) return set_number(value, 1, 1000000000, 1, &config->link_bytes_per_us);
  if (strcmp(key, "context_bytes") == 0) return set_number(value, 0, 1ull << 50, 1, &config->context_bytes);
  if (strcmp(key, "managed_fault_ns") == 0) return set_number(value, 0, 1000000000, 1, &config->managed_fault_ns);
  if (strcmp(key, "speed") == 0) return set_number(value, 1, 1000000000, 1, &config->speed);
  if (strcmp(key, "memory_limits") == 0) {
    rc = set_number(value, 0, 1, 1, &count);
    config->memory_limits = count == 1;
    return rc;
  }
  if (strcmp(key, "checkpoint") == 0) {
    rc = set_number(value, 0, 1, 1, &count);
    config->checkpoint = count == 1;
    return rc;
  }
  if (strcmp(key, "host_memory_bytes") == 0)
    return set_number(value, SIM_GRANULE_BYTES, 1ull << 50, 1, &config->host_memory_bytes);
  if (strcmp(key, "devices") == 0) {
    rc = set_number(value, 1, SIM_DEVICES_MAX, 1, &count);
    if (rc == 0) config->device_count = (uint32_t)count;
    return rc;
  }
  if (strcmp(key, "memory_bytes") == 0) {
    rc = set_number(value, SIM_GRANULE_BYTES, 1ull << 50, 1, &count);
    for (uint32_t i = 0; rc == 0 && i < SIM_DEVICES_MAX; i++) config->devices[i].memory_bytes = count;
    return rc;
  }
  if (strcmp(key, "model") != 0) return -ENOENT;
  return snprintf(config->model, sizeof config->model, "%s", value) < (int)sizeof config->model ? 0 : -EINVAL;
}

static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
  return text;
}

static int line_read(struct config *config, char *line, const char *path, int line_number) {
  char *comment = strchr(line, '#');
  if (comment) *comment = 0;
  char *key = trim(line), *equals = strchr(key, '=');
  if (!*key) return 0;
  if (!equals) {
    fprintf(stderr, "vgpu-simd: %s:%d: \"%s\" is no `key = value` line\n", path, line_number, key);
    return -EINVAL;
  }
  *equals = 0;
  key = trim(key);
  char *value = trim(equals + 1);
  int rc = set(config, key, value);
  if (rc == -ENOENT)
    fprintf(stderr,
            "vgpu-simd: %s:%d: unknown key \"%s\": use devices, memory_bytes, slice_us, switch_us, launch_cost_ns, "
            "link_bytes_per_us, context_bytes, host_memory_bytes, managed_fault_ns, memory_limits, checkpoint, speed, "
            "model or device.N.{name,uuid,memory_bytes,sm_count,compute,mig,nvlink}\n",
            path, line_number, key);
  else if (rc < 0)
    fprintf(stderr, "vgpu-simd: %s:%d: \"%s\" is no value for %s\n", path, line_number, value, key);
  return rc;
}

int config_read(const char *path, struct config *ret_config) {
  defaults(ret_config);
  if (!path) return 0;
  FILE *file = fopen(path, "re");
  if (!file) {
    fprintf(stderr, "vgpu-simd: cannot read %s: %s\n", path, strerror(errno));
    return -errno;
  }
  char line[1024];
  int rc = 0;
  for (int number = 1; rc == 0 && fgets(line, sizeof line, file); number++)
    rc = line_read(ret_config, line, path, number);
  fclose(file);
  return rc < 0 ? rc : instances_make(ret_config);
}
