/*
 * checkpoint PID WORD...: does what the words say and prints the code of each, and a value:
 * state, lock[=TIMEOUT_MS], save, restore, unlock, tid, pair (restore with another device), free (bytes of the device),
 * take=BYTES (device memory), give (that).
 */
#include "program.h"

static CUdeviceptr taken;

static unsigned long long number(const char *word) {
  const char *equals = strchr(word, '=');
  return equals ? strtoull(equals + 1, NULL, 0) : 0;
}

static CUresult restore_elsewhere(int pid) {
  CUcheckpointGpuPair pair = {{"one device"}, {"another one"}};
  CUcheckpointRestoreArgs args = {.gpuPairs = &pair, .gpuPairsCount = 1};
  return cuCheckpointProcessRestore(pid, &args);
}

static CUresult act(const char *word, int pid, long long *ret_value) {
  CUprocessState state = 0;
  CUcheckpointLockArgs args = {.timeoutMs = (unsigned)number(word)};
  size_t free_bytes = 0, total;
  int tid = 0;
  CUresult result = CUDA_ERROR_UNKNOWN;
  if (strcmp(word, "state") == 0) result = cuCheckpointProcessGetState(pid, &state), *ret_value = state;
  if (strncmp(word, "lock", 4) == 0) result = cuCheckpointProcessLock(pid, args.timeoutMs ? &args : NULL);
  if (strcmp(word, "save") == 0) result = cuCheckpointProcessCheckpoint(pid, NULL);
  if (strcmp(word, "restore") == 0) result = cuCheckpointProcessRestore(pid, NULL);
  if (strcmp(word, "pair") == 0) result = restore_elsewhere(pid);
  if (strcmp(word, "unlock") == 0) result = cuCheckpointProcessUnlock(pid, NULL);
  if (strcmp(word, "tid") == 0) result = cuCheckpointProcessGetRestoreThreadId(pid, &tid), *ret_value = tid;
  if (strcmp(word, "free") == 0) result = cuMemGetInfo_v2(&free_bytes, &total), *ret_value = (long long)free_bytes;
  if (strncmp(word, "take", 4) == 0) result = cuMemAlloc_v2(&taken, number(word));
  if (strcmp(word, "give") == 0) result = cuMemFree_v2(taken);
  return result;
}

int main(int argc, char **argv) {
  begin();
  for (int i = 2; i < argc; i++) {
    long long value = 0;
    CUresult result = act(argv[i], atoi(argv[1]), &value);
    printf("[%d, %lld]\n", (int)result, value);
    fflush(stdout);
  }
  return 0;
}
