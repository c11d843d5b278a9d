/*
 * checkpoint.c - cuCheckpointProcess*: another process, or this one, is locked (its calls block, what it has submitted
 * completes), its device memory moved to the host, moved back, and the process let go. The server keeps the states.
 * Must hold: nothing here blocks because this very process is locked.
 */
#include "simgpu/process/process.h"
#include <errno.h>
#include <string.h>

#define ASK_AGAIN_NS 500000ull

static CUresult code_of(int rc) {
  switch (-rc) {
  case 0:
    return CUDA_SUCCESS;
  case EALREADY:
    return CUDA_ERROR_ILLEGAL_STATE;
  case EAGAIN:
    return CUDA_ERROR_NOT_READY;
  case EOPNOTSUPP:
    return CUDA_ERROR_NOT_SUPPORTED;
  case ENOMEM:
    return CUDA_ERROR_OUT_OF_MEMORY;
  case EPIPE:
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  default:
    return CUDA_ERROR_INVALID_VALUE; /* no process of this user has that pid, or it does not use the device */
  }
}

static CUresult ask(enum sim_request_kind kind, int pid, uint64_t *ret_value) {
  CUresult result = sim_started();
  if (result != CUDA_SUCCESS) return result;
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  struct sim_request request = {.kind = kind, .context = (uint32_t)pid};
  struct sim_reply reply = {0};
  int rc = sim_link_exchange(&request, -1, &reply, NULL);
  if (ret_value) *ret_value = reply.bytes;
  return code_of(rc);
}

/* Moves what the process has over the host's link: takes the time that it takes, beside all other copies. */
static CUresult move(enum sim_request_kind kind, int pid) {
  uint64_t left_ns;
  CUresult result = ask(kind, pid, NULL);
  if (result != CUDA_SUCCESS) return result;
  while ((result = ask(SIM_REQUEST_CHECKPOINT_MOVED, pid, &left_ns)) == CUDA_ERROR_NOT_READY)
    vg_prim_sleep_until_ns(vg_prim_now_ns() + (left_ns > ASK_AGAIN_NS ? left_ns : ASK_AGAIN_NS));
  return result;
}

static bool is_zero(const void *bytes, size_t count) {
  const char *at = bytes;
  return count == 0 || (at[0] == 0 && memcmp(at, at + 1, count - 1) == 0);
}

SIM_PUBLIC CUresult cuCheckpointProcessGetState(int pid, CUprocessState *ret_state) {
  uint64_t state;
  if (!ret_state) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = ask(SIM_REQUEST_CHECKPOINT_STATE, pid, &state);
  if (result == CUDA_SUCCESS) *ret_state = (CUprocessState)state;
  return result;
}

/* No thread is needed to restore: it is the main one that must not be stopped. */
SIM_PUBLIC CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *ret_tid) {
  if (!ret_tid) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = ask(SIM_REQUEST_CHECKPOINT_STATE, pid, NULL);
  if (result == CUDA_SUCCESS) *ret_tid = pid;
  return result;
}

SIM_PUBLIC CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
  if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof args->reserved1))) return CUDA_ERROR_INVALID_VALUE;
  uint64_t timeout_ns = args && args->timeoutMs ? args->timeoutMs * VG_NS_PER_MS : UINT64_MAX;
  uint64_t begin_ns = vg_prim_now_ns();
  CUresult result;
  while ((result = ask(SIM_REQUEST_CHECKPOINT_LOCK, pid, NULL)) == CUDA_ERROR_NOT_READY) {
    if (vg_prim_now_ns() - begin_ns >= timeout_ns) {
      ask(SIM_REQUEST_CHECKPOINT_UNLOCK, pid, NULL);
      return result;
    }
    vg_prim_sleep_until_ns(vg_prim_now_ns() + ASK_AGAIN_NS);
  }
  return result;
}

SIM_PUBLIC CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
  if (args && !is_zero(args, sizeof *args)) return CUDA_ERROR_INVALID_VALUE;
  return move(SIM_REQUEST_CHECKPOINT_SAVE, pid);
}

/* A process comes back to the devices that it was on: another one for one of them is refused. */
static CUresult check_pairs(const CUcheckpointRestoreArgs *args) {
  if (!is_zero(args->reserved, sizeof args->reserved) || args->reserved1) return CUDA_ERROR_INVALID_VALUE;
  if (args->gpuPairsCount && !args->gpuPairs) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < args->gpuPairsCount; i++)
    if (memcmp(&args->gpuPairs[i].oldUuid, &args->gpuPairs[i].newUuid, sizeof(CUuuid)) != 0)
      return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
  CUresult result = args ? check_pairs(args) : CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? move(SIM_REQUEST_CHECKPOINT_RESTORE, pid) : result;
}

SIM_PUBLIC CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
  if (args && !is_zero(args, sizeof *args)) return CUDA_ERROR_INVALID_VALUE;
  return ask(SIM_REQUEST_CHECKPOINT_UNLOCK, pid, NULL);
}
