/*
 * map.c - addresses of the process: reserved, backed by host memory, or by the arena that device memory lies in.
 * Charges nothing. A forked child does not get these maps.
 */
#define _GNU_SOURCE
#include "simgpu/arena/map.h"
#include "simgpu/arena/backing.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <sys/mman.h>

#define LOW_FIRST 0x20000000u /* what lies below: programs that cannot be moved, and their heap */

static pthread_mutex_t low_lock = PTHREAD_MUTEX_INITIALIZER;

/* Below 4 GiB; NULL: no addresses are left there. */
static char *reserve_low(uint64_t bytes) {
  static uint64_t next = LOW_FIRST; /* under the lock: where the last one was found */
  char *found = NULL;
  pthread_mutex_lock(&low_lock);
  for (int round = 0; round < 2 && !found; round++) {
    for (; !found && next + bytes <= UINT32_MAX; next += SIM_GRANULE_BYTES) {
      char *map = mmap((void *)next, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
      if (map == (char *)next) found = map;
    }
    if (!found) next = LOW_FIRST;
  }
  pthread_mutex_unlock(&low_lock);
  return found;
}

char *sim_reserve_aligned(uint64_t bytes, uint64_t alignment, int protection) {
  if (bytes > UINT64_MAX / 2 || alignment > UINT64_MAX / 4) return NULL;
  size_t size = bytes + alignment;
  char *map = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return NULL;
  char *aligned = (char *)sim_round_up((uintptr_t)map, alignment);
  if (aligned > map) munmap(map, (size_t)(aligned - map));
  char *end = aligned + sim_round_up(bytes, 4096);
  if (end < map + size) munmap(end, (size_t)(map + size - end));
  return aligned;
}

char *sim_reserve_bytes(uint64_t bytes, int protection) {
  return sim_reserve_aligned(bytes, SIM_GRANULE_BYTES, protection);
}

void *sim_map_bytes(uint64_t bytes) {
  char *aligned = sim_reserve_bytes(bytes, PROT_READ | PROT_WRITE);
  if (!aligned) return NULL;
  madvise(aligned, bytes, MADV_DONTFORK);
  madvise(aligned, bytes, MADV_DONTDUMP);
  madvise(aligned, bytes, MADV_NOHUGEPAGE); /* touched here and there: keep what is really backed small */
  return aligned;
}

void sim_unmap_bytes(void *map, uint64_t bytes) {
  munmap(map, sim_round_up(bytes, 4096));
}

static char *place(char *map, uint64_t bytes) {
  if (map && sim_arena_place(sim_arena_fd(), (uintptr_t)map, map, bytes, PROT_READ | PROT_WRITE)) return map;
  if (map) sim_unmap_bytes(map, bytes);
  return NULL;
}

char *sim_map_device(uint64_t bytes) {
  return place(sim_reserve_bytes(bytes, PROT_NONE), bytes);
}

char *sim_map_device_low(uint64_t bytes) {
  return place(reserve_low(bytes), bytes);
}

void sim_clear_device(void *map, uint64_t bytes) {
  sim_backing_drop(sim_arena_fd(), (uintptr_t)map, bytes);
}

void sim_unmap_device(void *map, uint64_t bytes) {
  sim_clear_device(map, bytes); /* before another thread may be given the address */
  sim_unmap_bytes(map, bytes);
}
