/*
 * host_memory.c - how much of the host's memory may lie behind the device memory of all processes together. Each
 * process asks before it touches more (shim/simgpu/arena/backing.c). Called by client.c and config.c.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES (64ull << 20)

int host_memory_set(struct process *process, uint64_t bytes) {
  uint64_t others = server.host_bytes - process->host_bytes, budget = server.config.host_memory_bytes;
  if (bytes > process->host_bytes && (others > budget || bytes > budget - others)) return -ENOMEM;
  process->host_bytes = bytes;
  server.host_bytes = others + bytes;
  return 0;
}

/* The number in a file that holds one. False: there is none ("max"), or no such file. */
static bool number_in(const char *path, uint64_t *ret_value) {
  FILE *file = fopen(path, "re");
  unsigned long long value;
  bool found = file && fscanf(file, "%llu", &value) == 1;
  if (file) fclose(file);
  if (found) *ret_value = value;
  return found;
}

static uint64_t available_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "re");
  unsigned long long kib = 0;
  char line[256];
  while (file && kib == 0 && fgets(line, sizeof line, file)) sscanf(line, "MemAvailable: %llu kB", &kib);
  if (file) fclose(file);
  return kib << 10;
}

/* Cached files of a group: the kernel drops these before a limit is met. */
static uint64_t cached_bytes(const char *path, const char *prefix) {
  FILE *file = fopen(path, "re");
  char line[256], *name;
  uint64_t sum = 0;
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, prefix, strlen(prefix)) != 0) continue;
    name = line + strlen(prefix);
    if (strncmp(name, "inactive_file ", 14) == 0) sum += strtoull(name + 14, NULL, 10);
    if (strncmp(name, "active_file ", 12) == 0) sum += strtoull(name + 12, NULL, 10);
  }
  if (file) fclose(file);
  return sum;
}

struct hierarchy { /* one version of cgroups */
  const char *root, *limit, *usage, *stat_prefix;
};

/* What a group and those above it may still take. Their limits can only be lower than what the host has. */
static uint64_t left_in_groups(const struct hierarchy *in, char *group, uint64_t least) {
  char path[1024];
  uint64_t most, used;
  for (;;) {
    snprintf(path, sizeof path, "%s%s/%s", in->root, group, in->limit);
    if (number_in(path, &most)) {
      snprintf(path, sizeof path, "%s%s/%s", in->root, group, in->usage);
      if (!number_in(path, &used)) used = 0;
      snprintf(path, sizeof path, "%s%s/memory.stat", in->root, group);
      uint64_t cached = cached_bytes(path, in->stat_prefix);
      used = used > cached ? used - cached : 0;
      uint64_t left = most > used ? most - used : 0;
      if (left < least) least = left;
    }
    char *slash = strrchr(group, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

uint64_t host_memory_default(void) {
  static const struct hierarchy second = {"/sys/fs/cgroup", "memory.max", "memory.current", ""};
  static const struct hierarchy first = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                         "total_"};
  uint64_t least = available_bytes();
  FILE *file = fopen("/proc/self/cgroup", "re");
  char line[512];
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *group = strrchr(line, ':');
    if (!group++) continue;
    if (strncmp(line, "0::", 3) == 0)
      least = left_in_groups(&second, group, least);
    else if (strstr(line, ":memory:"))
      least = left_in_groups(&first, group, least);
  }
  if (file) fclose(file);
  return least / 2 > LEAST_BYTES ? least / 2 : LEAST_BYTES;
}
