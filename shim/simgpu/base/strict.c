/*
 * strict.c - see strict.h: the setting, and how a finding is reported.
 */
#include "simgpu/base/strict.h"
#include <stdio.h>
#include <string.h>

bool sim_strict;
__thread const char *sim_strict_call;

static bool fails;
static uint64_t found;

void sim_strict_begin(const char *setting) {
  fails = strcmp(setting, "fail") == 0;
  sim_strict = fails || strcmp(setting, "1") == 0;
}

void sim_strict_type_name(const char *type, char ret_name[32]) {
  const char *inner = strstr(type, "struct ");
  if (inner) type = inner + strlen("struct ");
  if (strncmp(type, "sim_", 4) == 0) type += 4;
  snprintf(ret_name, 32, "%.*s", (int)strcspn(type, ")"), type);
}

void sim_strict_count(void) {
  __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
}

bool sim_strict_failed(void) {
  return fails && VG_LOAD_RELAXED(&found) > 0;
}

void sim_strict_tell(const char *type, const void *handle, const char *wrong) {
  char name[32];
  sim_strict_type_name(type, name);
  sim_strict_count();
  fprintf(stderr, "vgpu-sim strict: %s: %s %p: %s\n", sim_strict_call ? sim_strict_call : "outside of a call", name,
          handle, wrong);
}
