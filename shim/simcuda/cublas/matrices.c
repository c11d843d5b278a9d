/*
 * matrices.c - other operations with matrices: a matrix and a vector (bound by memory), symmetric, Hermitian and
 * triangular matrices, solutions with triangular ones.
 */
#include "simcuda/cublas/cublas.h"

enum { SIDE_LEFT, SIDE_RIGHT };

/* Matrices of so many elements in all are read or written, each with as many multiplications and additions. */
static enum sc_cublas_status pass(struct sc_cublas *handle, int type, int64_t m, int64_t n, double part) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (m < 0 || n < 0) return SC_CUBLAS_INVALID_VALUE;
  if (m == 0 || n == 0) return SC_CUBLAS_SUCCESS;
  const struct sc_number *number = sc_find_number(type);
  double elements = (double)m * (double)n * part;
  struct sc_cost cost = {2 * elements * number->flops, elements * number->bytes, number->math};
  return sc_cublas_run(handle, SC_WORK_GEMM, cost);
}

/* A product m x k x n of which a part is computed. */
static enum sc_cublas_status multiply(struct sc_cublas *handle, int type, int64_t m, int64_t n, int64_t k,
                                      int64_t batch, double part) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || k < 0 || batch < 0) return SC_CUBLAS_INVALID_VALUE;
  if (m == 0 || n == 0 || batch == 0) return SC_CUBLAS_SUCCESS;
  const struct sc_number *number = sc_find_number(type);
  struct sc_cost cost = sc_cost_gemm(m, n, k, batch, number->bytes, number->bytes, true, number->math);
  cost.flops *= number->flops * part;
  return sc_cublas_run(handle, SC_WORK_GEMM, cost);
}

#define HALF 0.5 /* one triangle of a matrix */

#define SC_DEFINE_GEMV(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int trans, int m, int n, const void *alpha,           \
                                       const void *a, int lda, const void *x, int incx, const void *beta, void *y,     \
                                       int incy) {                                                                     \
    return pass(handle, type, m, n, 1);                                                                                \
  }
SC_DEFINE_GEMV(cublasSgemv_v2, SC_R_32F)
SC_DEFINE_GEMV(cublasDgemv_v2, SC_R_64F)
SC_DEFINE_GEMV(cublasCgemv_v2, SC_C_32F)
SC_DEFINE_GEMV(cublasZgemv_v2, SC_C_64F)

#define SC_DEFINE_GER(name, type)                                                                                      \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int m, int n, const void *alpha, const void *x,       \
                                       int incx, const void *y, int incy, void *a, int lda) {                          \
    return pass(handle, type, m, n, 2);                                                                                \
  }
SC_DEFINE_GER(cublasSger_v2, SC_R_32F)
SC_DEFINE_GER(cublasDger_v2, SC_R_64F)
SC_DEFINE_GER(cublasCgeru_v2, SC_C_32F)
SC_DEFINE_GER(cublasCgerc_v2, SC_C_32F)
SC_DEFINE_GER(cublasZgeru_v2, SC_C_64F)
SC_DEFINE_GER(cublasZgerc_v2, SC_C_64F)

/* Symmetric and Hermitian, times a vector. */
#define SC_DEFINE_SYMV(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int n, const void *alpha, const void *a,    \
                                       int lda, const void *x, int incx, const void *beta, void *y, int incy) {        \
    return pass(handle, type, n, n, HALF);                                                                             \
  }
SC_DEFINE_SYMV(cublasSsymv_v2, SC_R_32F)
SC_DEFINE_SYMV(cublasDsymv_v2, SC_R_64F)
SC_DEFINE_SYMV(cublasCsymv_v2, SC_C_32F)
SC_DEFINE_SYMV(cublasZsymv_v2, SC_C_64F)
SC_DEFINE_SYMV(cublasChemv_v2, SC_C_32F)
SC_DEFINE_SYMV(cublasZhemv_v2, SC_C_64F)

/* Plus a vector times itself. */
#define SC_DEFINE_SYR(name, type)                                                                                      \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int n, const void *alpha, const void *x,    \
                                       int incx, void *a, int lda) {                                                   \
    return pass(handle, type, n, n, 2 * HALF);                                                                         \
  }
SC_DEFINE_SYR(cublasSsyr_v2, SC_R_32F)
SC_DEFINE_SYR(cublasDsyr_v2, SC_R_64F)
SC_DEFINE_SYR(cublasCsyr_v2, SC_C_32F)
SC_DEFINE_SYR(cublasZsyr_v2, SC_C_64F)
SC_DEFINE_SYR(cublasCher_v2, SC_C_32F)
SC_DEFINE_SYR(cublasZher_v2, SC_C_64F)

#define SC_DEFINE_SYR2(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int n, const void *alpha, const void *x,    \
                                       int incx, const void *y, int incy, void *a, int lda) {                          \
    return pass(handle, type, n, n, 2 * HALF);                                                                         \
  }
SC_DEFINE_SYR2(cublasSsyr2_v2, SC_R_32F)
SC_DEFINE_SYR2(cublasDsyr2_v2, SC_R_64F)
SC_DEFINE_SYR2(cublasCsyr2_v2, SC_C_32F)
SC_DEFINE_SYR2(cublasZsyr2_v2, SC_C_64F)
SC_DEFINE_SYR2(cublasCher2_v2, SC_C_32F)
SC_DEFINE_SYR2(cublasZher2_v2, SC_C_64F)

/* A triangular matrix times a vector, and the solution of such a system. */
#define SC_DEFINE_TRMV(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int trans, int diag, int n, const void *a,  \
                                       int lda, void *x, int incx) {                                                   \
    return pass(handle, type, n, n, HALF);                                                                             \
  }
SC_DEFINE_TRMV(cublasStrmv_v2, SC_R_32F)
SC_DEFINE_TRMV(cublasDtrmv_v2, SC_R_64F)
SC_DEFINE_TRMV(cublasCtrmv_v2, SC_C_32F)
SC_DEFINE_TRMV(cublasZtrmv_v2, SC_C_64F)
SC_DEFINE_TRMV(cublasStrsv_v2, SC_R_32F)
SC_DEFINE_TRMV(cublasDtrsv_v2, SC_R_64F)
SC_DEFINE_TRMV(cublasCtrsv_v2, SC_C_32F)
SC_DEFINE_TRMV(cublasZtrsv_v2, SC_C_64F)

/* Symmetric and Hermitian, times a matrix. */
#define SC_DEFINE_SYMM(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int side, int uplo, int m, int n, const void *alpha,  \
                                       const void *a, int lda, const void *b, int ldb, const void *beta, void *c,      \
                                       int ldc) {                                                                      \
    return multiply(handle, type, m, n, side == SIDE_LEFT ? m : n, 1, 1);                                              \
  }
SC_DEFINE_SYMM(cublasSsymm_v2, SC_R_32F)
SC_DEFINE_SYMM(cublasDsymm_v2, SC_R_64F)
SC_DEFINE_SYMM(cublasCsymm_v2, SC_C_32F)
SC_DEFINE_SYMM(cublasZsymm_v2, SC_C_64F)
SC_DEFINE_SYMM(cublasChemm_v2, SC_C_32F)
SC_DEFINE_SYMM(cublasZhemm_v2, SC_C_64F)

/* A matrix times its own transposition: one triangle of the result. */
#define SC_DEFINE_SYRK(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int trans, int n, int k, const void *alpha, \
                                       const void *a, int lda, const void *beta, void *c, int ldc) {                   \
    return multiply(handle, type, n, n, k, 1, HALF);                                                                   \
  }
SC_DEFINE_SYRK(cublasSsyrk_v2, SC_R_32F)
SC_DEFINE_SYRK(cublasDsyrk_v2, SC_R_64F)
SC_DEFINE_SYRK(cublasCsyrk_v2, SC_C_32F)
SC_DEFINE_SYRK(cublasZsyrk_v2, SC_C_64F)
SC_DEFINE_SYRK(cublasCherk_v2, SC_C_32F)
SC_DEFINE_SYRK(cublasZherk_v2, SC_C_64F)

/* The same of two matrices: two such products. */
#define SC_DEFINE_SYR2K(name, type)                                                                                    \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int uplo, int trans, int n, int k, const void *alpha, \
                                       const void *a, int lda, const void *b, int ldb, const void *beta, void *c,      \
                                       int ldc) {                                                                      \
    return multiply(handle, type, n, n, k, 1, 2 * HALF);                                                               \
  }
SC_DEFINE_SYR2K(cublasSsyr2k_v2, SC_R_32F)
SC_DEFINE_SYR2K(cublasDsyr2k_v2, SC_R_64F)
SC_DEFINE_SYR2K(cublasCsyr2k_v2, SC_C_32F)
SC_DEFINE_SYR2K(cublasZsyr2k_v2, SC_C_64F)
SC_DEFINE_SYR2K(cublasCher2k_v2, SC_C_32F)
SC_DEFINE_SYR2K(cublasZher2k_v2, SC_C_64F)

#define TRIANGULAR struct sc_cublas *handle, int side, int uplo, int trans, int diag, int m, int n, const void *alpha

#define SC_DEFINE_TRMM(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(TRIANGULAR, const void *a, int lda, const void *b, int ldb, void *c, int ldc) { \
    return multiply(handle, type, m, n, side == SIDE_LEFT ? m : n, 1, HALF);                                           \
  }
SC_DEFINE_TRMM(cublasStrmm_v2, SC_R_32F)
SC_DEFINE_TRMM(cublasDtrmm_v2, SC_R_64F)
SC_DEFINE_TRMM(cublasCtrmm_v2, SC_C_32F)
SC_DEFINE_TRMM(cublasZtrmm_v2, SC_C_64F)

#define SC_DEFINE_TRSM(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(TRIANGULAR, const void *a, int lda, void *b, int ldb) {                         \
    return multiply(handle, type, m, n, side == SIDE_LEFT ? m : n, 1, HALF);                                           \
  }
SC_DEFINE_TRSM(cublasStrsm_v2, SC_R_32F)
SC_DEFINE_TRSM(cublasDtrsm_v2, SC_R_64F)
SC_DEFINE_TRSM(cublasCtrsm_v2, SC_C_32F)
SC_DEFINE_TRSM(cublasZtrsm_v2, SC_C_64F)

#define SC_DEFINE_TRSM_BATCHED(name, type)                                                                             \
  SC_PUBLIC enum sc_cublas_status name(TRIANGULAR, const void *const *a, int lda, void *const *b, int ldb,             \
                                       int batch) {                                                                    \
    return multiply(handle, type, m, n, side == SIDE_LEFT ? m : n, batch, HALF);                                       \
  }
SC_DEFINE_TRSM_BATCHED(cublasStrsmBatched, SC_R_32F)
SC_DEFINE_TRSM_BATCHED(cublasDtrsmBatched, SC_R_64F)
SC_DEFINE_TRSM_BATCHED(cublasCtrsmBatched, SC_C_32F)
SC_DEFINE_TRSM_BATCHED(cublasZtrsmBatched, SC_C_64F)
