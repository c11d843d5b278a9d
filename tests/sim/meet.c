/*
 * meet COUNT OWN_US [processes]: on device 0 a kernel of OWN_US before each meeting of 1 ms with device 1, COUNT times;
 * then waits for both devices and says from when to when. processes: each device has a process of its own, the second
 * is a child. Waits for a line on stdin before it starts.
 */
#include "program.h"
#include <sys/wait.h>

static CUfunction meeting(void) {
  CUmodule module;
  CUfunction function;
  CHECK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry meet_1000()\n{\n"
                                  "ret;\n}\n"));
  CHECK(cuModuleGetFunction(&function, module, "meet_1000"));
  return function;
}

int main(int argc, char **argv) {
  int count = atoi(argv[1]);
  unsigned own_us = (unsigned)atoi(argv[2]);
  int first = 0, last = 1;
  pid_t child = 0;
  setpgid(0, 0); /* kernels of one process group meet */
  if (argc > 3) {
    child = fork();
    first = last = child ? 0 : 1;
  }
  CUcontext contexts[2];
  CUfunction own[2], meet[2];
  CHECK(cuInit(0));
  for (int i = first; i <= last; i++) {
    CHECK(cuCtxCreate_v2(&contexts[i], 0, i));
    own[i] = spin(own_us);
    meet[i] = meeting();
  }
  if (first == 0) {
    printf("{\"ready\": %d}\n", (int)getpid());
    fflush(stdout);
    if (getchar() == EOF) return 1;
  }
  unsigned long long begin_ns = now_ns();
  for (int n = 0; n < count; n++)
    for (int i = first; i <= last; i++) {
      CHECK(cuCtxSetCurrent(contexts[i]));
      if (i == 0) launch(own[i], NULL);
      launch(meet[i], NULL);
    }
  for (int i = first; i <= last; i++) {
    CHECK(cuCtxSetCurrent(contexts[i]));
    CHECK(cuCtxSynchronize());
  }
  if (first == 1) return 0;
  printf("{\"begin_ns\": %llu, \"end_ns\": %llu}\n", begin_ns, now_ns());
  int status = 0;
  if (child) TRUE(waitpid(child, &status, 0) == child);
  return status != 0;
}
