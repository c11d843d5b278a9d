/* solvers.c - cuFFT, cuSOLVER and cuSPARSE of the simulated device: sizes, work, what says that it went well. */
#include "program.h"

enum { R_32F = 0, C_32F = 4, C_64F = 5 };
int cufftCreate(int *);
int cufftDestroy(int);
int cufftSetStream(int, CUstream);
int cufftSetAutoAllocation(int, int);
int cufftSetWorkArea(int, void *);
int cufftXtMakePlanMany(int, int, long long *, long long *, long long, long long, int, long long *, long long,
                        long long, int, long long, size_t *, int);
int cufftXtExec(int, void *, void *, int);
int cusolverDnCreate(void **);
int cusolverDnDestroy(void *);
int cusolverDnSetStream(void *, CUstream);
int cusolverDnSgetrf_bufferSize(void *, int, int, void *, int, int *);
int cusolverDnSgetrf(void *, int, int, void *, int, void *, int *, int *);
int cusolverDnXsyevd_bufferSize(void *, void *, int, int, int64_t, int, const void *, int64_t, int, const void *, int,
                                size_t *, size_t *);
int cusparseCreate(void **);
int cusparseSetStream(void *, CUstream);
int cusparseCreateCsr(void **, int64_t, int64_t, int64_t, void *, void *, void *, int, int, int, int);
int cusparseCreateDnMat(void **, int64_t, int64_t, int64_t, void *, int, int);
int cusparseDestroySpMat(void *);
int cusparseSpMM_bufferSize(void *, int, int, const void *, void *, void *, const void *, void *, int, int, size_t *);
int cusparseSpMM(void *, int, int, const void *, void *, void *, const void *, void *, int, int, void *);
int cusparseSpGEMM_createDescr(void **);
int cusparseSpGEMM_compute(void *, int, int, const void *, void *, void *, const void *, void *, int, int, void *,
                           size_t *, void *);
int cusparseSpGEMM_copy(void *, int, int, const void *, void *, void *, const void *, void *, int, int, void *);
int cusparseSpMatGetSize(void *, int64_t *, int64_t *, int64_t *);
const char *cusparseGetErrorString(int);

static void *memory;

static int make_plan(int plan, int rank, long long *sizes, long long batch, size_t *bytes) {
  return cufftXtMakePlanMany(plan, rank, sizes, NULL, 1, 1, C_32F, NULL, 1, 1, C_32F, batch, bytes, C_32F);
}

static void transforms_need_a_plan_and_its_area(void) {
  enum { INVALID_PLAN = 1, INVALID_VALUE = 4, INVALID_SIZE = 8, NO_WORKSPACE = 13 };
  long long sizes[] = {1024, 512}, prime[] = {1009}, wrong[] = {0};
  int plan, other;
  size_t bytes, prime_bytes;
  CHECK(cufftCreate(&plan));
  EXPECT(INVALID_PLAN, cufftXtExec(plan, memory, memory, -1)); /* nothing planned */
  CHECK(cufftSetAutoAllocation(plan, 0));
  CHECK(cufftSetStream(plan, stream));
  EXPECT(INVALID_SIZE, make_plan(plan, 1, wrong, 1, &bytes));
  EXPECT(INVALID_VALUE, make_plan(plan, 4, sizes, 1, &bytes));
  CHECK(make_plan(plan, 2, sizes, 8, &bytes));
  TRUE(bytes == 1024 * 512 * 8 * 8ull);
  EXPECT(INVALID_PLAN, make_plan(plan, 2, sizes, 8, &bytes)); /* has one */
  EXPECT(NO_WORKSPACE, cufftXtExec(plan, memory, memory, -1));
  CHECK(cufftSetWorkArea(plan, memory));
  EXPECT(INVALID_VALUE, cufftXtExec(plan, NULL, memory, -1));
  begin_work();
  CHECK(cufftXtExec(plan, memory, memory, -1));
  TRUE(is_about(end_work_us(), 2 * 2.0 * 1024 * 512 * 8 * 8 / (4800e3 * 0.8) + 2)); /* two passes, read and written */
  CHECK(cufftCreate(&other));
  TRUE(other != plan);
  CHECK(make_plan(other, 1, prime, 1, &prime_bytes)); /* with an area of its own */
  TRUE(prime_bytes == 4 * 1009 * 8);
  CHECK(cufftXtExec(other, memory, memory, 1));
  CHECK(cufftDestroy(plan));
  EXPECT(INVALID_PLAN, cufftDestroy(plan));
  EXPECT(INVALID_PLAN, cufftSetStream(-1, stream));
  EXPECT(INVALID_PLAN, cufftSetStream(1 << 30, stream));
}

static void factorizations_take_time_and_succeed(void) {
  enum { NOT_INITIALIZED = 1, INVALID_VALUE = 3 };
  void *handle;
  int elements, info = 7;
  size_t device_bytes, host_bytes = 7;
  CHECK(cusolverDnCreate(&handle));
  CHECK(cusolverDnSetStream(handle, stream));
  CHECK(cusolverDnSgetrf_bufferSize(handle, 1000, 1000, memory, 1000, &elements));
  TRUE(elements > 0);
  EXPECT(INVALID_VALUE, cusolverDnSgetrf_bufferSize(handle, -1, -1, memory, 1000, &elements));
  EXPECT(INVALID_VALUE, cusolverDnSgetrf_bufferSize(handle, 0x7fffffff, 1, memory, 1000, &elements));
  CHECK(cuMemsetD8_v2((CUdeviceptr)memory, 7, 4));
  begin_work();
  CHECK(cusolverDnSgetrf(handle, 500, 500, memory, 500, memory, memory, memory));
  double small_us = end_work_us();
  CHECK(cuMemcpyDtoH_v2(&info, (CUdeviceptr)memory, sizeof info));
  TRUE(info == 0);
  begin_work();
  CHECK(cusolverDnSgetrf(handle, 8000, 8000, memory, 8000, memory, memory, memory));
  TRUE(end_work_us() > 10 * small_us);
  EXPECT(INVALID_VALUE, cusolverDnSgetrf(handle, -1, 8, memory, 8, memory, memory, memory));
  EXPECT(NOT_INITIALIZED, cusolverDnSgetrf(NULL, 8, 8, memory, 8, memory, memory, memory));
  CHECK(cusolverDnXsyevd_bufferSize(handle, NULL, 1, 0, 100, C_64F, memory, 100, C_64F, memory, C_64F, &device_bytes,
                                    &host_bytes));
  TRUE(device_bytes == (1 + 600 + 20000) * 16 && host_bytes == 0);
  CHECK(cusolverDnDestroy(handle));
}

static void sparse_products_are_empty(void) {
  enum { NOT_INITIALIZED = 1, INVALID_VALUE = 3, INDEX_32 = 2 };
  void *handle, *a, *b, *c, *dense, *descriptor;
  float one = 1;
  size_t bytes;
  int64_t rows, columns, elements;
  int offsets[5] = {7, 7, 7, 7, 7};
  CHECK(cusparseCreate(&handle));
  CHECK(cusparseSetStream(handle, stream));
  EXPECT(INVALID_VALUE, cusparseCreateCsr(&a, 4, 4, 6, memory, memory, memory, 9, INDEX_32, 0, R_32F));
  EXPECT(INVALID_VALUE, cusparseCreateCsr(&a, -4, 4, 6, memory, memory, memory, INDEX_32, INDEX_32, 0, R_32F));
  CHECK(cusparseCreateCsr(&a, 4, 4, 6, memory, memory, memory, INDEX_32, INDEX_32, 0, R_32F));
  CHECK(cusparseCreateCsr(&b, 4, 4, 6, memory, memory, memory, INDEX_32, INDEX_32, 0, R_32F));
  CHECK(cusparseCreateCsr(&c, 4, 4, 0, memory, NULL, NULL, INDEX_32, INDEX_32, 0, R_32F));
  CHECK(cusparseCreateDnMat(&dense, 4, 100, 4, memory, R_32F, 1));
  CHECK(cusparseSpMM_bufferSize(handle, 0, 0, &one, a, dense, &one, dense, R_32F, 0, &bytes));
  begin_work();
  CHECK(cusparseSpMM(handle, 0, 0, &one, a, dense, &one, dense, R_32F, 0, memory));
  TRUE(end_work_us() >= 2);
  EXPECT(INVALID_VALUE, cusparseSpMM(handle, 0, 0, &one, NULL, dense, &one, dense, R_32F, 0, memory));
  EXPECT(NOT_INITIALIZED, cusparseSpMM(NULL, 0, 0, &one, a, dense, &one, dense, R_32F, 0, memory));
  CHECK(cusparseSpGEMM_createDescr(&descriptor));
  CHECK(cusparseSpGEMM_compute(handle, 0, 0, &one, a, b, &one, c, R_32F, 0, descriptor, &bytes, memory));
  CHECK(cusparseSpMatGetSize(c, &rows, &columns, &elements));
  TRUE(rows == 4 && columns == 4 && elements == 0);
  CHECK(cuMemcpyHtoD_v2((CUdeviceptr)memory, offsets, sizeof offsets));
  CHECK(cusparseSpGEMM_copy(handle, 0, 0, &one, a, b, &one, c, R_32F, 0, descriptor));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH_v2(offsets, (CUdeviceptr)memory, sizeof offsets));
  for (int i = 0; i < 5; i++) TRUE(offsets[i] == 0);
  CHECK(cusparseDestroySpMat(a));
  TRUE(strlen(cusparseGetErrorString(3)) > 0 && strlen(cusparseGetErrorString(12345)) > 0);
}

int main(void) {
  begin();
  memory = (void *)allocate(64 << 20);
  transforms_need_a_plan_and_its_area();
  factorizations_take_time_and_succeed();
  sparse_products_are_empty();
  return 0;
}
