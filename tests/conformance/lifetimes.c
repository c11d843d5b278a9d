/*
 * lifetimes: whose memory it is and when it goes: ends of contexts, other contexts, threads and forked processes.
 */
#include "row.h"
#include <pthread.h>
#include <signal.h>

#define BYTES (16 * MIB)

static CUcontext own, watching;
static CUdeviceptr block;

/* A context of our own with something in it, and another one to look from. */
static size_t two_contexts(void) {
  begin();
  NEED(cuCtxGetCurrent(&watching));
  NEED(cuCtxCreate_v2(&own, 0, 0));
  return free_bytes();
}

static void destroy_own(size_t before) {
  NEED(cuCtxSynchronize());
  NEED(cuCtxSetCurrent(watching));
  fact("held", free_bytes() + BYTES <= before);
  CODE("destroy", cuCtxDestroy_v2(own));
  fact("freed", free_bytes() >= before);
}

static void context_with_memory(void) {
  size_t before = two_contexts();
  NEED(cuMemAlloc_v2(&block, BYTES));
  destroy_own(before);
}

static void context_with_array(void) {
  CUDA_ARRAY_DESCRIPTOR wanted = {2048, 2048, CU_AD_FORMAT_FLOAT, 1};
  CUarray array;
  size_t before = two_contexts();
  NEED(cuArrayCreate_v2(&array, &wanted));
  destroy_own(before);
}

static void context_with_pitch(void) {
  size_t pitch;
  size_t before = two_contexts();
  NEED(cuMemAllocPitch_v2(&block, &pitch, 4096, 4096, 4));
  destroy_own(before);
}

/* Mapped memory belongs to no context. */
static void context_with_mapped(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemGenericAllocationHandle handle;
  size_t before = two_contexts();
  NEED(cuMemCreate(&handle, BYTES, &prop, 0));
  NEED(cuCtxSetCurrent(watching));
  NEED(cuCtxDestroy_v2(own));
  NEED(cuMemAlloc_v2(&block, GRANULE));
  NEED(cuMemFree_v2(block));
  before = free_bytes();
  CODE("release", cuMemRelease(handle));
  fact("freed", free_bytes() >= before + BYTES);
}

static void freed_from_another_context(void) {
  size_t before = two_contexts();
  NEED(cuMemAlloc_v2(&block, BYTES));
  NEED(cuCtxSetCurrent(watching));
  CODE("set", cuMemsetD8_v2(block, 1, 64));
  CODE("free", cuMemFree_v2(block));
  taken("after", before);
}

static void *alloc_without_context(void *unused) {
  CUcontext now = (CUcontext)UNTOUCHED;
  CODE("current", cuCtxGetCurrent(&now));
  fact("none", now == NULL);
  CODE("alloc", cuMemAlloc_v2(&block, BYTES));
  return unused;
}

static void *free_in_thread(void *unused) {
  NEED(cuCtxSetCurrent(own));
  CODE("free", cuMemFree_v2(block));
  return unused;
}

static void in_thread(void *(*run)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, NULL) != 0) _exit(1);
  pthread_join(thread, NULL);
}

static void thread_without_context(void) {
  begin();
  in_thread(alloc_without_context);
}

static void freed_by_another_thread(void) {
  begin();
  NEED(cuCtxGetCurrent(&own));
  size_t before = free_bytes();
  NEED(cuMemAlloc_v2(&block, BYTES));
  in_thread(free_in_thread);
  taken("after", before);
}

static void *alloc_in_thread(void *unused) {
  NEED(cuCtxSetCurrent(own));
  NEED(cuMemAlloc_v2(&block, BYTES));
  return unused;
}

/* What a thread has allocated stays when it ends. */
static void outlives_its_thread(void) {
  begin();
  NEED(cuCtxGetCurrent(&own));
  size_t before = free_bytes();
  in_thread(alloc_in_thread);
  fact("held", free_bytes() + BYTES <= before);
  CODE("set", cuMemsetD8_v2(block, 1, BYTES));
  CODE("free", cuMemFree_v2(block));
  taken("after", before);
}

/* A forked process may not use the driver that its parent has initialised; its end takes nothing from the parent. */
static void forked_after_init(void) {
  begin();
  NEED(cuMemAlloc_v2(&block, BYTES));
  size_t before = free_bytes();
  pid_t child = fork();
  if (child == 0) {
    CUdeviceptr more;
    _exit((cuInit(0) != CUDA_SUCCESS) + 2 * (cuMemAlloc_v2(&more, BYTES) != CUDA_SUCCESS));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) _exit(1);
  fact("refused", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  taken("after", before);
  CODE("still_works", cuMemsetD8_v2(block, 1, BYTES));
  CODE("free", cuMemFree_v2(block));
}

/* A process that is killed gives all back, and one that ends with _exit too: each row of this suite ends so. */
static void given_back_at_the_end(void) {
  int ready[2];
  char byte;
  if (pipe(ready) != 0) _exit(1);
  pid_t child = fork();
  if (child == 0) {
    begin();
    NEED(cuMemAlloc_v2(&block, BYTES));
    NEED(cuMemsetD8_v2(block, 1, BYTES));
    NEED(cuCtxSynchronize());
    if (write(ready[1], "g", 1) != 1) _exit(1);
    pause();
  }
  close(ready[1]);
  if (child < 0 || read(ready[0], &byte, 1) != 1) _exit(1);
  settled = 1; /* the child has */
  begin();
  size_t before = steady_free_bytes();
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  fact("freed", comes_back(before + BYTES));
}

static void stream_ends_with_its_context(void) {
  CUstream stream;
  two_contexts();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc_v2(&block, 64));
  NEED(cuMemsetD8Async(block, 1, 64, stream));
  CODE("destroy", cuCtxDestroy_v2(own));
  CODE("still_works", cuCtxSynchronize());
}

ROWS(ROW(context_with_memory), ROW(context_with_array), ROW(context_with_pitch), ROW(context_with_mapped),
     ROW(freed_from_another_context), ROW(thread_without_context), ROW(freed_by_another_thread),
     ROW(outlives_its_thread), ROW(forked_after_init), ROW(given_back_at_the_end), ROW(stream_ends_with_its_context))
