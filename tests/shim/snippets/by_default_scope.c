/* Linked with the driver, but finds everything by dlsym(RTLD_DEFAULT). */
#include "report.h"

int main(void) {
  for (size_t i = 0; i < NAME_COUNT; i++) report(names[i], dlsym(RTLD_DEFAULT, names[i]));
  return 0;
}
