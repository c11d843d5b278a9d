/*
 * small.c - requests below one granule: packed first fit, in steps of 512 bytes, into granules of their owner (a
 * context or a pool), as the driver packs them. Called by the files that allocate and by arrays.
 */
#include "simgpu/arena/charge.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <stdlib.h>

#define UNITS (SIM_GRANULE_BYTES / SIM_SMALL_ALIGN_BYTES)

struct chunk { /* one granule that small requests share */
  struct chunk *next;
  const void *owner;
  int device;
  char *map;
  uint32_t free_units;
  uint64_t taken[UNITS / 64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *chunks;

static unsigned units_of(uint64_t bytes) {
  return (unsigned)(sim_round_up(bytes, SIM_SMALL_ALIGN_BYTES) / SIM_SMALL_ALIGN_BYTES);
}

static bool unit_taken(const struct chunk *chunk, unsigned unit) {
  return chunk->taken[unit / 64] >> (unit % 64) & 1;
}

static void mark(struct chunk *chunk, unsigned first, unsigned units, bool taken) {
  for (unsigned unit = first; unit < first + units; unit++) {
    uint64_t bit = 1ull << (unit % 64);
    if (taken)
      chunk->taken[unit / 64] |= bit;
    else
      chunk->taken[unit / 64] &= ~bit;
  }
  chunk->free_units += taken ? -units : units;
}

static int first_fit(const struct chunk *chunk, unsigned units) {
  unsigned run = 0;
  for (unsigned unit = 0; unit < UNITS; unit++) {
    if (unit % 64 == 0 && chunk->taken[unit / 64] == UINT64_MAX) {
      run = 0;
      unit += 63;
      continue;
    }
    run = unit_taken(chunk, unit) ? 0 : run + 1;
    if (run == units) return (int)(unit + 1 - units);
  }
  return -1;
}

static CUresult chunk_make(const void *owner, int device) {
  struct chunk *chunk = calloc(1, sizeof *chunk);
  if (!chunk) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = sim_map_charged(device, SIM_GRANULE_BYTES, &chunk->map);
  if (result != CUDA_SUCCESS) {
    free(chunk);
    return result;
  }
  chunk->owner = owner;
  chunk->device = device;
  chunk->free_units = UNITS;
  struct chunk **link = &chunks;
  while (*link) link = &(*link)->next;
  *link = chunk;
  return CUDA_SUCCESS;
}

static bool fits_somewhere(const void *owner, unsigned units, CUdeviceptr *ret_pointer) {
  for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
    int unit = chunk->owner == owner && chunk->free_units >= units ? first_fit(chunk, units) : -1;
    if (unit < 0) continue;
    mark(chunk, (unsigned)unit, units, true);
    *ret_pointer = (CUdeviceptr)(chunk->map + (size_t)unit * SIM_SMALL_ALIGN_BYTES);
    return true;
  }
  return false;
}

CUresult sim_small_alloc(const void *owner, int device, uint64_t bytes, CUdeviceptr *ret_pointer) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  if (!fits_somewhere(owner, units_of(bytes), ret_pointer)) {
    result = chunk_make(owner, device);
    if (result == CUDA_SUCCESS && !fits_somewhere(owner, units_of(bytes), ret_pointer)) result = CUDA_ERROR_UNKNOWN;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static void chunk_free(struct chunk **link) {
  struct chunk *chunk = *link;
  *link = chunk->next;
  sim_unmap_charged(chunk->device, chunk->map, SIM_GRANULE_BYTES);
  free(chunk);
}

void sim_small_free(CUdeviceptr pointer, uint64_t bytes, bool give_back) {
  char *address = (char *)pointer;
  pthread_mutex_lock(&lock);
  for (struct chunk **link = &chunks; *link; link = &(*link)->next) {
    struct chunk *chunk = *link;
    if (address < chunk->map || address >= chunk->map + SIM_GRANULE_BYTES) continue;
    mark(chunk, (unsigned)((size_t)(address - chunk->map) / SIM_SMALL_ALIGN_BYTES), units_of(bytes), false);
    if (give_back && chunk->free_units == UNITS) chunk_free(link);
    break;
  }
  pthread_mutex_unlock(&lock);
}

uint64_t sim_small_bytes(const void *owner) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&lock);
  for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
    if (chunk->owner == owner) bytes += SIM_GRANULE_BYTES;
  pthread_mutex_unlock(&lock);
  return bytes;
}

void sim_small_trim(const void *owner, uint64_t most_bytes) {
  pthread_mutex_lock(&lock);
  for (struct chunk **link = &chunks; *link;) {
    if ((*link)->owner == owner && (*link)->free_units == UNITS && most_bytes >= SIM_GRANULE_BYTES) {
      chunk_free(link);
      most_bytes -= SIM_GRANULE_BYTES;
    } else {
      link = &(*link)->next;
    }
  }
  pthread_mutex_unlock(&lock);
}
