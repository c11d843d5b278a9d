/* dlmopen(argv[1]) into a namespace of its own, then dlsym. Exit 3: dlmopen found nothing. */
#include "report.h"

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
  if (library == NULL) return 3;
  for (size_t i = 0; i < NAME_COUNT; i++) report(names[i], dlsym(library, names[i]));
  return 0;
}
