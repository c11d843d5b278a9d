/*
 * host_memory.c - how much of the host's memory may lie behind the device memory of all processes together. Each
 * process asks before it touches more (shim/simgpu/memory/backing.c). Called by client.c and config.c.
 */
#define _GNU_SOURCE
#include "server.h"
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

/* What a group and those above it may still take. Their limits can only be lower than what the host has. */
static uint64_t left_in_groups(const char *root, char *group, const char *limit, const char *usage, uint64_t least) {
  char path[1024];
  uint64_t most, used;
  for (;;) {
    snprintf(path, sizeof path, "%s%s/%s", root, group, limit);
    if (number_in(path, &most)) {
      snprintf(path, sizeof path, "%s%s/%s", root, group, usage);
      if (!number_in(path, &used)) used = 0;
      uint64_t left = most > used ? most - used : 0;
      if (left < least) least = left;
    }
    char *slash = strrchr(group, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

uint64_t host_memory_default(void) {
  uint64_t least = available_bytes();
  FILE *file = fopen("/proc/self/cgroup", "re");
  char line[512];
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *group = strrchr(line, ':');
    if (!group++) continue;
    if (strncmp(line, "0::", 3) == 0)
      least = left_in_groups("/sys/fs/cgroup", group, "memory.max", "memory.current", least);
    else if (strstr(line, ":memory:"))
      least = left_in_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", least);
  }
  if (file) fclose(file);
  return least / 2 > LEAST_BYTES ? least / 2 : LEAST_BYTES;
}
