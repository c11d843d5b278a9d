/*
 * copy_array.c - copies that begin or end in a one-dimensional array, at an offset in bytes. Called by programs; each
 * is one row of a copy with a shape. Forms without Async wait, but for those on the device.
 */
#include "simgpu/arrays/array.h"
#include "simgpu/copies/copy.h"
#include "simgpu/process/process.h"

static CUresult row(CUstream stream, bool is_per_thread, CUDA_MEMCPY3D copy, size_t bytes, bool waits) {
  CUarray ends[2] = {copy.dstMemoryType == CU_MEMORYTYPE_ARRAY ? copy.dstArray : NULL,
                     copy.srcMemoryType == CU_MEMORYTYPE_ARRAY ? copy.srcArray : NULL};
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  for (int i = 0; i < 2; i++) {
    const struct sim_array *array = ends[i] ? sim_array_find(ends[i]) : NULL;
    if (ends[i] && !array) return CUDA_ERROR_INVALID_HANDLE;
    if (array && (array->descriptor.Height > 1 || array->descriptor.Depth > 1)) return CUDA_ERROR_INVALID_VALUE;
  }
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return sim_copy_shaped(stream, is_per_thread, &copy, waits);
}

#define TO_ARRAY(array, offset) .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .dstXInBytes = offset
#define FROM_ARRAY(array, offset) .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = offset
#define TO_DEVICE(address) .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = address
#define FROM_DEVICE(address) .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = address
#define TO_HOST(address) .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = address
#define FROM_HOST(address) .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = address

/* The forms of one direction: the second and the per-thread interface, and where there is one the first. */
#define WAITING(name, suffix, is_per_thread)                                                                           \
  SIM_PUBLIC CUresult cuMemcpyDtoA##name##suffix(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {          \
    return row(NULL, is_per_thread, (CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_DEVICE(from)}, bytes, false);           \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyAtoD##name##suffix(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {          \
    return row(NULL, is_per_thread, (CUDA_MEMCPY3D){TO_DEVICE(to), FROM_ARRAY(from, offset)}, bytes, false);           \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyHtoA##name##suffix(CUarray to, size_t offset, const void *from, size_t bytes) {          \
    return row(NULL, is_per_thread, (CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_HOST(from)}, bytes, true);              \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyAtoH##name##suffix(void *to, CUarray from, size_t offset, size_t bytes) {                \
    return row(NULL, is_per_thread, (CUDA_MEMCPY3D){TO_HOST(to), FROM_ARRAY(from, offset)}, bytes, true);              \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyAtoA##name##suffix(CUarray to, size_t to_offset, CUarray from, size_t from_offset,       \
                                                 size_t bytes) {                                                       \
    return row(NULL, is_per_thread, (CUDA_MEMCPY3D){TO_ARRAY(to, to_offset), FROM_ARRAY(from, from_offset)}, bytes,    \
               false);                                                                                                 \
  }
#define ASYNC(suffix, is_per_thread)                                                                                   \
  SIM_PUBLIC CUresult cuMemcpyHtoAAsync_v2##suffix(CUarray to, size_t offset, const void *from, size_t bytes,          \
                                                   CUstream stream) {                                                  \
    return row(stream, is_per_thread, (CUDA_MEMCPY3D){TO_ARRAY(to, offset), FROM_HOST(from)}, bytes, false);           \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyAtoHAsync_v2##suffix(void *to, CUarray from, size_t offset, size_t bytes,                \
                                                   CUstream stream) {                                                  \
    return row(stream, is_per_thread, (CUDA_MEMCPY3D){TO_HOST(to), FROM_ARRAY(from, offset)}, bytes, false);           \
  }

WAITING(_v2, , false)
WAITING(_v2, _ptds, true)
ASYNC(, false)
ASYNC(_ptsz, true)
