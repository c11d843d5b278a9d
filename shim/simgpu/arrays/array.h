/*
 * array.h - arrays and mipmapped arrays of the simulated driver. array_layout.c: formats, sizes, what a descriptor may
 * say; array.c: their lives; array_mipmap.c: levels and planes, which are arrays without memory of their own;
 * array_sparse.c: memory that is mapped into them later.
 *
 * What they are charged: see array_memory.c.
 */
#ifndef VG_SIM_ARRAY_H
#define VG_SIM_ARRAY_H
#include "simgpu/memory/external_memory.h"
#include "simgpu/process/current.h"

#define SIM_ARRAY_MAGIC 0x41525259u
#define SIM_MIPMAP_MAGIC 0x4d49504du
#define SIM_ARRAY_PLANES_MAX 3

struct sim_plane { /* of a format; most have one */
  uint8_t width_shift;
  uint8_t height_shift;
  uint8_t bits;     /* of an element, or of a texel of a compressed format */
  uint8_t channels; /* what cuArrayGetPlane says of it */
  CUarray_format format;
};

struct sim_layout {     /* of one plane of one level: rows of elements, one after the other */
  uint64_t row_bytes;   /* what may be copied of a row */
  uint64_t pitch_bytes; /* from one row to the next */
  uint64_t rows;
  uint64_t slice_bytes; /* from one slice, layer or face to the next */
  uint64_t slices;
};

struct sim_array {
  struct sim_object object;
  struct sim_context *context;
  struct sim_array *parent;   /* of a level or plane: whose memory it is */
  struct sim_array *children; /* levels and planes that were asked for */
  struct sim_array *next;     /* child, or next of all without a parent */
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  unsigned levels;  /* of a mipmapped array; 1 */
  unsigned index;   /* which level or plane of the parent */
  bool plane;       /* of its parent, not a level */
  uint64_t offset;  /* in the parent's memory */
  uint64_t bytes;   /* in whole pages */
  CUdeviceptr base; /* not of children */
  bool unbacked;    /* sparse or deferred: has no memory but what is mapped into it */
  void *maps;       /* array_sparse.c: what is mapped into it */

  struct sim_external_map *external; /* whose memory it is, or NULL: its own */
};

/* ---- array_layout.c ---- */

unsigned sim_format_planes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                           struct sim_plane ret_planes[SIM_ARRAY_PLANES_MAX]); /* 0: no such format */
CUresult sim_descriptor_check(const struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                              bool mipmapped);
unsigned sim_levels_max(const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CUDA_ARRAY3D_DESCRIPTOR sim_level_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level);
uint64_t sim_level_offset(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level); /* also: of all before it */
uint64_t sim_plane_offset(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned plane);
bool sim_layout_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct sim_layout *ret_layout); /* false: many planes */

/* ---- array_memory.c ---- */

uint64_t sim_array_round(uint64_t bytes); /* to whole pages */
CUresult sim_array_memory_take(struct sim_array *array);
void sim_array_memory_give(struct sim_array *array);
void sim_array_count_map(uint64_t handle, int delta); /* maps of physical memory; under its lock */
void sim_array_unmap_all(struct sim_array *array);

/* ---- array.c ---- */

void sim_array_lock(void);
void sim_array_unlock(void);
struct sim_array *sim_array_find(CUarray handle);
struct sim_array *sim_mipmap_find(CUmipmappedArray handle);
bool sim_array_known(CUarray handle);
/* external: whose memory it is to have, or NULL. */
CUresult sim_array_create(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels, uint32_t magic,
                          struct sim_external_map *external, struct sim_array **ret_array);
CUresult sim_array_destroy(struct sim_array *array);
void sim_arrays_destroy(struct sim_context *context);
struct sim_array *sim_array_child(struct sim_array *parent, unsigned index, bool plane, /* under the lock; or NULL */
                                  const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint64_t offset);
CUdeviceptr sim_array_base(const struct sim_array *array); /* 0: nothing is mapped into it */

#endif
