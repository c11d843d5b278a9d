/* Opens every name of argv and says which file answers: "<file> <marker>", marker 1 for a shim; or "- <why>". */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    void *library = dlopen(argv[i], RTLD_NOW);
    struct link_map *map = NULL;
    if (library == NULL || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
      printf("- %s\n", dlerror());
    else
      printf("%s %d\n", map->l_name, dlsym(library, "vg_shim_marker") != NULL);
  }
  return 0;
}
