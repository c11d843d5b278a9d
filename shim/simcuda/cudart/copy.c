/* copy.c - copies of bytes and rows, and fills. */
#include "simcuda/cudart/copy.h"
#include "simcuda/cudart/runtime.h"

static bool is_kind(enum cudaMemcpyKind kind) {
  return kind <= cudaMemcpyDefault;
}

SC_PUBLIC cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  if (!is_kind(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  switch (kind) {
  case cudaMemcpyHostToDevice:
    return SC_CALL(cuMemcpyHtoD_v2, (CUdeviceptr)to, from, bytes);
  case cudaMemcpyDeviceToHost:
    return SC_CALL(cuMemcpyDtoH_v2, to, (CUdeviceptr)from, bytes);
  default:
    return SC_CALL(cuMemcpy, (CUdeviceptr)to, (CUdeviceptr)from, bytes);
  }
}

SC_PUBLIC cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                      CUstream stream) {
  if (!is_kind(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  switch (kind) {
  case cudaMemcpyHostToDevice:
    return SC_CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr)to, from, bytes, stream);
  case cudaMemcpyDeviceToHost:
    return SC_CALL(cuMemcpyDtoHAsync_v2, to, (CUdeviceptr)from, bytes, stream);
  default:
    return SC_CALL(cuMemcpyAsync, (CUdeviceptr)to, (CUdeviceptr)from, bytes, stream);
  }
}

/* ---- between devices ---- */

static cudaError_t begin_peers(const struct sc_driver **ret_driver, int to, int from, CUcontext *ret_to,
                               CUcontext *ret_from) {
  cudaError_t error = sc_enter(ret_driver);
  if (error == cudaSuccess) error = sc_primary_context(*ret_driver, to, ret_to);
  return error == cudaSuccess ? sc_primary_context(*ret_driver, from, ret_from) : error;
}

SC_PUBLIC cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                          CUstream stream) {
  const struct sc_driver *driver;
  CUcontext to_context, from_context;
  cudaError_t error = begin_peers(&driver, to_device, from_device, &to_context, &from_context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuMemcpyPeerAsync((CUdeviceptr)to, to_context, (CUdeviceptr)from, from_context, bytes,
                                                   stream);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
  const struct sc_driver *driver;
  CUcontext to_context, from_context;
  cudaError_t error = begin_peers(&driver, to_device, from_device, &to_context, &from_context);
  if (error == cudaSuccess)
    error = (cudaError_t)driver->cuMemcpyPeer((CUdeviceptr)to, to_context, (CUdeviceptr)from, from_context, bytes);
  return sc_end(error);
}

/* ---- rows ---- */

static CUmemorytype type_of(bool is_host, enum cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t describe_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                 size_t height, enum cudaMemcpyKind kind, CUDA_MEMCPY2D *ret_copy) {
  bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  if (!is_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  *ret_copy = (CUDA_MEMCPY2D){.srcMemoryType = type_of(from_host, kind),
                              .srcHost = from,
                              .srcDevice = (CUdeviceptr)from,
                              .srcPitch = from_pitch,
                              .dstMemoryType = type_of(to_host, kind),
                              .dstHost = to,
                              .dstDevice = (CUdeviceptr)to,
                              .dstPitch = to_pitch,
                              .WidthInBytes = width,
                              .Height = height};
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                   size_t height, enum cudaMemcpyKind kind) {
  CUDA_MEMCPY2D copy;
  cudaError_t error = describe_rows(to, to_pitch, from, from_pitch, width, height, kind, &copy);
  if (error != cudaSuccess || width == 0 || height == 0) return sc_end(error);
  return SC_CALL(cuMemcpy2DUnaligned_v2, &copy);
}

SC_PUBLIC cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                        size_t height, enum cudaMemcpyKind kind, CUstream stream) {
  CUDA_MEMCPY2D copy;
  cudaError_t error = describe_rows(to, to_pitch, from, from_pitch, width, height, kind, &copy);
  if (error != cudaSuccess || width == 0 || height == 0) return sc_end(error);
  return SC_CALL(cuMemcpy2DAsync_v2, &copy, stream);
}

/* ---- fills ---- */

SC_PUBLIC cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
  return SC_CALL(cuMemsetD8_v2, (CUdeviceptr)pointer, (unsigned char)value, bytes);
}

SC_PUBLIC cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, CUstream stream) {
  return SC_CALL(cuMemsetD8Async, (CUdeviceptr)pointer, (unsigned char)value, bytes, stream);
}

SC_PUBLIC cudaError_t cudaMemset2D(void *pointer, size_t pitch, int value, size_t width, size_t height) {
  return SC_CALL(cuMemsetD2D8_v2, (CUdeviceptr)pointer, pitch, (unsigned char)value, width, height);
}

SC_PUBLIC cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                                        CUstream stream) {
  return SC_CALL(cuMemsetD2D8Async, (CUdeviceptr)pointer, pitch, (unsigned char)value, width, height, stream);
}

/* A box is filled row by row where its rows do not follow each other, slice by slice at most. */
static cudaError_t fill_box(struct cudaPitchedPtr box, int value, struct cudaExtent extent, CUstream stream) {
  const struct sc_driver *driver;
  size_t slice, rows;
  if (extent.width > box.pitch || extent.height > box.ysize) return cudaErrorInvalidValue;
  if (__builtin_mul_overflow(box.pitch, box.ysize, &slice)) return cudaErrorInvalidValue;
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return cudaErrorInvalidValue;
  bool is_whole = extent.height == box.ysize;
  cudaError_t error = sc_enter(&driver);
  for (size_t z = 0; z < (is_whole ? 1 : extent.depth) && rows != 0 && error == cudaSuccess; z++)
    error = (cudaError_t)driver->cuMemsetD2D8Async((CUdeviceptr)box.ptr + z * slice, box.pitch, (unsigned char)value,
                                                   extent.width, is_whole ? rows : extent.height, stream);
  return error;
}

SC_PUBLIC cudaError_t cudaMemset3D(struct cudaPitchedPtr box, int value, struct cudaExtent extent) {
  return sc_end(fill_box(box, value, extent, NULL));
}

SC_PUBLIC cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr box, int value, struct cudaExtent extent,
                                        CUstream stream) {
  return sc_end(fill_box(box, value, extent, stream));
}
