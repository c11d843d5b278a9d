/*
 * array_sparse.c - arrays without memory of their own: how they are divided into tiles of 64 KiB [published: the sizes
 * that graphics interfaces call standard block shapes], and physical memory that is mapped into them. Called by
 * programs and array.c.
 *
 * A mapping keeps its memory alive. Contents are the array's own here: they do not move with the memory, and what is
 * written where nothing is mapped is not lost.
 */
#include "ledger/array_boxes.h"
#include "simgpu/arrays/array.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"

struct tile {
  uint32_t width, height, depth; /* in elements */
};

static bool is_volume(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  return descriptor->Depth && !(descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP));
}

static struct tile tile_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  static const struct tile flat[5] = {{256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
  static const struct tile solid[5] = {{64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
  struct sim_plane planes[SIM_ARRAY_PLANES_MAX];
  sim_format_planes(descriptor, planes);
  unsigned size = 0; /* 8 bits << size */
  while (size < 4 && 8u << size < planes[0].bits) size++;
  struct tile tile = is_volume(descriptor) ? solid[size] : flat[size];
  tile.width <<= planes[0].width_shift; /* of compressed formats: texels, not blocks */
  tile.height <<= planes[0].height_shift;
  return tile;
}

/* The first level that does not span a tile in every dimension; an array that is not mipmapped has no tail. */
static unsigned tail_first(const struct sim_array *array) {
  struct tile tile = tile_of(&array->descriptor);
  for (unsigned level = 0; level < array->levels; level++) {
    CUDA_ARRAY3D_DESCRIPTOR at = sim_level_descriptor(&array->descriptor, level);
    if (at.Width < tile.width || at.Height < tile.height || (tile.depth > 1 && at.Depth < tile.depth)) return level;
  }
  return array->levels;
}

static uint64_t layers_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  return descriptor->Depth && !is_volume(descriptor) ? descriptor->Depth : 1;
}

/* Of one layer. */
static uint64_t tail_bytes(const struct sim_array *array) {
  uint64_t all = sim_level_offset(&array->descriptor, array->levels);
  uint64_t before = sim_level_offset(&array->descriptor, tail_first(array));
  return sim_array_round((all - before) / layers_of(&array->descriptor));
}

static CUresult properties(const struct sim_array *array, bool mipmapped, CUDA_ARRAY_SPARSE_PROPERTIES *ret) {
  if (!ret || !array || array->parent || !(array->descriptor.Flags & CUDA_ARRAY3D_SPARSE))
    return CUDA_ERROR_INVALID_VALUE;
  struct tile tile = tile_of(&array->descriptor);
  *ret = (CUDA_ARRAY_SPARSE_PROPERTIES){.tileExtent = {tile.width, tile.height, tile.depth}};
  if (mipmapped) {
    ret->miptailFirstLevel = tail_first(array);
    ret->miptailSize = tail_bytes(array);
  }
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *ret_properties, CUarray handle) {
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? properties(sim_array_find(handle), false, ret_properties) : result;
}

SIM_PUBLIC CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *ret_properties,
                                                        CUmipmappedArray handle) {
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? properties(sim_mipmap_find(handle), true, ret_properties) : result;
}

/* ---- mapping ---- */

static bool fits(uint32_t offset, uint32_t extent, size_t all, uint32_t step) {
  if (all == 0) all = 1;
  return extent && offset % step == 0 && offset < all && extent <= all - offset + step &&
         (extent % step == 0 || offset + extent == all);
}

/* Bytes of memory that an entry needs; 0: it is not valid for that array. */
static uint64_t bytes_of(const struct sim_array *array, bool mipmapped, const CUarrayMapInfo *info) {
  const CUDA_ARRAY3D_DESCRIPTOR *descriptor = &array->descriptor;
  if (descriptor->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) return array->bytes;
  if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    uint64_t offset = info->subresource.miptail.offset, size = info->subresource.miptail.size;
    uint64_t all = mipmapped ? tail_bytes(array) : 0;
    bool valid = offset % SIM_ARRAY_PAGE_BYTES == 0 && size % SIM_ARRAY_PAGE_BYTES == 0 && size <= all &&
                 offset <= all - size && info->subresource.miptail.layer < layers_of(descriptor);
    return valid ? size : 0;
  }
  const __typeof__(info->subresource.sparseLevel) *at = &info->subresource.sparseLevel;
  if (info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL) return 0;
  if (at->level >= (mipmapped ? tail_first(array) : 1) || at->layer >= layers_of(descriptor)) return 0;
  struct tile tile = tile_of(descriptor);
  CUDA_ARRAY3D_DESCRIPTOR level = sim_level_descriptor(descriptor, at->level);
  bool valid = fits(at->offsetX, at->extentWidth, level.Width, tile.width) &&
               fits(at->offsetY, at->extentHeight, level.Height, tile.height) &&
               fits(at->offsetZ, at->extentDepth, is_volume(descriptor) ? level.Depth : 1, tile.depth);
  uint64_t tiles = ((uint64_t)at->extentWidth + tile.width - 1) / tile.width *
                   ((at->extentHeight + tile.height - 1) / tile.height) *
                   ((at->extentDepth + tile.depth - 1) / tile.depth);
  return valid ? tiles * SIM_ARRAY_PAGE_BYTES : 0;
}

static CUresult array_of(const CUarrayMapInfo *info, struct sim_array **ret_array) {
  bool mipmapped = info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!mipmapped && info->resourceType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  *ret_array = mipmapped ? sim_mipmap_find(info->resource.mipmap) : sim_array_find(info->resource.array);
  if (!*ret_array) return CUDA_ERROR_INVALID_HANDLE;
  return (*ret_array)->parent || !(*ret_array)->unbacked ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* One entry; under the lock of physical memory. only_check: nothing is done. */
static CUresult map_one(const struct sim_context *context, const CUarrayMapInfo *info, bool only_check) {
  struct sim_array *array;
  CUresult result = array_of(info, &array);
  if (result != CUDA_SUCCESS) return result;
  uint64_t bytes = bytes_of(array, info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, info);
  bool map = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
  if (bytes == 0 || info->flags || info->reserved[0] || info->reserved[1]) return CUDA_ERROR_INVALID_VALUE;
  if (info->deviceBitMask != 1u << context->ordinal) return CUDA_ERROR_INVALID_VALUE;
  if (map) {
    const struct sim_physical *physical = sim_physical_find(info->memHandle.memHandle);
    if (!physical) return CUDA_ERROR_INVALID_HANDLE;
    if (info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info->offset % SIM_ARRAY_PAGE_BYTES ||
        physical->device != context->device || !(physical->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) ||
        bytes > physical->bytes || info->offset > physical->bytes - bytes)
      return CUDA_ERROR_INVALID_VALUE;
  } else if (info->memOperationType != CU_MEM_OPERATION_TYPE_UNMAP || info->memHandle.memHandle) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (only_check) return CUDA_SUCCESS;
  struct vg_box *boxes = array->maps;
  struct vg_box box = vg_box_of(info, array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING);
  if (map)
    vg_boxes_put(&boxes, &box, info->memHandle.memHandle, sim_array_count_map);
  else
    vg_boxes_cut(&boxes, &box, sim_array_count_map);
  array->maps = boxes;
  return CUDA_SUCCESS;
}

static CUresult map(const CUarrayMapInfo *list, unsigned count, CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result == CUDA_SUCCESS) result = sim_capture_stream_unsafe(stream);
  if (result != CUDA_SUCCESS) return result;
  if (!list || count == 0) return CUDA_ERROR_INVALID_VALUE;
  sim_physicals_lock();
  for (unsigned i = 0; i < 2 * count && result == CUDA_SUCCESS; i++) /* all are checked before the first is done */
    result = map_one(stream->context, &list[i % count], i < count);
  sim_physicals_unlock();
  return result;
}

SIM_PUBLIC CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned count, CUstream stream) {
  return map(list, count, stream, false);
}

SIM_PUBLIC CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned count, CUstream stream) {
  return map(list, count, stream, true);
}
