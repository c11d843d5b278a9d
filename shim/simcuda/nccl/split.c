/*
 * split.c - communicators made of the ranks of another one: ncclCommSplit and ncclCommShrink. The ranks agree on the
 * host through the old communicator (split), or all know the same facts (shrink), and then meet as those of a unique
 * id.
 */
#include "simcuda/common/public.h"
#include "simcuda/nccl/communicator.h"
#include "simcuda/nccl/failure.h"
#include "simcuda/nccl/group.h"
#include "simcuda/nccl/launch.h"

struct wish {
  int color;
  int key;
};

/* The place of this rank among those of its color, in the order of keys and then of ranks. */
static uint32_t find_place(const struct ncclComm *comm, const struct wish *wishes, uint32_t *ret_count) {
  const struct wish *own = &wishes[comm->rank];
  uint32_t place = 0;
  *ret_count = 0;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    if (wishes[rank].color != own->color) continue;
    *ret_count += 1;
    place += wishes[rank].key < own->key || (wishes[rank].key == own->key && rank < comm->rank);
  }
  return place;
}

/* Joins the communicator of those ranks. */
static ncclResult_t connect_part(struct ncclComm *comm, uint64_t number, uint32_t rank, uint32_t count,
                                 ncclComm_t *ret_comm) {
  struct sc_token token = sc_token_derive(&comm->token, number);
  struct ncclComm *made = sc_comm_make(rank, count);
  if (made == NULL) return ncclUnhandledCudaError;
  made->context = comm->context;
  made->device = comm->device;
  ncclResult_t result = sc_comm_connect(made, &token);
  if (result == ncclSuccess) *ret_comm = made;
  return result;
}

struct split {
  struct ncclComm *comm;
  struct wish wish;
  ncclComm_t *ret_comm;
};

static ncclResult_t split(void *argument) {
  struct split job = *(struct split *)argument;
  struct wish wishes[SC_NCCL_RANKS_MAX];
  if (!sc_comm_enter(job.comm)) return sc_nccl_fail(ncclInvalidUsage, "ncclCommSplit: the communicator is aborted");
  ncclResult_t result = sc_exchange(job.comm, &job.wish, wishes, sizeof job.wish);
  sc_comm_leave(job.comm);
  if (result != ncclSuccess) return result;
  uint64_t number = (uint64_t)job.comm->children++ << 32 | (uint32_t)job.wish.color;
  if (job.wish.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  uint32_t count, place = find_place(job.comm, wishes, &count);
  return connect_part(job.comm, number, place, count, job.ret_comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret_comm, ncclConfig_t *config);
SC_PUBLIC ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret_comm, ncclConfig_t *config) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommSplit");
  (void)config;
  if (result != ncclSuccess) return result;
  if (ret_comm == NULL) return sc_nccl_fail(ncclInvalidArgument, "ncclCommSplit: the pointer is NULL");
  if (color < NCCL_SPLIT_NOCOLOR) return sc_nccl_fail(ncclInvalidArgument, "ncclCommSplit: color %d", color);
  *ret_comm = NULL;
  return sc_group_add_job(split, &(struct split){comm, {color, key}, ret_comm}, sizeof(struct split));
}

struct shrink {
  struct ncclComm *comm;
  uint32_t place;
  uint32_t count;
  ncclComm_t *ret_comm;
};

static ncclResult_t shrink(void *argument) {
  const struct shrink *job = argument;
  uint64_t number = (uint64_t)job->comm->children++ << 32 | 0x80000000u;
  return connect_part(job->comm, number, job->place, job->count, job->ret_comm);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded_ranks, int excluded_count, ncclComm_t *ret_comm,
                            ncclConfig_t *config, int flags);
SC_PUBLIC ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded_ranks, int excluded_count, ncclComm_t *ret_comm,
                                      ncclConfig_t *config, int flags) {
  bool leaves[SC_NCCL_RANKS_MAX] = {false};
  ncclResult_t result = sc_comm_check(comm, "ncclCommShrink");
  (void)config;
  if (result != ncclSuccess) return result;
  if (ret_comm == NULL || excluded_ranks == NULL || excluded_count < 1)
    return sc_nccl_fail(ncclInvalidArgument, "ncclCommShrink: a pointer is NULL, or no rank is excluded");
  for (int i = 0; i < excluded_count; i++) {
    if (excluded_ranks[i] < 0 || excluded_ranks[i] >= (int)comm->rank_count)
      return sc_nccl_fail(ncclInvalidArgument, "ncclCommShrink: there is no rank %d", excluded_ranks[i]);
    leaves[excluded_ranks[i]] = true;
  }
  if (leaves[comm->rank]) return sc_nccl_fail(ncclInvalidUsage, "ncclCommShrink: called by a rank that is excluded");
  if (flags & NCCL_SHRINK_ABORT) sc_launch_disband(comm);
  uint32_t place = 0, count = 0;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    if (leaves[rank]) continue;
    if (rank < comm->rank) place++;
    count++;
  }
  *ret_comm = NULL;
  return sc_group_add_job(shrink, &(struct shrink){comm, place, count, ret_comm}, sizeof(struct shrink));
}
