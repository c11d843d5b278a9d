/*
 * allocations.c - the list of everything that a program has allocated or registered, sorted by address. Any thread.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/base/strict.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_allocation *list; /* sorted by base */
static size_t list_count, list_capacity;
static uint64_t next_id;

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
  if (allocation->imported) sim_values_write(allocation->base, allocation->bytes); /* what its owner has put there */
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
      ret_allocation->is_read_only |= part->is_read_only;
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

bool sim_memory_of(const struct sim_context *context, struct sim_allocation *ret_allocation) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < list_count && !found; i++)
    if ((found = list[i].context == context)) *ret_allocation = list[i];
  pthread_mutex_unlock(&lock);
  return found;
}
