/*
 * batches.c - factorizations and solutions of many small systems at once, and inverses. Each says 0 for how it went:
 * info on the device by a memset, on the host at once.
 */
#include "simcuda/cublas/cublas.h"

/* flops: of a real matrix of the batch; elements: its numbers, read and written. */
static enum sc_cublas_status work(struct sc_cublas *handle, int type, double flops, double elements, int batch) {
  if (batch == 0 || elements == 0) return SC_CUBLAS_SUCCESS;
  const struct sc_number *number = sc_find_number(type);
  struct sc_cost cost = {flops * batch * number->flops, 2 * elements * batch * number->bytes, number->math};
  return sc_cublas_run(handle, SC_WORK_SOLVER, cost);
}

/* cubes: how many times n^3 operations it takes. */
static enum sc_cublas_status factor(struct sc_cublas *handle, int type, int n, double cubes, void *info, int batch) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (n < 0 || batch < 0) return SC_CUBLAS_INVALID_VALUE;
  double order = n;
  enum sc_cublas_status status = work(handle, type, cubes * order * order * order, order * order, batch);
  return status == SC_CUBLAS_SUCCESS ? sc_cublas_clear_info(handle, info, batch) : status;
}

static enum sc_cublas_status solve(struct sc_cublas *handle, int type, int n, int nrhs, int *info, int batch) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (n < 0 || nrhs < 0 || batch < 0 || info == NULL) return SC_CUBLAS_INVALID_VALUE;
  *info = 0;
  double order = n, columns = nrhs;
  return work(handle, type, 2 * order * order * columns, order * order + order * columns, batch);
}

static enum sc_cublas_status decompose(struct sc_cublas *handle, int type, int m, int n, int nrhs, int *info,
                                       int batch) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || nrhs < 0 || batch < 0 || info == NULL) return SC_CUBLAS_INVALID_VALUE;
  *info = 0;
  double rows = m, columns = n, least = m < n ? m : n;
  return work(handle, type, 2 * rows * columns * least + 2 * rows * columns * nrhs, rows * (columns + nrhs), batch);
}

#define SC_DEFINE_GETRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, void *const *a, int lda, int *pivots,          \
                                       int *info, int batch) {                                                         \
    return factor(handle, type, n, 2.0 / 3, info, batch);                                                              \
  }
SC_DEFINE_GETRF(cublasSgetrfBatched, SC_R_32F)
SC_DEFINE_GETRF(cublasDgetrfBatched, SC_R_64F)
SC_DEFINE_GETRF(cublasCgetrfBatched, SC_C_32F)
SC_DEFINE_GETRF(cublasZgetrfBatched, SC_C_64F)

#define SC_DEFINE_GETRS(name, type)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int trans, int n, int nrhs, const void *const *a,     \
                                       int lda, const int *pivots, void *const *b, int ldb, int *info, int batch) {    \
    return solve(handle, type, n, nrhs, info, batch);                                                                  \
  }
SC_DEFINE_GETRS(cublasSgetrsBatched, SC_R_32F)
SC_DEFINE_GETRS(cublasDgetrsBatched, SC_R_64F)
SC_DEFINE_GETRS(cublasCgetrsBatched, SC_C_32F)
SC_DEFINE_GETRS(cublasZgetrsBatched, SC_C_64F)

/* Inverses: of factors, and of matrices themselves. */
#define SC_DEFINE_GETRI(name, type)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *const *a, int lda,                 \
                                       const int *pivots, void *const *c, int ldc, int *info, int batch) {             \
    return factor(handle, type, n, 4.0 / 3, info, batch);                                                              \
  }
SC_DEFINE_GETRI(cublasSgetriBatched, SC_R_32F)
SC_DEFINE_GETRI(cublasDgetriBatched, SC_R_64F)
SC_DEFINE_GETRI(cublasCgetriBatched, SC_C_32F)
SC_DEFINE_GETRI(cublasZgetriBatched, SC_C_64F)

#define SC_DEFINE_MATINV(name, type)                                                                                   \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *const *a, int lda,                 \
                                       void *const *inverse, int ldi, int *info, int batch) {                          \
    return factor(handle, type, n, 2, info, batch);                                                                    \
  }
SC_DEFINE_MATINV(cublasSmatinvBatched, SC_R_32F)
SC_DEFINE_MATINV(cublasDmatinvBatched, SC_R_64F)
SC_DEFINE_MATINV(cublasCmatinvBatched, SC_C_32F)
SC_DEFINE_MATINV(cublasZmatinvBatched, SC_C_64F)

#define SC_DEFINE_GEQRF(name, type)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int m, int n, void *const *a, int lda,                \
                                       void *const *tau, int *info, int batch) {                                       \
    return decompose(handle, type, m, n, 0, info, batch);                                                              \
  }
SC_DEFINE_GEQRF(cublasSgeqrfBatched, SC_R_32F)
SC_DEFINE_GEQRF(cublasDgeqrfBatched, SC_R_64F)
SC_DEFINE_GEQRF(cublasCgeqrfBatched, SC_C_32F)
SC_DEFINE_GEQRF(cublasZgeqrfBatched, SC_C_64F)

#define SC_DEFINE_GELS(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int trans, int m, int n, int nrhs, void *const *a,    \
                                       int lda, void *const *c, int ldc, int *info, int *device_info, int batch) {     \
    enum sc_cublas_status status = decompose(handle, type, m, n, nrhs, info, batch);                                   \
    return status == SC_CUBLAS_SUCCESS ? sc_cublas_clear_info(handle, device_info, batch) : status;                    \
  }
SC_DEFINE_GELS(cublasSgelsBatched, SC_R_32F)
SC_DEFINE_GELS(cublasDgelsBatched, SC_R_64F)
SC_DEFINE_GELS(cublasCgelsBatched, SC_C_32F)
SC_DEFINE_GELS(cublasZgelsBatched, SC_C_64F)
