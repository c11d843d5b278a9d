/*
 * generic.c - cuSPARSE's generic functions: products and solutions with sparse matrices. Each reads and writes its
 * matrices once. A buffer has a number of 64 bits a row, and two an element where matrices are solved or multiplied
 * with each other; how large the real ones are is not published.
 */
#include "simcuda/cusparse/cusparse.h"

typedef const struct sc_sparse_matrix matrix; /* what its function only reads */

#define WORD 8.0 /* bytes of a number in buffers */

static enum sc_sparse_status answer(const struct sc_sparse *handle, const matrix *of, bool has_elements,
                                    size_t *ret_bytes) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (!sc_sparse_is_matrix(of) || ret_bytes == NULL) return SC_SPARSE_INVALID_VALUE;
  double bytes = WORD * ((double)of->rows + (has_elements ? 2.0 * (double)of->elements : 0));
  if (bytes > 1e15) return SC_SPARSE_INVALID_VALUE;
  *ret_bytes = (size_t)bytes;
  return SC_SPARSE_SUCCESS;
}

/* One product of a number and another for each element of a matrix, so many times. */
static enum sc_sparse_status pass(struct sc_sparse *handle, const matrix *sparse, const matrix *a, const matrix *b,
                                  double times) {
  if (!sc_sparse_is_matrix(sparse) || !sc_sparse_is_matrix(a) || !sc_sparse_is_matrix(b))
    return sc_sparse_is_handle(handle) ? SC_SPARSE_INVALID_VALUE : SC_SPARSE_NOT_INITIALIZED;
  double flops = 2.0 * (double)sparse->elements * (double)sparse->batch * times;
  return sc_sparse_run(handle, sparse->number, flops,
                       sc_sparse_bytes(sparse) + sc_sparse_bytes(a) + sc_sparse_bytes(b));
}

static double columns(const matrix *of) {
  return sc_sparse_is_matrix(of) ? (double)of->columns : 0;
}

#define HEAD struct sc_sparse *handle, int op_a
#define TWO struct sc_sparse *handle, int op_a, int op_b, const void *alpha

/* A sparse matrix and a vector */
SC_PUBLIC enum sc_sparse_status cusparseSpMV_bufferSize(HEAD, const void *alpha, matrix *a, matrix *x, const void *beta,
                                                        matrix *y, int type, int algorithm, size_t *ret_bytes) {
  return answer(handle, a, false, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseSpMV(HEAD, const void *alpha, matrix *a, matrix *x, const void *beta, matrix *y,
                                             int type, int algorithm, void *buffer) {
  return pass(handle, a, x, y, 1);
}

SC_PUBLIC enum sc_sparse_status cusparseSpSV_bufferSize(HEAD, const void *alpha, matrix *a, matrix *x, matrix *y,
                                                        int type, int algorithm, void *descriptor, size_t *ret_bytes) {
  return answer(handle, a, true, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseSpSV_analysis(HEAD, const void *alpha, matrix *a, matrix *x, matrix *y,
                                                      int type, int algorithm, void *descriptor, void *buffer) {
  return pass(handle, a, x, y, 1);
}

SC_PUBLIC enum sc_sparse_status cusparseSpSV_solve(HEAD, const void *alpha, matrix *a, matrix *x, matrix *y, int type,
                                                   int algorithm, void *descriptor) {
  return pass(handle, a, x, y, 1);
}

/* A sparse matrix and a dense one */
SC_PUBLIC enum sc_sparse_status cusparseSpMM_bufferSize(TWO, matrix *a, matrix *b, const void *beta, matrix *c,
                                                        int type, int algorithm, size_t *ret_bytes) {
  return answer(handle, a, false, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseSpMM(TWO, matrix *a, matrix *b, const void *beta, matrix *c, int type,
                                             int algorithm, void *buffer) {
  return pass(handle, a, b, c, columns(c));
}

SC_PUBLIC enum sc_sparse_status cusparseSpSM_bufferSize(TWO, matrix *a, matrix *b, matrix *c, int type, int algorithm,
                                                        void *descriptor, size_t *ret_bytes) {
  return answer(handle, a, true, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseSpSM_analysis(TWO, matrix *a, matrix *b, matrix *c, int type, int algorithm,
                                                      void *descriptor, void *buffer) {
  return pass(handle, a, b, c, 1);
}

SC_PUBLIC enum sc_sparse_status cusparseSpSM_solve(TWO, matrix *a, matrix *b, matrix *c, int type, int algorithm,
                                                   void *descriptor) {
  return pass(handle, a, b, c, columns(c));
}

/* Two dense matrices, and of their product the elements that a sparse one has */
SC_PUBLIC enum sc_sparse_status cusparseSDDMM_bufferSize(TWO, matrix *a, matrix *b, const void *beta, matrix *c,
                                                         int type, int algorithm, size_t *ret_bytes) {
  return answer(handle, c, false, ret_bytes);
}

SC_PUBLIC enum sc_sparse_status cusparseSDDMM_preprocess(TWO, matrix *a, matrix *b, const void *beta, matrix *c,
                                                         int type, int algorithm, void *buffer) {
  return pass(handle, c, c, c, 0);
}

SC_PUBLIC enum sc_sparse_status cusparseSDDMM(TWO, matrix *a, matrix *b, const void *beta, matrix *c, int type,
                                              int algorithm, void *buffer) {
  double depth = !sc_sparse_is_matrix(a) ? 0 : (double)(op_a == 0 ? a->columns : a->rows);
  return pass(handle, c, a, b, depth);
}

/* Two sparse matrices: asked for a buffer first, then for another one, then for the result. Each element of one meets
 * those in a row of the other. */
static double row_elements(const matrix *of) {
  return sc_sparse_is_matrix(of) && of->rows > 0 ? (double)of->elements / (double)of->rows : 0;
}

SC_PUBLIC enum sc_sparse_status cusparseSpGEMM_workEstimation(TWO, matrix *a, matrix *b, const void *beta, matrix *c,
                                                              int type, int algorithm, void *descriptor,
                                                              size_t *ret_bytes, void *buffer) {
  return buffer == NULL ? answer(handle, a, true, ret_bytes) : pass(handle, a, b, b, 1);
}

SC_PUBLIC enum sc_sparse_status cusparseSpGEMM_compute(TWO, matrix *a, matrix *b, const void *beta,
                                                       struct sc_sparse_matrix *c, int type, int algorithm,
                                                       void *descriptor, size_t *ret_bytes, void *buffer) {
  if (buffer == NULL) return answer(handle, b, true, ret_bytes);
  if (!sc_sparse_is_matrix(c)) return SC_SPARSE_INVALID_VALUE;
  c->elements = 0;
  return pass(handle, a, b, b, row_elements(b));
}

SC_PUBLIC enum sc_sparse_status cusparseSpGEMM_copy(TWO, matrix *a, matrix *b, const void *beta, matrix *c, int type,
                                                    int algorithm, void *descriptor) {
  if (!sc_sparse_is_handle(handle)) return SC_SPARSE_NOT_INITIALIZED;
  if (!sc_sparse_is_matrix(c)) return SC_SPARSE_INVALID_VALUE;
  return sc_sparse_fill(handle, c->offsets, 0, (size_t)((double)(c->rows + 1) * c->offset_bytes));
}
