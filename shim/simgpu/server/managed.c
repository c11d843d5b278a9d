/*
 * managed.c - managed memory of which not all fits its device: blocks of a granule, those that are on the device in the
 * order of their use. A kernel that uses a block which is not there waits while it is fetched: for the handling of the
 * fault, for the link, and where the device is full for the link in the other direction, as the block that was used
 * longest ago goes to the host. While all fits, no kernel waits. Called by client.c and queue.c.
 *
 * What favours managed memory: a block is fetched whole by one fault, nothing else is on the link, and what a new
 * allocation evicts costs nothing.
 */
#include "simgpu/server/server.h"
#include <errno.h>
#include <stdlib.h>

struct managed_block {
  struct managed_block *older, *newer; /* of those on the device */
  struct managed_range *range;
  bool is_resident;
};

struct managed_range { /* an allocation */
  struct managed_range *next;
  struct process *process;
  struct device *device;
  uint64_t base;
  uint32_t count;
  struct managed_block blocks[];
};

static void list_add(struct managed_block *block) {
  struct device *device = block->range->device;
  block->older = device->newest_block;
  block->newer = NULL;
  if (block->older) block->older->newer = block;
  device->newest_block = block;
  if (!device->oldest_block) device->oldest_block = block;
}

static void list_remove(struct managed_block *block) {
  struct device *device = block->range->device;
  if (block->older) block->older->newer = block->newer;
  if (block->newer) block->newer->older = block->older;
  if (device->oldest_block == block) device->oldest_block = block->newer;
  if (device->newest_block == block) device->newest_block = block->older;
}

static void put(struct managed_block *block, bool is_resident) {
  struct managed_range *range = block->range;
  uint64_t *used = &range->process->used_bytes[range->device->index];
  uint64_t *paged = &range->process->paged_bytes[range->device->index];
  block->is_resident = is_resident;
  if (is_resident) {
    list_add(block);
    range->device->used_bytes += SIM_GRANULE_BYTES;
    *used += SIM_GRANULE_BYTES;
    *paged += SIM_GRANULE_BYTES;
  } else {
    list_remove(block);
    range->device->used_bytes -= SIM_GRANULE_BYTES;
    *used -= SIM_GRANULE_BYTES;
    *paged -= SIM_GRANULE_BYTES;
  }
  report_crowd(range->device);
}

static struct managed_range **find(struct process *process, uint64_t base) {
  struct managed_range **link = &process->managed;
  while (*link && (*link)->base != base) link = &(*link)->next;
  return link;
}

uint64_t managed_room(const struct device *device, uint64_t bytes) {
  uint64_t room = device->memory_bytes - device->used_bytes;
  return bytes < room ? bytes : room / SIM_GRANULE_BYTES * SIM_GRANULE_BYTES;
}

int managed_add(struct process *process, struct device *device, uint64_t base, uint64_t bytes,
                uint64_t resident_bytes) {
  uint64_t count = bytes / SIM_GRANULE_BYTES;
  if (count == 0 || bytes % SIM_GRANULE_BYTES || *find(process, base)) return -EINVAL;
  uint64_t most_bytes = device->memory_bytes + server.config.host_memory_bytes; /* more than can lie anywhere */
  if (bytes > most_bytes || process->managed_bytes > most_bytes - bytes) return -ENOMEM;
  struct managed_range *range = calloc(1, sizeof *range + count * sizeof *range->blocks);
  if (!range) return -ENOMEM;
  *range = (struct managed_range){process->managed, process, device, base, (uint32_t)count};
  process->managed = range;
  process->managed_bytes += bytes;
  process->paged_bytes[device->index] += resident_bytes;
  for (uint32_t i = 0; i < range->count; i++) {
    struct managed_block *block = &range->blocks[i];
    block->range = range;
    block->is_resident = i < resident_bytes / SIM_GRANULE_BYTES;
    if (block->is_resident) list_add(block);
  }
  return 0;
}

int managed_remove(struct process *process, const struct device *device, uint64_t base, uint64_t *ret_resident_bytes) {
  struct managed_range **link = find(process, base), *range = *link;
  *ret_resident_bytes = 0;
  if (!range || range->device != device) return -EINVAL;
  *link = range->next;
  process->managed_bytes -= range->count * SIM_GRANULE_BYTES;
  for (uint32_t i = 0; i < range->count; i++) {
    if (!range->blocks[i].is_resident) continue;
    list_remove(&range->blocks[i]);
    *ret_resident_bytes += SIM_GRANULE_BYTES;
  }
  process->paged_bytes[device->index] -= *ret_resident_bytes;
  free(range);
  return 0;
}

void managed_process_died(struct process *process) {
  uint64_t resident_bytes;
  while (process->managed) managed_remove(process, process->managed->device, process->managed->base, &resident_bytes);
}

void managed_make_room(struct device *device, uint64_t bytes) {
  while (device->oldest_block && device->memory_bytes - device->used_bytes < bytes) put(device->oldest_block, false);
}

/* How long a kernel waits for a block that is not there. */
static uint64_t fetch(struct managed_block *block) {
  struct device *device = block->range->device;
  uint64_t move_ns = SIM_GRANULE_BYTES * 1000 / server.config.link_bytes_per_us;
  uint64_t wait_ns = server.config.managed_fault_ns + move_ns;
  if (device->memory_bytes - device->used_bytes < SIM_GRANULE_BYTES) {
    managed_make_room(device, SIM_GRANULE_BYTES);
    wait_ns += move_ns;
  }
  if (device->memory_bytes - device->used_bytes >= SIM_GRANULE_BYTES) put(block, true); /* else used over the link */
  return wait_ns;
}

uint64_t managed_use(struct process *process, uint64_t base) {
  struct managed_range *range = *find(process, base);
  uint64_t wait_ns = 0;
  for (uint32_t i = 0; range && i < range->count; i++) {
    struct managed_block *block = &range->blocks[i];
    if (block->is_resident) {
      list_remove(block);
      list_add(block);
    } else {
      wait_ns += fetch(block);
    }
  }
  return wait_ns / server.config.speed;
}
