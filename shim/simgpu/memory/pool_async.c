/*
 * pool_async.c - cuMemAllocAsync and cuMemFreeAsync: memory of pools in the order of a stream, or a node of the graph
 * that the stream is captured into. Called by programs.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/base/strict.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"

static CUresult alloc_async(CUdeviceptr *ret_pointer, size_t bytes, CUmemoryPool pool, bool imported, CUstream handle,
                            bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer) return CUDA_ERROR_INVALID_VALUE;
  if (imported) return CUDA_ERROR_INVALID_VALUE; /* its maker alone allocates */
  if (stream->capture) return sim_capture_work()->alloc(stream, bytes, ret_pointer);
  return sim_pool_alloc(pool, stream->context, bytes, ret_pointer);
}

SIM_PUBLIC CUresult cuMemAllocAsync(CUdeviceptr *ret_pointer, size_t bytes, CUstream stream) {
  return alloc_async(ret_pointer, bytes, NULL, false, stream, false);
}

SIM_PUBLIC CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ret_pointer, size_t bytes, CUstream stream) {
  return alloc_async(ret_pointer, bytes, NULL, false, stream, true);
}

SIM_PUBLIC CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ret_pointer, size_t bytes, CUmemoryPool pool,
                                            CUstream stream) {
  int device;
  const struct sim_pool_sharing *sharing = sim_pool_sharing(pool, &device);
  if (!sharing) return CUDA_ERROR_INVALID_VALUE;
  return alloc_async(ret_pointer, bytes, pool, sharing->imported, stream, false);
}

SIM_PUBLIC CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ret_pointer, size_t bytes, CUmemoryPool pool,
                                                 CUstream stream) {
  int device;
  const struct sim_pool_sharing *sharing = sim_pool_sharing(pool, &device);
  if (!sharing) return CUDA_ERROR_INVALID_VALUE;
  return alloc_async(ret_pointer, bytes, pool, sharing->imported, stream, true);
}

static CUresult free_async(CUdeviceptr pointer, CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  struct sim_allocation allocation;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture) return sim_capture_work()->free(stream, pointer);
  if (!sim_memory_find(pointer, &allocation) || allocation.base != pointer) {
    if (SIM_STRICT) sim_strict_free_refused(pointer);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (allocation.pool) return sim_pool_free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (allocation.free && allocation.free(pointer)) return CUDA_SUCCESS;
  return sim_memory_free(stream->context, pointer); /* from cuMemAlloc: legal, and waits as cuMemFree does */
}

SIM_PUBLIC CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, stream, false);
}

SIM_PUBLIC CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, stream, true);
}
