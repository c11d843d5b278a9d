/* array.c - arrays, their channels, and copies of rows from and to them. */
#include "simcuda/cudart/copy_shape.h"

/* Of the formats that the runtime can describe by bits and kind. */
static bool read_format(const struct cudaChannelFormatDesc *channels, CUarray_format *ret_format,
                        unsigned *ret_channels) {
  static const struct {
    int kind, bits;
    CUarray_format format;
  } formats[] = {
      {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
      {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
      {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
      {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
      {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
      {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
      {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
      {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
  };
  const int bits[] = {channels->x, channels->y, channels->z, channels->w};
  unsigned count = 0;
  while (count < 4 && bits[count] != 0) count++;
  for (unsigned i = 0; i < 4; i++)
    if (bits[i] != (i < count ? bits[0] : 0)) return false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].kind == channels->f && formats[i].bits == bits[0]) {
      *ret_format = formats[i].format;
      *ret_channels = count;
      return true;
    }
  return false;
}

static struct cudaChannelFormatDesc describe_channels(CUarray_format format, unsigned channels) {
  int bits = (int)sc_format_bytes(format) * 8, kind = cudaChannelFormatKindUnsigned;
  if (format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT) kind = cudaChannelFormatKindFloat;
  if (format >= CU_AD_FORMAT_SIGNED_INT8 && format <= CU_AD_FORMAT_SIGNED_INT32) kind = cudaChannelFormatKindSigned;
  return (struct cudaChannelFormatDesc){bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 3 ? bits : 0,
                                        kind};
}

SC_PUBLIC struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind) {
  return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

SC_PUBLIC cudaError_t cudaMalloc3DArray(CUarray *ret_array, const struct cudaChannelFormatDesc *channels,
                                        struct cudaExtent extent, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {
      .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
  if (channels == NULL) return sc_end(cudaErrorInvalidValue);
  if (!read_format(channels, &descriptor.Format, &descriptor.NumChannels))
    return sc_end(cudaErrorInvalidChannelDescriptor);
  return SC_CALL(cuArray3DCreate_v2, ret_array, &descriptor);
}

SC_PUBLIC cudaError_t cudaMallocArray(CUarray *ret_array, const struct cudaChannelFormatDesc *channels, size_t width,
                                      size_t height, unsigned flags) {
  return cudaMalloc3DArray(ret_array, channels, (struct cudaExtent){width, height, 0}, flags);
}

SC_PUBLIC cudaError_t cudaFreeArray(CUarray array) {
  return array == NULL ? cudaSuccess : SC_CALL(cuArrayDestroy, array);
}

SC_PUBLIC cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *ret_channels, struct cudaExtent *ret_extent,
                                       unsigned *ret_flags, CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  cudaError_t error = SC_CALL(cuArray3DGetDescriptor_v2, &descriptor, array);
  if (error != cudaSuccess) return error;
  if (ret_channels != NULL) *ret_channels = describe_channels(descriptor.Format, descriptor.NumChannels);
  if (ret_extent != NULL) *ret_extent = (struct cudaExtent){descriptor.Width, descriptor.Height, descriptor.Depth};
  if (ret_flags != NULL) *ret_flags = descriptor.Flags;
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *ret_channels, CUarray array) {
  if (ret_channels == NULL) return sc_end(cudaErrorInvalidValue);
  return cudaArrayGetInfo(ret_channels, NULL, NULL, array);
}

/* ---- copies: offsets and widths are in bytes ---- */

static CUDA_MEMCPY2D from_memory(const void *from, size_t pitch, size_t width, size_t height,
                                 enum cudaMemcpyKind kind) {
  return (CUDA_MEMCPY2D){.srcMemoryType = kind == cudaMemcpyHostToDevice ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
                         .srcHost = from,
                         .srcDevice = (CUdeviceptr)from,
                         .srcPitch = pitch,
                         .WidthInBytes = width,
                         .Height = height};
}

static void to_array(CUDA_MEMCPY2D *copy, CUarray array, size_t x_bytes, size_t y) {
  copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->dstArray = array;
  copy->dstXInBytes = x_bytes;
  copy->dstY = y;
}

static CUDA_MEMCPY2D from_array(CUarray array, size_t x_bytes, size_t y, size_t width, size_t height) {
  return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .srcXInBytes = x_bytes,
                         .srcY = y,
                         .WidthInBytes = width,
                         .Height = height};
}

static void to_memory(CUDA_MEMCPY2D *copy, void *to, size_t pitch, enum cudaMemcpyKind kind) {
  copy->dstMemoryType = kind == cudaMemcpyDeviceToHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  copy->dstHost = to;
  copy->dstDevice = (CUdeviceptr)to;
  copy->dstPitch = pitch;
}

SC_PUBLIC cudaError_t cudaMemcpy2DToArray(CUarray to, size_t x_bytes, size_t y, const void *from, size_t pitch,
                                          size_t width, size_t height, enum cudaMemcpyKind kind) {
  CUDA_MEMCPY2D copy = from_memory(from, pitch, width, height, kind);
  to_array(&copy, to, x_bytes, y);
  return SC_CALL(cuMemcpy2DUnaligned_v2, &copy);
}

SC_PUBLIC cudaError_t cudaMemcpy2DToArrayAsync(CUarray to, size_t x_bytes, size_t y, const void *from, size_t pitch,
                                               size_t width, size_t height, enum cudaMemcpyKind kind, CUstream stream) {
  CUDA_MEMCPY2D copy = from_memory(from, pitch, width, height, kind);
  to_array(&copy, to, x_bytes, y);
  return SC_CALL(cuMemcpy2DAsync_v2, &copy, stream);
}

SC_PUBLIC cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, CUarray from, size_t x_bytes, size_t y,
                                            size_t width, size_t height, enum cudaMemcpyKind kind) {
  CUDA_MEMCPY2D copy = from_array(from, x_bytes, y, width, height);
  to_memory(&copy, to, pitch, kind);
  return SC_CALL(cuMemcpy2DUnaligned_v2, &copy);
}

SC_PUBLIC cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, CUarray from, size_t x_bytes, size_t y,
                                                 size_t width, size_t height, enum cudaMemcpyKind kind,
                                                 CUstream stream) {
  CUDA_MEMCPY2D copy = from_array(from, x_bytes, y, width, height);
  to_memory(&copy, to, pitch, kind);
  return SC_CALL(cuMemcpy2DAsync_v2, &copy, stream);
}

SC_PUBLIC cudaError_t cudaMemcpy2DArrayToArray(CUarray to, size_t to_x_bytes, size_t to_y, CUarray from,
                                               size_t from_x_bytes, size_t from_y, size_t width, size_t height,
                                               enum cudaMemcpyKind kind) {
  CUDA_MEMCPY2D copy = from_array(from, from_x_bytes, from_y, width, height);
  (void)kind;
  to_array(&copy, to, to_x_bytes, to_y);
  return SC_CALL(cuMemcpy2DUnaligned_v2, &copy);
}
