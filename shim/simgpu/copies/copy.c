/*
 * copy.c - cuMemcpy of every kind of linear memory. The bytes are moved at once, in program order; the stream is given
 * the copy engine's time. Forms without Async go through the default stream and wait, but for copies on the device.
 */
#include "simgpu/copies/copy.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/backing.h"
#include "simgpu/base/strict.h"
#include "simgpu/copies/bytes.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <string.h>

static struct sim_copy_way way_of(CUdeviceptr destination, CUdeviceptr source) {
  struct sim_allocation to, from;
  bool is_to_known = sim_memory_find(destination, &to), is_from_known = sim_memory_find(source, &from);
  bool to_device = is_to_known && to.kind == CU_MEMORYTYPE_DEVICE;
  bool from_device = is_from_known && from.kind == CU_MEMORYTYPE_DEVICE;
  if (to_device && from_device)
    return (struct sim_copy_way){.kind = to.device == from.device ? SIM_COPY_ON_DEVICE : SIM_COPY_PEER};
  if (to_device) return (struct sim_copy_way){SIM_COPY_TO_DEVICE, !is_from_known};
  if (from_device) return (struct sim_copy_way){SIM_COPY_FROM_DEVICE, !is_to_known};
  return (struct sim_copy_way){.kind = SIM_COPY_ON_HOST};
}

enum side { SIDE_ANY, SIDE_DEVICE, SIDE_HOST };

/* One linear copy as the entry points give it. */
struct linear {
  CUdeviceptr to;
  CUdeviceptr from;
  size_t bytes;
  enum side to_side; /* SIDE_DEVICE: must be memory that the driver knows */
  enum side from_side;
};

static bool side_valid(CUdeviceptr address, size_t bytes, enum side side, bool is_destination) {
  struct sim_allocation allocation;
  if (side == SIDE_HOST) return address != 0;
  bool known = sim_memory_covers(address, bytes, &allocation);
  if (known && is_destination && allocation.is_read_only) return false;
  return side == SIDE_DEVICE ? known : address != 0;
}

/* Reading untouched device memory backs it with pages as well. */
static CUresult move(const struct linear *copy, enum sim_copy kind) {
  uint64_t read = 0, written = 0;
  CUresult result = CUDA_SUCCESS;
  if (kind != SIM_COPY_TO_DEVICE && kind != SIM_COPY_ON_HOST)
    result = sim_backing_begin(copy->from, copy->bytes, &read);
  if (result == CUDA_SUCCESS && kind != SIM_COPY_FROM_DEVICE && kind != SIM_COPY_ON_HOST)
    result = sim_backing_begin(copy->to, copy->bytes, &written);
  if (result == CUDA_SUCCESS) {
    memmove((void *)copy->to, (void *)copy->from, copy->bytes);
    sim_copy_values(kind, copy->to, copy->from, copy->bytes);
  }
  sim_backing_end(read + written);
  return result;
}

static CUresult linear(CUstream handle, bool is_per_thread, const struct linear *copy, bool waits) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (copy->bytes == 0) return CUDA_SUCCESS;
  if (SIM_STRICT && (!sim_strict_range(copy->to, copy->bytes) || !sim_strict_range(copy->from, copy->bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!side_valid(copy->to, copy->bytes, copy->to_side, true) ||
      !side_valid(copy->from, copy->bytes, copy->from_side, false))
    return CUDA_ERROR_INVALID_VALUE;
  if (VG_UNLIKELY(stream->capture)) {
    CUDA_MEMCPY3D node = {.srcMemoryType = copy->from_side == SIDE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                          .srcHost = (void *)copy->from,
                          .srcDevice = copy->from,
                          .dstMemoryType = copy->to_side == SIDE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                          .dstHost = (void *)copy->to,
                          .dstDevice = copy->to,
                          .WidthInBytes = copy->bytes,
                          .Height = 1,
                          .Depth = 1};
    return sim_capture_work()->copy(stream, &node);
  }
  result = waits ? sim_capture_unsafe() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_copy_way way = way_of(copy->to, copy->from);
  result = move(copy, way.kind);
  if (result != CUDA_SUCCESS) return result;
  result = sim_submit_copy(stream, way, copy->bytes);
  if (result != CUDA_SUCCESS || !waits || way.kind == SIM_COPY_ON_DEVICE) return result;
  sim_stream_wait(stream);
  return sim_context_waited(stream->context);
}

#define HOST(p) ((CUdeviceptr)(p))
#define LINEAR(to, from, bytes, to_side, from_side) &(struct linear){to, from, bytes, to_side, from_side}

SIM_PUBLIC CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, false, LINEAR(to, from, bytes, SIDE_ANY, SIDE_ANY), true);
}
SIM_PUBLIC CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, true, LINEAR(to, from, bytes, SIDE_ANY, SIDE_ANY), true);
}
SIM_PUBLIC CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, false, LINEAR(to, from, bytes, SIDE_ANY, SIDE_ANY), false);
}
SIM_PUBLIC CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, true, LINEAR(to, from, bytes, SIDE_ANY, SIDE_ANY), false);
}
SIM_PUBLIC CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  return linear(NULL, false, LINEAR(to, HOST(from), bytes, SIDE_DEVICE, SIDE_HOST), true);
}
SIM_PUBLIC CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes) {
  return linear(NULL, true, LINEAR(to, HOST(from), bytes, SIDE_DEVICE, SIDE_HOST), true);
}
SIM_PUBLIC CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return linear(stream, false, LINEAR(to, HOST(from), bytes, SIDE_DEVICE, SIDE_HOST), false);
}
SIM_PUBLIC CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return linear(stream, true, LINEAR(to, HOST(from), bytes, SIDE_DEVICE, SIDE_HOST), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, false, LINEAR(HOST(to), from, bytes, SIDE_HOST, SIDE_DEVICE), true);
}
SIM_PUBLIC CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, true, LINEAR(HOST(to), from, bytes, SIDE_HOST, SIDE_DEVICE), true);
}
SIM_PUBLIC CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, false, LINEAR(HOST(to), from, bytes, SIDE_HOST, SIDE_DEVICE), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, true, LINEAR(HOST(to), from, bytes, SIDE_HOST, SIDE_DEVICE), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, false, LINEAR(to, from, bytes, SIDE_DEVICE, SIDE_DEVICE), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return linear(NULL, true, LINEAR(to, from, bytes, SIDE_DEVICE, SIDE_DEVICE), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, false, LINEAR(to, from, bytes, SIDE_DEVICE, SIDE_DEVICE), false);
}
SIM_PUBLIC CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return linear(stream, true, LINEAR(to, from, bytes, SIDE_DEVICE, SIDE_DEVICE), false);
}

static CUresult peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                     CUstream handle, bool is_per_thread) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!sim_context_find(to_context) || !sim_context_find(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return linear(handle, is_per_thread, LINEAR(to, from, bytes, SIDE_DEVICE, SIDE_DEVICE), false);
}

SIM_PUBLIC CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                 size_t bytes) {
  return peer(to, to_context, from, from_context, bytes, NULL, false);
}
SIM_PUBLIC CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                      size_t bytes) {
  return peer(to, to_context, from, from_context, bytes, NULL, true);
}
SIM_PUBLIC CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                      size_t bytes, CUstream stream) {
  return peer(to, to_context, from, from_context, bytes, stream, false);
}
SIM_PUBLIC CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                           CUcontext from_context, size_t bytes, CUstream stream) {
  return peer(to, to_context, from, from_context, bytes, stream, true);
}

struct batch {
  const CUdeviceptr *to, *from;
  const size_t *bytes;
  size_t count;
  const CUmemcpyAttributes *attributes; /* attributes[i] from copy runs[i] on */
  const size_t *runs;
  size_t run_count;
};

/* Attributes say how far the source may be read early: here every source is read at once. */
static CUresult run_batch(const struct batch *batch, size_t *ret_failed, CUstream handle, bool is_per_thread) {
  struct sim_stream *stream;
  CUresult result = sim_batch_stream(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!batch->to || !batch->from || !batch->bytes || !batch->attributes ||
      !sim_runs_valid(batch->runs, batch->run_count, batch->count))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch->run_count; i++)
    if (!sim_copy_attributes_valid(batch->attributes[i].srcAccessOrder, batch->attributes[i].flags))
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++) {
    result =
        linear(handle, is_per_thread, LINEAR(batch->to[i], batch->from[i], batch->bytes[i], SIDE_ANY, SIDE_ANY), false);
    if (result != CUDA_SUCCESS && ret_failed) *ret_failed = i;
  }
  return result;
}

#define BATCH(suffix, is_per_thread)                                                                                   \
  SIM_PUBLIC CUresult cuMemcpyBatchAsync_v2##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,   \
                                                    CUmemcpyAttributes *attributes, size_t *runs, size_t run_count,    \
                                                    CUstream stream) {                                                 \
    return run_batch(&(struct batch){to, from, bytes, count, attributes, runs, run_count}, NULL, stream,               \
                     is_per_thread);                                                                                   \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemcpyBatchAsync##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,      \
                                                 CUmemcpyAttributes *attributes, size_t *runs, size_t run_count,       \
                                                 size_t *ret_failed, CUstream stream) {                                \
    return run_batch(&(struct batch){to, from, bytes, count, attributes, runs, run_count}, ret_failed, stream,         \
                     is_per_thread);                                                                                   \
  }
BATCH(, false)
BATCH(_ptsz, true)
