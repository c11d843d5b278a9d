/* copy_shape.c - see copy_shape.h; and the copies themselves. A box is counted in bytes, or in elements of an array. */
#include "simcuda/cudart/copy_shape.h"

size_t sc_format_bytes(CUarray_format format) {
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8:
    return 1;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF:
    return 2;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT:
    return 4;
  default:
    return 0;
  }
}

static cudaError_t measure_element(const struct sc_driver *driver, CUarray array, size_t *ret_bytes) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  cudaError_t error = (cudaError_t)driver->cuArray3DGetDescriptor_v2(&descriptor, array);
  if (error != cudaSuccess) return error;
  *ret_bytes = sc_format_bytes(descriptor.Format) * descriptor.NumChannels;
  return *ret_bytes == 0 ? cudaErrorInvalidValue : cudaSuccess;
}

static CUmemorytype type_of(CUarray array, bool is_host, enum cudaMemcpyKind kind) {
  if (array != NULL) return CU_MEMORYTYPE_ARRAY;
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

cudaError_t sc_read_copy(const struct sc_driver *driver, const struct cudaMemcpy3DParms *from,
                         CUDA_MEMCPY3D *ret_copy) {
  enum cudaMemcpyKind kind = from->kind;
  CUarray array = from->srcArray != NULL ? from->srcArray : from->dstArray;
  size_t element_bytes = 1;
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if ((from->srcArray != NULL) == (from->srcPtr.ptr != NULL)) return cudaErrorInvalidValue;
  if ((from->dstArray != NULL) == (from->dstPtr.ptr != NULL)) return cudaErrorInvalidValue;
  cudaError_t error = array == NULL ? cudaSuccess : measure_element(driver, array, &element_bytes);
  if (error != cudaSuccess) return error;
  bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
  bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;
  *ret_copy = (CUDA_MEMCPY3D){
      .srcXInBytes = from->srcPos.x * (from->srcArray != NULL ? element_bytes : 1),
      .srcY = from->srcPos.y,
      .srcZ = from->srcPos.z,
      .srcMemoryType = type_of(from->srcArray, from_host, kind),
      .srcHost = from->srcPtr.ptr,
      .srcDevice = (CUdeviceptr)from->srcPtr.ptr,
      .srcArray = from->srcArray,
      .srcPitch = from->srcPtr.pitch,
      .srcHeight = from->srcPtr.ysize,
      .dstXInBytes = from->dstPos.x * (from->dstArray != NULL ? element_bytes : 1),
      .dstY = from->dstPos.y,
      .dstZ = from->dstPos.z,
      .dstMemoryType = type_of(from->dstArray, to_host, kind),
      .dstHost = from->dstPtr.ptr,
      .dstDevice = (CUdeviceptr)from->dstPtr.ptr,
      .dstArray = from->dstArray,
      .dstPitch = from->dstPtr.pitch,
      .dstHeight = from->dstPtr.ysize,
      .WidthInBytes = from->extent.width * element_bytes,
      .Height = from->extent.height,
      .Depth = from->extent.depth,
  };
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *params) {
  const struct sc_driver *driver;
  CUDA_MEMCPY3D copy;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = sc_read_copy(driver, params, &copy);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuMemcpy3D_v2(&copy);
  return sc_end(error);
}

SC_PUBLIC cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *params, CUstream stream) {
  const struct sc_driver *driver;
  CUDA_MEMCPY3D copy;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && params == NULL) error = cudaErrorInvalidValue;
  if (error == cudaSuccess) error = sc_read_copy(driver, params, &copy);
  if (error == cudaSuccess) error = (cudaError_t)driver->cuMemcpy3DAsync_v2(&copy, stream);
  return sc_end(error);
}
