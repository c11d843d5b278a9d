/*
 * leaks.c - the strict look at what is left at exit (base/strict.h): memory and handles that were not given back.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/base/slab.h"
#include "simgpu/base/strict.h"
#include "simgpu/process/process.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum family { FAMILY_DEVICE, FAMILY_MANAGED, FAMILY_POOL, FAMILY_MAPPED, FAMILY_IMPORTED, FAMILY_HOST, FAMILIES };
static const char *const family_names[FAMILIES] = {"device memory", "managed memory",   "memory of pools",
                                                   "mapped memory", "memory of others", "host memory"};

struct left {
  uint64_t count;
  uint64_t bytes;
  const void *first;
};

static void add(struct left *left, const void *handle, uint64_t bytes) {
  if (left->count++ == 0) left->first = handle;
  left->bytes += bytes;
}

static void add_allocation(void *families, const struct sim_allocation *allocation) {
  enum family family = allocation->kind != CU_MEMORYTYPE_DEVICE       ? FAMILY_HOST
                       : allocation->mapped                           ? FAMILY_MAPPED
                       : allocation->imported || allocation->external ? FAMILY_IMPORTED
                       : allocation->pool                             ? FAMILY_POOL
                       : allocation->managed                          ? FAMILY_MANAGED
                                                                      : FAMILY_DEVICE;
  add((struct left *)families + family, (const void *)(uintptr_t)allocation->base, allocation->bytes);
}

static void tell_left(const char *name, const struct left *left) {
  if (left->count == 0) return;
  sim_strict_count();
  fprintf(stderr, "vgpu-sim strict: at exit: %llu of %s not given back", (unsigned long long)left->count, name);
  if (left->bytes) fprintf(stderr, ", %llu bytes", (unsigned long long)left->bytes);
  fprintf(stderr, ": %p%s\n", left->first, left->count > 1 ? " and others" : "");
}

/* Things that are a part of another one, or die with it, are reported with that one. */
static bool is_whole(const char *name) {
  static const char *const parts[] = {"function", "node", "condition", "descriptor", "user"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strcmp(parts[i], name) == 0) return false;
  return true;
}

static void tell_slab(const struct sim_slab *slab) {
  char name[32];
  struct left left = {0};
  sim_strict_type_name(slab->type, name);
  if (!is_whole(name)) return;
  for (uint32_t i = 0; i < slab->used; i++) {
    const struct sim_object *object = (const struct sim_object *)(slab->base + (size_t)i * slab->object_bytes);
    if (object->magic && !object->inner) add(&left, object, 0);
  }
  tell_left(name, &left);
}

__attribute__((destructor)) static void at_exit(void) {
  struct left families[FAMILIES] = {0};
  if (!sim_strict || sim_started() != CUDA_SUCCESS) return;
  sim_memory_each(add_allocation, families);
  for (int i = 0; i < FAMILIES; i++) tell_left(family_names[i], &families[i]);
  for (const struct sim_slab *slab = sim_slabs; slab; slab = slab->next) tell_slab(slab);
  if (!sim_strict_failed()) return;
  fflush(NULL);
  _exit(1);
}
