/*
 * operation.h - one operation of one rank: what the call asked for, and how it is done (operation.c).
 */
#ifndef SC_NCCL_OPERATION_H
#define SC_NCCL_OPERATION_H
#include "simcuda/nccl/communicator.h"

enum sc_operation_kind {
  SC_ALL_REDUCE,
  SC_BROADCAST,
  SC_REDUCE,
  SC_ALL_GATHER,
  SC_REDUCE_SCATTER,
  SC_ALL_TO_ALL,
  SC_GATHER,
  SC_SCATTER,
  SC_SEND,
  SC_RECEIVE
};

struct sc_operation {
  struct sc_operation *next; /* of its group */
  struct ncclComm *comm;
  enum sc_operation_kind kind;
  const void *send;
  void *recv;
  uint64_t count; /* elements that the call names */
  ncclDataType_t type;
  ncclRedOp_t redop; /* a built-in one */
  bool has_factor;   /* the own elements are multiplied before */
  uint64_t factor;   /* its bytes, of the type */
  int peer;          /* or root */
  CUstream stream;
  bool is_captured;
  bool is_called; /* the driver has called back for the last kernel */
  bool is_published;
  bool is_finished;
  uint64_t number;     /* of its message */
  ncclResult_t result; /* of what the kernels' calls did */
};

bool sc_is_pair(const struct sc_operation *operation);
uint64_t sc_element_bytes(ncclDataType_t type); /* 0: there is no such type */
/* What this rank reads of `send` and writes to `recv`. */
uint64_t sc_send_bytes(const struct sc_operation *operation);
uint64_t sc_recv_bytes(const struct sc_operation *operation);
/* Of them, what is moved: nothing of an operation with more bytes than the communicator moves. */
uint64_t sc_moved_send_bytes(const struct sc_operation *operation);
uint64_t sc_moved_recv_bytes(const struct sc_operation *operation);

/* Says so once if it is such a one. */
void sc_tell_unmoved(const struct sc_operation *operation);

/* Whether the other ranks have taken enough of what was given before, and whether they have given what it needs. */
bool sc_can_publish(const struct sc_operation *operation);
bool sc_can_finish(const struct sc_operation *operation, uint32_t *ret_rank);
/* The parts of it as the driver calls them when the kernels of it are submitted (launch.c); both wait where they must.
 * is_usable: the host has memory for the buffers; else no bytes of this rank are moved. */
void sc_publish(void *operation, bool is_usable);
void sc_finish(void *operation, bool is_usable);

#endif
