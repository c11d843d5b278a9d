/*
 * bomb COUNT - a fork bomb of programs that use the device: each process makes others, until there were COUNT, and says
 * what cuInit answered it. Those that got the device stay, the others end. It is over when its standard input is.
 */
#include "program.h"
#include <signal.h>
#include <sys/mman.h>

static int *made;

static void use_device(void) {
  CUcontext context;
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = cuCtxCreate_v2(&context, 0, 0);
  printf("%d\n", (int)result);
  fflush(stdout);
  if (result != CUDA_SUCCESS) _exit(0);
}

static void explode(int count) {
  while (__atomic_add_fetch(made, 1, __ATOMIC_RELAXED) <= count) {
    if (fork() != 0) continue;
    use_device();
  }
}

int main(int argc, char **argv) {
  char byte;
  made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (argc < 2 || made == MAP_FAILED) return 2;
  signal(SIGCHLD, SIG_IGN);
  explode(atoi(argv[1]));
  while (read(0, &byte, 1) > 0) {
  }
  kill(0, SIGKILL);
  return 0;
}
