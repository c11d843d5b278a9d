/* Says whether the driver is loaded: before a dlopen, after it. Exit 3: the dlopen itself failed. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  printf("%d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);
  if (dlopen("libcuda.so.1", RTLD_NOW) == NULL) return 3;
  printf("%d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL);
  return 0;
}
