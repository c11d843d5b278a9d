/*
 * dependent_streams.c - threads or processes whose streams wait for each other, round after round (measured.h says what
 * is printed):
 *
 *   dependent_streams --case NAME [--rounds N] [--us N] [--threads N] [--processes 1|2] [--devices 1|2]
 *                     --folder DIR [--limit SECONDS] [--stay MS]
 *
 * plain                kernels of one stream, for comparison
 * values               a ring of threads: each waits for its predecessor's value, computes, writes its own
 * values_by_one        the same, all called by one thread
 * events               the same with events
 * functions            the same, and a host function writes the value, after a millisecond
 * batches              the same with cuStreamBatchMemOp
 * graphs               the same; wait, kernel and write are one graph
 * producer             a copy to the device by one thread, a kernel and a copy back by the other, four buffers; a host
 *                      function hands each one back
 * stages               copy, kernel, copy in three streams of one thread, coupled by events
 * after_value, after_value_and_kernel, after_function, after_kernel_and_function
 *                      a stream waits for half a second; meanwhile nothing else runs; then kernels of another stream
 * behind_function, behind_copy, behind_event, behind_sleep
 *                      a fifth of the device or less: two kernels behind 20 ms of something that computes nothing
 * short_loop, short_stream, short_event, short_copy
 *                      kernels that are shorter than the time between their launches; after 30 of them the program
 * waits for nothing, its stream, an event, or a copy of a word
 *
 * Threads take devices in turn. With two processes, which have one thread each, only words are between them.
 */
#define _GNU_SOURCE
#include "measured.h"

enum { THREADS_MAX = 4, BUFFERS = 4, MIB = 1 << 20, ROUNDS_MAX = 1000, HALF_SECOND_US = 500000 };
enum { SHORT_LAUNCHES = 30, SHORT_PAUSE_NS = 15000 };

static struct {
  int rounds, us, threads;
  CUstream streams[THREADS_MAX];
  CUevent events[ROUNDS_MAX][THREADS_MAX];
  uint32_t recorded[ROUNDS_MAX][THREADS_MAX];
  CUdeviceptr buffers[THREADS_MAX];
  char *host;
  int now[THREADS_MAX]; /* the round that each thread is in */
} own;

static int device_of(int thread) {
  return thread % measured.devices;
}

/* What a thread writes in a round; words are written once. */
static int word_of(int round, int thread) {
  return round * own.threads + thread;
}

/* The step before it in the ring, as a word; -1: it is the first. */
static int word_before(int round, int thread) {
  return word_of(round, thread) - 1;
}

static void wait_value(CUstream stream, int word) {
  if (word >= 0) CHECK(cuStreamWaitValue64_v2(stream, address_of_word(word), 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void write_value(CUstream stream, int word) {
  CHECK(cuStreamWriteValue64_v2(stream, address_of_word(word), 1, 0));
}

static void sleep_and_write(void *argument) {
  sleep_us(1000);
  write_word((int)(intptr_t)argument);
}

static void write_argument(void *argument) {
  write_word((int)(intptr_t)argument);
}

static void sleep_argument(void *argument) {
  sleep_us((uint64_t)(intptr_t)argument);
}

static void compute(int thread, CUstream stream) {
  launch_spin(device_of(thread), own.us, stream);
}

/* ---- rings ---- */

static void step_plain(int round, int thread) {
  (void)round;
  compute(thread, own.streams[thread]);
}

static void step_values(int round, int thread) {
  wait_value(own.streams[thread], word_before(round, thread));
  compute(thread, own.streams[thread]);
  write_value(own.streams[thread], word_of(round, thread));
}

static void step_events(int round, int thread) {
  int before = word_before(round, thread), its_round = before / own.threads, its_thread = before % own.threads;
  if (before >= 0) {
    while (!__atomic_load_n(&own.recorded[its_round][its_thread], __ATOMIC_ACQUIRE)) sleep_us(POLL_US);
    CHECK(cuStreamWaitEvent(own.streams[thread], own.events[its_round][its_thread], 0));
  }
  compute(thread, own.streams[thread]);
  CHECK(cuEventRecord(own.events[round][thread], own.streams[thread]));
  __atomic_store_n(&own.recorded[round][thread], 1, __ATOMIC_RELEASE);
}

static void step_functions(int round, int thread) {
  wait_value(own.streams[thread], word_before(round, thread));
  compute(thread, own.streams[thread]);
  CHECK(cuLaunchHostFunc(own.streams[thread], sleep_and_write, (void *)(intptr_t)word_of(round, thread)));
}

static CUstreamBatchMemOpParams operation_on(int word, bool is_wait) {
  CUstreamBatchMemOpParams made = {0};
  made.operation = is_wait ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
  made.waitValue.address = address_of_word(word);
  made.waitValue.value64 = 1;
  return made; /* a wait for at least the value; a write */
}

static void step_batches(int round, int thread) {
  int before = word_before(round, thread);
  CUstreamBatchMemOpParams wait, write = operation_on(word_of(round, thread), false);
  if (before >= 0) wait = operation_on(before, true);
  if (before >= 0) CHECK(cuStreamBatchMemOp_v2(own.streams[thread], 1, &wait, 0));
  compute(thread, own.streams[thread]);
  CHECK(cuStreamBatchMemOp_v2(own.streams[thread], 1, &write, 0));
}

/* Graphs are made on the way, as programs with changing shapes do. */
static void step_graphs(int round, int thread) {
  CUgraph graph;
  CUgraphExec made;
  CUgraphNode nodes[3];
  size_t count = 0;
  CUcontext context = measured.contexts[device_of(thread)];
  CUstreamBatchMemOpParams wait, write = operation_on(word_of(round, thread), false);
  CUDA_BATCH_MEM_OP_NODE_PARAMS waits = {context, 1, &wait, 0}, writes = {context, 1, &write, 0};
  CUDA_KERNEL_NODE_PARAMS kernel = {.func = spin_of(device_of(thread), own.us),
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1};
  CHECK(cuGraphCreate(&graph, 0));
  if (word_before(round, thread) >= 0) {
    wait = operation_on(word_before(round, thread), true);
    CHECK(cuGraphAddBatchMemOpNode(&nodes[count++], graph, NULL, 0, &waits));
  }
  CHECK(cuGraphAddKernelNode_v2(&nodes[count], graph, nodes, count, &kernel));
  CHECK(cuGraphAddBatchMemOpNode(&nodes[count + 1], graph, &nodes[count], 1, &writes));
  CHECK(cuGraphInstantiateWithFlags(&made, graph, 0));
  CHECK(cuGraphLaunch(made, own.streams[thread]));
  count_kernels(device_of(thread), 1, (uint64_t)own.us * 1000);
  CHECK(cuGraphDestroy(graph)); /* what was launched stays until the end */
}

/* ---- pipelines ---- */

/* Thread 0 copies to the device, thread 1 computes and copies back: words of thread 0 say that a buffer is full, words
 * of thread 1 that it is free again. */
static void step_producer(int round, int thread) {
  CUstream stream = own.streams[thread];
  size_t bytes = 4 * MIB;
  CUdeviceptr buffer = own.buffers[0] + (size_t)(round % BUFFERS) * bytes;
  if (thread == 0) {
    if (round >= BUFFERS) wait_value(stream, word_of(round - BUFFERS, 1));
    CHECK(cuMemcpyHtoDAsync_v2(buffer, own.host, bytes, stream));
    write_value(stream, word_of(round, 0));
  } else {
    wait_value(stream, word_of(round, 0));
    compute(thread, stream);
    CHECK(cuMemcpyDtoHAsync_v2(own.host + bytes, buffer, bytes, stream));
    CHECK(cuLaunchHostFunc(stream, write_argument, (void *)(intptr_t)word_of(round, 1)));
  }
}

/* All streams are the one thread's: its "threads" are the stages. */
static void step_stages(int round, int stage) {
  CUstream stream = own.streams[stage];
  size_t bytes = 4 * MIB;
  if (stage > 0) CHECK(cuStreamWaitEvent(stream, own.events[round][stage - 1], 0));
  if (stage == 0 && round > 0) CHECK(cuStreamWaitEvent(stream, own.events[round - 1][2], 0));
  if (stage == 0) CHECK(cuMemcpyHtoDAsync_v2(own.buffers[0], own.host, bytes, stream));
  if (stage == 1) compute(stage, stream);
  if (stage == 2) CHECK(cuMemcpyDtoHAsync_v2(own.host + bytes, own.buffers[0], bytes, stream));
  CHECK(cuEventRecord(own.events[round][stage], stream));
}

/* ---- waiting, then work ---- */

static void run_after(const char *name) {
  CUstream waiting = own.streams[1];
  void *half_second = (void *)(intptr_t)HALF_SECOND_US;
  bool by_value = !strncmp(name, "after_value", 11);
  if (!strcmp(name, "after_kernel_and_function")) compute(0, waiting);
  if (by_value)
    wait_value(waiting, 0);
  else
    CHECK(cuLaunchHostFunc(waiting, sleep_argument, half_second));
  if (strcmp(name, "after_value")) compute(0, waiting);
  sleep_us(HALF_SECOND_US);
  write_word(0);
  for (int i = 0; i < own.rounds; i++) {
    own.now[0] = i;
    compute(0, own.streams[0]);
    CHECK(cuStreamSynchronize(own.streams[0]));
  }
}

/* On this device a copy takes as long as this machine needs for it: about 20 ms. */
static void step_behind(const char *what, int round) {
  CUstream stream = own.streams[0], other = own.streams[1];
  void *while_us = (void *)(intptr_t)20000;
  if (!strcmp(what, "function")) CHECK(cuLaunchHostFunc(stream, sleep_argument, while_us));
  if (!strcmp(what, "copy")) CHECK(cuMemcpyHtoDAsync_v2(own.buffers[0], own.host, 128 * (size_t)MIB, stream));
  if (!strcmp(what, "event")) {
    CHECK(cuLaunchHostFunc(other, sleep_argument, while_us));
    CHECK(cuEventRecord(own.events[round][1], other));
    CHECK(cuStreamWaitEvent(stream, own.events[round][1], 0));
  }
  if (!strcmp(what, "sleep")) sleep_us(20000);
  for (int i = 0; i < 2; i++) compute(0, stream);
  CHECK(cuStreamSynchronize(stream));
}

/* ---- kernels shorter than their launches ---- */

static void step_short(const char *what, int round) {
  CUstream stream = own.streams[0];
  CUevent event = own.events[round][0];
  for (int i = 0; i < SHORT_LAUNCHES; i++) {
    uint64_t until_ns = now_ns() + SHORT_PAUSE_NS;
    compute(0, stream);
    while (now_ns() < until_ns) {
    }
  }
  if (!strcmp(what, "copy")) CHECK(cuMemcpyDtoHAsync_v2(own.host, own.buffers[0], sizeof(int), stream));
  if (!strcmp(what, "event")) {
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
  } else if (strcmp(what, "loop")) {
    CHECK(cuStreamSynchronize(stream));
  }
}

/* ---- running ---- */

typedef void step_function(int round, int thread);

static const struct kind {
  const char *name;
  step_function *step;
  bool by_one; /* thread calls for all */
} kinds[] = {{"plain", step_plain, false},   {"values", step_values, false},       {"values_by_one", step_values, true},
             {"events", step_events, false}, {"functions", step_functions, false}, {"batches", step_batches, false},
             {"graphs", step_graphs, false}, {"producer", step_producer, false},   {"stages", step_stages, true}};

static const struct kind *kind;

static void enter(int thread) {
  CHECK(cuCtxSetCurrent(measured.contexts[device_of(thread)]));
}

static void *run_thread(void *argument) {
  int thread = (int)(intptr_t)argument;
  enter(thread);
  for (int round = 0; round < own.rounds; round++) {
    __atomic_store_n(&own.now[thread], round, __ATOMIC_RELAXED);
    kind->step(round, thread);
  }
  return NULL;
}

static void run_by_one(void) {
  for (int round = 0; round < own.rounds; round++)
    for (int thread = 0; thread < own.threads; thread++) {
      __atomic_store_n(&own.now[thread], round, __ATOMIC_RELAXED);
      enter(thread);
      kind->step(round, thread);
    }
}

static void run_threads(void) {
  pthread_t threads[THREADS_MAX];
  if (measured.processes == 2) {
    run_thread((void *)(intptr_t)measured.process);
    return;
  }
  for (int i = 0; i < own.threads; i++) pthread_create(&threads[i], NULL, run_thread, (void *)(intptr_t)i);
  for (int i = 0; i < own.threads; i++) pthread_join(threads[i], NULL);
}

static void describe(FILE *file) {
  for (int i = 0; i < own.threads; i++)
    fprintf(file, "  thread %d calls in round %d of %d\n", i, __atomic_load_n(&own.now[i], __ATOMIC_RELAXED),
            own.rounds);
}

static void make_all(bool large) {
  size_t bytes = (large ? 128 : 16) * (size_t)MIB;
  for (int thread = 0; thread < THREADS_MAX; thread++) {
    enter(thread);
    CHECK(cuStreamCreate(&own.streams[thread], CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&own.buffers[thread], bytes));
    for (int round = 0; round < own.rounds; round++)
      CHECK(cuEventCreate(&own.events[round][thread], CU_EVENT_DISABLE_TIMING));
  }
  CHECK(cuMemHostAlloc((void **)&own.host, bytes, CU_MEMHOSTALLOC_PORTABLE));
  enter(0);
}

int main(int argc, char **argv) {
  const char *name = word_after(argc, argv, "--case");
  own.rounds = (int)number_after(argc, argv, "--rounds", 50);
  own.us = (int)number_after(argc, argv, "--us", 1000);
  own.threads = (int)number_after(argc, argv, "--threads", 2);
  bool after = !strncmp(name, "after_", 6), behind = !strncmp(name, "behind_", 7), brief = !strncmp(name, "short_", 6);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(name, kinds[i].name)) kind = &kinds[i];
  if ((!kind && !after && !behind && !brief) || own.rounds < 1 || own.rounds > ROUNDS_MAX || own.threads < 1 ||
      own.threads > THREADS_MAX) {
    fprintf(stderr, "dependent_streams: no case %s, or not 1..%d rounds of 1..%d threads\n", name, ROUNDS_MAX,
            THREADS_MAX);
    return 2;
  }
  begin_processes(argc, argv, (int)number_after(argc, argv, "--processes", 1), describe);
  open_devices((int)number_after(argc, argv, "--devices", 1), &own.us, 1);
  make_all(!strcmp(name, "behind_copy"));
  wait_for_start();
  if (after) run_after(name);
  for (int round = 0; behind && round < own.rounds; round++) step_behind(name + 7, round);
  for (int round = 0; brief && round < own.rounds; round++) step_short(name + 6, round);
  if (kind && kind->by_one) run_by_one();
  if (kind && !kind->by_one) run_threads();
  return end_work();
}
