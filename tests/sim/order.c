/*
 * order: time and order on the simulated device. What a call must not do before something else is checked by simulated
 * times and by what has happened, never by how fast this machine is.
 */
#include "program.h"
#include <pthread.h>

static float between(CUevent first, CUevent last) {
  float milliseconds;
  CHECK(cuEventElapsedTime_v2(&milliseconds, first, last));
  return milliseconds;
}

static CUevent event(void) {
  CUevent made;
  CHECK(cuEventCreate(&made, CU_EVENT_DEFAULT));
  return made;
}

static CUstream stream(void) {
  CUstream made;
  CHECK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

static void near(float got, float wanted) {
  if (got < wanted * 0.999f || got > wanted * 1.001f + 0.001f) {
    fprintf(stderr, "%g ms, expected %g ms\n", (double)got, (double)wanted);
    exit(1);
  }
}

static CUdeviceptr word(void) {
  void *host;
  CHECK(cuMemHostAlloc(&host, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(host, 0, 8);
  return (CUdeviceptr)host;
}

/* What a stream is given from now on waits until start(): a machine that keeps this program from its processor between
 * two launches leaves no gap between them on the device. */
static CUdeviceptr hold(CUstream held) {
  CUdeviceptr flag = word();
  CHECK(cuStreamWaitValue32_v2(held, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  return flag;
}

static void start(CUdeviceptr flag) {
  __atomic_store_n((unsigned *)flag, 1, __ATOMIC_SEQ_CST);
}

static void elapsed(void) {
  CUevent first = event(), last = event(), untimed;
  CUfunction function = spin(1000);
  float milliseconds;
  CUdeviceptr held = hold(NULL);
  launch(function, NULL); /* so that the next one starts where the first record is done */
  CHECK(cuEventRecord(first, NULL));
  for (int i = 0; i < 20; i++) launch(function, NULL);
  CHECK(cuEventRecord(last, NULL));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(last));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime_v2(&milliseconds, first, last));
  unsigned long long begin_ns = now_ns();
  start(held);
  CHECK(cuEventSynchronize(last));
  TRUE(now_ns() - begin_ns > 19000000); /* it did wait for 20 ms of work */
  CHECK(cuEventQuery(last));
  CHECK(cuStreamQuery(NULL));
  near(between(first, last), 20);
  CHECK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventRecord(untimed, NULL));
  CHECK(cuEventSynchronize(untimed));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&milliseconds, first, untimed));
  CHECK(cuEventQuery(event())); /* never recorded: done */
  CHECK(cuEventDestroy_v2(untimed));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(untimed));
}

/* Two streams of one context: kernels one after the other; the second waits for the first's event. */
static void across_streams(void) {
  CUstream one = stream(), two = stream();
  CUevent zero = event(), first = event(), last = event(), all = event();
  CUfunction function = spin(1000);
  CUcontext context;
  CHECK(cuCtxGetCurrent(&context));
  CUdeviceptr held = hold(one);
  launch(function, one);
  CHECK(cuEventRecord(zero, one));
  launch(function, one);
  launch(function, one);
  CHECK(cuEventRecord(first, one));
  CHECK(cuStreamWaitEvent(two, first, 0));
  launch(function, two);
  CHECK(cuEventRecord(last, two));
  CHECK(cuCtxRecordEvent(context, all));
  start(held);
  CHECK(cuEventSynchronize(all));
  CHECK(cuEventQuery(last));
  near(between(zero, first), 2);
  near(between(zero, last), 3);
  TRUE(between(last, all) >= 0);
  CHECK(cuStreamDestroy_v2(one));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(one));
  CHECK(cuStreamDestroy_v2(two));
}

/* What a stream was given before it was destroyed is still done, and the context waits for it. */
static void destroyed_with_work(void) {
  CUevent last = event();
  for (int i = 0; i < 3; i++) {
    CUstream made = stream();
    CUdeviceptr held = hold(made);
    launch(spin(10000), made);
    CHECK(cuEventRecord(last, made));
    CHECK(cuStreamDestroy_v2(made));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(last));
    start(held);
    CHECK(cuCtxSynchronize());
    CHECK(cuEventQuery(last));
  }
}

/* Copies run beside kernels: a copy engine is not the SMs. Both begin at the same time, and neither delays the other.
 */
static void copies_overlap(void) {
  CUstream kernels = stream(), copies = stream();
  CUevent begin_event = event(), kernel_event = event(), copy_event = event();
  CUfunction function = spin(10000);
  size_t bytes = 4 << 20; /* .08 ms at 50 GB/s */
  void *host;
  CUdeviceptr device;
  CHECK(cuMemHostAlloc(&host, bytes, 0)); /* pinned: its copy returns at once */
  memset(host, 0, bytes);
  CHECK(cuMemAlloc_v2(&device, bytes));
  CUdeviceptr held = hold(kernels);
  CHECK(cuEventRecord(begin_event, kernels));
  launch(function, kernels);
  launch(function, kernels);
  CHECK(cuEventRecord(kernel_event, kernels));
  CHECK(cuStreamWaitEvent(copies, begin_event, 0));
  CHECK(cuMemcpyHtoDAsync_v2(device, host, bytes, copies));
  CHECK(cuEventRecord(copy_event, copies));
  start(held);
  CHECK(cuCtxSynchronize());
  near(between(begin_event, kernel_event), 20);
  TRUE(between(copy_event, kernel_event) > 0);
  CHECK(cuMemFree_v2(device));
  CHECK(cuMemFreeHost(host));
}

/* The legacy default stream waits for blocking streams, and they for it. */
static void legacy_order(void) {
  CUstream blocking, free_stream = stream();
  CUevent before = event(), middle = event(), after = event(), apart = event();
  CUfunction function = spin(10000), quick = spin(10);
  CHECK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CUdeviceptr held = hold(blocking);
  launch(function, blocking);
  CHECK(cuEventRecord(before, blocking));
  launch(quick, NULL);
  CHECK(cuEventRecord(middle, NULL));
  launch(quick, blocking);
  CHECK(cuEventRecord(after, blocking));
  CHECK(cuEventRecord(apart, free_stream)); /* non-blocking: at once */
  start(held);
  CHECK(cuStreamSynchronize(NULL));
  CHECK(cuStreamSynchronize(blocking));
  near(between(before, middle), 0.010f);
  near(between(middle, after), 0.010f);
  TRUE(between(apart, before) > 0);
  CHECK(cuStreamDestroy_v2(blocking));
}

static int called;

static void host_function(void *argument) {
  usleep(20000);
  __atomic_store_n(&called, *(int *)argument, __ATOMIC_SEQ_CST);
}

static void callbacks(void) {
  CUstream made = stream();
  CUevent before = event(), after = event();
  int value = 42;
  CUdeviceptr held = hold(made);
  launch(spin(10000), made);
  CHECK(cuEventRecord(before, made));
  CHECK(cuLaunchHostFunc(made, host_function, &value));
  CHECK(cuEventRecord(after, made));
  TRUE(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == 0); /* nor is what is before it */
  start(held);
  CHECK(cuStreamSynchronize(made));
  TRUE(__atomic_load_n(&called, __ATOMIC_SEQ_CST) == 42);
  TRUE(between(before, after) >= 20);
}

/* By name in the issue: a wait on one stream, 41 launches behind it, the write on another stream from this thread. */
static void wait_and_write(void) {
  CUstream waits = stream(), writes = stream();
  CUdeviceptr flag = word();
  CUfunction function = spin(10);
  CHECK(cuStreamWaitValue32_v2(waits, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  for (int i = 0; i < 41; i++) launch(function, waits);
  usleep(20000);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(waits)); /* really blocked */
  CHECK(cuStreamWriteValue32_v2(writes, flag, 1, 0));
  CHECK(cuStreamSynchronize(waits));
  TRUE(*(unsigned *)flag == 1);
  CHECK(cuStreamSynchronize(writes));
}

/* The host writes the word; and a write that comes after a kernel comes when the kernel is done. */
static void values_by_others(void) {
  CUstream waits = stream(), writes = stream();
  CUdeviceptr flag = word();
  CUevent kernel = event(), woken = event();
  CHECK(cuStreamWaitValue32_v2(waits, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
  usleep(5000);
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(waits));
  __atomic_store_n((unsigned *)flag, 6, __ATOMIC_SEQ_CST);
  CHECK(cuStreamSynchronize(waits));
  launch(spin(10000), writes);
  CHECK(cuEventRecord(kernel, writes));
  CHECK(cuStreamWriteValue64_v2(writes, flag, 1ull << 40, 0));
  CHECK(cuStreamWaitValue64_v2(waits, flag, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
  CHECK(cuEventRecord(woken, waits));
  CHECK(cuStreamSynchronize(waits));
  TRUE(between(kernel, woken) >= 0);
}

static void *launch_all(void *argument) {
  CUcontext context = ((void **)argument)[0];
  CUstream made = ((void **)argument)[1];
  int *launched = ((void **)argument)[3];
  CHECK(cuCtxSetCurrent(context));
  for (int i = 0; i < 1030; i++) {
    launch(((void **)argument)[2], made);
    __atomic_store_n(launched, i + 1, __ATOMIC_SEQ_CST);
  }
  return NULL;
}

/* 1024 launches are taken while nothing can complete; the next one blocks until something does. */
static void queue_depth(void) {
  CUstream made = stream();
  CUdeviceptr flag = word();
  CUcontext context;
  int launched = 0;
  pthread_t thread;
  CHECK(cuCtxGetCurrent(&context));
  CHECK(cuStreamWaitValue32_v2(made, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  void *argument[] = {context, made, spin(10), &launched};
  pthread_create(&thread, NULL, launch_all, argument);
  for (int i = 0; i < 1000 && __atomic_load_n(&launched, __ATOMIC_SEQ_CST) < 1024; i++) usleep(10000);
  usleep(50000);
  TRUE(__atomic_load_n(&launched, __ATOMIC_SEQ_CST) == 1024);
  __atomic_store_n((unsigned *)flag, 1, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  TRUE(launched == 1030);
  CHECK(cuStreamSynchronize(made));
}

static void many_streams_and_events(void) {
  CUfunction function = spin(10);
  for (int i = 0; i < 6000; i++) { /* more than there are places for at a time */
    CUstream made = stream();
    CUevent done = event();
    launch(function, made);
    CHECK(cuEventRecord(done, made));
    if (i % 500 == 0) CHECK(cuEventSynchronize(done));
    CHECK(cuStreamDestroy_v2(made));
    CHECK(cuEventDestroy_v2(done));
  }
  CHECK(cuCtxSynchronize());
}

int main(void) {
  CUcontext context = begin();
  elapsed();
  across_streams();
  destroyed_with_work();
  copies_overlap();
  legacy_order();
  callbacks();
  wait_and_write();
  values_by_others();
  queue_depth();
  many_streams_and_events();
  CHECK(cuCtxDestroy_v2(context));
  puts("ok");
  return 0;
}
