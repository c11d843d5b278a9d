/*
 * memory.c - device memory: what the server is charged for (granules of 2 MiB; small requests packed into them) and the
 * list of everything a program has allocated or registered. Called by the allocating entry points.
 *
 * Device pointers are host addresses: lazily backed, zeroed maps. A forked child does not get them.
 */
#define _GNU_SOURCE
#include "simgpu/core.h"
#include "simgpu/ipc/external.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_allocation *list; /* sorted by base */
static size_t list_count, list_capacity;
static uint64_t next_id;

uint64_t sim_round_up(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

#define LOW_FIRST 0x20000000u /* what lies below: programs that cannot be moved, and their heap */

/* Below 4 GiB; NULL: no room there. */
static char *reserve_low(uint64_t bytes) {
  static uint64_t next = LOW_FIRST; /* under the lock: where the last one was found */
  char *found = NULL;
  pthread_mutex_lock(&lock);
  for (int round = 0; round < 2 && !found; round++) {
    for (; !found && next + bytes <= UINT32_MAX; next += SIM_GRANULE_BYTES) {
      char *map = mmap((void *)next, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
      if (map == (char *)next) found = map;
    }
    if (!found) next = LOW_FIRST;
  }
  pthread_mutex_unlock(&lock);
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

/* ---- the list ---- */

static size_t place_of(CUdeviceptr address) { /* index of the first allocation with base > address */
  size_t low = 0, high = list_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (list[middle].base > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

struct sim_allocation *sim_memory_add(const struct sim_allocation *allocation) {
  struct sim_allocation *place = NULL;
  pthread_mutex_lock(&lock);
  if (list_count == list_capacity) {
    size_t capacity = list_capacity ? list_capacity * 2 : 64;
    struct sim_allocation *grown = realloc(list, capacity * sizeof *grown);
    if (grown) {
      list = grown;
      list_capacity = capacity;
    }
  }
  if (list_count < list_capacity) {
    size_t index = place_of(allocation->base);
    place = &list[index];
    memmove(place + 1, place, (list_count - index) * sizeof *place);
    *place = *allocation;
    place->id = ++next_id;
    list_count++;
    if (place->managed) sim_link.ring->managed++;
  }
  pthread_mutex_unlock(&lock);
  return place;
}

bool sim_memory_remove(CUdeviceptr base, struct sim_allocation *ret_allocation) {
  pthread_mutex_lock(&lock);
  size_t index = place_of(base);
  bool found = index > 0 && list[index - 1].base == base;
  if (found) {
    *ret_allocation = list[index - 1];
    if (ret_allocation->managed) sim_link.ring->managed--;
    memmove(&list[index - 1], &list[index], (list_count - index) * sizeof *list);
    list_count--;
  }
  pthread_mutex_unlock(&lock);
  if (SIM_STRICT && found) sim_strict_freed(ret_allocation);
  return found;
}

bool sim_memory_find(CUdeviceptr address, struct sim_allocation *ret_allocation) {
  return sim_memory_covers(address, 1, ret_allocation);
}

bool sim_memory_covers(CUdeviceptr address, uint64_t bytes, struct sim_allocation *ret_allocation) {
  pthread_mutex_lock(&lock);
  size_t index = place_of(address);
  bool inside = index > 0 && address - list[index - 1].base < list[index - 1].bytes;
  uint64_t left = bytes;
  if (inside) {
    const struct sim_allocation *part = &list[index - 1];
    uint64_t room = part->bytes - (address - part->base);
    *ret_allocation = *part;
    /* Neighbouring maps are one range. */
    while (left > room && part->mapped && index < list_count && list[index].mapped &&
           list[index].base == part->base + part->bytes) {
      left -= room;
      part = &list[index++];
      room = part->bytes;
    }
    inside = left <= room;
  }
  pthread_mutex_unlock(&lock);
  return inside;
}

void sim_memory_each(void (*use)(void *, const struct sim_allocation *), void *argument) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < list_count; i++) use(argument, &list[i]);
  pthread_mutex_unlock(&lock);
}

/* ---- what the server is charged ---- */

CUresult sim_memory_charge(int device, uint64_t bytes) {
  int rc = sim_link_request(SIM_REQUEST_ALLOC, device, 0, bytes);
  return rc == 0 ? CUDA_SUCCESS : rc == -EPIPE ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_memory_refund(int device, uint64_t bytes) {
  sim_link_request(SIM_REQUEST_FREE, device, 0, bytes);
}

static char *map_device(uint64_t bytes, bool low) {
  char *map = low ? reserve_low(bytes) : sim_reserve_bytes(bytes, PROT_NONE);
  if (map && sim_arena_place(sim_arena_fd(), (uintptr_t)map, map, bytes, PROT_READ | PROT_WRITE)) return map;
  if (map) sim_unmap_bytes(map, bytes);
  return NULL;
}

char *sim_map_device(uint64_t bytes) {
  return map_device(bytes, false);
}

void sim_clear_device(void *map, uint64_t bytes) {
  sim_arena_drop(sim_arena_fd(), (uintptr_t)map, bytes);
}

void sim_unmap_device(void *map, uint64_t bytes) {
  sim_clear_device(map, bytes); /* before another thread may be given the address */
  sim_unmap_bytes(map, bytes);
}

static CUresult map_charged(int device, uint64_t bytes, bool low, char **ret_map) {
  CUresult result = sim_memory_charge(device, bytes);
  if (result != CUDA_SUCCESS) return result;
  *ret_map = map_device(bytes, low);
  if (*ret_map) return CUDA_SUCCESS;
  sim_memory_refund(device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_map_charged(int device, uint64_t bytes, char **ret_map) {
  return map_charged(device, bytes, false, ret_map);
}

/* What is shared stays where it is until its last holder has let go: then this address is never used again. */
void sim_unmap_charged(int device, void *map, uint64_t bytes) {
  if (sim_share_leave(map, bytes)) return;
  sim_unmap_device(map, bytes);
  sim_memory_refund(device, bytes);
}

/* ---- allocating ---- */

static bool is_small(const struct sim_allocation *allocation) {
  return allocation->bytes < SIM_GRANULE_BYTES && !allocation->low;
}

static CUresult allocate(struct sim_context *context, uint64_t bytes, bool managed, bool low,
                         CUdeviceptr *ret_pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  struct sim_allocation allocation = {.bytes = bytes,
                                      .context = context,
                                      .device = context->device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .managed = managed,
                                      .low = low};
  char *map = NULL;
  CUresult result = is_small(&allocation)
                        ? sim_small_alloc(context, context->device, bytes, &allocation.base)
                        : map_charged(context->device, sim_round_up(bytes, SIM_GRANULE_BYTES), low, &map);
  if (result != CUDA_SUCCESS) return result;
  if (map) allocation.base = (CUdeviceptr)map;
  if (!sim_memory_add(&allocation)) {
    return CUDA_ERROR_OUT_OF_MEMORY; /* the process's own heap is at its end: nothing works any more */
  }
  *ret_pointer = allocation.base;
  return CUDA_SUCCESS;
}

CUresult sim_memory_alloc(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, false, false, ret_pointer);
}

CUresult sim_memory_alloc_managed(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, true, false, ret_pointer);
}

CUresult sim_memory_alloc_low(struct sim_context *context, uint64_t bytes, CUdeviceptr *ret_pointer) {
  return allocate(context, bytes, false, true, ret_pointer);
}

static void give_back(const struct sim_allocation *allocation) {
  if (allocation->external) {
    sim_external_unmap(allocation->external);
    return;
  }
  if (is_small(allocation)) {
    sim_small_free(allocation->base, allocation->bytes, true);
    return;
  }
  sim_unmap_charged(allocation->device, (void *)allocation->base, sim_round_up(allocation->bytes, SIM_GRANULE_BYTES));
}

/* Freeing waits for everything the context has been given, as the driver does. */
CUresult sim_memory_free(struct sim_context *context, CUdeviceptr pointer) {
  struct sim_allocation allocation;
  if (sim_graph_memory_free(pointer)) return CUDA_SUCCESS;
  if (!sim_memory_find(pointer, &allocation) || allocation.base != pointer || allocation.kind != CU_MEMORYTYPE_DEVICE ||
      allocation.mapped || allocation.imported) {
    if (SIM_STRICT) sim_strict_free_refused(pointer);
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim_context_wait(allocation.context ? allocation.context : context);
  if (!sim_memory_remove(pointer, &allocation)) return CUDA_ERROR_INVALID_VALUE; /* another thread was faster */
  give_back(&allocation);
  return sim_waited();
}

void sim_memory_destroy(struct sim_context *context) {
  sim_arrays_destroy(context);
  sim_ipc_destroy(context);
  for (;;) {
    struct sim_allocation allocation = {0};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < list_count && !allocation.base; i++)
      if (list[i].context == context) allocation = list[i];
    pthread_mutex_unlock(&lock);
    if (!allocation.base || !sim_memory_remove(allocation.base, &allocation)) return;
    if (allocation.pool)
      sim_pool_take_back(&allocation);
    else if (allocation.kind == CU_MEMORYTYPE_DEVICE)
      give_back(&allocation);
    else if (allocation.owned)
      sim_unmap_bytes((void *)allocation.base, allocation.bytes);
  }
}
