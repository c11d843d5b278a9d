/* copies.c - cuBLAS's own copies of vectors and matrices between host and device, which are real. */
#include "simcuda/cublas/cublas.h"

/* width_bytes of every pitch, height times. The driver finds out which address is whose. */
static enum sc_cublas_status copy(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t width_bytes,
                                  size_t height, CUstream stream) {
  const struct sc_driver *driver = sc_driver();
  if (driver == NULL) return SC_CUBLAS_NOT_INITIALIZED;
  if (from == NULL || to == NULL) return SC_CUBLAS_INVALID_VALUE;
  if (width_bytes == 0 || height == 0) return SC_CUBLAS_SUCCESS;
  CUDA_MEMCPY2D request = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = (CUdeviceptr)from,
                           .srcPitch = from_pitch,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = (CUdeviceptr)to,
                           .dstPitch = to_pitch,
                           .WidthInBytes = width_bytes,
                           .Height = height};
  return driver->cuMemcpy2DAsync_v2(&request, stream) == CUDA_SUCCESS ? SC_CUBLAS_SUCCESS : SC_CUBLAS_MAPPING_ERROR;
}

static enum sc_cublas_status copy_vector(int n, int element_bytes, const void *x, int incx, void *y, int incy,
                                         CUstream stream) {
  if (n < 0 || element_bytes <= 0 || incx <= 0 || incy <= 0) return SC_CUBLAS_INVALID_VALUE;
  size_t bytes = (size_t)element_bytes;
  return copy(x, (size_t)incx * bytes, y, (size_t)incy * bytes, bytes, (size_t)n, stream);
}

static enum sc_cublas_status copy_matrix(int rows, int columns, int element_bytes, const void *a, int lda, void *b,
                                         int ldb, CUstream stream) {
  if (rows < 0 || columns < 0 || element_bytes <= 0 || lda < rows || ldb < rows) return SC_CUBLAS_INVALID_VALUE;
  size_t bytes = (size_t)element_bytes;
  return copy(a, (size_t)lda * bytes, b, (size_t)ldb * bytes, (size_t)rows * bytes, (size_t)columns, stream);
}

#define SC_DEFINE_VECTOR_COPY(name)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(int n, int element_bytes, const void *x, int incx, void *y, int incy,           \
                                       CUstream stream) {                                                              \
    return copy_vector(n, element_bytes, x, incx, y, incy, stream);                                                    \
  }
SC_DEFINE_VECTOR_COPY(cublasSetVectorAsync)
SC_DEFINE_VECTOR_COPY(cublasGetVectorAsync)

#define SC_DEFINE_MATRIX_COPY(name)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(int rows, int columns, int element_bytes, const void *a, int lda, void *b,      \
                                       int ldb, CUstream stream) {                                                     \
    return copy_matrix(rows, columns, element_bytes, a, lda, b, ldb, stream);                                          \
  }
SC_DEFINE_MATRIX_COPY(cublasSetMatrixAsync)
SC_DEFINE_MATRIX_COPY(cublasGetMatrixAsync)
