/*
 * copy_batch.c - batches of copies with a shape, between pointers and arrays. Called by programs. Attributes say how
 * early the source may be read: here every source is read at once.
 */
#include "simgpu/arrays/array.h"
#include "simgpu/copies/copy.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"

bool sim_copy_attributes_valid(CUmemcpySrcAccessOrder order, unsigned flags) {
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         !(flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

/* Bytes of an array's element; 1 for pointers beside them; 0: not an array that is copied so. */
static size_t element_of(const CUmemcpy3DOperand *operand) {
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) return 1;
  const struct sim_array *array = sim_array_find(operand->op.array.array);
  struct sim_layout layout;
  if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || !array) return 0;
  CUDA_ARRAY3D_DESCRIPTOR one = {
      .Width = 1, .Format = array->descriptor.Format, .NumChannels = array->descriptor.NumChannels};
  return sim_layout_of(&one, &layout) ? layout.row_bytes : 0;
}

struct end {
  CUmemorytype type;
  CUdeviceptr pointer;
  CUarray array;
  size_t pitch, height, x, y, z;
};

static bool end_of(const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t element, struct end *ret_end) {
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const CUoffset3D *at = &operand->op.array.offset;
    *ret_end = (struct end){
        .type = CU_MEMORYTYPE_ARRAY, .array = operand->op.array.array, .x = at->x * element, .y = at->y, .z = at->z};
    return true;
  }
  size_t row = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width;
  size_t height = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
  *ret_end = (struct end){
      .type = CU_MEMORYTYPE_UNIFIED, .pointer = operand->op.ptr.ptr, .pitch = row * element, .height = height};
  return operand->op.ptr.ptr && row >= extent->width && height >= extent->height;
}

static CUresult one(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *ret_copy) {
  size_t from_element = element_of(&op->src), to_element = element_of(&op->dst);
  bool arrays = op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY && op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  size_t element = from_element > to_element ? from_element : to_element;
  struct end from, to;
  if (!from_element || !to_element || (arrays && from_element != to_element)) return CUDA_ERROR_INVALID_VALUE;
  if (!op->extent.width || !op->extent.height || !op->extent.depth) return CUDA_ERROR_INVALID_VALUE;
  if (!sim_copy_attributes_valid(op->srcAccessOrder, op->flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!end_of(&op->src, &op->extent, element, &from) || !end_of(&op->dst, &op->extent, element, &to))
    return CUDA_ERROR_INVALID_VALUE;
  *ret_copy = (CUDA_MEMCPY3D){.srcMemoryType = from.type,
                              .srcDevice = from.pointer,
                              .srcArray = from.array,
                              .srcPitch = from.pitch,
                              .srcHeight = from.height,
                              .srcXInBytes = from.x,
                              .srcY = from.y,
                              .srcZ = from.z,
                              .dstMemoryType = to.type,
                              .dstDevice = to.pointer,
                              .dstArray = to.array,
                              .dstPitch = to.pitch,
                              .dstHeight = to.height,
                              .dstXInBytes = to.x,
                              .dstY = to.y,
                              .dstZ = to.z,
                              .WidthInBytes = op->extent.width * element,
                              .Height = op->extent.height,
                              .Depth = op->extent.depth};
  return CUDA_SUCCESS;
}

static CUresult batch(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *ret_failed, unsigned long long flags,
                      CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_batch_stream(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ops || count == 0 || flags) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    CUDA_MEMCPY3D copy;
    result = one(&ops[i], &copy);
    if (result == CUDA_SUCCESS) result = sim_copy_shaped(handle, is_per_thread, &copy, false);
    if (result != CUDA_SUCCESS && ret_failed) *ret_failed = i;
  }
  return result;
}

#define BATCH(suffix, is_per_thread)                                                                                   \
  SIM_PUBLIC CUresult cuMemcpy3DBatchAsync##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed,      \
                                                   unsigned long long flags, CUstream stream) {                        \
    return batch(ops, count, ret_failed, flags, stream, is_per_thread);                                                \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpy3DBatchAsync_v2##suffix(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops,                       \
                                                      unsigned long long flags, CUstream stream) {                     \
    return batch(ops, count, NULL, flags, stream, is_per_thread);                                                      \
  }
BATCH(, false)
BATCH(_ptsz, true)
