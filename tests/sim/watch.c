/*
 * watch BYTES: waits until so much device memory is free and says when that was.
 */
#include "program.h"

int main(int argc, char **argv) {
  size_t wanted = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, free_now = 0, total;
  begin();
  CHECK(cuMemGetInfo_v2(&free_now, &total));
  printf("{\"free\": %zu}\n", free_now);
  fflush(stdout);
  for (int i = 0; i < 100000 && free_now < wanted; i++) {
    usleep(200);
    CHECK(cuMemGetInfo_v2(&free_now, &total));
  }
  printf("{\"free\": %zu, \"time_ns\": %llu}\n", free_now, now_ns());
  return 0;
}
