/*
 * slab.c - handles of the simulated driver: objects of one kind lie in one reserved range, so that any value a program
 * hands in is known to be a live object or not without following it.
 */
#include "simgpu/base/slab.h"
#include "simgpu/base/strict.h"
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

struct sim_slab *sim_slabs;

static void slab_lock(struct sim_slab *slab) {
  while (__atomic_exchange_n(&slab->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

static void slab_unlock(struct sim_slab *slab) {
  VG_STORE(&slab->lock, 0);
}

static struct sim_object *at(const struct sim_slab *slab, uint32_t index) {
  return (struct sim_object *)(slab->base + (size_t)index * slab->object_bytes);
}

static bool reserve(struct sim_slab *slab) {
  if (slab->base) return true;
  void *map = mmap(NULL, slab->object_bytes * slab->capacity, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return false;
  VG_STORE(&slab->base, (char *)map);
  slab->next = VG_LOAD(&sim_slabs);
  while (!__atomic_compare_exchange_n(&sim_slabs, &slab->next, slab, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return true;
}

void *sim_slab_get(struct sim_slab *slab, uint32_t magic) {
  struct sim_object *object = NULL;
  slab_lock(slab);
  bool fresh = SIM_STRICT && slab->used < slab->capacity; /* so that a stale handle stays one */
  if (slab->free_head && !fresh) {
    object = at(slab, slab->free_head - 1);
    slab->free_head = object->next_free;
  } else if (slab->used < slab->capacity && reserve(slab)) {
    object = at(slab, slab->used);
    VG_STORE(&slab->used, slab->used + 1);
  }
  slab_unlock(slab);
  if (!object) return NULL;
  memset(object, 0, slab->object_bytes);
  VG_STORE(&object->magic, magic);
  return object;
}

void sim_slab_put(struct sim_slab *slab, void *pointer) {
  struct sim_object *object = pointer;
  slab_lock(slab);
  VG_STORE(&object->magic, 0);
  object->next_free = slab->free_head;
  slab->free_head = sim_slab_index(slab, object) + 1;
  slab_unlock(slab);
}

static struct sim_object *object_of(const struct sim_slab *slab, const void *handle) {
  const char *base = VG_LOAD(&slab->base);
  uintptr_t offset = (uintptr_t)handle - (uintptr_t)base;
  if (!base || offset >= (uintptr_t)VG_LOAD(&slab->used) * slab->object_bytes || offset % slab->object_bytes)
    return NULL;
  return (struct sim_object *)(uintptr_t)handle;
}

void *sim_slab_live(const struct sim_slab *slab, const void *handle, uint32_t magic) {
  struct sim_object *object = object_of(slab, handle);
  return object && VG_LOAD(&object->magic) == magic ? object : NULL;
}

void *sim_slab_find(const struct sim_slab *slab, const void *handle, uint32_t magic) {
  struct sim_object *object = object_of(slab, handle);
  if (VG_LIKELY(object && VG_LOAD(&object->magic) == magic)) return object;
  if (SIM_STRICT && object && !VG_LOAD(&object->magic)) sim_strict_tell(slab->type, handle, "used after its end");
  return NULL;
}

uint32_t sim_slab_index(const struct sim_slab *slab, const void *object) {
  return (uint32_t)((size_t)((const char *)object - slab->base) / slab->object_bytes);
}
