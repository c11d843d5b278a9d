/*
 * cusparse.h - what the files of the simulated cuSPARSE share: its handle, descriptors of matrices, and the one way in
 * which functions work. Nothing is computed, and what counts results says 0: sums and products of sparse matrices are
 * empty ones, whose offsets are zeros, so that they are valid wherever a program takes them.
 */
#ifndef SC_CUSPARSE_H
#define SC_CUSPARSE_H
#include "simcuda/common/cost.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/numbers.h"
#include "simcuda/common/public.h"
#include <stddef.h>

/* cusparseStatus_t of the public header. */
enum sc_sparse_status {
  SC_SPARSE_SUCCESS = 0,
  SC_SPARSE_NOT_INITIALIZED = 1,
  SC_SPARSE_ALLOC_FAILED = 2,
  SC_SPARSE_INVALID_VALUE = 3,
  SC_SPARSE_EXECUTION_FAILED = 6,
  SC_SPARSE_NOT_SUPPORTED = 10
};

struct sc_sparse {
  uint32_t mark; /* tells a handle from another pointer */
  bool has_device_pointers;
  CUstream stream;
};

/* A matrix or a vector of the generic functions, sparse or dense. */
struct sc_sparse_matrix {
  uint32_t mark;
  int64_t rows, columns, batch;
  int64_t elements; /* of one of the batch that are in memory */
  CUdeviceptr offsets;
  double offset_bytes; /* of an offset of a row; 0 where there are none */
  double index_bytes;  /* beside each element */
  const struct sc_number *number;
};

bool sc_sparse_is_handle(const struct sc_sparse *handle);
bool sc_sparse_is_matrix(const struct sc_sparse_matrix *matrix);
/* All that it has in memory. */
double sc_sparse_bytes(const struct sc_sparse_matrix *matrix);

/* Starts work on a handle's stream. flops: of real numbers; number: of what is computed. */
enum sc_sparse_status sc_sparse_run(struct sc_sparse *handle, const struct sc_number *number, double flops,
                                    double bytes);
/* Fills device memory with the byte. */
enum sc_sparse_status sc_sparse_fill(struct sc_sparse *handle, CUdeviceptr memory, int byte, size_t bytes);
/* Gives an integer to the host, or to the device where the handle's pointers are there. */
enum sc_sparse_status sc_sparse_return(struct sc_sparse *handle, int *result, int value);
/* The prototypes are CUDA's, but kernels compute nothing here: most parameters are only there. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
