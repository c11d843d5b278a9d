/*
 * copy_shape.c - cuMemcpy2D and cuMemcpy3D of linear memory and arrays. Called by programs; copies/copy_bytes.c moves
 * the bytes.
 */
#include "simgpu/copies/bytes.h"
#include "simgpu/copies/copy.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"

CUresult sim_copy_shaped(CUstream handle, bool is_per_thread, const CUDA_MEMCPY3D *copy, bool waits) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!copy) return CUDA_ERROR_INVALID_VALUE;
  if (VG_UNLIKELY(stream->capture)) return sim_capture_work()->copy(stream, copy);
  result = waits ? sim_capture_unsafe() : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = sim_capture_implicit(stream);
  if (result != CUDA_SUCCESS) return result;
  struct sim_copy_way way;
  result = sim_copy_bytes(copy, &way);
  if (result == CUDA_SUCCESS) result = sim_submit_copy(stream, way, copy->WidthInBytes * copy->Height * copy->Depth);
  if (result != CUDA_SUCCESS || !waits || way.kind == SIM_COPY_ON_DEVICE) return result;
  sim_stream_wait(stream);
  return sim_context_waited(stream->context);
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
  return sim_copy_shaped(handle, is_per_thread, &whole, waits);
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
  return sim_copy_shaped(NULL, false, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy) {
  return sim_copy_shaped(NULL, true, copy, true);
}
SIM_PUBLIC CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
  return sim_copy_shaped(stream, false, copy, false);
}
SIM_PUBLIC CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream) {
  return sim_copy_shaped(stream, true, copy, false);
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
  return sim_copy_shaped(handle, is_per_thread, &whole, waits);
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
