/*
 * tenant [KERNEL_US]: launches kernels without a break until it is terminated, says every 50 ms how many have
 * completed. The whole-path tests' tenant: knows nothing of slices. Linked to libcuda.so.1.
 */
#include "program.h"

#define BATCH 8

int main(int argc, char **argv) {
  CUevent events[2];
  begin();
  CUfunction function = spin(argc > 1 ? (unsigned)atoi(argv[1]) : 250);
  for (int i = 0; i < 2; i++) CHECK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
  unsigned long long completed = 0, said_ns = 0;
  for (unsigned long long round = 0;; round++) {
    CUevent event = events[round % 2];
    if (round > 1) {
      CHECK(cuEventSynchronize(event));
      completed += BATCH;
    }
    for (int i = 0; i < BATCH; i++) launch(function, NULL);
    CHECK(cuEventRecord(event, NULL));
    if (now_ns() < said_ns + 50000000) continue;
    said_ns = now_ns();
    printf("{\"pid\": %d, \"completed\": %llu, \"now_ns\": %llu}\n", (int)getpid(), completed, said_ns);
    fflush(stdout);
  }
}
