/* Opens a library by a name that only its own RUNPATH leads to (argv[1]); exit 0 when it is found. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc == 2 && dlopen(argv[1], RTLD_NOW) != NULL) return 0;
  fprintf(stderr, "%s\n", dlerror());
  return 3;
}
