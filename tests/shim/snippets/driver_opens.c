/* A driver that opens itself and NVML by name from its own text, as the real one does: cuInit says what it got. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

static void tell(const char *name) {
  void *library = dlopen(name, RTLD_NOW);
  struct link_map *map = NULL;
  if (library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) printf("%s\n", map->l_name);
}

int cuInit(unsigned flags) {
  tell("libcuda.so.1");
  tell("libnvidia-ml.so.1");
  return (int)flags;
}
