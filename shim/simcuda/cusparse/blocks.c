/*
 * blocks.c - cuSPARSE's older functions, which take matrices apart: those in blocks (BSR), the sum of two sparse
 * matrices, and conversions. Indices are of 32 bits.
 */
#include "simcuda/cusparse/cusparse.h"
#include <limits.h>

#define INDEX 4.0 /* bytes */

/* Blocks of size x size elements, each an index; every element takes part so many times. */
static enum sc_sparse_status pass(struct sc_sparse *handle, int type, int64_t blocks, int64_t size, int64_t times,
                                  double dense_elements) {
  if (blocks < 0 || size < 0 || times < 0 || dense_elements < 0)
    return sc_sparse_is_handle(handle) ? SC_SPARSE_INVALID_VALUE : SC_SPARSE_NOT_INITIALIZED;
  const struct sc_number *number = sc_find_number(type);
  double elements = (double)blocks * (double)size * (double)size;
  double bytes = (double)blocks * INDEX + (elements + dense_elements) * number->bytes;
  return sc_sparse_run(handle, number, 2 * elements * (double)times, bytes);
}

static enum sc_sparse_status answer(const struct sc_sparse *handle, double words, size_t *ret_bytes) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (ret_bytes == NULL || words < 0) return SC_SPARSE_INVALID_VALUE;
  *ret_bytes = (size_t)(words * INDEX);
  return SC_SPARSE_SUCCESS;
}

static enum sc_sparse_status answer_int(const struct sc_sparse *handle, double words, int *ret_bytes) {
  size_t bytes;
  enum sc_sparse_status status = answer(handle, words, &bytes);
  if (status != SC_SPARSE_SUCCESS) return status;
  if (ret_bytes == NULL || bytes > INT_MAX) return SC_SPARSE_INVALID_VALUE;
  *ret_bytes = (int)bytes;
  return SC_SPARSE_SUCCESS;
}

#define HEAD struct sc_sparse *handle, int direction, int trans
#define BLOCKS const void *descriptor, const void *values, const int *offsets, const int *indices, int size

#define SC_DEFINE_BSRMV(name, type)                                                                                    \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int mb, int nb, int blocks, const void *alpha, BLOCKS, const void *x,     \
                                       const void *beta, void *y) {                                                    \
    return pass(handle, type, blocks, size, 1, ((double)mb + nb) * size);                                              \
  }
SC_DEFINE_BSRMV(cusparseSbsrmv, SC_R_32F)
SC_DEFINE_BSRMV(cusparseDbsrmv, SC_R_64F)
SC_DEFINE_BSRMV(cusparseCbsrmv, SC_C_32F)
SC_DEFINE_BSRMV(cusparseZbsrmv, SC_C_64F)

#define SC_DEFINE_BSRMM(name, type)                                                                                    \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int trans_b, int mb, int n, int kb, int blocks, const void *alpha,        \
                                       BLOCKS, const void *b, int ldb, const void *beta, void *c, int ldc) {           \
    return pass(handle, type, blocks, size, n, ((double)mb + kb) * size * n);                                          \
  }
SC_DEFINE_BSRMM(cusparseSbsrmm, SC_R_32F)
SC_DEFINE_BSRMM(cusparseDbsrmm, SC_R_64F)
SC_DEFINE_BSRMM(cusparseCbsrmm, SC_C_32F)
SC_DEFINE_BSRMM(cusparseZbsrmm, SC_C_64F)

/* Triangular systems, for a vector */
#define SC_DEFINE_BSRSV_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int mb, int blocks, BLOCKS, void *info, int *ret_bytes) {                 \
    return answer_int(handle, (double)mb + blocks, ret_bytes);                                                         \
  }
SC_DEFINE_BSRSV_SIZE(cusparseSbsrsv2_bufferSize)
SC_DEFINE_BSRSV_SIZE(cusparseDbsrsv2_bufferSize)
SC_DEFINE_BSRSV_SIZE(cusparseCbsrsv2_bufferSize)
SC_DEFINE_BSRSV_SIZE(cusparseZbsrsv2_bufferSize)

#define SC_DEFINE_BSRSV_ANALYSIS(name, type)                                                                           \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int mb, int blocks, BLOCKS, void *info, int policy, void *buffer) {       \
    return pass(handle, type, blocks, size, 1, 0);                                                                     \
  }
SC_DEFINE_BSRSV_ANALYSIS(cusparseSbsrsv2_analysis, SC_R_32F)
SC_DEFINE_BSRSV_ANALYSIS(cusparseDbsrsv2_analysis, SC_R_64F)
SC_DEFINE_BSRSV_ANALYSIS(cusparseCbsrsv2_analysis, SC_C_32F)
SC_DEFINE_BSRSV_ANALYSIS(cusparseZbsrsv2_analysis, SC_C_64F)

#define SC_DEFINE_BSRSV_SOLVE(name, type)                                                                              \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int mb, int blocks, const void *alpha, BLOCKS, void *info, const void *f, \
                                       void *x, int policy, void *buffer) {                                            \
    return pass(handle, type, blocks, size, 1, 2.0 * mb * size);                                                       \
  }
SC_DEFINE_BSRSV_SOLVE(cusparseSbsrsv2_solve, SC_R_32F)
SC_DEFINE_BSRSV_SOLVE(cusparseDbsrsv2_solve, SC_R_64F)
SC_DEFINE_BSRSV_SOLVE(cusparseCbsrsv2_solve, SC_C_32F)
SC_DEFINE_BSRSV_SOLVE(cusparseZbsrsv2_solve, SC_C_64F)

/* The same for a matrix of n columns */
#define SC_DEFINE_BSRSM_SIZE(name)                                                                                     \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int trans_x, int mb, int n, int blocks, BLOCKS, void *info,               \
                                       int *ret_bytes) {                                                               \
    return answer_int(handle, (double)mb + blocks, ret_bytes);                                                         \
  }
SC_DEFINE_BSRSM_SIZE(cusparseSbsrsm2_bufferSize)
SC_DEFINE_BSRSM_SIZE(cusparseDbsrsm2_bufferSize)
SC_DEFINE_BSRSM_SIZE(cusparseCbsrsm2_bufferSize)
SC_DEFINE_BSRSM_SIZE(cusparseZbsrsm2_bufferSize)

#define SC_DEFINE_BSRSM_ANALYSIS(name, type)                                                                           \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int trans_x, int mb, int n, int blocks, BLOCKS, void *info, int policy,   \
                                       void *buffer) {                                                                 \
    return pass(handle, type, blocks, size, 1, 0);                                                                     \
  }
SC_DEFINE_BSRSM_ANALYSIS(cusparseSbsrsm2_analysis, SC_R_32F)
SC_DEFINE_BSRSM_ANALYSIS(cusparseDbsrsm2_analysis, SC_R_64F)
SC_DEFINE_BSRSM_ANALYSIS(cusparseCbsrsm2_analysis, SC_C_32F)
SC_DEFINE_BSRSM_ANALYSIS(cusparseZbsrsm2_analysis, SC_C_64F)

#define SC_DEFINE_BSRSM_SOLVE(name, type)                                                                              \
  SC_PUBLIC enum sc_sparse_status name(HEAD, int trans_x, int mb, int n, int blocks, const void *alpha, BLOCKS,        \
                                       void *info, const void *b, int ldb, void *x, int ldx, int policy,               \
                                       void *buffer) {                                                                 \
    return pass(handle, type, blocks, size, n, 2.0 * mb * size * n);                                                   \
  }
SC_DEFINE_BSRSM_SOLVE(cusparseSbsrsm2_solve, SC_R_32F)
SC_DEFINE_BSRSM_SOLVE(cusparseDbsrsm2_solve, SC_R_64F)
SC_DEFINE_BSRSM_SOLVE(cusparseCbsrsm2_solve, SC_C_32F)
SC_DEFINE_BSRSM_SOLVE(cusparseZbsrsm2_solve, SC_C_64F)

/* -1: no pivot was zero. */
#define SC_DEFINE_ZERO_PIVOT(name)                                                                                     \
  SC_PUBLIC enum sc_sparse_status name(struct sc_sparse *handle, void *info, int *position) {                          \
    return sc_sparse_return(handle, position, -1);                                                                     \
  }
SC_DEFINE_ZERO_PIVOT(cusparseXbsrsm2_zeroPivot)
SC_DEFINE_ZERO_PIVOT(cusparseXbsrsv2_zeroPivot)

/* The sum of two sparse matrices (CSR) */
#define ONE(letter)                                                                                                    \
  const void *descriptor_##letter, int nnz_##letter, const void *values_##letter, const int *offsets_##letter,         \
      const int *indices_##letter

#define SC_DEFINE_CSRGEAM_SIZE(name)                                                                                   \
  SC_PUBLIC enum sc_sparse_status name(struct sc_sparse *handle, int m, int n, const void *alpha, ONE(a),              \
                                       const void *beta, ONE(b), const void *descriptor_c, const void *values_c,       \
                                       const int *offsets_c, const int *indices_c, size_t *ret_bytes) {                \
    return answer(handle, (double)m + 1, ret_bytes);                                                                   \
  }
SC_DEFINE_CSRGEAM_SIZE(cusparseScsrgeam2_bufferSizeExt)
SC_DEFINE_CSRGEAM_SIZE(cusparseDcsrgeam2_bufferSizeExt)
SC_DEFINE_CSRGEAM_SIZE(cusparseCcsrgeam2_bufferSizeExt)
SC_DEFINE_CSRGEAM_SIZE(cusparseZcsrgeam2_bufferSizeExt)

SC_PUBLIC enum sc_sparse_status cusparseXcsrgeam2Nnz(struct sc_sparse *handle, int m, int n, const void *descriptor_a,
                                                     int nnz_a, const int *offsets_a, const int *indices_a,
                                                     const void *descriptor_b, int nnz_b, const int *offsets_b,
                                                     const int *indices_b, const void *descriptor_c, int *offsets_c,
                                                     int *nnz_total, void *workspace) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (m < 0 || nnz_a < 0 || nnz_b < 0) return SC_SPARSE_INVALID_VALUE;
  enum sc_sparse_status status = pass(handle, SC_R_32F, (int64_t)nnz_a + nnz_b, 1, 0, m);
  if (status == SC_SPARSE_SUCCESS)
    status = sc_sparse_fill(handle, (CUdeviceptr)offsets_c, 0, ((size_t)m + 1) * sizeof(int));
  return status == SC_SPARSE_SUCCESS ? sc_sparse_return(handle, nnz_total, 0) : status;
}

#define SC_DEFINE_CSRGEAM(name, type)                                                                                  \
  SC_PUBLIC enum sc_sparse_status name(struct sc_sparse *handle, int m, int n, const void *alpha, ONE(a),              \
                                       const void *beta, ONE(b), const void *descriptor_c, void *values_c,             \
                                       int *offsets_c, int *indices_c, void *buffer) {                                 \
    return pass(handle, type, (int64_t)nnz_a + nnz_b, 1, 1, (double)nnz_a + nnz_b);                                    \
  }
SC_DEFINE_CSRGEAM(cusparseScsrgeam2, SC_R_32F)
SC_DEFINE_CSRGEAM(cusparseDcsrgeam2, SC_R_64F)
SC_DEFINE_CSRGEAM(cusparseCcsrgeam2, SC_C_32F)
SC_DEFINE_CSRGEAM(cusparseZcsrgeam2, SC_C_64F)

/* Conversions. Sorted indices stay as they are: nothing that reads them computes anything. */
SC_PUBLIC enum sc_sparse_status cusparseXcoo2csr(struct sc_sparse *handle, const int *rows, int nnz, int m,
                                                 int *offsets, int base) {
  if (m < 0) return SC_SPARSE_INVALID_VALUE;
  enum sc_sparse_status status = pass(handle, SC_R_32F, nnz, 1, 0, m);
  if (status != SC_SPARSE_SUCCESS) return status;
  return sc_sparse_fill(handle, (CUdeviceptr)offsets, 0, ((size_t)m + 1) * sizeof(int));
}

SC_PUBLIC enum sc_sparse_status cusparseCreateIdentityPermutation(struct sc_sparse *handle, int n, int *permutation) {
  enum sc_sparse_status status = pass(handle, SC_R_32F, n, 1, 0, 0);
  if (status != SC_SPARSE_SUCCESS) return status;
  return sc_sparse_fill(handle, (CUdeviceptr)permutation, 0, (size_t)n * sizeof(int));
}

SC_PUBLIC enum sc_sparse_status cusparseXcoosort_bufferSizeExt(struct sc_sparse *handle, int m, int n, int nnz,
                                                               const int *rows, const int *columns, size_t *ret_bytes) {
  return answer(handle, 3.0 * nnz, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseXcoosortByRow(struct sc_sparse *handle, int m, int n, int nnz, int *rows,
                                                      int *columns, int *permutation, void *buffer) {
  return pass(handle, SC_R_32F, 8ll * nnz, 1, 0, 0); /* a sort by digits of 8 bits, of two keys */
}

SC_PUBLIC enum sc_sparse_status cusparseXcsrsort_bufferSizeExt(struct sc_sparse *handle, int m, int n, int nnz,
                                                               const int *offsets, const int *columns,
                                                               size_t *ret_bytes) {
  return answer(handle, 2.0 * nnz, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseXcsrsort(struct sc_sparse *handle, int m, int n, int nnz,
                                                 const void *descriptor, const int *offsets, int *columns,
                                                 int *permutation, void *buffer) {
  return pass(handle, SC_R_32F, 4ll * nnz, 1, 0, 0);
}
