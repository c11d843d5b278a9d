/*
 * array.c - arrays: made, described, destroyed. Called by programs and array_mipmap.c. Handles of levels and planes
 * belong to their parent and end with it.
 */
#include "simgpu/arrays/array.h"
#include "simgpu/base/slab.h"
#include "simgpu/memory/external_memory.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>

static struct sim_slab slab = SIM_SLAB(sizeof(struct sim_array), 1u << 18);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_array *arrays; /* those without a parent */

void sim_array_lock(void) {
  pthread_mutex_lock(&lock);
}

void sim_array_unlock(void) {
  pthread_mutex_unlock(&lock);
}

struct sim_array *sim_array_find(CUarray handle) {
  return sim_slab_find(&slab, handle, SIM_ARRAY_MAGIC);
}

struct sim_array *sim_mipmap_find(CUmipmappedArray handle) {
  return sim_slab_find(&slab, handle, SIM_MIPMAP_MAGIC);
}

bool sim_array_known(CUarray handle) {
  return sim_array_find(handle) != NULL;
}

CUdeviceptr sim_array_base(const struct sim_array *array) {
  uint64_t offset = 0;
  for (; array->parent; array = array->parent) offset += array->offset;
  bool deferred = array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING;
  return deferred && !array->maps ? 0 : array->base + offset;
}

/* ---- making ---- */

static struct sim_array *array_new(struct sim_context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                   uint32_t magic) {
  struct sim_array *array = sim_slab_get(&slab, magic);
  if (!array) return NULL;
  array->context = context;
  array->descriptor = *descriptor;
  array->levels = 1;
  return array;
}

CUresult sim_array_create(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels, uint32_t magic,
                          struct sim_external_map *external, struct sim_array **ret_array) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  if (!descriptor || !ret_array) return CUDA_ERROR_INVALID_VALUE;
  result = sim_descriptor_check(context, descriptor, magic == SIM_MIPMAP_MAGIC);
  if (result != CUDA_SUCCESS) return result;
  struct sim_array *array = array_new(context, descriptor, magic);
  if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
  array->levels = levels;
  array->external = external;
  array->unbacked = descriptor->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
  array->bytes = sim_array_round(sim_level_offset(descriptor, levels));
  result = sim_array_memory_take(array);
  if (result != CUDA_SUCCESS) {
    sim_slab_put(&slab, array);
    return result;
  }
  sim_array_lock();
  array->next = arrays;
  arrays = array;
  sim_array_unlock();
  *ret_array = array;
  return CUDA_SUCCESS;
}

struct sim_array *sim_array_child(struct sim_array *parent, unsigned index, bool plane,
                                  const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint64_t offset) {
  for (struct sim_array *child = parent->children; child; child = child->next)
    if (child->index == index && child->plane == plane) return child;
  struct sim_array *child = array_new(parent->context, descriptor, SIM_ARRAY_MAGIC);
  if (!child) return NULL;
  child->parent = parent;
  child->index = index;
  child->plane = plane;
  child->offset = offset;
  child->next = parent->children;
  parent->children = child;
  return child;
}

/* ---- ending ---- */

static void array_free(struct sim_array *array) { /* out of the list already */
  while (array->children) {
    struct sim_array *child = array->children;
    array->children = child->next;
    array_free(child);
  }
  if (!array->parent) {
    sim_array_unmap_all(array);
    sim_array_memory_give(array);
  }
  sim_slab_put(&slab, array);
}

static bool take_out(struct sim_array *array) {
  bool found = false;
  sim_array_lock();
  for (struct sim_array **link = &arrays; *link && !found; link = found ? link : &(*link)->next)
    if (*link == array) {
      *link = array->next;
      found = true;
    }
  sim_array_unlock();
  return found;
}

/* Waits for everything the context has been given, as cuMemFree does. */
CUresult sim_array_destroy(struct sim_array *array) {
  sim_context_wait(array->context);
  if (!take_out(array)) return CUDA_ERROR_INVALID_HANDLE; /* a level or plane, or another thread was faster */
  array_free(array);
  return sim_waited();
}

void sim_arrays_destroy(struct sim_context *context) {
  for (;;) {
    struct sim_array *array;
    sim_array_lock();
    for (array = arrays; array && array->context != context;) array = array->next;
    sim_array_unlock();
    if (!array) return;
    if (take_out(array)) array_free(array);
  }
}

SIM_PUBLIC CUresult cuArrayDestroy(CUarray handle) {
  CUresult result = sim_ready();
  if (result == CUDA_SUCCESS) result = sim_capture_unsafe();
  if (result != CUDA_SUCCESS) return result;
  struct sim_array *array = sim_array_find(handle);
  return array && !array->parent ? sim_array_destroy(array) : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- entry points ---- */

SIM_PUBLIC CUresult cuArray3DCreate_v2(CUarray *ret_handle, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  struct sim_array *array;
  CUresult result = sim_array_create(ret_handle ? descriptor : NULL, 1, SIM_ARRAY_MAGIC, NULL, &array);
  if (result == CUDA_SUCCESS) *ret_handle = (CUarray)array;
  return result;
}

SIM_PUBLIC CUresult cuArrayCreate_v2(CUarray *ret_handle, const CUDA_ARRAY_DESCRIPTOR *flat) {
  CUDA_ARRAY3D_DESCRIPTOR whole = {0};
  if (flat)
    whole = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = flat->Width, .Height = flat->Height, .Format = flat->Format, .NumChannels = flat->NumChannels};
  return cuArray3DCreate_v2(ret_handle, flat ? &whole : NULL);
}

SIM_PUBLIC CUresult cuArray3DCreate(CUarray *ret_handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *first) {
  CUDA_ARRAY3D_DESCRIPTOR whole = {0};
  if (first)
    whole = (CUDA_ARRAY3D_DESCRIPTOR){first->Width,  first->Height,      first->Depth,
                                      first->Format, first->NumChannels, first->Flags};
  return cuArray3DCreate_v2(ret_handle, first ? &whole : NULL);
}

SIM_PUBLIC CUresult cuArrayCreate(CUarray *ret_handle, const CUDA_ARRAY_DESCRIPTOR_v1 *first) {
  CUDA_ARRAY_DESCRIPTOR flat = {0};
  if (first) flat = (CUDA_ARRAY_DESCRIPTOR){first->Width, first->Height, first->Format, first->NumChannels};
  return cuArrayCreate_v2(ret_handle, first ? &flat : NULL);
}

static CUresult described(CUarray handle, const void *ret_descriptor, const CUDA_ARRAY3D_DESCRIPTOR **ret_found) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  const struct sim_array *array = sim_array_find(handle);
  if (!ret_descriptor) return CUDA_ERROR_INVALID_VALUE;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  *ret_found = &array->descriptor;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret_descriptor, CUarray handle) {
  const CUDA_ARRAY3D_DESCRIPTOR *d;
  CUresult result = described(handle, ret_descriptor, &d);
  if (result == CUDA_SUCCESS) *ret_descriptor = *d;
  return result;
}

SIM_PUBLIC CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret_descriptor, CUarray handle) {
  const CUDA_ARRAY3D_DESCRIPTOR *d;
  CUresult result = described(handle, ret_descriptor, &d);
  if (result == CUDA_SUCCESS) *ret_descriptor = (CUDA_ARRAY_DESCRIPTOR){d->Width, d->Height, d->Format, d->NumChannels};
  return result;
}

SIM_PUBLIC CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *ret_descriptor, CUarray handle) {
  const CUDA_ARRAY3D_DESCRIPTOR *d;
  CUresult result = described(handle, ret_descriptor, &d);
  if (result == CUDA_SUCCESS)
    *ret_descriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)d->Width, (unsigned)d->Height, (unsigned)d->Depth,
                                                   d->Format,          d->NumChannels,      d->Flags};
  return result;
}

SIM_PUBLIC CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *ret_descriptor, CUarray handle) {
  const CUDA_ARRAY3D_DESCRIPTOR *d;
  CUresult result = described(handle, ret_descriptor, &d);
  if (result == CUDA_SUCCESS)
    *ret_descriptor = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)d->Width, (unsigned)d->Height, d->Format, d->NumChannels};
  return result;
}
