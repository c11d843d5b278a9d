/*
 * states: what calls answer before cuInit, without a context, with wrong handles, after fork, by name and version.
 */
#include "program.h"
#include <pthread.h>
#include <sys/wait.h>

static void before_init(void) {
  int count;
  CUcontext context;
  CUdeviceptr block;
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&block, 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  CHECK(cuDriverGetVersion(&count)); /* answers without cuInit */
  TRUE(count == 13000);
}

static void without_context(void) {
  CUdeviceptr block;
  CUcontext context = (CUcontext)1;
  CHECK(cuCtxGetCurrent(&context));
  TRUE(context == NULL);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&block, 1));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&context));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)&block));
  EXPECT(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&context, 0, 99));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate_v2(&context, 0x4000, 0));
}

static void context_stack(void) {
  CUcontext first, second, primary, again, now;
  unsigned flags;
  int active;
  CHECK(cuCtxCreate_v2(&first, 0, 0));
  CHECK(cuCtxCreate_v4(&second, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
  CHECK(cuCtxGetFlags(&flags));
  TRUE(flags == CU_CTX_SCHED_BLOCKING_SYNC);
  CHECK(cuCtxPopCurrent_v2(&now));
  TRUE(now == second);
  CHECK(cuCtxGetCurrent(&now));
  TRUE(now == first);
  CHECK(cuCtxPushCurrent_v2(second));
  CHECK(cuCtxDestroy_v2(second)); /* the current one: the one below becomes current */
  CHECK(cuCtxGetCurrent(&now));
  TRUE(now == first);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(second));
  CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
  CHECK(cuDevicePrimaryCtxRetain(&again, 0));
  TRUE(primary == again && primary != first);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(primary));
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  TRUE(active == 1);
  CHECK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  TRUE(active == 0);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

static void wrong_handles(void) {
  long junk[64] = {0};
  CUevent event = (CUevent)junk;
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)junk));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent)NULL));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_LEGACY));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 0x100));
}

static void *other_thread(void *stream) {
  CUcontext now, context = ((void **)stream)[0];
  unsigned long long mine;
  CHECK(cuCtxGetCurrent(&now));
  TRUE(now == NULL); /* a context is current per thread */
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
  *(unsigned long long *)((void **)stream)[1] = mine;
  return NULL;
}

static void threads(void) {
  CUcontext context;
  unsigned long long legacy, mine, again, theirs = 0;
  pthread_t thread;
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuStreamGetId(NULL, &legacy));
  CHECK(cuStreamGetId_ptsz(NULL, &mine));
  CHECK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  TRUE(mine == again && mine != legacy);
  void *argument[] = {context, &theirs};
  pthread_create(&thread, NULL, other_thread, argument);
  pthread_join(thread, NULL);
  TRUE(theirs != 0 && theirs != mine && theirs != legacy);
  for (int i = 0; i < 5000; i++) { /* a thread's stream ends with it: there are not so many at a time */
    pthread_create(&thread, NULL, other_thread, argument);
    pthread_join(thread, NULL);
  }
}

static void by_name(void) {
  void *function;
  const char *text;
  CUdriverProcAddressQueryResult status;
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, &status));
  TRUE(function == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK(cuGetProcAddress_v2("cuCtxCreate", &function, 11000, 0, &status));
  TRUE(function == (void *)cuCtxCreate_v2);
  CHECK(cuGetProcAddress_v2("cuCtxCreate", &function, 13000, 0, &status));
  TRUE(function == (void *)cuCtxCreate_v4);
  cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CHECK(cuGetProcAddress_v2("cuStreamSynchronize", &function, 13000, per_thread, &status));
  TRUE(function == (void *)cuStreamSynchronize_ptsz);
  CHECK(cuGetProcAddress_v2("cuMemAllocAsync", &function, 10000, 0, &status));
  TRUE(function == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status));
  TRUE(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNothing", &function, 13000, 0));
  CHECK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  TRUE(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
  CHECK(cuGetErrorString(CUDA_SUCCESS, &text));
  TRUE(strcmp(text, "no error") == 0);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
}

static void forked(void) {
  pid_t child = fork();
  if (child == 0) {
    int count;
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
    EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    _exit(0);
  }
  int status = 1;
  TRUE(waitpid(child, &status, 0) == child && status == 0);
  CHECK(cuCtxSynchronize()); /* nothing has happened to the parent */
}

int main(void) {
  before_init();
  CHECK(cuInit(0));
  CHECK(cuInit(0));
  without_context();
  context_stack();
  wrong_handles();
  threads();
  by_name();
  forked();
  puts("ok");
  return 0;
}
