/*
 * nccl.c - `nccl CASE`: two ranks, each a process with a simulated device of its own, do what the case of that name
 * says. Linked to libnccl.so.2 of the simulated device; ends with 1 at the first answer that is not the right one, and
 * says what it found as a JSON line.
 */
#include "../sim/program.h"
#include "nccl_calls.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define COUNT 1000
#define RANKS 2

#define NCCL_EXPECT(code, call)                                                                                        \
  do {                                                                                                                 \
    ncclResult_t got_ = (call);                                                                                        \
    if (got_ != (code)) {                                                                                              \
      fprintf(stderr, "%s:%d: rank %d: %s: %d, expected %d: %s\n", __FILE__, __LINE__, rank, #call, (int)got_,         \
              (int)(code), ncclGetLastError(NULL));                                                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
#define NCCL(call) NCCL_EXPECT(ncclSuccess, call)

static int rank;
static ncclUniqueId id;
static ncclComm_t comm;
static CUstream stream;
static CUdeviceptr in, out;

static void connect_ranks(void) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, rank));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc_v2(&in, 1 << 20));
  CHECK(cuMemAlloc_v2(&out, 1 << 20));
  NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
}

static void put(const float *values, int count) {
  CHECK(cuMemcpyHtoDAsync_v2(in, values, (size_t)count * sizeof *values, stream));
}

static void expect(const float *values, int count) {
  float got[4 * COUNT];
  CHECK(cuMemcpyDtoHAsync_v2(got, out, (size_t)count * sizeof *got, stream));
  CHECK(cuStreamSynchronize(stream));
  for (int i = 0; i < count; i++)
    if (got[i] != values[i]) {
      fprintf(stderr, "rank %d: element %d of %d is %g, expected %g\n", rank, i, count, got[i], values[i]);
      exit(1);
    }
}

/* ---- values ---- */

static const struct {
  ncclDataType_t type;
  int bytes;
  uint64_t one, two, three, middle; /* 1, 2, 3 and 1.5 or 1 */
} types[] = {
    {ncclInt8, 1, 1, 2, 3, 1},
    {ncclUint8, 1, 1, 2, 3, 1},
    {ncclInt32, 4, 1, 2, 3, 1},
    {ncclUint32, 4, 1, 2, 3, 1},
    {ncclInt64, 8, 1, 2, 3, 1},
    {ncclUint64, 8, 1, 2, 3, 1},
    {ncclFloat16, 2, 0x3c00, 0x4000, 0x4200, 0x3e00},
    {ncclFloat32, 4, 0x3f800000, 0x40000000, 0x40400000, 0x3fc00000},
    {ncclFloat64, 8, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000, 0x3ff8000000000000},
    {ncclBfloat16, 2, 0x3f80, 0x4000, 0x4040, 0x3fc0},
    {ncclFloat8e4m3, 1, 0x38, 0x40, 0x44, 0x3c},
    {ncclFloat8e5m2, 1, 0x3c, 0x40, 0x42, 0x3e},
};

static void reduce_all_types(void) {
  uint8_t bytes[8 * COUNT], got[8 * COUNT];
  for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
    const uint64_t results[] = {types[t].three, types[t].two, types[t].two, types[t].one, types[t].middle};
    size_t all = (size_t)types[t].bytes * COUNT;
    for (ncclRedOp_t op = ncclSum; op < ncclNumOps; op++) {
      for (int i = 0; i < COUNT; i++)
        memcpy(bytes + i * types[t].bytes, rank == 0 ? &types[t].one : &types[t].two, (size_t)types[t].bytes);
      CHECK(cuMemcpyHtoDAsync_v2(in, bytes, all, stream));
      NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, types[t].type, op, comm, stream));
      CHECK(cuMemcpyDtoHAsync_v2(got, out, all, stream));
      for (int i = 0; i < COUNT; i++)
        if (memcmp(got + i * types[t].bytes, &results[op], (size_t)types[t].bytes) != 0) {
          fprintf(stderr, "rank %d: type %d, operator %d, element %d: wrong\n", rank, types[t].type, op, i);
          exit(1);
        }
    }
  }
}

static void multiply_before(void) {
  float factor = rank == 0 ? 10 : 100, values[COUNT], results[COUNT];
  ncclRedOp_t op;
  for (int i = 0; i < COUNT; i++) values[i] = (float)i, results[i] = 110 * (float)i;
  put(values, COUNT);
  NCCL(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, op, comm, stream));
  expect(results, COUNT);
  NCCL(ncclRedOpDestroy(op, comm));
  NCCL_EXPECT(ncclInvalidArgument, ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, op, comm, stream));
  CHECK(cuMemcpyHtoDAsync_v2(in, &factor, sizeof factor, stream));
  NCCL(ncclRedOpCreatePreMulSum(&op, (void *)in, ncclFloat32, ncclScalarDevice, comm));
  NCCL(ncclReduceScatter((void *)in, (void *)out, 1, ncclFloat32, op, comm, stream));
  results[0] = rank == 0 ? 10100 : 110; /* 10 * 10 + 100 * 100; the second elements were 1 */
  expect(results, 1);
}

static void move_everything(void) {
  float values[COUNT], results[2 * COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = (float)(i + 1000 * rank);
  put(values, COUNT);
  NCCL(ncclBroadcast((void *)in, (void *)out, COUNT, ncclFloat32, 1, comm, stream));
  for (int i = 0; i < COUNT; i++) results[i] = (float)(i + 1000);
  expect(results, COUNT);
  NCCL(ncclReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclMin, 0, comm, stream));
  for (int i = 0; i < COUNT; i++) results[i] = (float)(i + 1000 * rank); /* rank 1 keeps what it had */
  expect(results, COUNT);
  NCCL(ncclAllGather((void *)in, (void *)out, COUNT, ncclFloat32, comm, stream));
  for (int i = 0; i < 2 * COUNT; i++) results[i] = (float)(i < COUNT ? i : i);
  expect(results, 2 * COUNT);
  NCCL(ncclReduceScatter((void *)in, (void *)out, COUNT / 2, ncclFloat32, ncclSum, comm, stream));
  for (int i = 0; i < COUNT / 2; i++) results[i] = (float)(2 * (i + rank * COUNT / 2) + 1000);
  expect(results, COUNT / 2);
  NCCL(ncclAlltoAll((void *)in, (void *)out, COUNT / 2, ncclFloat32, comm, stream));
  for (int i = 0; i < COUNT; i++) results[i] = (float)(i % (COUNT / 2) + rank * COUNT / 2 + (i < COUNT / 2 ? 0 : 1000));
  expect(results, COUNT);
  NCCL(ncclGather((void *)in, (void *)out, COUNT, ncclFloat32, 1, comm, stream));
  for (int i = 0; i < 2 * COUNT && rank == 1; i++) results[i] = (float)i;
  expect(results, rank == 1 ? 2 * COUNT : COUNT);
  NCCL(ncclScatter((void *)in, (void *)out, COUNT / 2, ncclFloat32, 0, comm, stream));
  for (int i = 0; i < COUNT / 2; i++) results[i] = (float)(i + rank * COUNT / 2);
  expect(results, COUNT / 2);
  /* in place */
  NCCL(ncclAllReduce((void *)in, (void *)in, COUNT, ncclFloat32, ncclMax, comm, stream));
  NCCL(ncclSend((void *)in, 0, ncclFloat32, 1 - rank, comm, stream)); /* nothing */
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclMin, comm, stream));
  for (int i = 0; i < COUNT; i++) results[i] = (float)(i + 1000);
  expect(results, COUNT);
}

static void send_both_ways(void) {
  float values[COUNT], results[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = (float)(i + 1000 * rank), results[i] = (float)(i + 1000 * (1 - rank));
  put(values, COUNT);
  for (int n = 0; n < 200; n++) { /* the one order on the one rank, the other on the other */
    NCCL(ncclGroupStart());
    if (rank == 0) NCCL(ncclSend((void *)in, COUNT, ncclFloat32, 1, comm, stream));
    NCCL(ncclRecv((void *)out, COUNT, ncclFloat32, 1 - rank, comm, stream));
    if (rank == 1) NCCL(ncclSend((void *)in, COUNT, ncclFloat32, 0, comm, stream));
    NCCL(ncclGroupEnd());
  }
  expect(results, COUNT);
  NCCL(ncclGroupStart()); /* more than a channel holds, all sends first */
  for (int n = 0; n < 200; n++) NCCL(ncclSend((void *)in, COUNT, ncclFloat32, 1 - rank, comm, stream));
  for (int n = 0; n < 200; n++) NCCL(ncclRecv((void *)out, COUNT, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclGroupEnd());
  expect(results, COUNT);
  NCCL(ncclGroupStart());
  for (int n = 0; n < 200; n++) NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclGroupEnd());
  for (int i = 0; i < COUNT; i++) results[i] = (float)(2 * i + 1000);
  expect(results, COUNT);
}

static void case_values(void) {
  int count, own, device, version;
  connect_ranks();
  NCCL(ncclGetVersion(&version));
  NCCL(ncclCommCount(comm, &count));
  NCCL(ncclCommUserRank(comm, &own));
  NCCL(ncclCommCuDevice(comm, &device));
  TRUE(version >= 22907 && count == RANKS && own == rank && device == rank);
  reduce_all_types();
  move_everything();
  multiply_before();
  send_both_ways();
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommDestroy(comm));
}

/* With a kernel model that knows none of NCCL's kernels: ranks meet, and nothing is moved. */
static void case_model(void) {
  float values[COUNT];
  connect_ranks();
  for (int i = 0; i < COUNT; i++) values[i] = 1;
  put(values, COUNT);
  CHECK(cuMemcpyDtoDAsync_v2(out, in, sizeof values, stream));
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclSend((void *)in, COUNT, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclRecv((void *)out, COUNT, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclGroupEnd());
  expect(values, COUNT);
  NCCL(ncclCommDestroy(comm));
}

/* With VGPU_SIM_NCCL_COMPUTE_BYTES=4000: nothing is moved beyond. */
static void case_bound(void) {
  float values[COUNT + 1], results[COUNT + 1];
  connect_ranks();
  for (int i = 0; i <= COUNT; i++) values[i] = 1;
  put(values, COUNT + 1);
  CHECK(cuMemsetD8Async(out, 0, sizeof values, stream));
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT + 1, ncclFloat32, ncclSum, comm, stream));
  for (int i = 0; i <= COUNT; i++) results[i] = 0;
  expect(results, COUNT + 1);
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  for (int i = 0; i < COUNT; i++) results[i] = 2;
  expect(results, COUNT + 1);
  NCCL(ncclCommDestroy(comm));
}

static void case_misuse(void) {
  connect_ranks();
  NCCL_EXPECT(ncclInvalidArgument, ncclAllReduce(NULL, (void *)out, 1, ncclFloat32, ncclSum, comm, stream));
  NCCL_EXPECT(ncclInvalidArgument, ncclAllReduce((void *)in, (void *)out, 1, 12, ncclSum, comm, stream));
  NCCL_EXPECT(ncclInvalidArgument, ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, 77, comm, stream));
  NCCL_EXPECT(ncclInvalidArgument, ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, NULL, stream));
  NCCL_EXPECT(ncclInvalidArgument,
              ncclAllReduce((void *)in, (void *)out, SIZE_MAX, ncclFloat32, ncclSum, comm, stream));
  NCCL_EXPECT(ncclInvalidArgument, ncclBroadcast((void *)in, (void *)out, 1, ncclFloat32, 2, comm, stream));
  NCCL_EXPECT(ncclInvalidUsage, ncclGroupEnd());
  NCCL(ncclGroupStart());
  NCCL_EXPECT(ncclInvalidArgument, ncclSend((void *)in, 1, ncclFloat32, -1, comm, stream));
  NCCL_EXPECT(ncclInvalidArgument, ncclGroupEnd());
  ncclSimInfo_t info = {sizeof info, NCCL_SIM_INFO_MAGIC, NCCL_VERSION, -1};
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce((void *)in, (void *)out, 1 << 18, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclGroupSimulateEnd(&info));
  TRUE(info.estimatedTime > 5 && info.estimatedTime < 100);
  ncclComm_t none;
  ncclUniqueId strange = {{1, 2, 3}};
  NCCL_EXPECT(ncclInvalidArgument, ncclCommInitRank(&none, RANKS, strange, rank));
  NCCL_EXPECT(ncclInvalidArgument, ncclCommInitRank(&none, RANKS, id, RANKS));
  NCCL_EXPECT(ncclInvalidArgument, ncclCommInitRank(&none, 0, id, 0));
  NCCL(ncclCommDestroy(comm));
}

/* ---- other ways ---- */

static void case_graph(void) {
  float values[COUNT], results[COUNT];
  CUgraph graph;
  CUgraphExec exec;
  connect_ranks();
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  NCCL(ncclAllReduce((void *)in, (void *)in, COUNT, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclRecv((void *)out, COUNT, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclSend((void *)in, COUNT, ncclFloat32, 1 - rank, comm, stream));
  NCCL(ncclGroupEnd());
  CHECK(cuStreamEndCapture(stream, &graph));
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int n = 0; n < 5; n++) {
    for (int i = 0; i < COUNT; i++) values[i] = (float)(i + n + 1000 * rank), results[i] = (float)(2 * (i + n) + 1000);
    put(values, COUNT);
    CHECK(cuGraphLaunch(exec, stream));
    expect(results, COUNT);
  }
  CHECK(cuGraphLaunch(exec, stream)); /* of what is there */
  for (int i = 0; i < COUNT; i++) results[i] *= 2;
  expect(results, COUNT);
  NCCL(ncclCommDestroy(comm));
}

static void case_split(void) {
  float values[COUNT], results[COUNT];
  ncclComm_t made, alone;
  int count, own;
  connect_ranks();
  for (int i = 0; i < COUNT; i++) values[i] = (float)(i + 1000 * rank), results[i] = (float)(i + 1000);
  put(values, COUNT);
  NCCL(ncclCommSplit(comm, 7, -rank, &made, NULL)); /* the other way round */
  NCCL(ncclCommUserRank(made, &own));
  TRUE(own == 1 - rank);
  NCCL(ncclBroadcast((void *)in, (void *)out, COUNT, ncclFloat32, 0, made, stream));
  expect(results, COUNT);
  NCCL(ncclCommSplit(comm, rank == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0, &alone, NULL));
  TRUE((alone != NULL) == (rank == 0));
  if (rank == 0) {
    NCCL(ncclCommCount(alone, &count));
    TRUE(count == 1);
    NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclAvg, alone, stream));
    expect(values, COUNT);
    NCCL(ncclCommDestroy(alone));
  }
  NCCL(ncclCommDestroy(made));
  if (rank == 0) {
    int gone = 1;
    NCCL(ncclCommShrink(comm, &gone, 1, &made, NULL, 0));
    NCCL(ncclCommCount(made, &count));
    TRUE(count == 1);
  }
  NCCL(ncclCommDestroy(comm));
}

/* One process, one thread, both devices. */
static void case_one_process(void) {
  ncclComm_t comms[RANKS];
  CUdeviceptr buffers[RANKS];
  CUcontext contexts[RANKS];
  float values[COUNT];
  if (rank != 0) return;
  CHECK(cuInit(0));
  NCCL(ncclCommInitAll(comms, RANKS, NULL));
  for (int i = 0; i < RANKS; i++) {
    CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuMemAlloc_v2(&buffers[i], sizeof values));
    for (int j = 0; j < COUNT; j++) values[j] = (float)(j * (i + 1));
    CHECK(cuMemcpyHtoD_v2(buffers[i], values, sizeof values));
  }
  for (int n = 0; n < 3; n++) {
    NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
      NCCL(ncclAllReduce((void *)buffers[i], (void *)buffers[i], COUNT, ncclFloat32, ncclSum, comms[i], NULL));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++) NCCL(ncclSend((void *)buffers[i], COUNT, ncclFloat32, 1 - i, comms[i], NULL));
    for (int i = 0; i < RANKS; i++) NCCL(ncclRecv((void *)buffers[i], COUNT, ncclFloat32, 1 - i, comms[i], NULL));
    NCCL(ncclGroupEnd());
  }
  for (int i = 0; i < RANKS; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuMemcpyDtoH_v2(values, buffers[i], sizeof values));
    for (int j = 0; j < COUNT; j++) TRUE(values[j] == (float)(12 * j));
  }
  for (int i = 0; i < RANKS; i++) NCCL(ncclCommDestroy(comms[i]));
}

/* Rank 0's device comes 20 ms late; a second pair of streams has its operations in the other order. */
static void case_time(void) {
  ncclComm_t other;
  CUstream side;
  CUevent begin, end;
  float took_ms;
  connect_ranks();
  NCCL(ncclCommSplit(comm, 0, rank, &other, NULL));
  CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&begin, 0));
  CHECK(cuEventCreate(&end, 0));
  CUfunction own = spin(20), late = spin(10000);
  NCCL(ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventRecord(begin, stream));
  for (int n = 0; n < 2 && rank == 0; n++) launch(late, stream);
  NCCL(ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuEventRecord(end, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventElapsedTime_v2(&took_ms, begin, end));
  printf("{\"rank\": %d, \"took_ms\": %f}\n", rank, took_ms);
  for (int n = 0; n < 100; n++) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch(own, rank == 0 ? stream : side);
    NCCL(ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, other, side));
    if (n % 2 == 0) launch(own, rank == 0 ? side : stream);
    CHECK(cuEventDestroy_v2(event));
  }
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuStreamSynchronize(side));
  /* While a collective waits for the other device, another stream's kernel runs. */
  for (int n = 0; n < 5 && rank == 0; n++) launch(late, stream);
  NCCL(ncclAllReduce((void *)in, (void *)out, 1, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuEventRecord(end, stream));
  if (rank == 1) launch(late, side);
  CHECK(cuEventRecord(begin, side));
  CHECK(cuStreamSynchronize(side));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventElapsedTime_v2(&took_ms, begin, end));
  TRUE(took_ms > 0);
  /* A receive begins when the send is over. */
  CHECK(cuEventRecord(begin, stream));
  for (int n = 0; n < 2 && rank == 0; n++) launch(late, stream);
  if (rank == 0) NCCL(ncclSend((void *)in, 1, ncclFloat32, 1, comm, stream));
  if (rank == 1) NCCL(ncclRecv((void *)out, 1, ncclFloat32, 0, comm, stream));
  CHECK(cuEventRecord(end, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventElapsedTime_v2(&took_ms, begin, end));
  TRUE(took_ms > 15);
  NCCL(ncclCommDestroy(other));
  NCCL(ncclCommDestroy(comm));
}

/* ---- what goes wrong ---- */

static void case_duplicate(void) {
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  NCCL_EXPECT(ncclInvalidUsage, ncclCommInitRank(&comm, RANKS, id, rank));
  TRUE(strstr(ncclGetLastError(NULL), "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000") != NULL);
}

static void case_late(void) {
  CUcontext context;
  if (rank != 0) return;
  CHECK(cuInit(0));
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  NCCL_EXPECT(ncclSystemError, ncclCommInitRank(&comm, RANKS, id, rank));
  TRUE(strstr(ncclGetLastError(NULL), "rank 1 of 2 has not come") != NULL);
}

static void wait_for_error(void) {
  ncclResult_t error = ncclSuccess;
  for (int n = 0; n < 1000 && error == ncclSuccess; n++) {
    NCCL(ncclCommGetAsyncError(comm, &error));
    usleep(10000);
  }
  TRUE(error == ncclRemoteError);
}

/* Rank 1 is killed before it takes part. */
static void case_killed(void) {
  connect_ranks();
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuStreamSynchronize(stream));
  if (rank == 1) kill(getpid(), SIGKILL);
  NCCL_EXPECT(ncclRemoteError, ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  wait_for_error();
  NCCL(ncclCommAbort(comm));
  CHECK(cuStreamSynchronize(stream));
}

/* Rank 1 is killed before its device takes part: the kernel on this one waits for ever, until the abort. */
static void case_killed_later(void) {
  connect_ranks();
  CUfunction late = spin(40000);
  for (int n = 0; n < 100 && rank == 1; n++) launch(late, stream);
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  if (rank == 1) kill(getpid(), SIGKILL);
  wait_for_error();
  TRUE(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  NCCL(ncclCommAbort(comm));
  CHECK(cuStreamSynchronize(stream));
}

static void *abort_soon(void *nothing) {
  usleep(200000);
  NCCL(ncclCommAbort(comm));
  return nothing;
}

/* Rank 1 does not call; another thread of rank 0 ends the wait. */
static void case_abort_of_a_wait(void) {
  pthread_t thread;
  connect_ranks();
  if (rank == 1) sleep(1);
  if (rank == 1) return;
  TRUE(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
  NCCL_EXPECT(ncclInternalError, ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  TRUE(pthread_join(thread, NULL) == 0);
}

/* Both give up, and their devices have nothing left to do. */
static void case_aborted(void) {
  connect_ranks();
  NCCL(ncclAllReduce((void *)in, (void *)out, COUNT, ncclFloat32, ncclSum, comm, stream));
  NCCL(ncclCommAbort(comm));
  CHECK(cuCtxSynchronize());
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"aborted", case_aborted},
    {"abort_of_a_wait", case_abort_of_a_wait},
    {"values", case_values},
    {"bound", case_bound},
    {"model", case_model},
    {"misuse", case_misuse},
    {"graph", case_graph},
    {"split", case_split},
    {"one_process", case_one_process},
    {"time", case_time},
    {"duplicate", case_duplicate},
    {"late", case_late},
    {"killed", case_killed},
    {"killed_later", case_killed_later},
};

int main(int argc, char **argv) {
  int status = 0;
  NCCL(ncclGetUniqueId(&id));
  pid_t child = fork();
  if (child == 0) {
    setsid(); /* as torchrun starts ranks */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rank = 1;
  }
  for (unsigned i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, argv[1]) == 0) cases[i].run();
  fflush(stdout);
  if (child != 0) TRUE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) != 0;
}
