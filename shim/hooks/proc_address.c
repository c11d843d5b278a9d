/*
 * proc_address.c - the hooks of cuGetProcAddress. The driver chooses (ABI version, kind of default stream, status);
 * what it returns is looked up among the addresses of its functions and swapped for our hook of the same function.
 * Called by programs. Must hold: an address that is not known passes untouched, and so do functions whose row says
 * `pass` and `asks`.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/prim.h"
#include "driver/resolve.h"
#include "gen/abi/real.h"
#include "gen/hooks/hook_table.h"

struct known {
  void *function; /* the driver's */
  uint16_t entry;
};

struct known_functions {
  uint32_t count;
  struct known by_address[VG_ENTRY_COUNT]; /* sorted by address, then by name */
};

static struct known_functions *known; /* set once */

static int compare_known(const void *left, const void *right) {
  const struct known *a = left, *b = right;
  if (a->function != b->function) return a->function < b->function ? -1 : 1;
  return (int)a->entry - (int)b->entry;
}

/* NULL when there is no memory for the table. */
static const struct known_functions *known_functions(void) {
  struct known_functions *table = VG_LOAD(&known);
  if (table != NULL) return table;
  table = malloc(sizeof *table);
  if (table == NULL) return NULL;
  table->count = 0;
  for (unsigned entry = 0; entry < VG_ENTRY_COUNT; entry++) {
    void *function = vg_resolve_symbol(vg_entry_name(entry));
    if (function != NULL) table->by_address[table->count++] = (struct known){function, (uint16_t)entry};
  }
  qsort(table->by_address, table->count, sizeof table->by_address[0], compare_known);
  struct known_functions *other = NULL;
  if (!__atomic_compare_exchange_n(&known, &other, table, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    free(table);
    table = other;
  }
  return table;
}

/* Whether the ABI name is the one that the program asked for: symbol, a version, and the right default stream. */
static bool names_symbol(const char *name, const char *symbol, bool per_thread) {
  size_t length = strlen(symbol);
  if (strncmp(name, symbol, length) != 0 || (name[length] != '\0' && name[length] != '_')) return false;
  return (strstr(name + length, "_pt") != NULL) == per_thread;
}

/* Where functions share an address the name decides, and after it the last version: equal code has one ABI. */
static const struct known *find(const struct known_functions *table, const void *function, const char *symbol,
                                bool per_thread) {
  uint32_t low = 0, high = table->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (table->by_address[middle].function < function)
      low = middle + 1;
    else
      high = middle;
  }
  const struct known *first = NULL, *named = NULL;
  for (; low < table->count && table->by_address[low].function == function; low++) {
    const struct known *candidate = &table->by_address[low];
    if (first == NULL) first = candidate;
    if (names_symbol(vg_entry_name(candidate->entry), symbol, per_thread)) named = candidate;
  }
  return named != NULL ? named : first;
}

/* Those of this file are not in the table (gen/hooks/hook_table.h). */
static void *hook_of(uint16_t entry) {
  if (entry == VG_ENTRY_cuGetProcAddress) return (void *)cuGetProcAddress;
  if (entry == VG_ENTRY_cuGetProcAddress_v2) return (void *)cuGetProcAddress_v2;
  return vg_hook_functions[entry];
}

static void swap_for_hook(const char *symbol, void **function, cuuint64_t flags) {
  if (symbol == NULL || function == NULL || *function == NULL) return;
  const struct known_functions *table = known_functions();
  if (table == NULL) return;
  const struct known *met =
      find(table, *function, symbol, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (met != NULL && (vg_hook_behaviours[met->entry] != VG_HOOK_PASS || vg_hook_waits[met->entry]))
    *function = hook_of(met->entry);
  /* an exported name that we do not know is a newer ABI and passes; a private address would bypass every hook */
  if (met == NULL && !vg_resolve_is_exported(*function))
    VG_LOG_ONCE("the driver returned a private address for %s: not hooked (please report the driver's version)",
                symbol);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
  CUresult result = REAL(cuGetProcAddress)(symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS) swap_for_hook(symbol, pfn, flags);
  return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
  CUresult result = REAL(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS) swap_for_hook(symbol, pfn, flags);
  return result;
}
