/*
 * paged PIECES MIB: has so many pieces of managed memory. For each line on stdin kernels of a millisecond use them one
 * after the other, and when all have ended, it says how many they were. `f` frees the first piece instead; `m`
 * allocates one of device memory of the same size, and says what the driver answers.
 */
#include "program.h"

enum { PIECES_MAX = 256 };

static CUfunction spin_over(void) {
  static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                             ".visible .entry spin_1000(.param .u64 memory)\n{\nret;\n}\n";
  CUmodule module;
  CUfunction function;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&function, module, "spin_1000"));
  return function;
}

static void say(const char *name, int value) {
  printf("{\"%s\": %d, \"pid\": %d}\n", name, value, (int)getpid());
  fflush(stdout);
}

int main(int argc, char **argv) {
  CUdeviceptr pieces[PIECES_MAX], more;
  int count = argc > 2 ? atoi(argv[1]) : 0, first = 0;
  TRUE(count > 0 && count <= PIECES_MAX);
  size_t bytes = (size_t)atoll(argv[2]) << 20;
  begin();
  CUfunction function = spin_over();
  for (int i = 0; i < count; i++) CHECK(cuMemAllocManaged(&pieces[i], bytes, CU_MEM_ATTACH_GLOBAL));
  say("pieces", count);
  for (int letter; (letter = getchar()) != EOF;) {
    if (letter == 'm') say("code", (int)cuMemAlloc_v2(&more, bytes));
    if (letter == 'f') {
      CHECK(cuMemFree_v2(pieces[first++]));
      say("freed", first);
    }
    if (letter != '\n') continue;
    for (int i = first; i < count; i++) {
      void *parameters[] = {&pieces[i]};
      CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    }
    CHECK(cuCtxSynchronize());
    say("kernels", count - first);
  }
  return 0;
}
