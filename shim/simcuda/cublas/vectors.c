/*
 * vectors.c - operations with vectors, all bound by memory. Sums, norms and indices are 0: kernels compute nothing
 * here, and a program that reads them should at least find a number that is always the same. The functions that make
 * one rotation from scalars (rotg, rotmg) are left to the generated refusals.
 */
#include "simcuda/cublas/cublas.h"

/* So many vectors of n elements are read or written. */
static enum sc_cublas_status pass(struct sc_cublas *handle, int type, int n, int vectors) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (n <= 0) return SC_CUBLAS_SUCCESS; /* as BLAS has it: nothing to do */
  return sc_cublas_run(handle, SC_WORK_ELEMENTWISE, sc_cost_bytes((double)n * vectors * sc_find_number(type)->bytes));
}

/* The same, with a result of one number. */
static enum sc_cublas_status reduce(struct sc_cublas *handle, int type, int n, int vectors, void *result,
                                    size_t result_bytes) {
  enum sc_cublas_status status = pass(handle, type, n, vectors);
  if (status != SC_CUBLAS_SUCCESS) return status;
  return result == NULL ? SC_CUBLAS_INVALID_VALUE : sc_cublas_return_zeros(handle, result, result_bytes);
}

#define SC_DEFINE_AXPY(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *alpha, const void *x, int incx,    \
                                       void *y, int incy) {                                                            \
    return pass(handle, type, n, 3);                                                                                   \
  }
SC_DEFINE_AXPY(cublasSaxpy_v2, SC_R_32F)
SC_DEFINE_AXPY(cublasDaxpy_v2, SC_R_64F)
SC_DEFINE_AXPY(cublasCaxpy_v2, SC_C_32F)
SC_DEFINE_AXPY(cublasZaxpy_v2, SC_C_64F)

#define SC_DEFINE_COPY(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *x, int incx, void *y, int incy) {  \
    return pass(handle, type, n, 2);                                                                                   \
  }
SC_DEFINE_COPY(cublasScopy_v2, SC_R_32F)
SC_DEFINE_COPY(cublasDcopy_v2, SC_R_64F)
SC_DEFINE_COPY(cublasCcopy_v2, SC_C_32F)
SC_DEFINE_COPY(cublasZcopy_v2, SC_C_64F)

#define SC_DEFINE_SWAP(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, void *x, int incx, void *y, int incy) {        \
    return pass(handle, type, n, 4);                                                                                   \
  }
SC_DEFINE_SWAP(cublasSswap_v2, SC_R_32F)
SC_DEFINE_SWAP(cublasDswap_v2, SC_R_64F)
SC_DEFINE_SWAP(cublasCswap_v2, SC_C_32F)
SC_DEFINE_SWAP(cublasZswap_v2, SC_C_64F)

#define SC_DEFINE_SCAL(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *alpha, void *x, int incx) {        \
    return pass(handle, type, n, 2);                                                                                   \
  }
SC_DEFINE_SCAL(cublasSscal_v2, SC_R_32F)
SC_DEFINE_SCAL(cublasDscal_v2, SC_R_64F)
SC_DEFINE_SCAL(cublasCscal_v2, SC_C_32F)
SC_DEFINE_SCAL(cublasZscal_v2, SC_C_64F)
SC_DEFINE_SCAL(cublasCsscal_v2, SC_C_32F)
SC_DEFINE_SCAL(cublasZdscal_v2, SC_C_64F)

#define SC_DEFINE_ROT(name, type)                                                                                      \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, void *x, int incx, void *y, int incy,          \
                                       const void *c, const void *s) {                                                 \
    return pass(handle, type, n, 4);                                                                                   \
  }
SC_DEFINE_ROT(cublasSrot_v2, SC_R_32F)
SC_DEFINE_ROT(cublasDrot_v2, SC_R_64F)
SC_DEFINE_ROT(cublasCrot_v2, SC_C_32F)
SC_DEFINE_ROT(cublasZrot_v2, SC_C_64F)
SC_DEFINE_ROT(cublasCsrot_v2, SC_C_32F)
SC_DEFINE_ROT(cublasZdrot_v2, SC_C_64F)

#define SC_DEFINE_ROTM(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, void *x, int incx, void *y, int incy,          \
                                       const void *param) {                                                            \
    return pass(handle, type, n, 4);                                                                                   \
  }
SC_DEFINE_ROTM(cublasSrotm_v2, SC_R_32F)
SC_DEFINE_ROTM(cublasDrotm_v2, SC_R_64F)

#define SC_DEFINE_DOT(name, type, result_bytes)                                                                        \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *x, int incx, const void *y,        \
                                       int incy, void *result) {                                                       \
    return reduce(handle, type, n, 2, result, result_bytes);                                                           \
  }
SC_DEFINE_DOT(cublasSdot_v2, SC_R_32F, sizeof(float))
SC_DEFINE_DOT(cublasDdot_v2, SC_R_64F, sizeof(double))
SC_DEFINE_DOT(cublasCdotu_v2, SC_C_32F, 2 * sizeof(float))
SC_DEFINE_DOT(cublasCdotc_v2, SC_C_32F, 2 * sizeof(float))
SC_DEFINE_DOT(cublasZdotu_v2, SC_C_64F, 2 * sizeof(double))
SC_DEFINE_DOT(cublasZdotc_v2, SC_C_64F, 2 * sizeof(double))

SC_PUBLIC enum sc_cublas_status cublasDotEx(struct sc_cublas *handle, int n, const void *x, int x_type, int incx,
                                            const void *y, int y_type, int incy, void *result, int result_type,
                                            int execution_type) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (sc_find_number(x_type) == NULL || sc_find_number(y_type) == NULL) return SC_CUBLAS_NOT_SUPPORTED;
  if (sc_find_number(result_type) == NULL || sc_find_number(result_type)->bytes < 1) return SC_CUBLAS_NOT_SUPPORTED;
  return reduce(handle, x_type, n, 2, result, (size_t)sc_find_number(result_type)->bytes);
}

/* Norms, sums, and the index of the largest or smallest. */
#define SC_DEFINE_NORM(name, type, result_type)                                                                        \
  SC_PUBLIC enum sc_cublas_status name(struct sc_cublas *handle, int n, const void *x, int incx,                       \
                                       result_type *result) {                                                          \
    return reduce(handle, type, n, 1, result, sizeof *result);                                                         \
  }
SC_DEFINE_NORM(cublasSnrm2_v2, SC_R_32F, float)
SC_DEFINE_NORM(cublasDnrm2_v2, SC_R_64F, double)
SC_DEFINE_NORM(cublasScnrm2_v2, SC_C_32F, float)
SC_DEFINE_NORM(cublasDznrm2_v2, SC_C_64F, double)
SC_DEFINE_NORM(cublasSasum_v2, SC_R_32F, float)
SC_DEFINE_NORM(cublasDasum_v2, SC_R_64F, double)
SC_DEFINE_NORM(cublasScasum_v2, SC_C_32F, float)
SC_DEFINE_NORM(cublasDzasum_v2, SC_C_64F, double)
SC_DEFINE_NORM(cublasIsamax_v2, SC_R_32F, int)
SC_DEFINE_NORM(cublasIdamax_v2, SC_R_64F, int)
SC_DEFINE_NORM(cublasIcamax_v2, SC_C_32F, int)
SC_DEFINE_NORM(cublasIzamax_v2, SC_C_64F, int)
SC_DEFINE_NORM(cublasIsamin_v2, SC_R_32F, int)
SC_DEFINE_NORM(cublasIdamin_v2, SC_R_64F, int)
SC_DEFINE_NORM(cublasIcamin_v2, SC_C_32F, int)
SC_DEFINE_NORM(cublasIzamin_v2, SC_C_64F, int)
