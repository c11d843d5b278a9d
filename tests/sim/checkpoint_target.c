/*
 * checkpoint_target [managed|ipc|waits|self]: has device memory of several types, filled, and says so; then for each
 * line on stdin whether it is still what it was. waits: a stream that waits for ever. self: checkpoints itself first.
 */
#include "program.h"

#define MIB (1ull << 20)
#define PARTS 3

static CUdeviceptr parts[PARTS];
static const size_t part_bytes[PARTS] = {48 * MIB, 1000, 6 * MIB};

static unsigned char byte_of(int part, size_t at) {
  return (unsigned char)(at * 131 + at / 4096 + (size_t)part * 7);
}

static int is_same(void) {
  for (int part = 0; part < PARTS; part++) {
    unsigned char *host = malloc(part_bytes[part]);
    CHECK(cuMemcpyDtoH_v2(host, parts[part], part_bytes[part]));
    for (size_t at = 0; at < part_bytes[part]; at++)
      if (host[at] != byte_of(part, at)) return 0;
    free(host);
  }
  return 1;
}

static void fill(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle physical;
  CHECK(cuMemAlloc_v2(&parts[0], part_bytes[0]));
  CHECK(cuMemAllocAsync(&parts[1], part_bytes[1], NULL));
  CHECK(cuMemCreate(&physical, part_bytes[2], &prop, 0));
  CHECK(cuMemAddressReserve(&parts[2], part_bytes[2], 0, 0, 0));
  CHECK(cuMemMap(parts[2], part_bytes[2], 0, physical, 0));
  CHECK(cuMemSetAccess(parts[2], part_bytes[2], &access, 1));
  for (int part = 0; part < PARTS; part++) {
    unsigned char *host = malloc(part_bytes[part]);
    for (size_t at = 0; at < part_bytes[part]; at++) host[at] = byte_of(part, at);
    CHECK(cuMemcpyHtoD_v2(parts[part], host, part_bytes[part]));
    free(host);
  }
}

static void checkpoint_oneself(void) {
  CHECK(cuCheckpointProcessLock(getpid(), NULL));
  CHECK(cuCheckpointProcessCheckpoint(getpid(), NULL));
  CHECK(cuCheckpointProcessRestore(getpid(), NULL));
  CHECK(cuCheckpointProcessUnlock(getpid(), NULL));
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  CUdeviceptr other;
  CUstream stream;
  begin();
  fill();
  if (strcmp(how, "managed") == 0) CHECK(cuMemAllocManaged(&other, MIB, CU_MEM_ATTACH_GLOBAL));
  if (strcmp(how, "ipc") == 0) CHECK(cuIpcGetMemHandle(&(CUipcMemHandle){0}, parts[0]));
  if (strcmp(how, "waits") == 0) {
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamWaitValue32_v2(stream, parts[0], 0xabcd, CU_STREAM_WAIT_VALUE_EQ));
  }
  if (strcmp(how, "self") == 0) checkpoint_oneself();
  do {
    printf("{\"same\": %d}\n", is_same());
    fflush(stdout);
  } while (getchar() != EOF);
  return 0;
}
