/* matrices.c - descriptors of matrices and vectors, sparse and dense, of cuSPARSE's generic functions. */
#include "simcuda/cusparse/cusparse.h"
#include <stdlib.h>

#define MARK 0x636d6174u

bool sc_sparse_is_matrix(const struct sc_sparse_matrix *matrix) {
  return matrix != NULL && matrix->mark == MARK;
}

double sc_sparse_bytes(const struct sc_sparse_matrix *matrix) {
  double offsets = matrix->offset_bytes > 0 ? (double)(matrix->rows + 1) * matrix->offset_bytes : 0;
  double elements = (double)matrix->elements * (matrix->number->bytes + matrix->index_bytes);
  return (offsets + elements) * (double)matrix->batch;
}

/* 0: there is no such type of index. */
static double index_size(int type) {
  enum { INDEX_16U = 1, INDEX_32I, INDEX_64I };
  switch (type) {
  case INDEX_16U:
    return 2;
  case INDEX_32I:
    return 4;
  case INDEX_64I:
    return 8;
  default:
    return 0;
  }
}

static enum sc_sparse_status make(struct sc_sparse_matrix matrix, int value_type,
                                  struct sc_sparse_matrix **ret_matrix) {
  if (ret_matrix == NULL || matrix.rows < 0 || matrix.columns < 0 || matrix.elements < 0)
    return SC_SPARSE_INVALID_VALUE;
  matrix.number = sc_find_number(value_type);
  if (matrix.number == NULL) return SC_SPARSE_NOT_SUPPORTED;
  *ret_matrix = malloc(sizeof **ret_matrix);
  if (*ret_matrix == NULL) return SC_SPARSE_ALLOC_FAILED;
  matrix.mark = MARK;
  matrix.batch = 1;
  **ret_matrix = matrix;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseCreateCoo(struct sc_sparse_matrix **ret_matrix, int64_t rows, int64_t columns,
                                                  int64_t elements, void *row_indices, void *column_indices,
                                                  void *values, int index_type, int base, int value_type) {
  double index_bytes = index_size(index_type);
  if (index_bytes == 0) return SC_SPARSE_INVALID_VALUE;
  struct sc_sparse_matrix matrix = {
      .rows = rows, .columns = columns, .elements = elements, .index_bytes = 2 * index_bytes};
  return make(matrix, value_type, ret_matrix);
}

SC_PUBLIC enum sc_sparse_status cusparseCreateCsr(struct sc_sparse_matrix **ret_matrix, int64_t rows, int64_t columns,
                                                  int64_t elements, CUdeviceptr offsets, void *column_indices,
                                                  void *values, int offset_type, int index_type, int base,
                                                  int value_type) {
  struct sc_sparse_matrix matrix = {.rows = rows,
                                    .columns = columns,
                                    .elements = elements,
                                    .offsets = offsets,
                                    .offset_bytes = index_size(offset_type),
                                    .index_bytes = index_size(index_type)};
  if (matrix.offset_bytes == 0 || matrix.index_bytes == 0) return SC_SPARSE_INVALID_VALUE;
  return make(matrix, value_type, ret_matrix);
}

SC_PUBLIC enum sc_sparse_status cusparseCreateDnMat(struct sc_sparse_matrix **ret_matrix, int64_t rows, int64_t columns,
                                                    int64_t ld, void *values, int value_type, int order) {
  if (rows < 0 || columns < 0 || (rows > 0 && columns > INT64_MAX / rows)) return SC_SPARSE_INVALID_VALUE;
  struct sc_sparse_matrix matrix = {.rows = rows, .columns = columns, .elements = rows * columns};
  return make(matrix, value_type, ret_matrix);
}

SC_PUBLIC enum sc_sparse_status cusparseCreateDnVec(struct sc_sparse_matrix **ret_vector, int64_t size, void *values,
                                                    int value_type) {
  return make((struct sc_sparse_matrix){.rows = size, .columns = 1, .elements = size}, value_type, ret_vector);
}

#define SC_DEFINE_DESTROY(name)                                                                                        \
  SC_PUBLIC enum sc_sparse_status name(struct sc_sparse_matrix *matrix) {                                              \
    if (!sc_sparse_is_matrix(matrix)) return SC_SPARSE_INVALID_VALUE;                                                  \
    matrix->mark = 0;                                                                                                  \
    free(matrix);                                                                                                      \
    return SC_SPARSE_SUCCESS;                                                                                          \
  }
SC_DEFINE_DESTROY(cusparseDestroySpMat)
SC_DEFINE_DESTROY(cusparseDestroyDnMat)
SC_DEFINE_DESTROY(cusparseDestroyDnVec)

static enum sc_sparse_status set_batch(struct sc_sparse_matrix *matrix, int batch) {
  if (!sc_sparse_is_matrix(matrix) || batch < 1) return SC_SPARSE_INVALID_VALUE;
  matrix->batch = batch;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseCsrSetStridedBatch(struct sc_sparse_matrix *matrix, int batch,
                                                           int64_t offset_stride, int64_t value_stride) {
  return set_batch(matrix, batch);
}

SC_PUBLIC enum sc_sparse_status cusparseDnMatSetStridedBatch(struct sc_sparse_matrix *matrix, int batch,
                                                             int64_t stride) {
  return set_batch(matrix, batch);
}

SC_PUBLIC enum sc_sparse_status cusparseCsrSetPointers(struct sc_sparse_matrix *matrix, CUdeviceptr offsets,
                                                       void *column_indices, void *values) {
  if (!sc_sparse_is_matrix(matrix)) return SC_SPARSE_INVALID_VALUE;
  matrix->offsets = offsets;
  return SC_SPARSE_SUCCESS;
}

SC_PUBLIC enum sc_sparse_status cusparseSpMatGetSize(const struct sc_sparse_matrix *matrix, int64_t *ret_rows,
                                                     int64_t *ret_columns, int64_t *ret_elements) {
  if (!sc_sparse_is_matrix(matrix)) return SC_SPARSE_INVALID_VALUE;
  if (ret_rows == NULL || ret_columns == NULL || ret_elements == NULL) return SC_SPARSE_INVALID_VALUE;
  *ret_rows = matrix->rows;
  *ret_columns = matrix->columns;
  *ret_elements = matrix->elements;
  return SC_SPARSE_SUCCESS;
}

/* Which triangle, which diagonal: the same work. */
SC_PUBLIC enum sc_sparse_status cusparseSpMatSetAttribute(struct sc_sparse_matrix *matrix, int attribute, void *data,
                                                          size_t bytes) {
  if (!sc_sparse_is_matrix(matrix) || data == NULL) return SC_SPARSE_INVALID_VALUE;
  return SC_SPARSE_SUCCESS;
}
