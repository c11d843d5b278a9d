/*
 * hold BYTES [KERNEL_US [fork]]: allocates so much (says the code), gives the device some work to chew on, and sleeps
 * until it is killed or stdin ends. With `fork` a child that keeps all descriptors lives on for a while.
 */
#include "program.h"

int main(int argc, char **argv) {
  CUdeviceptr block;
  begin();
  CUresult code = cuMemAlloc_v2(&block, strtoull(argv[1], NULL, 0));
  if (argc > 2) {
    CUfunction function = spin((unsigned)atoi(argv[2]));
    for (int i = 0; i < 100; i++) launch(function, NULL);
  }
  if (argc > 3 && fork() == 0) {
    sleep(20);
    _exit(0);
  }
  printf("{\"code\": %d, \"pid\": %d, \"time_ns\": %llu}\n", (int)code, (int)getpid(), now_ns());
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}
