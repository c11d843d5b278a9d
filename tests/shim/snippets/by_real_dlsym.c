/* Fetches libc's own dlsym by version, as programs do that go round interposers. */
#include "report.h"

typedef void *dlsym_function(void *, const char *);

int main(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  dlsym_function *real = NULL;
  for (size_t i = 0; real == NULL && i < sizeof versions / sizeof versions[0]; i++)
    real = (dlsym_function *)dlvsym(RTLD_DEFAULT, "dlsym", versions[i]);
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (real == NULL || library == NULL) return 3;
  for (size_t i = 0; i < NAME_COUNT; i++) report(names[i], real(library, names[i]));
  return 0;
}
