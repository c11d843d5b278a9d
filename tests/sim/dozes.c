/*
 * dozes: does nothing for longer than the server looks at a ring for, and then works and polls.
 */
#include "program.h"

int main(void) {
  begin();
  CUfunction function = spin(100);
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  for (int i = 0; i < 5; i++) {
    usleep(250000);
    launch(function, NULL);
    CHECK(cuEventRecord(event, NULL));
    CUresult result;
    unsigned long long end = now_ns() + 10000000000ull;
    while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY && now_ns() < end) usleep(1000);
    CHECK(result);
  }
  printf("ok\n");
  return 0;
}
