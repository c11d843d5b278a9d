/*
 * communicator.h - a rank of a communicator: what the handle of programs points to. communicator.c makes and ends them,
 * waiting.c waits for other ranks, channel.c passes bytes on, operation.c does what a collective does.
 */
#ifndef SC_NCCL_COMMUNICATOR_H
#define SC_NCCL_COMMUNICATOR_H
#include "simcuda/nccl/area.h"
#include "simcuda/nccl/rendezvous.h"

#define SC_NCCL_REDOPS_MAX 64

/* An operator that multiplies each rank's input before the sum. */
struct sc_redop {
  bool is_used;
  bool is_on_device; /* the factor is read when an operation is enqueued */
  ncclDataType_t type;
  uint64_t factor; /* its bytes, of the type; or its address */
};

struct ncclComm {
  uint32_t magic;
  bool is_aborted;
  bool is_finalized;
  bool has_values;   /* streams wait for values in the area, or write some */
  bool has_captured; /* graphs hold operations that point here */
  uint32_t users;    /* threads inside of an operation */
  ncclResult_t async_error;
  struct sc_area *area;
  int fd;
  uint32_t rank;
  uint32_t rank_count;
  struct sc_token token;
  uint32_t children; /* communicators made of it, by all ranks alike */
  CUcontext context;
  CUdevice device;
  double link_bytes_per_ns;
  uint64_t collectives;                 /* begun */
  uint64_t captured;                    /* recorded into graphs */
  uint64_t sent[SC_NCCL_RANKS_MAX];     /* to each rank */
  uint64_t received[SC_NCCL_RANKS_MAX]; /* of each rank: begun */
  struct sc_redop redops[SC_NCCL_REDOPS_MAX];
};

/* ncclSuccess for a handle that is one and not destroyed; else says which function got it. */
ncclResult_t sc_comm_check(const struct ncclComm *comm, const char *function);

/* ---- waiting.c ---- */

typedef bool (*sc_condition)(const struct ncclComm *comm, uint32_t rank, uint64_t number);
/* Sleeps until the condition holds, which the given rank makes true; ncclRemoteError when that is gone. */
ncclResult_t sc_comm_wait(struct ncclComm *comm, sc_condition holds, uint32_t rank, uint64_t number);
/* Whether the rank will never do anything any more; then the error is kept for ncclCommGetAsyncError and returned. */
ncclResult_t sc_comm_check_rank(struct ncclComm *comm, uint32_t rank);
/* Threads inside may use the area until they leave; false: it is aborted. */
bool sc_comm_enter(struct ncclComm *comm);
void sc_comm_leave(struct ncclComm *comm);

/* ---- channel.c ---- */

/* What is exchanged between all ranks, one message of each a number. */
bool sc_has_room(const struct ncclComm *comm, uint64_t bytes);
ncclResult_t sc_wait_for_room(struct ncclComm *comm, uint64_t bytes);
uint8_t *sc_begin_message(struct ncclComm *comm, struct sc_message *message); /* its place; then sc_post_message() */
void sc_post_message(struct ncclComm *comm, const struct sc_message *message);
bool sc_is_posted(const struct ncclComm *comm, uint32_t rank, uint64_t number);
const struct sc_message *sc_message_of(const struct ncclComm *comm, uint32_t rank, uint64_t number,
                                       const uint8_t **ret_bytes);
void sc_release_messages(struct ncclComm *comm, uint64_t number); /* up to it, of all ranks */
/* The same from a rank to one other. */
bool sc_pair_has_room(const struct ncclComm *comm, uint32_t peer, uint64_t bytes);
ncclResult_t sc_pair_wait_for_room(struct ncclComm *comm, uint32_t peer, uint64_t bytes);
uint8_t *sc_pair_begin(struct ncclComm *comm, uint32_t peer, struct sc_message *message);
void sc_pair_post(struct ncclComm *comm, uint32_t peer, const struct sc_message *message);
bool sc_pair_is_posted(const struct ncclComm *comm, uint32_t peer, uint64_t number);
const struct sc_message *sc_pair_message_of(const struct ncclComm *comm, uint32_t peer, uint64_t number,
                                            const uint8_t **ret_bytes);
void sc_pair_release(struct ncclComm *comm, uint32_t peer, uint64_t number);
/* A few bytes of each rank to all, on the host: for what ranks agree upon when communicators are made. */
ncclResult_t sc_exchange(struct ncclComm *comm, const void *mine, void *ret_all, uint32_t bytes);

/* ---- communicator.c ---- */

/* A communicator without its ranks, for the current context; NULL with words for ncclGetLastError. */
struct ncclComm *sc_comm_make(uint32_t rank, uint32_t rank_count);
/* Meets the other ranks; on failure it is freed. */
ncclResult_t sc_comm_connect(struct ncclComm *comm, const struct sc_token *token);

#endif
