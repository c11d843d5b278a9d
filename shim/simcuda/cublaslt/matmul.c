/*
 * matmul.c - products by the simulated cuBLASLt. There is one algorithm for all of them, without a workspace. A product
 * is checked as the real library does: types that it can multiply, and shapes that fit each other.
 */
#include "simcuda/common/cost.h"
#include "simcuda/common/numbers.h"
#include "simcuda/common/work.h"
#include "simcuda/cublaslt/attributes.h"
#include <string.h>

#define VERSION 131000     /* of the header that programs were made with: 13.10.0 */
#define EPILOGUE_KEEPS 128 /* the bit of epilogues that write, or read, a second matrix of the output's size */
enum { OP_N, POINTERS_HOST = 0 };

/* As the public header lays it out. */
struct algorithm {
  uint64_t data[8];
};
struct heuristic {
  struct algorithm algorithm;
  size_t workspace_bytes;
  enum sc_lt_status state;
  float waves;
  int reserved[4];
};

struct matmul {
  const struct sc_lt_object *desc, *a, *b, *c, *d;
};

static int64_t rows(const struct sc_lt_object *layout, int trans) {
  return layout->values[trans == OP_N ? SC_LT_LAYOUT_ROWS : SC_LT_LAYOUT_COLUMNS];
}

static int64_t columns(const struct sc_lt_object *layout, int trans) {
  return layout->values[trans == OP_N ? SC_LT_LAYOUT_COLUMNS : SC_LT_LAYOUT_ROWS];
}

static const struct sc_number *number_of(const struct sc_lt_object *layout) {
  return sc_find_number((int)layout->values[SC_LT_LAYOUT_TYPE]);
}

static bool is_layout(const struct sc_lt_object *object) {
  return object != NULL && object->sizes == sc_lt_layout_sizes;
}

/* What the product costs, but for the reading of C. */
static enum sc_lt_status estimate(const struct matmul *matmul, struct sc_cost *ret_cost) {
  if (matmul->desc == NULL || matmul->desc->sizes != sc_lt_desc_sizes) return SC_LT_INVALID_VALUE;
  if (!is_layout(matmul->a) || !is_layout(matmul->b) || !is_layout(matmul->c) || !is_layout(matmul->d))
    return SC_LT_INVALID_VALUE;
  const int64_t *desc = matmul->desc->values;
  int trans_a = (int)desc[SC_LT_DESC_TRANS_A], trans_b = (int)desc[SC_LT_DESC_TRANS_B];
  int64_t m = rows(matmul->a, trans_a), k = columns(matmul->a, trans_a), n = columns(matmul->b, trans_b);
  if (rows(matmul->b, trans_b) != k || rows(matmul->d, OP_N) != m || columns(matmul->d, OP_N) != n)
    return SC_LT_INVALID_VALUE;
  const struct sc_number *number = number_of(matmul->a), *output = number_of(matmul->d);
  enum sc_math math;
  if (output == NULL || number_of(matmul->b) == NULL || number_of(matmul->c) == NULL) return SC_LT_NOT_SUPPORTED;
  if (!sc_find_product_math((int)desc[SC_LT_DESC_COMPUTE], (int)matmul->a->values[SC_LT_LAYOUT_TYPE], &math))
    return SC_LT_NOT_SUPPORTED;
  int64_t batch = matmul->d->values[SC_LT_LAYOUT_BATCH];
  bool is_keeping = (desc[SC_LT_DESC_EPILOGUE] & EPILOGUE_KEEPS) != 0;
  *ret_cost = sc_cost_gemm(m, n, k, batch, number->bytes, output->bytes, is_keeping, math);
  ret_cost->flops *= number->flops;
  return SC_LT_SUCCESS;
}

static double bytes_of(const struct sc_lt_object *layout) {
  const int64_t *values = layout->values;
  return (double)values[SC_LT_LAYOUT_ROWS] * (double)values[SC_LT_LAYOUT_COLUMNS] * (double)values[SC_LT_LAYOUT_BATCH] *
         number_of(layout)->bytes;
}

static bool reads_input(const struct matmul *matmul, const void *beta) {
  const int64_t *desc = matmul->desc->values;
  const struct sc_number *scale = sc_find_number((int)desc[SC_LT_DESC_SCALE]);
  return desc[SC_LT_DESC_POINTER_MODE] == POINTERS_HOST && scale != NULL && !sc_is_zero(beta, scale->bytes);
}

SC_PUBLIC size_t cublasLtGetVersion(void) {
  return VERSION;
}

SC_PUBLIC enum sc_lt_status cublasLtMatmul(void *handle, const struct sc_lt_object *desc, const void *alpha,
                                           const void *a, const struct sc_lt_object *a_layout, const void *b,
                                           const struct sc_lt_object *b_layout, const void *beta, const void *c,
                                           const struct sc_lt_object *c_layout, void *d,
                                           const struct sc_lt_object *d_layout, const struct algorithm *algorithm,
                                           void *workspace, size_t workspace_bytes, CUstream stream) {
  (void)algorithm, (void)workspace, (void)workspace_bytes;
  struct matmul matmul = {desc, a_layout, b_layout, c_layout, d_layout};
  struct sc_cost cost;
  if (handle == NULL) return SC_LT_NOT_INITIALIZED;
  if (alpha == NULL || beta == NULL) return SC_LT_INVALID_VALUE;
  enum sc_lt_status status = estimate(&matmul, &cost);
  if (status != SC_LT_SUCCESS) return status;
  if (bytes_of(d_layout) == 0) return SC_LT_SUCCESS;
  if (a == NULL || b == NULL || d == NULL) return SC_LT_INVALID_VALUE;
  if (c != NULL && reads_input(&matmul, beta)) cost.bytes += bytes_of(c_layout);
  CUresult result = sc_launch_work(SC_WORK_GEMM, stream, sc_estimate_ns(&cost), cost.flops);
  return result == CUDA_SUCCESS ? SC_LT_SUCCESS : SC_LT_EXECUTION_FAILED;
}

SC_PUBLIC enum sc_lt_status cublasLtMatmulAlgoGetHeuristic(void *handle, const struct sc_lt_object *desc,
                                                           const struct sc_lt_object *a, const struct sc_lt_object *b,
                                                           const struct sc_lt_object *c, const struct sc_lt_object *d,
                                                           const struct sc_lt_object *preference, int result_count,
                                                           struct heuristic *ret_results, int *ret_count) {
  struct matmul matmul = {desc, a, b, c, d};
  struct sc_cost cost;
  if (handle == NULL) return SC_LT_NOT_INITIALIZED;
  if (ret_results == NULL || ret_count == NULL || result_count < 1) return SC_LT_INVALID_VALUE;
  *ret_count = 0;
  if (preference != NULL && preference->sizes != sc_lt_preference_sizes) return SC_LT_INVALID_VALUE;
  enum sc_lt_status status = estimate(&matmul, &cost);
  if (status != SC_LT_SUCCESS) return status;
  memset(ret_results, 0, sizeof *ret_results);
  ret_results->waves = 1;
  *ret_count = 1;
  return SC_LT_SUCCESS;
}
