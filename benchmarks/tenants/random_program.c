/*
 * random_program.c - makes the program of a seed and runs it: processes, threads and streams that wait for each other's
 * values, events, host functions and copies. What it is: random_program.h; what it prints: measured.h.
 *
 *   random_program --seed N [--scale F] --folder DIR [--limit SECONDS] [--stay MS]
 *   random_program --seed N [--scale F] --print
 */
#define _GNU_SOURCE
#include "random_program.h"
#include "measured.h"

enum { MIB = 1 << 20, WAVE_BLOCKS = 264, WAVE_THREADS = 1024 }; /* a wave: 132 SMs x 2048 threads */

static struct program program;

/* What this process has of it. */
static struct {
  CUstream streams[LANES_MAX];
  CUdeviceptr buffers[LANES_MAX];
  CUevent events[EVENTS_MAX];
  uint32_t recorded[EVENTS_MAX]; /* the call has been made */
  CUexternalSemaphore semaphores[SEMAPHORES_MAX];
  CUgraphExec graphs[GRAPHS_MAX];
  CUdeviceptr device_words[DEVICES_MAX];
  CUfunction waves[DEVICES_MAX];
  char *host;
  int now[THREADS_MAX]; /* which operation a thread is in; -1: none */
} own;

/* ---- set-up ---- */

static bool is_mine(int lane) {
  return program.process_of[program.lane[lane].thread] == measured.process;
}

static void enter(int lane) {
  CHECK(cuCtxSetCurrent(measured.contexts[program.lane[lane].device]));
}

static CUdeviceptr word_address(int word) {
  const struct word *one = &program.word[word];
  return one->on_device ? own.device_words[one->device] + 8 * (CUdeviceptr)word : address_of_word(word);
}

static void make_streams(void) {
  int megabytes = 1;
  for (int i = 0; i < program.lanes; i++) {
    const struct lane *lane = &program.lane[i];
    if (!is_mine(i)) continue;
    enter(i);
    if (lane->kind == LEGACY) own.streams[i] = CU_STREAM_LEGACY;
    if (lane->kind == PER_THREAD) own.streams[i] = CU_STREAM_PER_THREAD;
    if (lane->kind <= BLOCKING)
      CHECK(cuStreamCreate(&own.streams[i], lane->kind == NON_BLOCKING ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    CHECK(cuMemAlloc_v2(&own.buffers[i], (size_t)(lane->megabytes + 1) * 2 * MIB));
    if (lane->megabytes > megabytes) megabytes = lane->megabytes;
  }
  CHECK(cuMemHostAlloc((void **)&own.host, (size_t)megabytes * MIB, CU_MEMHOSTALLOC_PORTABLE));
}

static void make_events(void) {
  for (int i = 0; i < program.events; i++) {
    if (program.event[i].process != measured.process) continue;
    enter(program.event[i].lane);
    CHECK(cuEventCreate(&own.events[i], i % 3 ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT));
  }
}

static void make_device_words(void) {
  for (int i = 0; i < measured.devices; i++) {
    static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry waves()\n{\nret;\n}\n";
    CUmodule module;
    CHECK(cuCtxSetCurrent(measured.contexts[i]));
    CHECK(cuMemAlloc_v2(&own.device_words[i], sizeof(uint64_t) * WORDS_OF_PROGRAM_MAX));
    CHECK(cuMemsetD32_v2(own.device_words[i], 0, 2 * WORDS_OF_PROGRAM_MAX));
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&own.waves[i], module, "waves"));
    CHECK(cuLaunchKernel(own.waves[i], WAVE_BLOCKS, 1, 1, WAVE_THREADS, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuCtxSynchronize());
  }
}

static void semaphore_path(char *path, size_t bytes, const char *folder, int number) {
  snprintf(path, bytes, "%s/semaphore-%d", folder, number);
}

static void make_semaphore_files(const char *folder) {
  for (int i = 0; i < program.semaphores; i++) {
    char path[4096];
    semaphore_path(path, sizeof path, folder, i);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) < 0) exit(2);
    close(fd);
  }
}

static void import_semaphores(const char *folder) {
  for (int i = 0; i < program.semaphores; i++) {
    char path[4096];
    semaphore_path(path, sizeof path, folder, i);
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD};
    desc.handle.fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(cuImportExternalSemaphore(&own.semaphores[i], &desc));
  }
}

/* ---- what host functions do ---- */

static void do_function(void *argument) {
  const struct operation *operation = argument;
  sleep_us((uint64_t)operation->amount);
  if (operation->word >= 0) write_word(operation->word);
}

static void do_callback(CUstream stream, CUresult result, void *argument) {
  (void)stream;
  (void)result;
  do_function(argument);
}

static void do_node(void *argument) {
  sleep_us((uint64_t)((const struct node *)argument)->amount);
}

/* ---- operations on values ---- */

static CUstreamBatchMemOpParams wait_for(int word, int variant) {
  CUstreamBatchMemOpParams wait = {0};
  wait.waitValue.operation = variant & WIDE ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = word_address(word);
  wait.waitValue.value64 = 1;
  wait.waitValue.flags = variant & AND     ? CU_STREAM_WAIT_VALUE_AND
                         : variant & EQUAL ? CU_STREAM_WAIT_VALUE_EQ
                                           : CU_STREAM_WAIT_VALUE_GEQ;
  return wait;
}

static CUstreamBatchMemOpParams write_of(int word, int variant) {
  CUstreamBatchMemOpParams write = {0};
  write.writeValue.operation = variant & WIDE ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = word_address(word);
  write.writeValue.value64 = 1;
  return write;
}

static void wait_in_stream(CUstream stream, int word, int variant) {
  CUstreamBatchMemOpParams wait = wait_for(word, variant);
  unsigned flags = wait.waitValue.flags;
  if (variant & WIDE)
    CHECK(cuStreamWaitValue64_v2(stream, wait.waitValue.address, 1, flags));
  else
    CHECK(cuStreamWaitValue32_v2(stream, wait.waitValue.address, 1, flags));
}

static void write_in_stream(CUstream stream, int word, int variant) {
  if (variant & WIDE)
    CHECK(cuStreamWriteValue64_v2(stream, word_address(word), 1, 0));
  else
    CHECK(cuStreamWriteValue32_v2(stream, word_address(word), 1, 0));
}

static void do_batch(CUstream stream, const struct operation *operation) {
  CUstreamBatchMemOpParams list[BATCH_WAITS_MAX + 1];
  unsigned count = 0;
  for (int i = 0; i < BATCH_WAITS_MAX; i++)
    if (operation->waits[i] >= 0) list[count++] = wait_for(operation->waits[i], operation->variant);
  list[count++] = write_of(operation->word, operation->variant);
  CHECK(cuStreamBatchMemOp_v2(stream, count, list, 0));
}

/* ---- graphs ---- */

static void add_kernel(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNode *ret_node, CUfunction f) {
  CUDA_KERNEL_NODE_PARAMS params = {
      .func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
  CHECK(cuGraphAddKernelNode_v2(ret_node, graph, after, count, &params));
}

static void add_memset(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNode *ret_node, int lane,
                       int mib) {
  CUDA_MEMSET_NODE_PARAMS params = {
      .dst = own.buffers[lane], .elementSize = 1, .width = (size_t)mib * MIB, .height = 1};
  CHECK(cuGraphAddMemsetNode(ret_node, graph, after, count, &params, measured.contexts[program.lane[lane].device]));
}

static void add_batch(CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNode *ret_node,
                      const struct graph *one, const struct node *node) {
  CUstreamBatchMemOpParams list[2];
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.ctx = measured.contexts[program.lane[one->lane].device], .paramArray = list};
  if (node->wait >= 0) list[params.count++] = wait_for(node->wait, 0);
  if (node->word >= 0) list[params.count++] = write_of(node->word, 0);
  CHECK(cuGraphAddBatchMemOpNode(ret_node, graph, after, count, &params));
}

static CUgraph build_graph(struct graph *one) {
  CUgraph graph;
  CUgraphNode nodes[NODES_MAX];
  CHECK(cuGraphCreate(&graph, 0));
  for (int i = 0; i < one->count; i++) {
    struct node *node = &one->nodes[i];
    const CUgraphNode *after = node->after >= 0 ? &nodes[node->after] : NULL;
    CUDA_HOST_NODE_PARAMS function = {do_node, node};
    size_t count = after ? 1 : 0;
    switch (node->kind) {
    case KERNEL:
      add_kernel(graph, after, count, &nodes[i], spin_of(program.lane[one->lane].device, node->amount));
      break;
    case HOST_FUNCTION:
      CHECK(cuGraphAddHostNode(&nodes[i], graph, after, count, &function));
      break;
    case BATCH:
      add_batch(graph, after, count, &nodes[i], one, node);
      break;
    case WAIT_EVENT:
      CHECK(cuGraphAddEventWaitNode(&nodes[i], graph, after, count, own.events[node->target]));
      break;
    default:
      add_memset(graph, after, count, &nodes[i], one->lane, node->amount);
    }
  }
  return graph;
}

static CUgraph capture_graph(struct graph *one) {
  CUgraph graph;
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < one->count; i++) {
    struct node *node = &one->nodes[i];
    switch (node->kind) {
    case KERNEL:
      CHECK(cuLaunchKernel(spin_of(program.lane[one->lane].device, node->amount), 1, 1, 1, 1, 1, 1, 0, stream, NULL,
                           NULL));
      break;
    case HOST_FUNCTION:
      CHECK(cuLaunchHostFunc(stream, do_node, node));
      break;
    case WAIT_EVENT:
      CHECK(cuStreamWaitEvent(stream, own.events[node->target], CU_EVENT_WAIT_EXTERNAL));
      break;
    default:
      CHECK(cuMemsetD8Async(own.buffers[one->lane], 1, (size_t)node->amount * MIB, stream));
    }
  }
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuStreamDestroy_v2(stream));
  return graph;
}

static void make_graphs(void) {
  for (int i = 0; i < program.graphs; i++) {
    struct graph *one = &program.graph[i];
    if (!is_mine(one->lane)) continue;
    enter(one->lane);
    CUgraph graph = one->captured ? capture_graph(one) : build_graph(one);
    CHECK(cuGraphInstantiateWithFlags(&own.graphs[i], graph, 0));
    CHECK(cuGraphDestroy(graph));
  }
}

/* ---- running ---- */

static void wait_until_recorded(int event) {
  while (!__atomic_load_n(&own.recorded[event], __ATOMIC_ACQUIRE)) sleep_us(POLL_US);
}

static void launch_graph(CUstream stream, const struct operation *operation) {
  const struct graph *graph = &program.graph[operation->target];
  for (int i = 0; i < graph->count; i++)
    if (graph->nodes[i].kind == WAIT_EVENT) wait_until_recorded(graph->nodes[i].target);
  CHECK(cuGraphLaunch(own.graphs[operation->target], stream));
  count_kernels(program.lane[operation->lane].device, (uint64_t)graph->kernels, graph->kernels_us * 1000);
}

static void launch_waves(CUstream stream, const struct operation *operation) {
  int device = program.lane[operation->lane].device;
  CHECK(cuLaunchKernel(own.waves[device], (unsigned)(WAVE_BLOCKS * operation->amount), 1, 1, WAVE_THREADS, 1, 1, 0,
                       stream, NULL, NULL));
  count_kernels(device, 1, (uint64_t)(2 + 2 * operation->amount) * 1000);
}

static void copy(CUstream stream, const struct operation *operation) {
  CUdeviceptr buffer = own.buffers[operation->lane];
  size_t bytes = (size_t)operation->amount * MIB;
  if (operation->count == 0) CHECK(cuMemcpyHtoDAsync_v2(buffer, own.host, bytes, stream));
  if (operation->count == 1) CHECK(cuMemcpyDtoHAsync_v2(own.host, buffer, bytes, stream));
  if (operation->count == 2) CHECK(cuMemcpyDtoDAsync_v2(buffer, buffer + bytes, bytes, stream));
}

static void allow_not_ready(CUresult result) {
  if (result != CUDA_ERROR_NOT_READY) CHECK(result);
}

static void do_in_stream(struct operation *operation) {
  CUstream stream = own.streams[operation->lane];
  int device = program.lane[operation->lane].device, target = operation->target;
  const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 1};
  const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 1};
  switch (operation->kind) {
  case KERNEL:
    launch_spin(device, operation->amount, stream);
    break;
  case BURST:
    for (int i = 0; i < operation->count; i++) launch_spin(device, operation->amount, stream);
    break;
  case WAVES:
    launch_waves(stream, operation);
    break;
  case HOST_FUNCTION:
    CHECK(cuLaunchHostFunc(stream, do_function, operation));
    break;
  case CALLBACK:
    CHECK(cuStreamAddCallback(stream, do_callback, operation, 0));
    break;
  case WAIT:
    wait_in_stream(stream, operation->waits[0], operation->variant);
    break;
  case WRITE:
    write_in_stream(stream, operation->word, operation->variant);
    break;
  case BATCH:
    do_batch(stream, operation);
    break;
  case SIGNAL:
    CHECK(cuSignalExternalSemaphoresAsync(&own.semaphores[target], &signal, 1, stream));
    break;
  case WAIT_SIGNAL:
    CHECK(cuWaitExternalSemaphoresAsync(&own.semaphores[target], &wait, 1, stream));
    break;
  case RECORD:
    CHECK(cuEventRecord(own.events[target], stream));
    __atomic_store_n(&own.recorded[target], 1, __ATOMIC_RELEASE);
    break;
  case WAIT_EVENT:
    wait_until_recorded(target);
    CHECK(cuStreamWaitEvent(stream, own.events[target], 0));
    break;
  case COPY:
    copy(stream, operation);
    break;
  case MEMSET:
    CHECK(cuMemsetD8Async(own.buffers[operation->lane], 1, (size_t)operation->amount * MIB, stream));
    count_kernels(device, 1, 0);
    break;
  default:
    launch_graph(stream, operation);
  }
}

static void do_in_thread(const struct operation *operation) {
  switch (operation->kind) {
  case SLEEP:
    sleep_us((uint64_t)operation->amount);
    break;
  case HOST_WRITE:
    write_word(operation->word);
    break;
  case POLL:
    poll_word(operation->waits[0]);
    break;
  case SYNC_STREAM:
    CHECK(cuStreamSynchronize(own.streams[operation->lane]));
    break;
  case SYNC_EVENT:
    wait_until_recorded(operation->target);
    CHECK(cuEventSynchronize(own.events[operation->target]));
    break;
  case SYNC_CONTEXT:
    CHECK(cuCtxSynchronize());
    break;
  default:
    allow_not_ready(cuStreamQuery(own.streams[operation->lane]));
  }
}

static void *run_thread(void *argument) {
  int thread = (int)(intptr_t)argument;
  for (int i = 0; i < program.operations; i++) {
    int number = program.order[i];
    struct operation *operation = &program.operation[number];
    if (operation->thread != thread) continue;
    __atomic_store_n(&own.now[thread], number, __ATOMIC_RELAXED);
    enter(operation->lane);
    if (operation->kind < SLEEP)
      do_in_stream(operation);
    else
      do_in_thread(operation);
  }
  __atomic_store_n(&own.now[thread], -1, __ATOMIC_RELAXED);
  for (int i = 0; i < program.lanes; i++) {
    if (program.lane[i].thread != thread || program.lane[i].kind != PER_THREAD) continue;
    enter(i); /* it ends with the thread */
    CHECK(cuStreamSynchronize(own.streams[i]));
  }
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[THREADS_MAX];
  for (int i = 0; i < program.threads; i++)
    if (program.process_of[i] == measured.process) pthread_create(&threads[i], NULL, run_thread, (void *)(intptr_t)i);
  for (int i = 0; i < program.threads; i++)
    if (program.process_of[i] == measured.process) pthread_join(threads[i], NULL);
}

/* Where threads are, and which streams still have work; asking the driver might block as well. */
static void describe(FILE *file) {
  for (int i = 0; i < program.threads; i++) {
    if (program.process_of[i] != measured.process) continue;
    int number = __atomic_load_n(&own.now[i], __ATOMIC_RELAXED);
    if (number < 0)
      fprintf(file, "  thread %d has made its calls\n", i);
    else
      print_operation(file, &program, number);
  }
  fflush(file);
  for (int i = 0; i < program.lanes; i++)
    if (is_mine(i) && cuCtxSetCurrent(measured.contexts[program.lane[i].device]) == CUDA_SUCCESS)
      if (cuStreamQuery(own.streams[i]) == CUDA_ERROR_NOT_READY) fprintf(file, "  stream %d has work\n", i);
}

int main(int argc, char **argv) {
  static const int lengths_us[] = KERNEL_LENGTHS_US;
  make_program(&program, (uint64_t)number_after(argc, argv, "--seed", 1), number_after(argc, argv, "--scale", 1));
  if (!strcmp(argv[argc - 1], "--print")) {
    print_program(stdout, &program);
    return 0;
  }
  const char *folder = word_after(argc, argv, "--folder");
  make_semaphore_files(folder);
  begin_processes(argc, argv, program.processes, describe);
  open_devices(program.devices, lengths_us, sizeof lengths_us / sizeof *lengths_us);
  make_device_words();
  make_streams();
  make_events();
  import_semaphores(folder);
  make_graphs();
  wait_for_start();
  run_threads();
  return end_work();
}
