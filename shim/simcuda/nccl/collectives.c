/*
 * collectives.c - the operations that programs call: each is checked and given to its group.
 */
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/failure.h"
#include "simcuda/nccl/group.h"
#include "simcuda/nccl/redop.h"

/* Whether its stream is being captured into a graph. */
static ncclResult_t find_capture(struct sc_operation *operation) {
  const struct sc_driver *driver = sc_driver();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUcontext before = NULL;
  driver->cuCtxGetCurrent(&before);
  driver->cuCtxSetCurrent(operation->comm->context);
  CUresult result = driver->cuStreamIsCapturing(operation->stream, &status);
  driver->cuCtxSetCurrent(before);
  operation->is_captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (operation->is_captured) operation->comm->has_captured = true;
  return sc_nccl_check(result, "cuStreamIsCapturing");
}

static ncclResult_t check_buffers(const struct sc_operation *operation, const char *function) {
  uint64_t bytes;
  if (__builtin_mul_overflow(operation->count, sc_element_bytes(operation->type) * operation->comm->rank_count,
                             &bytes) ||
      bytes > INT64_MAX)
    return sc_nccl_fail(ncclInvalidArgument, "%s: %llu elements", function, (unsigned long long)operation->count);
  if (operation->count > 0 && ((sc_send_bytes(operation) > 0 && operation->send == NULL) ||
                               (sc_recv_bytes(operation) > 0 && operation->recv == NULL)))
    return sc_nccl_fail(ncclInvalidArgument, "%s: a buffer is NULL", function);
  return ncclSuccess;
}

static ncclResult_t check(struct sc_operation *operation, const char *function) {
  ncclResult_t result = sc_comm_check(operation->comm, function);
  if (result != ncclSuccess) return result;
  if (sc_element_bytes(operation->type) == 0)
    return sc_nccl_fail(ncclInvalidArgument, "%s: there is no type %d", function, (int)operation->type);
  if (operation->peer < 0 || operation->peer >= (int)operation->comm->rank_count)
    return sc_nccl_fail(ncclInvalidArgument, "%s: there is no rank %d", function, operation->peer);
  result = check_buffers(operation, function);
  if (result == ncclSuccess) result = find_capture(operation);
  return result == ncclSuccess ? sc_redop_resolve(operation, function) : result;
}

static ncclResult_t add(struct sc_operation operation, const char *function) {
  ncclResult_t result = check(&operation, function);
  if (result != ncclSuccess) return sc_group_fail(result);
  if (operation.count == 0) return ncclSuccess;
  sc_tell_unmoved(&operation);
  return sc_group_add(&operation);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_ALL_REDUCE,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .redop = op},
             "ncclAllReduce");
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_BROADCAST,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .peer = root},
             "ncclBroadcast");
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_BROADCAST,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = buffer,
                                   .recv = buffer,
                                   .peer = root},
             "ncclBcast");
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_REDUCE,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .redop = op,
                                   .peer = root},
             "ncclReduce");
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_ALL_GATHER,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv},
             "ncclAllGather");
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_REDUCE_SCATTER,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .redop = op},
             "ncclReduceScatter");
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_ALL_TO_ALL,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv},
             "ncclAlltoAll");
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_GATHER,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .peer = root},
             "ncclGather");
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  return add((struct sc_operation){.comm = comm,
                                   .kind = SC_SCATTER,
                                   .count = count,
                                   .type = type,
                                   .stream = stream,
                                   .send = send,
                                   .recv = recv,
                                   .peer = root},
             "ncclScatter");
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return add(
      (struct sc_operation){
          .comm = comm, .kind = SC_SEND, .count = count, .type = type, .stream = stream, .send = send, .peer = peer},
      "ncclSend");
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
SC_PUBLIC ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
  return add(
      (struct sc_operation){
          .comm = comm, .kind = SC_RECEIVE, .count = count, .type = type, .stream = stream, .recv = recv, .peer = peer},
      "ncclRecv");
}
