/*
 * movable random SEED: allocates memory of many sizes in two contexts, fills, copies, checks and frees it at random
 * until stdin ends, and says every 50 ms what it has done and how often a byte was not what it had written.
 *
 * movable has KIND: has 4 MiB of cuMemAlloc and something else, says so, and for each line on stdin whether the first
 * is what it was. KIND: plain, managed, pool, array, handle, ipc, event, contexts, retained, range, sync.
 *
 * movable ask: what the driver says of an allocation of 3 MiB; then, for each line on stdin, whether it does still.
 *
 * movable ends: has 4 MiB in a context, and destroys that.
 *
 * movable captures: frees 4 MiB while another thread's stream captures, and says what is used before and after its end.
 */
#include <pthread.h>

#include "program.h"

#define MIB (1ull << 20)
#define PLACES 24
#define BLOCK (256ull << 10)

struct part {
  CUdeviceptr address;
  size_t bytes;
  unsigned seed;
  int context;
};

static struct part parts[PLACES];
static CUcontext contexts[2];
static CUfunction functions[2];
static CUstream streams[2];
static unsigned char *host;
static unsigned long long draws = 1;
static unsigned wrong, checks, large;

static unsigned draw(unsigned below) {
  draws = draws * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(draws >> 33) % below;
}

static unsigned char byte_of(unsigned seed, size_t at) {
  return (unsigned char)(seed * 31 + at * 7 + at / 4093);
}

static void fill(struct part *part) {
  for (size_t at = 0; at < part->bytes; at++) host[at] = byte_of(part->seed, at);
  CHECK(cuMemcpyHtoD_v2(part->address, host, part->bytes));
}

static void check(const struct part *part) {
  memset(host, 0, part->bytes);
  CHECK(cuMemcpyDtoH_v2(host, part->address, part->bytes));
  for (size_t at = 0; at < part->bytes; at++)
    if (host[at] != byte_of(part->seed, at)) wrong++;
  checks++;
}

static void make(struct part *part) {
  part->context = (int)draw(2);
  part->bytes = draw(3) ? 2 * MIB + draw(3 * MIB) : 1 + draw(MIB);
  part->seed = draw(1u << 20);
  CHECK(cuCtxSetCurrent(contexts[part->context]));
  if (cuMemAlloc_v2(&part->address, part->bytes) != CUDA_SUCCESS) {
    part->address = 0;
    return;
  }
  large += part->bytes >= 2 * MIB;
  fill(part);
}

static void step(void) {
  struct part *part = &parts[draw(PLACES)];
  if (!part->address) {
    make(part);
    return;
  }
  int here = (int)draw(2); /* any context reaches it */
  CHECK(cuCtxSetCurrent(contexts[here]));
  switch (draw(6)) {
  case 0:
    check(part);
    CHECK(draw(2) ? cuMemFree_v2(part->address) : cuMemFreeAsync(part->address, NULL));
    part->address = 0;
    return;
  case 1:
    part->seed = draw(1u << 20);
    fill(part);
    return;
  case 2:
    launch(functions[here], streams[here]);
    return;
  case 3:
    CHECK(cuMemcpyHtoDAsync_v2(part->address, host, 1, streams[here])); /* what is there is written again below */
    CHECK(cuStreamSynchronize(streams[here]));
    fill(part);
    return;
  default:
    check(part);
  }
}

static int run_random(const char *seed) {
  draws = strtoull(seed, NULL, 10) * 2 + 1;
  host = malloc(8 * MIB);
  begin();
  for (int i = 0; i < 2; i++) {
    if (i == 0)
      CHECK(cuDevicePrimaryCtxRetain(&contexts[i], 0));
    else
      CHECK(cuCtxGetCurrent(&contexts[i]));
  }
  for (int i = 0; i < 2; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    functions[i] = spin(100);
    CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  }
  unsigned long long said_ns = 0;
  for (unsigned steps = 0;; steps++) {
    step();
    if (now_ns() - said_ns < 50000000ull) continue;
    said_ns = now_ns();
    if (printf("{\"steps\": %u, \"checks\": %u, \"large\": %u, \"wrong\": %u}\n", steps, checks, large, wrong) < 0 ||
        fflush(stdout))
      return 0;
  }
}

/* ---- something that is not moved ---- */

static void have(const char *kind, CUdeviceptr first) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
  CUDA_ARRAY_DESCRIPTOR shape = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr other;
  CUarray array;
  CUcontext context;
  CUevent event;
  unsigned one = 1;
  int fd = -1;
  if (strcmp(kind, "managed") == 0) CHECK(cuMemAllocManaged(&other, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
  if (strcmp(kind, "pool") == 0) CHECK(cuMemAllocAsync(&other, 4 * MIB, NULL));
  if (strcmp(kind, "array") == 0) CHECK(cuArrayCreate_v2(&array, &shape));
  if (strcmp(kind, "handle") == 0) CHECK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
  if (strcmp(kind, "ipc") == 0) cuIpcGetMemHandle(&(CUipcMemHandle){0}, first);
  if (strcmp(kind, "event") == 0) {
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    cuIpcGetEventHandle(&(CUipcEventHandle){0}, event);
  }
  if (strcmp(kind, "contexts") == 0)
    for (int i = 0; i < 8; i++) CHECK(cuCtxCreate_v2(&context, 0, 0));
  if (strcmp(kind, "retained") == 0)
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)first));
  if (strcmp(kind, "range") == 0)
    cuMemGetHandleForAddressRange(&fd, first, 2 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (strcmp(kind, "sync") == 0) CHECK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, first));
}

static int run_has(const char *kind) {
  struct part part = {.bytes = 4 * MIB, .seed = 9};
  host = malloc(part.bytes);
  begin();
  CHECK(cuMemAlloc_v2(&part.address, part.bytes));
  fill(&part);
  have(kind, part.address);
  do {
    check(&part);
    printf("{\"wrong\": %u}\n", wrong);
    fflush(stdout);
  } while (getchar() != EOF);
  return 0;
}

/* ---- what the driver says ---- */

static int run_ask(void) {
  CUdeviceptr address, base;
  size_t bytes, free_bytes, total_bytes;
  unsigned type;
  int ordinal;
  begin();
  CHECK(cuMemAlloc_v2(&address, 3 * MIB));
  do {
    CHECK(cuMemGetAddressRange_v2(&base, &bytes, address + MIB));
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("{\"offset\": %lld, \"bytes\": %zu, \"type\": %u, \"ordinal\": %d, \"used\": %zu}\n",
           (long long)(base - address), bytes, type, ordinal, total_bytes - free_bytes);
    fflush(stdout);
  } while (getchar() != EOF);
  return 0;
}

static int run_ends(void) {
  CUdeviceptr address;
  CUcontext context;
  begin();
  CHECK(cuCtxCreate_v2(&context, 0, 0));
  CHECK(cuMemAlloc_v2(&address, 4 * MIB));
  CHECK(cuCtxDestroy_v2(context));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
  puts("{}");
  fflush(stdout);
  return getchar() == EOF ? 0 : 1;
}

/* ---- captures ---- */

static void *free_it(void *address) {
  CHECK(cuCtxSetCurrent(contexts[0]));
  CHECK(cuMemFree_v2((CUdeviceptr)address));
  return NULL;
}

static size_t used(void) {
  size_t free_bytes, total_bytes;
  CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  return total_bytes - free_bytes;
}

static int run_captures(void) {
  CUdeviceptr address;
  CUstream stream;
  CUgraph graph;
  pthread_t thread;
  begin();
  CHECK(cuCtxGetCurrent(&contexts[0]));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc_v2(&address, 4 * MIB));
  CUfunction function = spin(100);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  launch(function, stream);
  pthread_create(&thread, NULL, free_it, (void *)address);
  pthread_join(thread, NULL);
  size_t before = used();
  CHECK(cuStreamEndCapture(stream, &graph));
  size_t after;
  do after = used();
  while (after == before); /* when the context's work has been seen to complete */
  printf("{\"before\": %zu, \"after\": %zu}\n", before, after);
  fflush(stdout);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
  return getchar() == EOF ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "ask") == 0) return run_ask();
  if (argc == 3 && strcmp(argv[1], "random") == 0) return run_random(argv[2]);
  if (argc == 3 && strcmp(argv[1], "has") == 0) return run_has(argv[2]);
  if (argc == 2 && strcmp(argv[1], "ends") == 0) return run_ends();
  if (argc == 2 && strcmp(argv[1], "captures") == 0) return run_captures();
  return 2;
}
