/*
 * link_random SEED ROUNDS: random copies of many MiB between pinned host memory and the device on several streams, with
 * events between them, each followed by a look at what is there: every byte, also where an event was waited for on
 * another stream. Says {"exact": 1}.
 */
#include "program.h"

#define MIB (1ull << 20)
#define BYTES (48 * MIB)
#define STREAMS 3

static unsigned long long state;

static unsigned long long draw(unsigned long long below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (state >> 24) % below;
}

static void fill(unsigned char *at, size_t bytes, unsigned long long seed) {
  for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(seed + i * 131 + i / 4096);
}

int main(int argc, char **argv) {
  TRUE(argc == 3);
  state = strtoull(argv[1], NULL, 0);
  int rounds = atoi(argv[2]);
  CUstream streams[STREAMS];
  CUevent event;
  CUdeviceptr device;
  unsigned char *host, *back, *expected = calloc(1, BYTES);
  begin();
  CHECK(cuMemAlloc_v2(&device, BYTES));
  CHECK(cuMemHostAlloc((void **)&host, BYTES, 0));
  CHECK(cuMemHostAlloc((void **)&back, BYTES, 0));
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < STREAMS; i++) CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  memset(host, 0, BYTES);
  CHECK(cuMemcpyHtoDAsync_v2(device, host, BYTES, streams[0]));
  CHECK(cuStreamSynchronize(streams[0]));
  for (int round = 0; round < rounds; round++) {
    size_t bytes = draw(4) ? draw(BYTES - 1) + 1 : draw(5000) + 1, offset = draw(BYTES - bytes + 1);
    CUstream first = streams[draw(STREAMS)], second = streams[draw(STREAMS)];
    fill(host + offset, bytes, draw(256));
    memcpy(expected + offset, host + offset, bytes);
    if (draw(2))
      CHECK(cuMemcpyHtoDAsync_v2(device + offset, host + offset, bytes, first));
    else
      CHECK(cuMemcpyAsync(device + offset, (CUdeviceptr)(host + offset), bytes, first));
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(second, event, 0));
    size_t seen = draw(BYTES) + 1, from = draw(BYTES - seen + 1);
    memset(back, 0xa5, BYTES);
    CHECK(cuMemcpyDtoHAsync_v2(back + from, device + from, seen, second));
    CHECK(cuStreamSynchronize(second));
    TRUE(memcmp(back + from, expected + from, seen) == 0);
    TRUE(from == 0 || back[from - 1] == 0xa5);
    TRUE(from + seen == BYTES || back[from + seen] == 0xa5);
  }
  printf("{\"exact\": 1}\n");
  return 0;
}
