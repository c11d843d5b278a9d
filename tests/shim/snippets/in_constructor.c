/* A library whose constructor uses the driver, before main() of the program that is linked with it. */
#include "report.h"

__attribute__((constructor)) static void begin(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) _Exit(3);
  for (size_t i = 0; i < NAME_COUNT; i++) report(names[i], dlsym(library, names[i]));
}

int anchor(void) {
  return 0;
}
