/* by_musl [FILE]: opens the driver from a program that is linked to musl, and says what came of it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  puts(dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW) ? "opened" : dlerror());
  return 0;
}
