/*
 * copy_bytes.c - the bytes of a copy of linear memory and arrays. Called by copies/copy_shape.c and by nodes of graphs.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/backing.h"
#include "simgpu/arrays/array.h"
#include "simgpu/base/strict.h"
#include "simgpu/copies/bytes.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/stream.h"
#include <string.h>

#define ON_HOST (-1)

struct side {
  char *base; /* of the first byte that is copied */
  size_t pitch;
  size_t slice; /* bytes from one slice to the next */
  int device;   /* the server's index, or ON_HOST */
  bool pinned;  /* of host memory */
};

/* One half of a CUDA_MEMCPY3D. */
struct end {
  CUmemorytype type;
  void *host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch, height, x, y, z, lod;
};

static bool within(size_t from, size_t count, size_t all) {
  return from <= all && count <= all - from;
}

static CUresult side_of_array(const struct end *end, const CUDA_MEMCPY3D *copy, struct side *ret_side) {
  const struct sim_array *array = sim_array_find(end->array);
  struct sim_layout layout;
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr base = sim_array_base(array);
  if (!base || !sim_layout_of(&array->descriptor, &layout)) return CUDA_ERROR_INVALID_VALUE;
  if (!within(end->x, copy->WidthInBytes, layout.row_bytes) || !within(end->y, copy->Height, layout.rows) ||
      !within(end->z, copy->Depth, layout.slices))
    return CUDA_ERROR_INVALID_VALUE;
  size_t offset = end->x + end->y * layout.pitch_bytes + end->z * layout.slice_bytes;
  *ret_side =
      (struct side){(char *)base + offset, layout.pitch_bytes, layout.slice_bytes, array->context->device, true};
  return CUDA_SUCCESS;
}

static CUresult side_of(const struct end *end, const CUDA_MEMCPY3D *copy, struct side *ret_side) {
  if (end->lod) return CUDA_ERROR_INVALID_VALUE;
  if (end->type == CU_MEMORYTYPE_ARRAY) return side_of_array(end, copy, ret_side);
  size_t pitch = end->pitch ? end->pitch : copy->WidthInBytes + end->x;
  size_t height = end->height ? end->height : copy->Height + end->y;
  if (copy->Height > 1 && pitch < copy->WidthInBytes + end->x) return CUDA_ERROR_INVALID_VALUE;
  char *base = end->type == CU_MEMORYTYPE_HOST ? end->host : (char *)end->device;
  if (!base) return CUDA_ERROR_INVALID_VALUE;
  base += end->x + end->y * pitch + end->z * pitch * height;
  struct sim_allocation allocation;
  size_t extent = (copy->Depth - 1) * pitch * height + (copy->Height - 1) * pitch + copy->WidthInBytes;
  if (SIM_STRICT && !sim_strict_range((CUdeviceptr)base, extent)) return CUDA_ERROR_INVALID_VALUE;
  if (end->type == CU_MEMORYTYPE_DEVICE && !sim_memory_covers((CUdeviceptr)base, extent, &allocation))
    return CUDA_ERROR_INVALID_VALUE;
  bool is_known = sim_memory_find((CUdeviceptr)base, &allocation);
  bool on_device = is_known && allocation.kind == CU_MEMORYTYPE_DEVICE;
  *ret_side = (struct side){base, pitch, pitch * height, on_device ? allocation.device : ON_HOST, is_known};
  return CUDA_SUCCESS;
}

static CUresult begin_side(const struct side *side, const CUDA_MEMCPY3D *copy, uint64_t *ret_claimed) {
  if (side->device == ON_HOST) return CUDA_SUCCESS;
  uint64_t extent = (copy->Depth - 1) * side->slice + (copy->Height - 1) * side->pitch + copy->WidthInBytes;
  return sim_backing_begin_rows((CUdeviceptr)side->base, extent, copy->Height * copy->Depth, copy->WidthInBytes,
                                ret_claimed);
}

static enum sim_copy kind_of(const struct side *to, const struct side *from) {
  if (to->device == ON_HOST) return from->device == ON_HOST ? SIM_COPY_ON_HOST : SIM_COPY_FROM_DEVICE;
  if (from->device == ON_HOST) return SIM_COPY_TO_DEVICE;
  return to->device == from->device ? SIM_COPY_ON_DEVICE : SIM_COPY_PEER;
}

void sim_copy_values(enum sim_copy kind, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  if (kind == SIM_COPY_FROM_DEVICE)
    sim_values_read((void *)to, from, bytes);
  else if (kind == SIM_COPY_TO_DEVICE)
    sim_values_write(to, bytes);
  else if (kind != SIM_COPY_ON_HOST)
    sim_values_copy(to, from, bytes);
}

/* Of several rows: from the first byte to the last, with what lies between. */
static void copy_values(enum sim_copy kind, const struct side *to, const struct side *from, const CUDA_MEMCPY3D *copy) {
  uint64_t extent = (copy->Depth - 1) * to->slice + (copy->Height - 1) * to->pitch + copy->WidthInBytes;
  if (kind != SIM_COPY_FROM_DEVICE || (copy->Height == 1 && copy->Depth == 1))
    sim_copy_values(kind, (CUdeviceptr)to->base, (CUdeviceptr)from->base, extent);
}

static struct sim_copy_way way_of(const struct side *to, const struct side *from) {
  enum sim_copy kind = kind_of(to, from);
  bool is_crossing = kind == SIM_COPY_TO_DEVICE || kind == SIM_COPY_FROM_DEVICE;
  return (struct sim_copy_way){kind, is_crossing && !(to->pinned && from->pinned)};
}

/* From the first byte to the last. */
static bool is_read_only(const struct side *to, const CUDA_MEMCPY3D *copy) {
  struct sim_allocation allocation;
  uint64_t extent = (copy->Depth - 1) * to->slice + (copy->Height - 1) * to->pitch + copy->WidthInBytes;
  return to->device != ON_HOST && sim_memory_covers((CUdeviceptr)to->base, extent, &allocation) &&
         allocation.is_read_only;
}

CUresult sim_copy_bytes(const CUDA_MEMCPY3D *copy, struct sim_copy_way *ret_way) {
  struct side to, from;
  *ret_way = (struct sim_copy_way){.kind = SIM_COPY_ON_HOST};
  if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) return CUDA_SUCCESS;
  const struct end source = {copy->srcMemoryType, (void *)copy->srcHost, copy->srcDevice,   copy->srcArray,
                             copy->srcPitch,      copy->srcHeight,       copy->srcXInBytes, copy->srcY,
                             copy->srcZ,          copy->srcLOD};
  const struct end destination = {copy->dstMemoryType, copy->dstHost,   copy->dstDevice,   copy->dstArray,
                                  copy->dstPitch,      copy->dstHeight, copy->dstXInBytes, copy->dstY,
                                  copy->dstZ,          copy->dstLOD};
  CUresult result = side_of(&source, copy, &from);
  if (result == CUDA_SUCCESS) result = side_of(&destination, copy, &to);
  if (result == CUDA_SUCCESS && is_read_only(&to, copy)) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  uint64_t read = 0, written = 0;
  result = begin_side(&from, copy, &read);
  if (result == CUDA_SUCCESS) result = begin_side(&to, copy, &written);
  for (size_t z = 0; result == CUDA_SUCCESS && z < copy->Depth; z++)
    for (size_t y = 0; y < copy->Height; y++)
      memmove(to.base + z * to.slice + y * to.pitch, from.base + z * from.slice + y * from.pitch, copy->WidthInBytes);
  sim_backing_end(read + written);
  *ret_way = way_of(&to, &from);
  if (result == CUDA_SUCCESS) copy_values(ret_way->kind, &to, &from, copy);
  return result;
}
