/* errors.c - wrong arguments, each thread's own error and device, and a forked child: errors and never a crash. */
#include "stub.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANY ((void *)0x1234)

static void check_launches(void) {
  void *arguments[] = {NULL, NULL, NULL, NULL};
  char unknown[1];
  EXPECT(cudaErrorInvalidDeviceFunction, launch(NULL, 1, 1, arguments, NULL));
  EXPECT(cudaErrorInvalidDeviceFunction, launch(unknown, 1, 1, arguments, NULL));
  EXPECT(cudaErrorInvalidDeviceFunction, launch(counter, 1, 1, arguments, NULL));
  EXPECT(cudaErrorInvalidDeviceFunction, launch(lost_kernel, 1, 1, arguments, NULL));
  EXPECT(cudaErrorInvalidConfiguration, launch(train, 0, 1, arguments, NULL));
  EXPECT(cudaErrorInvalidConfiguration, launch(train, 1, 2048, arguments, NULL));
  EXPECT(cudaErrorInvalidValue, launch(train, 1, 1, NULL, NULL));
  EXPECT(cudaErrorInvalidResourceHandle, launch(train, 1, 1, arguments, (CUstream)ANY));
  dim3 shape;
  size_t shared;
  CUstream stream;
  EXPECT(cudaErrorMissingConfiguration, __cudaPopCallConfiguration(&shape, &shape, &shared, &stream));
}

static void check_arguments(void) {
  size_t bytes;
  void *pointer;
  int value, status;
  EXPECT(cudaErrorInvalidValue, cudaMalloc(NULL, 4));
  EXPECT(cudaErrorMemoryAllocation, cudaMalloc(&pointer, SIZE_MAX / 2));
  EXPECT(cudaErrorInvalidValue, cudaFree(ANY));
  EXPECT(cudaErrorInvalidValue, cudaMemcpy(ANY, &value, 4, cudaMemcpyHostToDevice));
  EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(&value, &value, 4, (enum cudaMemcpyKind)7));
  EXPECT(cudaErrorInvalidValue, cudaMemset(ANY, 0, 4));
  EXPECT(cudaErrorInvalidSymbol, cudaGetSymbolSize(&bytes, NULL));
  EXPECT(cudaErrorInvalidSymbol, cudaGetSymbolSize(&bytes, train));
  EXPECT(cudaErrorInvalidValue, cudaGetSymbolAddress(NULL, counter));
  EXPECT(cudaErrorInvalidValue, cudaMemcpyToSymbol(counter, &value, 4, 1, cudaMemcpyHostToDevice));
  EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpyToSymbol(counter, &value, 4, 0, cudaMemcpyDeviceToHost));
  EXPECT(cudaErrorInvalidDevice, cudaSetDevice(-1));
  EXPECT(cudaErrorInvalidDevice, cudaSetDevice(1000));
  EXPECT(cudaErrorInvalidValue, cudaGetDevice(NULL));
  EXPECT(cudaErrorInvalidValue, cudaGetDeviceCount(NULL));
  EXPECT(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, 12345, 0));
  EXPECT(cudaErrorInvalidValue, cudaFuncGetAttributes(NULL, train));
  EXPECT(cudaErrorInvalidValue, cudaFuncSetAttribute(train, 8, 1 << 30));
  EXPECT(cudaErrorInvalidValue, cudaPointerGetAttributes(NULL, &value));
  EXPECT(cudaErrorInvalidResourceHandle, cudaStreamSynchronize((CUstream)ANY));
  EXPECT(cudaErrorInvalidResourceHandle, cudaEventRecord(NULL, NULL));
  EXPECT(cudaErrorInvalidValue, cudaGraphLaunch(NULL, NULL));
  EXPECT(cudaErrorInvalidValue, __cudaGetKernel(NULL, train));
  EXPECT(cudaErrorSymbolNotFound, cudaGetDriverEntryPointByVersion("cuNothing", &pointer, 13000, 0, NULL));
  CHECK(cudaGetDriverEntryPointByVersion("cuNothing", &pointer, 13000, 0, &status));
  TRUE(pointer == NULL && status == 1);
  CHECK(cudaGetDriverEntryPointByVersion("cuInit", &pointer, 13000, 0, &status));
  TRUE(pointer != NULL && status == 0);
  __cudaUnregisterFatBinary(NULL);
  __cudaRegisterFunction(NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(NULL, NULL, NULL, NULL, 0, 0, 0, 0);
  TRUE(!__cudaInitModule(NULL));
}

static void *run_thread(void *unused) {
  CHECK(cudaGetLastError());
  EXPECT(cudaErrorInvalidValue, cudaFree(ANY));
  EXPECT(cudaErrorInvalidValue, cudaPeekAtLastError());
  return unused;
}

static void check_last_error(void) {
  pthread_t thread;
  EXPECT(cudaErrorInvalidDevice, cudaSetDevice(-1));
  TRUE(pthread_create(&thread, NULL, run_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
  EXPECT(cudaErrorInvalidDevice, cudaPeekAtLastError());
  EXPECT(cudaErrorInvalidDevice, cudaGetLastError());
  CHECK(cudaGetLastError());
  TRUE(strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation") == 0);
  TRUE(strcmp(cudaGetErrorString(2), "out of memory") == 0);
  TRUE(cudaGetErrorName(12345) != NULL && cudaGetErrorString(-1) != NULL);
}

/* A stub's library may be unloaded: what it registered is gone. */
static void check_unregistering(void) {
  static char other[1];
  void *arguments[] = {NULL};
  void **handle = __cudaRegisterFatBinary(&stub_wrapper);
  __cudaRegisterFunction(handle, other, other, "train", -1, NULL, NULL, NULL, NULL, NULL);
  void *array = NULL;
  arguments[0] = &array;
  CHECK(launch(other, 1, 1, arguments, NULL));
  __cudaUnregisterFatBinary(handle);
  EXPECT(cudaErrorInvalidDeviceFunction, launch(other, 1, 1, arguments, NULL));
  struct sc_fatbin_wrapper wrong = {1, 2, NULL, NULL};
  handle = __cudaRegisterFatBinary(&wrong);
  __cudaRegisterFunction(handle, other, other, "train", -1, NULL, NULL, NULL, NULL, NULL);
  EXPECT(cudaErrorInvalidKernelImage, launch(other, 1, 1, arguments, NULL));
  __cudaUnregisterFatBinary(handle);
}

static void check_fork(void) {
  int status;
  CHECK(cudaFree(NULL));
  pid_t child = fork();
  if (child == 0) {
    void *pointer;
    _exit(cudaMalloc(&pointer, 4) == cudaErrorInitializationError ? 0 : 1);
  }
  TRUE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  check_launches();
  check_arguments();
  check_last_error();
  check_unregistering();
  check_fork();
  puts("ok");
  return 0;
}
