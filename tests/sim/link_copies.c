/*
 * link_copies to|from pinned|pageable BYTES COUNT STREAMS: says its pid when it is ready; for the next line on stdin it
 * makes COUNT copies between host and device, over its streams in turn, waits for them and says how long they took on
 * the device, and whether the bytes are as they should be.
 */
#include "program.h"

#define STREAMS_MAX 16

int main(int argc, char **argv) {
  TRUE(argc == 6);
  int to_device = strcmp(argv[1], "to") == 0, pinned = strcmp(argv[2], "pinned") == 0;
  size_t bytes = strtoull(argv[3], NULL, 0);
  int count = atoi(argv[4]), stream_count = atoi(argv[5]);
  CUstream streams[STREAMS_MAX];
  CUdeviceptr device;
  unsigned char *host, *seen = malloc(bytes);
  TRUE(stream_count <= STREAMS_MAX);
  begin();
  CHECK(cuMemAlloc_v2(&device, bytes));
  if (pinned)
    CHECK(cuMemHostAlloc((void **)&host, bytes, 0));
  else
    host = malloc(bytes);
  for (size_t at = 0; at < bytes; at++) host[at] = (unsigned char)(at * 131 + at / 4096);
  CHECK(cuMemcpyHtoD_v2(device, host, bytes));
  for (int i = 0; i < stream_count; i++) CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  printf("{\"ready\": %d}\n", (int)getpid());
  fflush(stdout);
  if (getchar() == EOF) return 1;
  unsigned long long begin_ns = now_ns();
  for (int i = 0; i < count; i++) {
    CUstream stream = streams[i % stream_count];
    if (to_device)
      CHECK(cuMemcpyHtoDAsync_v2(device, host, bytes, stream));
    else
      CHECK(cuMemcpyDtoHAsync_v2(host, device, bytes, stream));
  }
  CHECK(cuCtxSynchronize());
  unsigned long long end_ns = now_ns();
  CHECK(cuMemcpyDtoH_v2(seen, device, bytes));
  TRUE(memcmp(seen, host, bytes) == 0);
  printf("{\"begin_ns\": %llu, \"end_ns\": %llu}\n", begin_ns, end_ns);
  return 0;
}
