/*
 * launch.c - the kernels of operations. One publishes the rank's bytes and takes no time; one has the operation's time
 * and name. The driver calls back at the submission of each (kernels.model, host=call): at once, or at every launch of
 * a graph that they were captured into, and it makes the pages of both buffers ready before.
 *
 * Time: kernels of a collective run only while those of all ranks run (meet=): they spin for each other, which is busy
 * time, as NCCL's do. A receive begins when the send is over on the sender's device, by a value in the shared memory
 * for which the stream waits; so sends and receives in any order never stop a device. In graphs they do not wait.
 */
#include "simcuda/nccl/launch.h"
#include "base/prim.h"
#include "simcuda/common/driver.h"
#include "simcuda/nccl/failure.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME "ncclDevKernel_SIMULATED_" /* the hook knows collectives by the first part (gate/collectives.c) */
#define CALL                                                                                                           \
  ".param .u64 function, .param .u64 argument, .param .u64 input, .param .u64 input_bytes, "                           \
  ".param .u64 output, .param .u64 output_bytes"
#define ENTRY(name)                                                                                                    \
  ".visible .entry " NAME name "(.param .u64 ns, .param .u32 devices, .param .u32 number, .param .u64 group, " CALL    \
  ") { ret; }\n"

static const char image[] = ".version 8.0\n.target sm_50\n.address_size 64\n" /* any architecture */
                            ".visible .entry simnccl_publish(" CALL ") { ret; }\n"
                            ".visible .entry simnccl_disband(.param .u64 group) { ret; }\n" ENTRY("AllReduce")
                                ENTRY("Broadcast") ENTRY("Reduce") ENTRY("AllGather") ENTRY("ReduceScatter")
                                    ENTRY("AlltoAll") ENTRY("Gather") ENTRY("Scatter") ENTRY("SendRecv");

static const char *const names[] = {
    [SC_ALL_REDUCE] = NAME "AllReduce",
    [SC_BROADCAST] = NAME "Broadcast",
    [SC_REDUCE] = NAME "Reduce",
    [SC_ALL_GATHER] = NAME "AllGather",
    [SC_REDUCE_SCATTER] = NAME "ReduceScatter",
    [SC_ALL_TO_ALL] = NAME "AlltoAll",
    [SC_GATHER] = NAME "Gather",
    [SC_SCATTER] = NAME "Scatter",
    [SC_SEND] = NAME "SendRecv",
    [SC_RECEIVE] = NAME "SendRecv",
};
#define KINDS (sizeof names / sizeof *names)

static CUkernel kernels[KINDS], publisher, disbander;
static CUresult load_result = CUDA_ERROR_NOT_INITIALIZED;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  const struct sc_driver *driver = sc_driver();
  CUlibrary library;
  load_result = driver->cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0);
  if (load_result == CUDA_SUCCESS) load_result = driver->cuLibraryGetKernel(&publisher, library, "simnccl_publish");
  if (load_result == CUDA_SUCCESS) load_result = driver->cuLibraryGetKernel(&disbander, library, "simnccl_disband");
  for (unsigned i = 0; i < KINDS && load_result == CUDA_SUCCESS; i++)
    load_result = driver->cuLibraryGetKernel(&kernels[i], library, names[i]);
}

/* The communicator's context is the current one afterwards, as streams of it need. */
static ncclResult_t launch(const struct ncclComm *comm, const CUkernel *kernel, CUstream stream, void **params) {
  const struct sc_driver *driver = sc_driver();
  pthread_once(&once, load);
  if (load_result != CUDA_SUCCESS) return sc_nccl_check(load_result, "cuLibraryLoadData");
  CUresult result = driver->cuCtxSetCurrent(comm->context);
  if (result != CUDA_SUCCESS) return sc_nccl_check(result, "cuCtxSetCurrent");
  result = driver->cuLaunchKernel((CUfunction)*kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
  return sc_nccl_check(result, "cuLaunchKernel");
}

/* A kernel model of the user's may have no rules for these kernels: then no bytes are moved, but ranks still meet. */
static void call_back(struct sc_operation *operation, void (*function)(void *, bool)) {
  static bool is_told;
  if (operation->is_called || operation->is_captured) return;
  if (!__atomic_exchange_n(&is_told, true, __ATOMIC_RELAXED))
    fprintf(stderr, "vgpu: SIMULATED NCCL: nothing is sent, because the kernel model has no rules for " NAME "*\n");
  function(operation, false);
}

ncclResult_t sc_launch_publish(struct sc_operation *operation) {
  uint64_t input_bytes = sc_moved_send_bytes(operation);
  if (input_bytes == 0 && !operation->is_captured) {
    sc_publish(operation, true);
    return operation->result;
  }
  void (*function)(void *, bool) = sc_publish;
  const void *input = operation->send;
  uint64_t output = 0, output_bytes = 0;
  void *params[] = {&function, &operation, &input, &input_bytes, &output, &output_bytes};
  operation->is_called = false;
  ncclResult_t result = launch(operation->comm, &publisher, operation->stream, params);
  if (result != ncclSuccess) return result;
  call_back(operation, function);
  return operation->result;
}

/* Memory of the area that streams wait for. Once, as the first send or receive comes. */
static bool register_values(struct ncclComm *comm) {
  if (comm->has_values) return true;
  comm->has_values = sc_driver()->cuMemHostRegister_v2(comm->area->sends, sizeof comm->area->sends,
                                                       CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  return comm->has_values;
}

static ncclResult_t await_send(struct sc_operation *operation) {
  struct ncclComm *comm = operation->comm;
  if (operation->kind != SC_RECEIVE || operation->is_captured || operation->peer == (int)comm->rank) return ncclSuccess;
  const struct sc_driver *driver = sc_driver();
  driver->cuCtxSetCurrent(comm->context);
  if (!register_values(comm)) return ncclSuccess;
  CUdeviceptr address = (CUdeviceptr)&comm->area->sends[operation->peer][comm->rank];
  CUresult result =
      driver->cuStreamWaitValue64_v2(operation->stream, address, operation->number + 1, CU_STREAM_WAIT_VALUE_GEQ);
  return sc_nccl_check(result, "cuStreamWaitValue64");
}

static ncclResult_t announce_send(struct sc_operation *operation) {
  struct ncclComm *comm = operation->comm;
  if (operation->kind != SC_SEND || operation->is_captured || operation->peer == (int)comm->rank) return ncclSuccess;
  if (!register_values(comm)) return ncclSuccess;
  CUdeviceptr address = (CUdeviceptr)&comm->area->sends[comm->rank][operation->peer];
  CUresult result = sc_driver()->cuStreamWriteValue64_v2(operation->stream, address, operation->number + 1, 0);
  return sc_nccl_check(result, "cuStreamWriteValue64");
}

ncclResult_t sc_launch_finish(struct sc_operation *operation) {
  struct ncclComm *comm = operation->comm;
  uint64_t duration_ns = sc_duration_ns(operation), group = comm->area->group;
  uint32_t devices = sc_is_pair(operation) ? 0 : comm->rank_count;
  /* Those of graphs are numbered by themselves: they run again and again. */
  uint32_t number = (uint32_t)operation->number & 0x7fffffffu;
  if (operation->is_captured && !sc_is_pair(operation)) number = 0x80000000u | (uint32_t)comm->captured++;
  void (*function)(void *, bool) = sc_finish;
  uint64_t input = 0, input_bytes = 0, output_bytes = sc_moved_recv_bytes(operation);
  void *params[] = {&duration_ns, &devices, &number,      &group,           &function,
                    &operation,   &input,   &input_bytes, &operation->recv, &output_bytes};
  ncclResult_t result = await_send(operation);
  operation->is_called = false;
  if (result == ncclSuccess) result = launch(comm, &kernels[operation->kind], operation->stream, params);
  if (result != ncclSuccess) return result;
  call_back(operation, function);
  return operation->result == ncclSuccess ? announce_send(operation) : operation->result;
}

/* In a stream of its own: all others may be waiting. */
void sc_launch_disband(struct ncclComm *comm) {
  const struct sc_driver *driver = sc_driver();
  CUcontext before = NULL;
  CUstream stream;
  uint64_t group = comm->area->group;
  void *params[] = {&group};
  driver->cuCtxGetCurrent(&before);
  if (driver->cuCtxSetCurrent(comm->context) == CUDA_SUCCESS &&
      driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    launch(comm, &disbander, stream, params);
    driver->cuStreamDestroy_v2(stream);
  }
  driver->cuCtxSetCurrent(before);
}
