/*
 * products.c - products of matrices: GEMM in all its forms. Their time follows from their shapes and types; alpha, beta
 * and the matrices themselves are looked at only where cuBLAS would refuse them.
 */
#include "simcuda/cublas/cublas.h"

#define MATH_KIND 15 /* the bits of a math mode that say how to compute; the rest restricts how sums are made */
enum { MATH_TENSOR_OP = 1, MATH_TF32 = 3 };

struct product {
  int trans_a, trans_b;
  int m, n, k, batch;
  const void *alpha, *beta;
  int lda, ldb, ldc;
};

static int rows(int trans, int straight, int crosswise) {
  int count = trans == SC_CUBLAS_OP_N ? straight : crosswise;
  return count > 1 ? count : 1;
}

static bool is_valid(const struct product *product) {
  if (product->m < 0 || product->n < 0 || product->k < 0 || product->batch < 0) return false;
  if (product->trans_a < SC_CUBLAS_OP_N || product->trans_a > SC_CUBLAS_OP_CONJ) return false;
  if (product->trans_b < SC_CUBLAS_OP_N || product->trans_b > SC_CUBLAS_OP_CONJ) return false;
  if (product->lda < rows(product->trans_a, product->m, product->k)) return false;
  if (product->ldb < rows(product->trans_b, product->k, product->n)) return false;
  return product->ldc >= rows(SC_CUBLAS_OP_N, product->m, 0) && product->alpha != NULL && product->beta != NULL;
}

/* What is not alike in a product's numbers. */
struct arithmetic {
  enum sc_math math;
  double output_bytes, scale_bytes; /* of an element of C, of beta */
};

static enum sc_cublas_status multiply(struct sc_cublas *handle, const struct product *product,
                                      const struct sc_number *number, struct arithmetic arithmetic) {
  if (!is_valid(product)) return SC_CUBLAS_INVALID_VALUE;
  if (product->m == 0 || product->n == 0 || product->batch == 0) return SC_CUBLAS_SUCCESS;
  bool has_input = handle->pointer_mode == SC_CUBLAS_HOST && !sc_is_zero(product->beta, arithmetic.scale_bytes);
  struct sc_cost cost = sc_cost_gemm(product->m, product->n, product->k, product->batch, number->bytes,
                                     arithmetic.output_bytes, has_input, arithmetic.math);
  cost.flops *= number->flops;
  return sc_cublas_run(handle, SC_WORK_GEMM, cost);
}

/* One type for everything: the handle's math mode decides what FP32 is computed with. */
static enum sc_cublas_status multiply_alike(struct sc_cublas *handle, int type, const struct product *product) {
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  const struct sc_number *number = sc_find_number(type);
  int mode = handle->math_mode & MATH_KIND;
  bool is_fast = number->is_fast_float && (mode == MATH_TF32 || mode == MATH_TENSOR_OP);
  struct arithmetic arithmetic = {is_fast ? SC_MATH_TF32 : number->math, number->bytes, number->bytes};
  return multiply(handle, product, number, arithmetic);
}

/* Of beta, by the compute type; complex numbers are pairs. */
static double scale_bytes(int compute_type, const struct sc_number *number) {
  bool is_complex = number->flops > 1;
  switch (compute_type) {
  case SC_COMPUTE_16F:
  case SC_COMPUTE_16F_PEDANTIC:
    return 2;
  case SC_COMPUTE_64F:
  case SC_COMPUTE_64F_PEDANTIC:
  case SC_COMPUTE_64F_EMULATED:
    return is_complex ? 16 : 8;
  default:
    return is_complex ? 8 : 4;
  }
}

struct types {
  int a, b, c;
};

static enum sc_cublas_status multiply_mixed(struct sc_cublas *handle, struct types types, int compute_type,
                                            const struct product *product) {
  const struct sc_number *number = sc_find_number(types.a), *output = sc_find_number(types.c);
  enum sc_math math;
  if (!sc_cublas_is_handle(handle)) return SC_CUBLAS_NOT_INITIALIZED;
  if (number == NULL || output == NULL || sc_find_number(types.b) == NULL) return SC_CUBLAS_NOT_SUPPORTED;
  if (!sc_find_product_math(compute_type, types.a, &math)) return SC_CUBLAS_NOT_SUPPORTED;
  if (compute_type == SC_COMPUTE_32F && number->is_fast_float && (handle->math_mode & MATH_KIND) == MATH_TF32)
    math = SC_MATH_TF32;
  return multiply(handle, product, number, (struct arithmetic){math, output->bytes, scale_bytes(compute_type, number)});
}

/* The product of a function's parameters, whose names are always the same. */
#define PRODUCT(count) (&(struct product){trans_a, trans_b, m, n, k, count, alpha, beta, lda, ldb, ldc})
#define HEAD struct sc_cublas *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha
#define TYPES ((struct types){a_type, b_type, c_type})

#define SC_DEFINE_GEMM(name, type)                                                                                     \
  SC_PUBLIC enum sc_cublas_status name(HEAD, const void *a, int lda, const void *b, int ldb, const void *beta,         \
                                       void *c, int ldc) {                                                             \
    return multiply_alike(handle, type, PRODUCT(1));                                                                   \
  }
SC_DEFINE_GEMM(cublasSgemm_v2, SC_R_32F)
SC_DEFINE_GEMM(cublasDgemm_v2, SC_R_64F)
SC_DEFINE_GEMM(cublasCgemm_v2, SC_C_32F)
SC_DEFINE_GEMM(cublasZgemm_v2, SC_C_64F)
SC_DEFINE_GEMM(cublasHgemm, SC_R_16F)
SC_DEFINE_GEMM(cublasCgemm3m, SC_C_32F)
SC_DEFINE_GEMM(cublasZgemm3m, SC_C_64F)

#define SC_DEFINE_GEMM_BATCHED(name, type)                                                                             \
  SC_PUBLIC enum sc_cublas_status name(HEAD, const void *const *a, int lda, const void *const *b, int ldb,             \
                                       const void *beta, void *const *c, int ldc, int batch) {                         \
    return multiply_alike(handle, type, PRODUCT(batch));                                                               \
  }
SC_DEFINE_GEMM_BATCHED(cublasSgemmBatched, SC_R_32F)
SC_DEFINE_GEMM_BATCHED(cublasDgemmBatched, SC_R_64F)
SC_DEFINE_GEMM_BATCHED(cublasCgemmBatched, SC_C_32F)
SC_DEFINE_GEMM_BATCHED(cublasZgemmBatched, SC_C_64F)
SC_DEFINE_GEMM_BATCHED(cublasHgemmBatched, SC_R_16F)

#define SC_DEFINE_GEMM_STRIDED(name, type)                                                                             \
  SC_PUBLIC enum sc_cublas_status name(HEAD, const void *a, int lda, long long stride_a, const void *b, int ldb,       \
                                       long long stride_b, const void *beta, void *c, int ldc, long long stride_c,     \
                                       int batch) {                                                                    \
    return multiply_alike(handle, type, PRODUCT(batch));                                                               \
  }
SC_DEFINE_GEMM_STRIDED(cublasSgemmStridedBatched, SC_R_32F)
SC_DEFINE_GEMM_STRIDED(cublasDgemmStridedBatched, SC_R_64F)
SC_DEFINE_GEMM_STRIDED(cublasCgemmStridedBatched, SC_C_32F)
SC_DEFINE_GEMM_STRIDED(cublasZgemmStridedBatched, SC_C_64F)
SC_DEFINE_GEMM_STRIDED(cublasHgemmStridedBatched, SC_R_16F)

SC_PUBLIC enum sc_cublas_status cublasGemmEx(HEAD, const void *a, int a_type, int lda, const void *b, int b_type,
                                             int ldb, const void *beta, void *c, int c_type, int ldc, int compute_type,
                                             int algorithm) {
  return multiply_mixed(handle, TYPES, compute_type, PRODUCT(1));
}

SC_PUBLIC enum sc_cublas_status cublasSgemmEx(HEAD, const void *a, int a_type, int lda, const void *b, int b_type,
                                              int ldb, const void *beta, void *c, int c_type, int ldc) {
  return multiply_mixed(handle, TYPES, SC_COMPUTE_32F, PRODUCT(1));
}

SC_PUBLIC enum sc_cublas_status cublasGemmBatchedEx(HEAD, const void *const *a, int a_type, int lda,
                                                    const void *const *b, int b_type, int ldb, const void *beta,
                                                    void *const *c, int c_type, int ldc, int batch, int compute_type,
                                                    int algorithm) {
  return multiply_mixed(handle, TYPES, compute_type, PRODUCT(batch));
}

SC_PUBLIC enum sc_cublas_status cublasGemmStridedBatchedEx(HEAD, const void *a, int a_type, int lda, long long stride_a,
                                                           const void *b, int b_type, int ldb, long long stride_b,
                                                           const void *beta, void *c, int c_type, int ldc,
                                                           long long stride_c, int batch, int compute_type,
                                                           int algorithm) {
  return multiply_mixed(handle, TYPES, compute_type, PRODUCT(batch));
}
