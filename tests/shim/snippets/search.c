/* Prints the files that the shim's search tries for a library's name (argv[1]), in order; linked with driver/search.c.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "driver/resolve.h"

void *vg_resolve_next(const char *name) {
  return dlsym(RTLD_DEFAULT, name);
}

static bool print(const char *path) {
  puts(path);
  return false;
}

int main(int argc, char **argv) {
  return argc == 2 && vg_resolve_search(argv[1], print) ? 1 : 0;
}
