/*
 * set.c - cuMemset of every width. The bytes are set at once, in program order; the stream is given the time of a
 * kernel that writes them. Forms without Async return at once, as the driver's do.
 */
#include "simgpu/copies/bytes.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"

static CUresult set(CUstream handle, bool is_per_thread, CUDA_MEMSET_NODE_PARAMS what) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (VG_UNLIKELY(stream->capture)) return sim_capture_work()->memset(stream, &what);
  result = sim_capture_implicit(stream);
  if (result == CUDA_SUCCESS) result = sim_set_bytes(&what);
  if (result != CUDA_SUCCESS || what.width == 0 || what.height == 0) return result;
  return sim_submit_memset(stream, (uint64_t)what.width * what.height * what.elementSize);
}

#define WHAT(to, row_pitch, size, v, w, h)                                                                             \
  ((CUDA_MEMSET_NODE_PARAMS){.dst = to, .pitch = row_pitch, .value = v, .elementSize = size, .width = w, .height = h})

/* The six forms of one width: plain and Async, each legacy and per thread, one- and two-dimensional. */
#define FORMS(bits, type)                                                                                              \
  SIM_PUBLIC CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                                 \
    return set(NULL, false, WHAT(to, 0, bits / 8, value, count, 1));                                                   \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                            \
    return set(NULL, true, WHAT(to, 0, bits / 8, value, count, 1));                                                    \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {              \
    return set(stream, false, WHAT(to, 0, bits / 8, value, count, 1));                                                 \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream) {         \
    return set(stream, true, WHAT(to, 0, bits / 8, value, count, 1));                                                  \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t w, size_t h) {           \
    return set(NULL, false, WHAT(to, pitch, bits / 8, value, w, h));                                                   \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t w, size_t h) {      \
    return set(NULL, true, WHAT(to, pitch, bits / 8, value, w, h));                                                    \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t w, size_t h,           \
                                               CUstream stream) {                                                      \
    return set(stream, false, WHAT(to, pitch, bits / 8, value, w, h));                                                 \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t w, size_t h,      \
                                                    CUstream stream) {                                                 \
    return set(stream, true, WHAT(to, pitch, bits / 8, value, w, h));                                                  \
  }

FORMS(8, unsigned char)
FORMS(16, unsigned short)
FORMS(32, unsigned int)
