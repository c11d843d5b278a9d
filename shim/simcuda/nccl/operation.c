/*
 * operation.c - see operation.h: which bytes an operation gives and takes, and the moving of them. Called by group.c
 * and, through kernels, by the driver (launch.c).
 */
#include "simcuda/nccl/operation.h"
#include "base/prim.h"
#include "simcuda/nccl/failure.h"
#include "simcuda/nccl/reduce.h"
#include <stdio.h>
#include <string.h>

uint64_t sc_element_bytes(ncclDataType_t type) {
  static const uint8_t bytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return (unsigned)type < ncclNumTypes ? bytes[type] : 0;
}

bool sc_is_pair(const struct sc_operation *operation) {
  return operation->kind == SC_SEND || operation->kind == SC_RECEIVE;
}

static bool is_root(const struct sc_operation *operation) {
  return operation->peer == (int)operation->comm->rank;
}

static uint64_t call_bytes(const struct sc_operation *operation) {
  return operation->count * sc_element_bytes(operation->type);
}

/* What a rank gives at most: the same on all ranks, so that all move bytes or none does. */
static uint64_t largest_bytes(const struct sc_operation *operation) {
  bool is_of_all =
      operation->kind == SC_REDUCE_SCATTER || operation->kind == SC_ALL_TO_ALL || operation->kind == SC_SCATTER;
  return call_bytes(operation) * (is_of_all ? operation->comm->rank_count : 1);
}

static bool gives(const struct sc_operation *operation) {
  if (operation->kind == SC_BROADCAST || operation->kind == SC_SCATTER) return is_root(operation);
  return operation->kind != SC_RECEIVE;
}

static bool takes(const struct sc_operation *operation) {
  if (operation->kind == SC_REDUCE || operation->kind == SC_GATHER) return is_root(operation);
  return operation->kind != SC_SEND;
}

uint64_t sc_send_bytes(const struct sc_operation *operation) {
  return gives(operation) ? largest_bytes(operation) : 0;
}

uint64_t sc_recv_bytes(const struct sc_operation *operation) {
  bool is_of_all = operation->kind == SC_ALL_GATHER || operation->kind == SC_ALL_TO_ALL || operation->kind == SC_GATHER;
  return takes(operation) ? call_bytes(operation) * (is_of_all ? operation->comm->rank_count : 1) : 0;
}

static bool is_moved(const struct sc_operation *operation) {
  return largest_bytes(operation) <= operation->comm->area->compute_bytes;
}

void sc_tell_unmoved(const struct sc_operation *operation) {
  static bool is_told;
  if (is_moved(operation) || __atomic_exchange_n(&is_told, true, __ATOMIC_RELAXED)) return;
  fprintf(stderr,
          "vgpu: SIMULATED NCCL: operations of more than %llu bytes of a rank move nothing, and leave their results as "
          "they are (VGPU_SIM_NCCL_COMPUTE_BYTES)\n",
          (unsigned long long)operation->comm->area->compute_bytes);
}

uint64_t sc_moved_send_bytes(const struct sc_operation *operation) {
  return is_moved(operation) ? sc_send_bytes(operation) : 0;
}

uint64_t sc_moved_recv_bytes(const struct sc_operation *operation) {
  return is_moved(operation) ? sc_recv_bytes(operation) : 0;
}

/* Whether it needs that rank's bytes. */
static bool needs(const struct sc_operation *operation, uint32_t rank) {
  if (!takes(operation)) return false;
  bool is_of_one = operation->kind == SC_BROADCAST || operation->kind == SC_SCATTER || operation->kind == SC_RECEIVE;
  return !is_of_one || (int)rank == operation->peer;
}

static bool is_there(const struct sc_operation *operation, uint32_t rank) {
  return operation->kind == SC_RECEIVE ? sc_pair_is_posted(operation->comm, rank, operation->number)
                                       : sc_is_posted(operation->comm, rank, operation->number);
}

bool sc_can_publish(const struct sc_operation *operation) {
  uint64_t bytes = sc_moved_send_bytes(operation);
  if (operation->kind == SC_RECEIVE) return true;
  return operation->kind == SC_SEND ? sc_pair_has_room(operation->comm, (uint32_t)operation->peer, bytes)
                                    : sc_has_room(operation->comm, bytes);
}

bool sc_can_finish(const struct sc_operation *operation, uint32_t *ret_rank) {
  for (uint32_t rank = 0; rank < operation->comm->rank_count; rank++) {
    if (!needs(operation, rank) || is_there(operation, rank)) continue;
    *ret_rank = rank;
    return false;
  }
  return true;
}

/* ---- the rank's own bytes ---- */

static void copy_own_bytes(const struct sc_operation *operation, uint8_t *to, uint64_t bytes) {
  if (operation->has_factor)
    sc_multiply(operation->type, to, operation->send, operation->factor, bytes / sc_element_bytes(operation->type));
  else
    memcpy(to, operation->send, bytes);
}

static void publish(struct sc_operation *operation, bool is_usable) {
  struct ncclComm *comm = operation->comm;
  uint32_t peer = (uint32_t)operation->peer;
  struct sc_message message = {.kind = operation->kind,
                               .type = operation->type,
                               .redop = operation->redop,
                               .root = operation->peer,
                               .count = operation->count,
                               .bytes = is_usable ? sc_moved_send_bytes(operation) : 0};
  if (operation->kind == SC_RECEIVE) {
    operation->number = comm->received[peer]++;
    return;
  }
  bool is_pair = operation->kind == SC_SEND;
  operation->result =
      is_pair ? sc_pair_wait_for_room(comm, peer, message.bytes) : sc_wait_for_room(comm, message.bytes);
  if (operation->result != ncclSuccess) return;
  operation->number = is_pair ? comm->sent[peer]++ : comm->collectives++;
  uint8_t *to = is_pair ? sc_pair_begin(comm, peer, &message) : sc_begin_message(comm, &message);
  if (message.bytes > 0) copy_own_bytes(operation, to, message.bytes);
  if (is_pair)
    sc_pair_post(comm, peer, &message);
  else
    sc_post_message(comm, &message);
}

void sc_publish(void *argument, bool is_usable) {
  struct sc_operation *operation = argument;
  operation->is_called = true;
  operation->result = ncclSuccess;
  if (!sc_comm_enter(operation->comm)) {
    operation->result = ncclInvalidUsage;
    return;
  }
  publish(operation, is_usable);
  sc_comm_leave(operation->comm);
}

/* ---- the other ranks' bytes ---- */

static bool await_collective(const struct ncclComm *comm, uint32_t rank, uint64_t number) {
  return sc_is_posted(comm, rank, number);
}

static bool await_pair(const struct ncclComm *comm, uint32_t rank, uint64_t number) {
  return sc_pair_is_posted(comm, rank, number);
}

static ncclResult_t check_message(const struct sc_operation *operation, const struct sc_message *message,
                                  uint32_t rank) {
  bool is_pair = operation->kind == SC_RECEIVE;
  uint32_t kind = is_pair ? SC_SEND : operation->kind;
  bool fits = message->kind == kind && message->count == operation->count && message->type == operation->type &&
              (is_pair || message->root == operation->peer);
  if (fits) return ncclSuccess;
  return sc_nccl_fail(ncclInvalidUsage,
                      "rank %u and rank %u do not call the same: kind %u, %llu of type %u; kind %u, %llu of type %u",
                      operation->comm->rank, rank, kind, (unsigned long long)operation->count, operation->type,
                      message->kind, (unsigned long long)message->count, message->type);
}

/* Where the bytes of all ranks are that it needs; NULL of one that moves none. */
static ncclResult_t collect(const struct sc_operation *operation, const uint8_t **ret_inputs) {
  struct ncclComm *comm = operation->comm;
  bool is_pair = operation->kind == SC_RECEIVE;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    ret_inputs[rank] = NULL;
    if (!needs(operation, rank)) continue;
    ncclResult_t result = sc_comm_wait(comm, is_pair ? await_pair : await_collective, rank, operation->number);
    if (result != ncclSuccess) return result;
    const struct sc_message *message = is_pair ? sc_pair_message_of(comm, rank, operation->number, &ret_inputs[rank])
                                               : sc_message_of(comm, rank, operation->number, &ret_inputs[rank]);
    result = check_message(operation, message, rank);
    if (result != ncclSuccess) return result;
    if (message->bytes == 0) ret_inputs[rank] = NULL;
  }
  return ncclSuccess;
}

static void write_result(const struct sc_operation *operation, const uint8_t **inputs) {
  const struct ncclComm *comm = operation->comm;
  uint64_t bytes = call_bytes(operation);
  bool is_reduction =
      operation->kind == SC_ALL_REDUCE || operation->kind == SC_REDUCE || operation->kind == SC_REDUCE_SCATTER;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    if (!needs(operation, rank)) continue;
    if (inputs[rank] == NULL) return;
    if (operation->kind == SC_REDUCE_SCATTER || operation->kind == SC_ALL_TO_ALL || operation->kind == SC_SCATTER)
      inputs[rank] += comm->rank * bytes;
    bool is_of_all =
        operation->kind == SC_ALL_GATHER || operation->kind == SC_ALL_TO_ALL || operation->kind == SC_GATHER;
    if (!is_reduction) memcpy((uint8_t *)operation->recv + (is_of_all ? rank * bytes : 0), inputs[rank], bytes);
  }
  if (is_reduction)
    sc_reduce(operation->type, operation->redop, operation->recv, inputs, comm->rank_count, operation->count);
}

static ncclResult_t finish(struct sc_operation *operation, bool is_usable) {
  struct ncclComm *comm = operation->comm;
  const uint8_t *inputs[SC_NCCL_RANKS_MAX];
  ncclResult_t result = collect(operation, inputs);
  if (result != ncclSuccess) return result;
  if (is_usable && sc_moved_recv_bytes(operation) > 0) write_result(operation, inputs);
  if (operation->kind == SC_RECEIVE)
    sc_pair_release(comm, (uint32_t)operation->peer, operation->number);
  else if (operation->kind != SC_SEND)
    sc_release_messages(comm, operation->number);
  return ncclSuccess;
}

void sc_finish(void *argument, bool is_usable) {
  struct sc_operation *operation = argument;
  operation->is_called = true;
  if (operation->result != ncclSuccess) return;
  if (!sc_comm_enter(operation->comm)) {
    operation->result = ncclInvalidUsage;
    return;
  }
  operation->result = finish(operation, is_usable);
  sc_comm_leave(operation->comm);
  if (operation->result == ncclSuccess || !operation->is_captured) return;
  __atomic_store_n(&operation->comm->async_error, operation->result, __ATOMIC_RELEASE); /* no call answers it */
}
