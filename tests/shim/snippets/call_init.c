/* The least program that uses the driver. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = library == NULL ? NULL : (int (*)(unsigned))dlsym(library, "cuInit");
  if (init == NULL) return 3;
  printf("%d\n", init(0));
  return 0;
}
