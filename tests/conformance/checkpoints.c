/*
 * checkpoints: another process is locked, moved off its devices, back, and let go: states, their order, its memory.
 */
#include "pair.h"

#define BYTES (8 * MIB)

static pid_t other_pid;

static void other_holds_memory(void) {
  CUdeviceptr block;
  pid_t self = getpid();
  char in[4] = "";
  begin();
  NEED(cuMemAlloc_v2(&block, BYTES));
  NEED(cuMemcpyHtoD_v2(block, "abc", 4));
  NEED(cuCtxSynchronize());
  say_bytes(&self, sizeof self);
  await_go();
  CODE("read", cuMemcpyDtoH_v2(in, block, 4));
  fact("same", strcmp(in, "abc") == 0);
  CODE("alloc", cuMemAlloc_v2(&block, BYTES));
}

static void state(const char *name) {
  CUprocessState now = (CUprocessState)UNTOUCHED;
  CUresult code = cuCheckpointProcessGetState(other_pid, &now);
  if (code == CUDA_ERROR_NOT_SUPPORTED) skip("the driver does not checkpoint processes of this device");
  fact(name, code == CUDA_SUCCESS ? (long long)now : -(long long)code);
}

static CUresult lock(void) {
  CUcheckpointLockArgs args = {.timeoutMs = 10000};
  return cuCheckpointProcessLock(other_pid, &args);
}

static CUresult checkpoint(void) {
  CUcheckpointCheckpointArgs args = {0};
  return cuCheckpointProcessCheckpoint(other_pid, &args);
}

static CUresult restore(void) {
  CUcheckpointRestoreArgs args = {0};
  return cuCheckpointProcessRestore(other_pid, &args);
}

static CUresult unlock(void) {
  CUcheckpointUnlockArgs args = {0};
  return cuCheckpointProcessUnlock(other_pid, &args);
}

static void begin_other(void) {
  with_other(other_holds_memory);
  NEED(cuInit(0));
  say_go();
  hear_bytes(&other_pid, sizeof other_pid);
}

static void let_go(void) {
  say_go();
  hear_other();
}

static void moved_and_back(void) {
  begin_other();
  state("running");
  CODE("lock", lock());
  state("locked");
  CODE("checkpoint", checkpoint());
  state("checkpointed");
  CODE("restore", restore());
  state("locked_again");
  CODE("unlock", unlock());
  state("running_again");
  let_go();
}

static void locked_only(void) {
  begin_other();
  state("running");
  CODE("lock", lock());
  CODE("unlock", unlock());
  state("running_again");
  let_go();
}

static void out_of_order(void) {
  begin_other();
  state("running");
  CODE("checkpoint", checkpoint());
  CODE("restore", restore());
  CODE("unlock", unlock());
  state("still_running");
  CODE("lock", lock());
  CODE("lock_again", lock());
  CODE("restore", restore());
  state("still_locked");
  CODE("unlock", unlock());
  let_go();
}

ROWS(ROW(moved_and_back), ROW(locked_only), ROW(out_of_order))
