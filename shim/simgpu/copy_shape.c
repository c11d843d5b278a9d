/*
 * copy_shape.c - cuMemcpy2D and cuMemcpy3D of linear memory (arrays are not simulated), and the byte mover that graph
 * nodes use as well.
 */
#include "core.h"
#include <string.h>

struct side {
  char *base; /* of the first byte that is copied */
  size_t pitch;
  size_t slice; /* bytes from one slice to the next */
};

static CUresult side_of(CUmemorytype type, void *host, CUdeviceptr device, size_t pitch, size_t height, size_t x,
                        size_t y, size_t z, const CUDA_MEMCPY3D *copy, struct side *ret_side) {
  if (type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (pitch == 0) pitch = copy->WidthInBytes + x;
  if (height == 0) height = copy->Height + y;
  if (copy->Height > 1 && pitch < copy->WidthInBytes + x) return CUDA_ERROR_INVALID_VALUE;
  char *base = type == CU_MEMORYTYPE_HOST ? host : (char *)device;
  if (!base) return CUDA_ERROR_INVALID_VALUE;
  *ret_side = (struct side){base + x + y * pitch + z * pitch * height, pitch, pitch * height};
  if (type != CU_MEMORYTYPE_DEVICE) return CUDA_SUCCESS;
  struct sim_allocation allocation;
  size_t extent = (copy->Depth - 1) * ret_side->slice + (copy->Height - 1) * pitch + copy->WidthInBytes;
  return sim_memory_covers((CUdeviceptr)ret_side->base, extent, &allocation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_copy_bytes(const CUDA_MEMCPY3D *copy, enum sim_copy *ret_kind) {
  struct side to, from;
  *ret_kind = SIM_COPY_ON_HOST;
  if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0) return CUDA_SUCCESS;
  CUresult result = side_of(copy->srcMemoryType, (void *)copy->srcHost, copy->srcDevice, copy->srcPitch,
                            copy->srcHeight, copy->srcXInBytes, copy->srcY, copy->srcZ, copy, &from);
  if (result == CUDA_SUCCESS)
    result = side_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstPitch, copy->dstHeight,
                     copy->dstXInBytes, copy->dstY, copy->dstZ, copy, &to);
  if (result != CUDA_SUCCESS) return result;
  for (size_t z = 0; z < copy->Depth; z++)
    for (size_t y = 0; y < copy->Height; y++)
      memmove(to.base + z * to.slice + y * to.pitch, from.base + z * from.slice + y * from.pitch, copy->WidthInBytes);
  *ret_kind = sim_copy_kind((CUdeviceptr)to.base, (CUdeviceptr)from.base);
  return CUDA_SUCCESS;
}

static CUresult shaped(CUstream handle, bool is_per_thread, const CUDA_MEMCPY3D *copy, bool waits) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  if (VG_UNLIKELY(stream->capture)) return sim_capture_copy(stream, copy);
  result = waits ? sim_capture_unsafe() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  enum sim_copy kind;
  result = sim_copy_bytes(copy, &kind);
  if (result == CUDA_SUCCESS) result = sim_submit_copy(stream, kind, copy->WidthInBytes * copy->Height * copy->Depth);
  if (result != CUDA_SUCCESS || !waits || kind == SIM_COPY_ON_DEVICE) return result;
  sim_stream_wait(stream);
  return sim_waited();
}

static CUresult flat(CUstream handle, bool is_per_thread, const CUDA_MEMCPY2D *copy, bool waits) {
  if (!copy) return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
  CUDA_MEMCPY3D whole = {.srcXInBytes = copy->srcXInBytes,
                         .srcY = copy->srcY,
                         .srcMemoryType = copy->srcMemoryType,
                         .srcHost = copy->srcHost,
                         .srcDevice = copy->srcDevice,
                         .srcArray = copy->srcArray,
                         .srcPitch = copy->srcPitch,
                         .dstXInBytes = copy->dstXInBytes,
                         .dstY = copy->dstY,
                         .dstMemoryType = copy->dstMemoryType,
                         .dstHost = copy->dstHost,
                         .dstDevice = copy->dstDevice,
                         .dstArray = copy->dstArray,
                         .dstPitch = copy->dstPitch,
                         .WidthInBytes = copy->WidthInBytes,
                         .Height = copy->Height,
                         .Depth = 1};
  return shaped(handle, is_per_thread, &whole, waits);
}

SIM_PUBLIC CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
  return flat(NULL, false, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy) {
  return flat(NULL, true, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
  return flat(NULL, false, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy) {
  return flat(NULL, true, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
  return flat(stream, false, copy, false);
}
SIM_PUBLIC CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream) {
  return flat(stream, true, copy, false);
}
SIM_PUBLIC CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
  return shaped(NULL, false, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy) {
  return shaped(NULL, true, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
  return shaped(stream, false, copy, false);
}
SIM_PUBLIC CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream) {
  return shaped(stream, true, copy, false);
}

static CUresult peer(CUstream handle, bool is_per_thread, const CUDA_MEMCPY3D_PEER *copy, bool waits) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  if (!sim_context_find(copy->srcContext) || !sim_context_find(copy->dstContext)) return CUDA_ERROR_INVALID_CONTEXT;
  CUDA_MEMCPY3D whole = {.srcXInBytes = copy->srcXInBytes,
                         .srcY = copy->srcY,
                         .srcZ = copy->srcZ,
                         .srcMemoryType = copy->srcMemoryType,
                         .srcHost = copy->srcHost,
                         .srcDevice = copy->srcDevice,
                         .srcArray = copy->srcArray,
                         .srcPitch = copy->srcPitch,
                         .srcHeight = copy->srcHeight,
                         .dstXInBytes = copy->dstXInBytes,
                         .dstY = copy->dstY,
                         .dstZ = copy->dstZ,
                         .dstMemoryType = copy->dstMemoryType,
                         .dstHost = copy->dstHost,
                         .dstDevice = copy->dstDevice,
                         .dstArray = copy->dstArray,
                         .dstPitch = copy->dstPitch,
                         .dstHeight = copy->dstHeight,
                         .WidthInBytes = copy->WidthInBytes,
                         .Height = copy->Height,
                         .Depth = copy->Depth};
  return shaped(handle, is_per_thread, &whole, waits);
}

SIM_PUBLIC CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy) {
  return peer(NULL, false, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy) {
  return peer(NULL, true, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
  return peer(stream, false, copy, false);
}
SIM_PUBLIC CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
  return peer(stream, true, copy, false);
}
