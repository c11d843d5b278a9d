/*
 * freed.c - which device memory was freed last, for the strict look (base/strict.h): known of the last FREED_MAX
 * allocations.
 */
#include "simgpu/arena/allocations.h"
#include <pthread.h>

#define FREED_MAX 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range {
  uint64_t base;
  uint64_t bytes;
} freed[FREED_MAX];

static uint64_t freed_count;

void sim_strict_freed(const struct sim_allocation *allocation) {
  if (allocation->kind != CU_MEMORYTYPE_DEVICE) return;
  pthread_mutex_lock(&lock);
  freed[freed_count++ % FREED_MAX] = (struct range){allocation->base, allocation->bytes};
  pthread_mutex_unlock(&lock);
}

bool sim_strict_was_freed(uint64_t address) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (uint64_t i = 0; i < FREED_MAX && i < freed_count && !found; i++)
    found = address - freed[i].base < freed[i].bytes;
  pthread_mutex_unlock(&lock);
  return found;
}
