/*
 * slab.h - objects of the simulated driver that programs hold handles of: all live in slabs, so that a stale or foreign
 * handle is recognised and never followed.
 */
#ifndef VG_SIM_SLAB_H
#define VG_SIM_SLAB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_slab {
  char *base; /* reserved, lazily backed */
  size_t object_bytes;
  uint32_t capacity;
  uint32_t used;      /* objects ever handed out */
  uint32_t free_head; /* index + 1 of the first free object, 0 = none */
  uint32_t lock;
  const char *type;      /* as written: "sizeof(struct sim_stream)" */
  struct sim_slab *next; /* of all that hold something */
};
#define SIM_SLAB(bytes, count) {NULL, (bytes), (count), 0, 0, 0, #bytes, NULL}
/* Every slab object starts with this. magic names the type and is 0 while the object is free. */
struct sim_object {
  uint32_t magic;
  uint32_t next_free;
  bool inner; /* a default stream or pool, a graph within another: not the program's to destroy */
};
void *sim_slab_get(struct sim_slab *slab, uint32_t magic); /* zeroed object, or NULL: none left */
void sim_slab_put(struct sim_slab *slab, void *object);
/* The object behind a handle, or NULL when the handle is not a live object of that slab. */
void *sim_slab_find(const struct sim_slab *slab, const void *handle, uint32_t magic);
void *sim_slab_live(const struct sim_slab *slab, const void *handle, uint32_t magic); /* of ours, which may be stale */
uint32_t sim_slab_index(const struct sim_slab *slab, const void *object);

extern struct sim_slab *sim_slabs; /* all that hold something */

#endif
