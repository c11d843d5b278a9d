/*
 * hold DEVICE_BYTES [HOST_BYTES]: takes device memory, says "held", then (HOST_BYTES) writes to so much memory of its
 * own, which a container's limit may end; waits until it is ended.
 */
#include "program.h"

int main(int argc, char **argv) {
  CUdeviceptr pointer;
  begin();
  CHECK(cuMemAlloc_v2(&pointer, strtoull(argv[1], NULL, 10)));
  printf("{\"held\": 1, \"pid\": %d}\n", (int)getpid());
  fflush(stdout);
  if (argc > 2) {
    size_t bytes = strtoull(argv[2], NULL, 10);
    char *memory = malloc(bytes);
    TRUE(memory);
    memset(memory, 1, bytes);
    TRUE(memory[bytes - 1] == 1);
  }
  for (;;) pause();
}
