/* A plugin linked with the driver, for plugin_host.c. */
#include "report.h"
#define NAME(name) extern int name();
#include "names.inc"
#undef NAME

void plugin_run(void);

void plugin_run(void) {
#define NAME(name) report(#name, (void *)name);
#include "names.inc"
#undef NAME
}
