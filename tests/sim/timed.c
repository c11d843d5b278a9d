/*
 * timed KERNEL_US COUNT: launches one kernel at a time into an idle stream, between two events, and waits for it; says
 * how long each took by its events, in microseconds.
 */
#include "program.h"

int main(int argc, char **argv) {
  CUevent before, after;
  float elapsed_ms;
  begin();
  CUfunction kernel = spin(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 100);
  int count = argc > 2 ? atoi(argv[2]) : 100;
  CHECK(cuEventCreate(&before, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&after, CU_EVENT_DEFAULT));
  printf("{\"taken_us\": [");
  for (int i = 0; i < count; i++) {
    CHECK(cuEventRecord(before, NULL));
    launch(kernel, NULL);
    CHECK(cuEventRecord(after, NULL));
    CHECK(cuEventSynchronize(after));
    CHECK(cuEventElapsedTime(&elapsed_ms, before, after));
    printf("%s%.1f", i ? ", " : "", (double)elapsed_ms * 1000);
  }
  printf("]}\n");
  return 0;
}
