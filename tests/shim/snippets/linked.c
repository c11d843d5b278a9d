/* Linked with the driver: the program's own references, bound by the loader (LD_BIND_NOW: all at the start). */
#include "report.h"
#define NAME(name) extern int name();
#include "names.inc"
#undef NAME

static const struct {
  const char *name;
  void *function;
} linked[] = {
#define NAME(name) {#name, (void *)name},
#include "names.inc"
#undef NAME
};

int main(void) {
  for (size_t i = 0; i < NAME_COUNT; i++) report(linked[i].name, linked[i].function);
  return 0;
}
