/*
 * cublas.h - what the files of the simulated cuBLAS share: its handle, its status codes and the one way in which all
 * its functions work. Types of numbers come as CUDA's numbers (common/numbers.h); pointers to them as const void *,
 * which is the same to a caller.
 */
#ifndef SC_CUBLAS_H
#define SC_CUBLAS_H
#include "simcuda/common/cost.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/numbers.h"
#include "simcuda/common/public.h"
#include "simcuda/common/work.h"
#include <stddef.h>

/* cublasStatus_t of the public header; the size of its enumerations is an int's. */
enum sc_cublas_status {
  SC_CUBLAS_SUCCESS = 0,
  SC_CUBLAS_NOT_INITIALIZED = 1,
  SC_CUBLAS_ALLOC_FAILED = 3,
  SC_CUBLAS_INVALID_VALUE = 7,
  SC_CUBLAS_MAPPING_ERROR = 11,
  SC_CUBLAS_EXECUTION_FAILED = 13,
  SC_CUBLAS_NOT_SUPPORTED = 15
};

enum { SC_CUBLAS_HOST, SC_CUBLAS_DEVICE };                                  /* pointer modes */
enum { SC_CUBLAS_OP_N, SC_CUBLAS_OP_T, SC_CUBLAS_OP_C, SC_CUBLAS_OP_CONJ }; /* of transpositions */

struct sc_cublas {
  uint32_t mark; /* tells a handle from another pointer */
  int pointer_mode, math_mode, atomics_mode, sm_count_target;
  CUstream stream;
  CUcontext context;     /* of the device that it was made on */
  CUdeviceptr workspace; /* its own, until it is destroyed */
};

/* Whether that is a handle; the functions answer SC_CUBLAS_NOT_INITIALIZED where it is not. */
bool sc_cublas_is_handle(const struct sc_cublas *handle);
/* What is answered for the driver's result. */
enum sc_cublas_status sc_cublas_status_of(CUresult result);
/* Puts the work on the handle's stream. */
enum sc_cublas_status sc_cublas_run(struct sc_cublas *handle, enum sc_work kind, struct sc_cost cost);
/* Gives zeros as a result: waits for the stream and writes to host memory, or fills device memory, as the handle's
 * pointer mode says. */
enum sc_cublas_status sc_cublas_return_zeros(struct sc_cublas *handle, void *result, size_t bytes);
/* Fills an array of batch integers on the device with zeros: how well each factorization went. */
enum sc_cublas_status sc_cublas_clear_info(struct sc_cublas *handle, void *info, int batch);

/* The prototypes are CUDA's, but kernels compute nothing here: most parameters are only there. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
