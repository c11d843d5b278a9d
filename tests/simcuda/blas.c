/* blas.c - cuBLAS and cuBLASLt of the simulated device, an H200: handles, wrong arguments, results, and times. */
#include "program.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10, R_16BF = 14, R_8F = 28 };
enum { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, COMPUTE_64F = 70, COMPUTE_32I = 72 };
typedef void *handle_t;
#define SCALED handle_t, int, int, int, int, int, const void *
int cublasCreate_v2(handle_t *);
int cublasDestroy_v2(handle_t);
int cublasSetStream_v2(handle_t, CUstream);
int cublasGetStream_v2(handle_t, CUstream *);
int cublasSetPointerMode_v2(handle_t, int);
int cublasGetPointerMode_v2(handle_t, int *);
int cublasSetMathMode(handle_t, int);
int cublasGetMathMode(handle_t, int *);
int cublasSetWorkspace_v2(handle_t, void *, size_t);
int cublasSgemm_v2(SCALED, const void *, int, const void *, int, const void *, void *, int);
int cublasCgemm_v2(SCALED, const void *, int, const void *, int, const void *, void *, int);
int cublasSgemmStridedBatched(SCALED, const void *, int, long long, const void *, int, long long, const void *, void *,
                              int, long long, int);
int cublasGemmEx(SCALED, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
int cublasSgemv_v2(handle_t, int, int, int, const void *, const void *, int, const void *, int, const void *, void *,
                   int);
int cublasSdot_v2(handle_t, int, const void *, int, const void *, int, float *);
int cublasDznrm2_v2(handle_t, int, const void *, int, double *);
int cublasSgetrfBatched(handle_t, int, void *const *, int, int *, int *, int);
int cublasSetMatrixAsync(int, int, int, const void *, int, void *, int, CUstream);
int cublasLtMatmulDescCreate(void **, int, int);
int cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t);
int cublasLtMatmulDescGetAttribute(void *, int, void *, size_t, size_t *);
int cublasLtMatmulDescDestroy(void *);
int cublasLtMatrixLayoutCreate(void **, int, uint64_t, uint64_t, int64_t);
int cublasLtMatrixLayoutDestroy(void *);
int cublasLtMatmulPreferenceCreate(void **);
int cublasLtMatmulAlgoGetHeuristic(handle_t, void *, void *, void *, void *, void *, void *, int, void *, int *);
int cublasLtMatmul(handle_t, void *, const void *, const void *, void *, const void *, void *, const void *,
                   const void *, void *, void *, void *, const void *, void *, size_t, CUstream);

static handle_t handle;
static void *memory;
static const float one = 1, zero = 0;

static void a_handle_keeps_what_it_is_told(void) {
  CUstream kept;
  int value;
  size_t before_bytes, after_bytes, total_bytes;
  EXPECT(NOT_INITIALIZED, cublasSetStream_v2(NULL, stream));
  EXPECT(NOT_INITIALIZED, cublasDestroy_v2(NULL));
  EXPECT(INVALID_VALUE, cublasCreate_v2(NULL));
  CHECK(cuMemGetInfo_v2(&before_bytes, &total_bytes));
  CHECK(cublasCreate_v2(&handle));
  CHECK(cuMemGetInfo_v2(&after_bytes, &total_bytes));
  TRUE(before_bytes - after_bytes == 32 << 20); /* the workspace that a handle has on Hopper */
  CHECK(cublasDestroy_v2(handle));
  CHECK(cuMemGetInfo_v2(&after_bytes, &total_bytes));
  TRUE(before_bytes == after_bytes);
  CHECK(cublasCreate_v2(&handle));
  CHECK(cublasSetStream_v2(handle, stream));
  CHECK(cublasGetStream_v2(handle, &kept));
  TRUE(kept == stream);
  EXPECT(INVALID_VALUE, cublasSetPointerMode_v2(handle, 2));
  CHECK(cublasGetPointerMode_v2(handle, &value));
  TRUE(value == 0);
  EXPECT(INVALID_VALUE, cublasSetWorkspace_v2(handle, (char *)memory + 8, 1 << 20));
  CHECK(cublasSetWorkspace_v2(handle, memory, 1 << 20));
}

static int multiply(int m, int n, int k, int lda, const void *alpha) {
  return cublasSgemm_v2(handle, 0, 0, m, n, k, alpha, memory, lda, memory, k, &zero, memory, m > 0 ? m : 1);
}

static void wrong_products_are_refused(void) {
  EXPECT(INVALID_VALUE, multiply(-1, 8, 8, 8, &one));
  EXPECT(INVALID_VALUE, multiply(8, 8, 8, 7, &one));
  EXPECT(INVALID_VALUE, multiply(8, 8, 8, 8, NULL));
  EXPECT(INVALID_VALUE, cublasSgemm_v2(handle, 9, 0, 8, 8, 8, &one, memory, 8, memory, 8, &zero, memory, 8));
  EXPECT(NOT_INITIALIZED, cublasSgemm_v2(NULL, 0, 0, 8, 8, 8, &one, memory, 8, memory, 8, &zero, memory, 8));
  EXPECT(NOT_SUPPORTED, cublasGemmEx(handle, 0, 0, 8, 8, 8, &one, memory, 77, 8, memory, 77, 8, &zero, memory, 77, 8,
                                     COMPUTE_32F, -1));
  EXPECT(NOT_SUPPORTED, cublasGemmEx(handle, 0, 0, 8, 8, 8, &one, memory, R_32F, 8, memory, R_32F, 8, &zero, memory,
                                     R_32F, 8, COMPUTE_64F, -1));
  begin_work();
  CHECK(multiply(0, 8, 8, 8, &one));
  TRUE(is_about(end_work_us(), 0)); /* nothing to do */
}

static double mixed_us(int size, int type, int output, int compute) {
  begin_work();
  CHECK(cublasGemmEx(handle, 0, 0, size, size, size, &one, memory, type, size, memory, type, size, &zero, memory,
                     output, size, compute, -1));
  return end_work_us();
}

/* 2 x 4096^3 operations, at 70 % of what the data sheet has for each type. */
static void times_follow_from_shapes_and_types(void) {
  double flops = 2.0 * 4096 * 4096 * 4096;
  begin_work();
  CHECK(multiply(4096, 4096, 4096, 4096, &one));
  TRUE(is_about(end_work_us(), flops / (67e6 * 0.7)));
  CHECK(cublasSetMathMode(handle, 3)); /* TF32 */
  begin_work();
  CHECK(multiply(4096, 4096, 4096, 4096, &one));
  TRUE(is_about(end_work_us(), flops / (494.5e6 * 0.7)));
  CHECK(cublasSetMathMode(handle, 0));
  TRUE(is_about(mixed_us(4096, R_16BF, R_16BF, COMPUTE_32F), flops / (989.5e6 * 0.7)));
  TRUE(is_about(mixed_us(4096, R_32F, R_32F, COMPUTE_32F_FAST_TF32), flops / (494.5e6 * 0.7)));
  TRUE(is_about(mixed_us(4096, R_8I, R_32I, COMPUTE_32I), flops / (1979e6 * 0.7)));
  begin_work();
  CHECK(cublasCgemm_v2(handle, 0, 0, 2048, 2048, 2048, &one, memory, 2048, memory, 2048, &zero, memory, 2048));
  TRUE(is_about(end_work_us(), 8.0 * 2048 * 2048 * 2048 / (67e6 * 0.7)));
  begin_work();
  CHECK(cublasSgemmStridedBatched(handle, 0, 0, 512, 512, 512, &one, memory, 512, 0, memory, 512, 0, &zero, memory, 512,
                                  0, 64));
  TRUE(is_about(end_work_us(), 64 * 2.0 * 512 * 512 * 512 / (67e6 * 0.7)));
  begin_work();
  CHECK(cublasSgemv_v2(handle, 0, 16384, 16384, &one, memory, 16384, memory, 1, &zero, memory, 1));
  TRUE(is_about(end_work_us(), 16384.0 * 16384 * 4 / (4800e3 * 0.8)));
}

static void results_are_zeros_where_the_pointer_mode_says(void) {
  float dot = 5;
  double norm = 5;
  CHECK(cublasSdot_v2(handle, 100, memory, 1, memory, 1, &dot));
  CHECK(cublasDznrm2_v2(handle, 100, memory, 1, &norm));
  TRUE(dot == 0 && norm == 0);
  CHECK(cuMemsetD8_v2((CUdeviceptr)memory, 7, 64));
  CHECK(cublasSetPointerMode_v2(handle, 1));
  CHECK(cublasSdot_v2(handle, 100, memory, 1, memory, 1, memory));
  CHECK(cublasSetPointerMode_v2(handle, 0));
  CHECK(cuStreamSynchronize(stream));
  unsigned char bytes[64];
  CHECK(cuMemcpyDtoH_v2(bytes, (CUdeviceptr)memory, sizeof bytes));
  TRUE(bytes[0] == 0 && bytes[3] == 0 && bytes[4] == 7);
}

static void factorizations_say_that_they_succeeded(void) {
  int info[8];
  CHECK(cuMemsetD8_v2((CUdeviceptr)memory, 7, sizeof info));
  CHECK(cublasSgetrfBatched(handle, 16, memory, 16, memory, memory, 8));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(info, (CUdeviceptr)memory, sizeof info));
  for (int i = 0; i < 8; i++) TRUE(info[i] == 0);
  EXPECT(INVALID_VALUE, cublasSgetrfBatched(handle, -1, memory, 16, memory, memory, 8));
}

static void copies_are_real(void) {
  char matrix[4][8], back[4][8] = {{0}};
  memset(matrix, 3, sizeof matrix);
  CHECK(cuMemsetD8_v2((CUdeviceptr)memory, 7, 64));
  CHECK(cublasSetMatrixAsync(2, 4, 2, matrix, 4, memory, 4, stream)); /* the first 4 of each 8 bytes */
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(back, (CUdeviceptr)memory, sizeof back));
  for (int i = 0; i < 4; i++) TRUE(back[i][3] == 3 && back[i][4] == 7);
  EXPECT(INVALID_VALUE, cublasSetMatrixAsync(2, 4, 2, matrix, 1, memory, 4, stream));
}

static void cublaslt_multiplies_as_described(void) {
  void *desc, *a, *b, *d, *preference;
  struct {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
  } result;
  int count = -1, trans = 1;
  size_t written;
  CHECK(cublasLtMatmulDescCreate(&desc, COMPUTE_32F, R_32F));
  CHECK(cublasLtMatmulDescSetAttribute(desc, 3, &trans, sizeof trans));
  EXPECT(INVALID_VALUE, cublasLtMatmulDescSetAttribute(desc, 3, &trans, 1));
  EXPECT(INVALID_VALUE, cublasLtMatmulDescSetAttribute(desc, 99, &trans, sizeof trans));
  EXPECT(INVALID_VALUE, cublasLtMatmulDescSetAttribute(desc, -1, &trans, sizeof trans));
  EXPECT(INVALID_VALUE, cublasLtMatmulDescSetAttribute(NULL, 3, &trans, sizeof trans));
  trans = 0;
  CHECK(cublasLtMatmulDescGetAttribute(desc, 3, &trans, sizeof trans, &written));
  TRUE(trans == 1 && written == sizeof trans);
  CHECK(cublasLtMatrixLayoutCreate(&a, R_8F, 2048, 4096, 2048));
  CHECK(cublasLtMatrixLayoutCreate(&b, R_8F, 2048, 1024, 2048));
  CHECK(cublasLtMatrixLayoutCreate(&d, R_16BF, 4096, 1024, 4096));
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &result, &count));
  TRUE(count == 1 && result.state == 0 && result.workspace_bytes == 0);
  EXPECT(INVALID_VALUE, cublasLtMatmulAlgoGetHeuristic(handle, desc, b, a, d, d, preference, 1, &result, &count));
  EXPECT(INVALID_VALUE, cublasLtMatmulAlgoGetHeuristic(handle, a, a, b, d, d, preference, 1, &result, &count));
  EXPECT(INVALID_VALUE, cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 0, &result, &count));
  begin_work();
  CHECK(cublasLtMatmul(handle, desc, &one, memory, a, memory, b, &zero, memory, d, memory, d, NULL, NULL, 0, stream));
  TRUE(is_about(end_work_us(), 2.0 * 4096 * 1024 * 2048 / (1979e6 * 0.7) + 2));
  EXPECT(INVALID_VALUE,
         cublasLtMatmul(handle, desc, NULL, memory, a, memory, b, &zero, memory, d, memory, d, NULL, NULL, 0, stream));
  EXPECT(NOT_INITIALIZED,
         cublasLtMatmul(NULL, desc, &one, memory, a, memory, b, &zero, memory, d, memory, d, NULL, NULL, 0, stream));
  CHECK(cublasLtMatmulDescDestroy(desc));
  CHECK(cublasLtMatrixLayoutDestroy(a));
}

int main(void) {
  begin();
  memory = (void *)allocate(1 << 20);
  a_handle_keeps_what_it_is_told();
  wrong_products_are_refused();
  times_follow_from_shapes_and_types();
  results_are_zeros_where_the_pointer_mode_says();
  factorizations_say_that_they_succeeded();
  copies_are_real();
  cublaslt_multiplies_as_described();
  CHECK(cublasDestroy_v2(handle));
  return 0;
}
