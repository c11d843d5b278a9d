/* dlopen(argv[1], argv[2] as flags), then dlsym. Exit 3: dlopen found nothing. */
#include "report.h"

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  void *library = dlopen(argv[1], (int)strtol(argv[2], NULL, 0));
  if (library == NULL) return 3;
  for (size_t i = 0; i < NAME_COUNT; i++) report(names[i], dlsym(library, names[i]));
  return 0;
}
