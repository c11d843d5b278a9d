/*
 * entry.c - cuGetProcAddress, error names, and the entry points that are there and have nothing to do here.
 */
#include "simgpu/entries/names.h"
#include "simgpu/entries/table.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include <stdlib.h>
#include <string.h>

static int compare_entry(const void *name, const void *offset) {
  return strcmp(name, vg_entry_text + *(const uint16_t *)offset);
}

static void *entry_point(const char *name) {
  const uint16_t *offset = bsearch(name, vg_entry_offset, VG_ENTRY_COUNT, sizeof *vg_entry_offset, compare_entry);
  return offset ? vg_sim_entry_points[offset - vg_entry_offset] : NULL;
}

static int compare_base(const void *name, const void *form) {
  return strcmp(name, ((const struct sim_form *)form)->base);
}

/*
 * The newest form of a name that the asked version has; ret_exists: there is one at all. A caller that
 * asks for per-thread forms is given no other form of a name that has some; the first ones came with 7000.
 */
static const struct sim_form *form_of(const char *base, unsigned version, bool per_thread, bool *ret_exists) {
  const struct sim_form *form = bsearch(base, sim_forms, sim_form_count, sizeof *sim_forms, compare_base);
  const struct sim_form *end = sim_forms + sim_form_count;
  *ret_exists = form != NULL;
  if (!form) return NULL;
  while (form > sim_forms && strcmp(form[-1].base, base) == 0) form--;
  bool has_per_thread = false;
  for (const struct sim_form *one = form; one < end && strcmp(one->base, base) == 0; one++)
    has_per_thread |= one->per_thread;
  const struct sim_form *best = NULL;
  for (; form < end && strcmp(form->base, base) == 0; form++) {
    if (form->version > version || form->per_thread != (per_thread && has_per_thread)) continue;
    if (!best || form->version >= best->version) best = form;
  }
  return best;
}

/* As in drivers, versions are compared without a sign (-1 is newer than all), and with both flags per-thread wins. */
static CUresult look_up(const char *name, unsigned version, cuuint64_t flags, void **ret_function,
                        CUdriverProcAddressQueryResult *ret_status) {
  cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!name || !ret_function || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  bool exists = strcmp(name, SIM_VALUES_ENTRY) == 0;
  if (exists) { /* no name of CUDA's: asked for by the CUDA runtime of the simulated device */
    *ret_function = (void *)sim_values_watch;
    *ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
  }
  const struct sim_form *form = form_of(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &exists);
  *ret_function = form ? entry_point(form->name) : NULL;
  *ret_status = *ret_function ? CU_GET_PROC_ADDRESS_SUCCESS
                : exists      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGetProcAddress_v2(const char *name, void **ret_function, int version, cuuint64_t flags,
                                        CUdriverProcAddressQueryResult *ret_status) {
  CUdriverProcAddressQueryResult status;
  CUresult result = look_up(name, (unsigned)version, flags, ret_function, &status);
  if (result == CUDA_SUCCESS && ret_status) *ret_status = status;
  return result;
}

/* The first form has no status: what is not found is an error, and leaves the output as it was. */
SIM_PUBLIC CUresult cuGetProcAddress(const char *name, void **ret_function, int version, cuuint64_t flags) {
  CUdriverProcAddressQueryResult status;
  void *function;
  CUresult result = look_up(name, (unsigned)version, flags, ret_function ? &function : NULL, &status);
  if (result != CUDA_SUCCESS) return result;
  if (status != CU_GET_PROC_ADDRESS_SUCCESS) return CUDA_ERROR_NOT_FOUND;
  *ret_function = function;
  return CUDA_SUCCESS;
}

static int compare_code(const void *code, const void *error) {
  return *(const int *)code - ((const struct sim_error *)error)->code;
}

static const struct sim_error *error_of(CUresult code) {
  int wanted = (int)code;
  return bsearch(&wanted, sim_errors, sim_error_count, sizeof *sim_errors, compare_code);
}

SIM_PUBLIC CUresult cuGetErrorName(CUresult code, const char **ret_text) {
  const struct sim_error *error = error_of(code);
  if (!ret_text) return CUDA_ERROR_INVALID_VALUE;
  *ret_text = error ? error->name : NULL;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuGetErrorString(CUresult code, const char **ret_text) {
  const struct sim_error *error = error_of(code);
  if (!ret_text) return CUDA_ERROR_INVALID_VALUE;
  *ret_text = error ? error->text : NULL;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuProfilerStart(void) {
  struct sim_context *context;
  return sim_enter(&context);
}

SIM_PUBLIC CUresult cuProfilerStop(void) {
  struct sim_context *context;
  return sim_enter(&context);
}
