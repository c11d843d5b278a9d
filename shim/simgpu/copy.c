/*
 * copy.c - cuMemcpy of every kind of linear memory. The bytes are moved at once, in program order; the stream is given
 * the copy engine's time. Forms without Async go through the default stream and wait, but for copies on the device.
 */
#include "core.h"
#include <string.h>

enum sim_copy sim_copy_kind(CUdeviceptr destination, CUdeviceptr source) {
  struct sim_allocation to, from;
  bool to_device = sim_memory_find(destination, &to) && to.kind == CU_MEMORYTYPE_DEVICE;
  bool from_device = sim_memory_find(source, &from) && from.kind == CU_MEMORYTYPE_DEVICE;
  if (to_device && from_device) return to.device == from.device ? SIM_COPY_ON_DEVICE : SIM_COPY_PEER;
  return to_device ? SIM_COPY_TO_DEVICE : from_device ? SIM_COPY_FROM_DEVICE : SIM_COPY_ON_HOST;
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

static bool side_valid(CUdeviceptr address, size_t bytes, enum side side) {
  struct sim_allocation allocation;
  if (side == SIDE_DEVICE) return sim_memory_covers(address, bytes, &allocation);
  return address != 0;
}

static CUresult linear(CUstream handle, bool is_per_thread, const struct linear *copy, bool waits) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (copy->bytes == 0) return CUDA_SUCCESS;
  if (SIM_STRICT && (!sim_strict_range(copy->to, copy->bytes) || !sim_strict_range(copy->from, copy->bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!side_valid(copy->to, copy->bytes, copy->to_side) || !side_valid(copy->from, copy->bytes, copy->from_side))
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
    return sim_capture_copy(stream, &node);
  }
  result = waits ? sim_capture_unsafe() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  enum sim_copy kind = sim_copy_kind(copy->to, copy->from);
  memmove((void *)copy->to, (void *)copy->from, copy->bytes);
  result = sim_submit_copy(stream, kind, copy->bytes);
  if (result != CUDA_SUCCESS || !waits || kind == SIM_COPY_ON_DEVICE) return result;
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

/* Each copy has attributes: the first of them begin with the first copy, the others behind the ones before. They say
 * how far the source may be read early: here every source is read at once. */
static bool attributes_valid(const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                             size_t count) {
  if (!attributes || !firsts || attribute_count == 0 || attribute_count > count || firsts[0] != 0) return false;
  for (size_t i = 0; i < attribute_count; i++) {
    unsigned order = (unsigned)attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) return false;
    if (i > 0 && (firsts[i] <= firsts[i - 1] || firsts[i] >= count)) return false;
  }
  return true;
}

static CUresult batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count, bool described,
                      size_t *ret_failed, CUstream handle, bool is_per_thread) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!to || !from || !bytes || count == 0 || !described) return CUDA_ERROR_INVALID_VALUE;
  if (handle == NULL || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE; /* as the driver says */
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    result = linear(handle, is_per_thread, LINEAR(to[i], from[i], bytes[i], SIDE_ANY, SIDE_ANY), false);
    if (result != CUDA_SUCCESS && ret_failed) *ret_failed = i;
  }
  return result;
}

#define BATCH(name, is_per_thread)                                                                                     \
  SIM_PUBLIC CUresult name##_v2##is_per_thread(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,        \
                                               CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count, \
                                               CUstream stream) {                                                      \
    return batch(to, from, bytes, count, attributes_valid(attributes, firsts, attribute_count, count), NULL, stream,   \
                 sizeof #is_per_thread > 1);                                                                           \
  }                                                                                                                    \
  SIM_PUBLIC CUresult name##is_per_thread(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,             \
                                          CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count,      \
                                          size_t *ret_failed, CUstream stream) {                                       \
    return batch(to, from, bytes, count, attributes_valid(attributes, firsts, attribute_count, count), ret_failed,     \
                 stream, sizeof #is_per_thread > 1);                                                                   \
  }

BATCH(cuMemcpyBatchAsync, )
BATCH(cuMemcpyBatchAsync, _ptsz)
