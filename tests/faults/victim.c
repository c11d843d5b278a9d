/*
 * victim [SECONDS] - allocates, frees, launches and synchronises in two threads until the time is over: what is to be
 * killed at each of its stores. `victim fill BYTES` allocates so much in one piece and says "full" or the error.
 */
#include "program.h"
#include <pthread.h>

static CUcontext context;
static uint64_t end_ns;

static void work(CUfunction function, CUstream stream) {
  CUdeviceptr small, large, async;
  CHECK(cuMemAlloc_v2(&small, 1 << 20));
  CHECK(cuMemAlloc_v2(&large, 96ull << 20)); /* more than is granted ahead: the daemon is asked */
  CHECK(cuMemAllocAsync(&async, 4 << 20, stream));
  for (int i = 0; i < 40; i++) launch(function, stream);
  CHECK(cuMemFreeAsync(async, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemsetD8_v2(small, 1, 1 << 20));
  CHECK(cuMemFree_v2(large));
  CHECK(cuMemFree_v2(small));
}

static void *second_thread(void *argument) {
  CUfunction *function = argument;
  CUstream stream;
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  while (now_ns() < end_ns) work(*function, stream);
  CHECK(cuStreamDestroy_v2(stream));
  return NULL;
}

int main(int argc, char **argv) {
  begin();
  if (argc > 2) {
    CUdeviceptr all;
    CUresult result = cuMemAlloc_v2(&all, strtoull(argv[2], NULL, 0));
    printf("%s %d\n", result ? "error" : "full", (int)result);
    return 0;
  }
  end_ns = now_ns() + (uint64_t)(atof(argc > 1 ? argv[1] : "1") * 1e9);
  CUfunction function = spin(200);
  CHECK(cuCtxGetCurrent(&context));
  pthread_t thread;
  pthread_create(&thread, NULL, second_thread, &function);
  while (now_ns() < end_ns) work(function, NULL);
  pthread_join(thread, NULL);
  puts("done");
  return 0;
}
