/*
 * names.h - tables that codegen/generate_names.py writes into shim/gen/simgpu/simgpu_names.c; read by entry.c.
 */
#ifndef VG_SIM_NAMES_H
#define VG_SIM_NAMES_H
#include <stdbool.h>

struct sim_form {   /* sorted by name, then version */
  const char *base; /* cuMemAlloc */
  unsigned version; /* of CUDA that brought this form: 3020 */
  bool per_thread;
  const char *name; /* cuMemAlloc_v2 */
};
extern const struct sim_form sim_forms[];
extern const unsigned sim_form_count;

struct sim_error { /* sorted by code */
  int code;
  const char *name;
  const char *text;
};
extern const struct sim_error sim_errors[];
extern const unsigned sim_error_count;

#endif
