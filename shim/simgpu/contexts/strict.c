/*
 * strict.c - see strict.h. Which memory was freed is known of the last FREED_MAX allocations.
 */
#include "simgpu/contexts/strict.h"
#include "simgpu/core.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FREED_MAX 4096

bool sim_strict;
__thread const char *sim_strict_call;

static bool fails;
static uint64_t told;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range {
  uint64_t base;
  uint64_t bytes;
} freed[FREED_MAX];
static uint64_t freed_count;

void sim_strict_begin(const char *setting) {
  fails = strcmp(setting, "fail") == 0;
  sim_strict = fails || strcmp(setting, "1") == 0;
}

/* "stream" of "sizeof(struct sim_stream)"; other words are left as they are. */
static void type_name(const char *type, char ret_name[32]) {
  const char *inner = strstr(type, "struct ");
  if (inner) type = inner + strlen("struct ");
  if (strncmp(type, "sim_", 4) == 0) type += 4;
  snprintf(ret_name, 32, "%.*s", (int)strcspn(type, ")"), type);
}

void sim_strict_tell(const char *type, const void *handle, const char *wrong) {
  char name[32];
  type_name(type, name);
  __atomic_fetch_add(&told, 1, __ATOMIC_RELAXED);
  fprintf(stderr, "vgpu-sim strict: %s: %s %p: %s\n", sim_strict_call ? sim_strict_call : "outside of a call", name,
          handle, wrong);
}

static void tell_memory(uint64_t address, const char *wrong) {
  sim_strict_tell("device memory", (const void *)(uintptr_t)address, wrong);
}

/* ---- memory ---- */

void sim_strict_freed(const struct sim_allocation *allocation) {
  if (allocation->kind != CU_MEMORYTYPE_DEVICE) return;
  pthread_mutex_lock(&lock);
  freed[freed_count++ % FREED_MAX] = (struct range){allocation->base, allocation->bytes};
  pthread_mutex_unlock(&lock);
}

static bool was_freed(uint64_t address) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (uint64_t i = 0; i < FREED_MAX && i < freed_count && !found; i++)
    found = address - freed[i].base < freed[i].bytes;
  pthread_mutex_unlock(&lock);
  return found;
}

bool sim_strict_range(uint64_t address, uint64_t bytes) {
  struct sim_allocation allocation;
  if (bytes == 0 || sim_memory_covers(address, bytes, &allocation)) return true;
  if (sim_memory_find(address, &allocation)) {
    if (allocation.kind != CU_MEMORYTYPE_DEVICE) return true;
    char wrong[128];
    snprintf(wrong, sizeof wrong, "%llu bytes from there go beyond the allocation of %llu bytes at %p",
             (unsigned long long)bytes, (unsigned long long)allocation.bytes, (void *)(uintptr_t)allocation.base);
    tell_memory(address, wrong);
    return false;
  }
  if (!was_freed(address)) return true;
  tell_memory(address, "used after it was freed");
  return false;
}

void sim_strict_words(const void *words, uint64_t bytes) {
  struct sim_allocation allocation;
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const char *)words + at, sizeof word);
    if (word && was_freed(word) && !sim_memory_find(word, &allocation))
      tell_memory(word, "an argument of a kernel, after it was freed");
  }
}

void sim_strict_free_refused(CUdeviceptr pointer) {
  struct sim_allocation allocation;
  if (sim_memory_find(pointer, &allocation))
    tell_memory(pointer, allocation.base == pointer ? "freed by a call that is not for it" : "freed from its middle");
  else
    tell_memory(pointer, was_freed(pointer) ? "freed twice" : "freed, and was never allocated");
}

/* ---- what is left at exit ---- */

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
  told++;
  fprintf(stderr, "vgpu-sim strict: at exit: %llu of %s not given back", (unsigned long long)left->count, name);
  if (left->bytes) fprintf(stderr, ", %llu bytes", (unsigned long long)left->bytes);
  fprintf(stderr, ": %p%s\n", left->first, left->count > 1 ? " and others" : "");
}

/* Things that are a part of another one, or die with it, are told with that one. */
static bool is_whole(const char *name) {
  static const char *const parts[] = {"function", "node", "condition", "descriptor", "user"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (strcmp(parts[i], name) == 0) return false;
  return true;
}

static void tell_slab(const struct sim_slab *slab) {
  char name[32];
  struct left left = {0};
  type_name(slab->type, name);
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
  if (!fails || !told) return;
  fflush(NULL);
  _exit(1);
}
