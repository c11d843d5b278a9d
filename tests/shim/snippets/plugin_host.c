/* Opens a plugin (argv[1]) with RTLD_DEEPBIND: its references look into its own libraries first. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
  if (plugin == NULL) return 3;
  void (*run)(void) = (void (*)(void))dlsym(plugin, "plugin_run");
  run();
  return 0;
}
