/*
 * cuGetProcAddress as cudart uses it: argv[1] names the entry point that is looked up by dlsym (cuGetProcAddress or
 * _v2), argv[2] is the CUDA version, argv[3] the flags. Names without a version, as programs give them.
 */
#include "report.h"

typedef int lookup_v1(const char *, void **, int, uint64_t);
typedef int lookup_v2(const char *, void **, int, uint64_t, int *);

int main(int argc, char **argv) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void *lookup = library == NULL || argc != 4 ? NULL : dlsym(library, argv[1]);
  if (lookup == NULL) return 3;
  for (size_t i = 0; i < NAME_COUNT; i++) {
    void *function = NULL;
    int status = -1, result, version = atoi(argv[2]);
    uint64_t flags = strtoul(argv[3], NULL, 0);
    if (strcmp(argv[1], "cuGetProcAddress") == 0)
      result = ((lookup_v1 *)lookup)(names[i], &function, version, flags);
    else
      result = ((lookup_v2 *)lookup)(names[i], &function, version, flags, &status);
    printf("%d %d ", result, status);
    report(names[i], function);
  }
  return 0;
}
