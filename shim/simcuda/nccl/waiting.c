/*
 * waiting.c - waits for other ranks. A thread that waits sleeps on the bell of the area and looks at times whether the
 * rank is still there: one whose process has ended, or that has aborted, ends the wait with ncclRemoteError.
 */
#include "base/prim.h"
#include "simcuda/nccl/communicator.h"
#include "simcuda/nccl/failure.h"

#define LOOK_NS (50 * VG_NS_PER_MS)

static ncclResult_t keep_error(struct ncclComm *comm, ncclResult_t result) {
  __atomic_store_n(&comm->async_error, result, __ATOMIC_RELEASE);
  return result;
}

ncclResult_t sc_comm_check_rank(struct ncclComm *comm, uint32_t rank) {
  uint32_t state = __atomic_load_n(&comm->area->ranks[rank].state, __ATOMIC_ACQUIRE);
  if (state == SC_RANK_ABORTED || state == SC_RANK_DESTROYED)
    return keep_error(comm, sc_nccl_fail(ncclRemoteError, "rank %u of %u has %s its communicator", rank,
                                         comm->rank_count, state == SC_RANK_ABORTED ? "aborted" : "destroyed"));
  if (sc_area_is_lost(comm->area, comm->fd, rank))
    return keep_error(comm,
                      sc_nccl_fail(ncclRemoteError, "the process of rank %u of %u has ended", rank, comm->rank_count));
  return ncclSuccess;
}

ncclResult_t sc_comm_wait(struct ncclComm *comm, sc_condition holds, uint32_t rank, uint64_t number) {
  for (uint32_t round = 0;; round++) {
    uint32_t heard = VG_LOAD(&comm->area->bell);
    if (holds(comm, rank, number)) return ncclSuccess;
    if (VG_LOAD(&comm->is_aborted)) return sc_nccl_fail(ncclInternalError, "the communicator is aborted");
    /* What a rank posted before it went counts, so the condition is looked at once more after its state. */
    ncclResult_t result = round > 0 ? sc_comm_check_rank(comm, rank) : ncclSuccess;
    if (result != ncclSuccess) return holds(comm, rank, number) ? ncclSuccess : result;
    sc_area_sleep(comm->area, heard, LOOK_NS);
  }
}

bool sc_comm_enter(struct ncclComm *comm) {
  __atomic_fetch_add(&comm->users, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&comm->is_aborted, __ATOMIC_SEQ_CST)) return true;
  sc_comm_leave(comm);
  return false;
}

void sc_comm_leave(struct ncclComm *comm) {
  __atomic_fetch_sub(&comm->users, 1, __ATOMIC_SEQ_CST);
}
