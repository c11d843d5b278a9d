/*
 * elf.c - whether a loaded library defines a symbol. Called by resolve.c and nvml/resolve_ml.c before each dlsym().
 * Needed because a dlsym() that finds nothing, called in a namespace of dlmopen, ends the whole process on a glibc
 * before 2.34: its error is thrown in another copy of libc than the one that catches it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "driver/resolve.h"

struct tables {
  const ElfW(Sym) * symbols;
  const char *text;
  const uint32_t *gnu_hash;  /* or NULL */
  const uint32_t *sysv_hash; /* or NULL */
};

/* glibc has relocated these addresses when the library was loaded. */
static struct tables tables_of(const struct link_map *map) {
  struct tables found = {0};
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
    const void *address = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_SYMTAB) found.symbols = address;
    if (entry->d_tag == DT_STRTAB) found.text = address;
    if (entry->d_tag == DT_GNU_HASH) found.gnu_hash = address;
    if (entry->d_tag == DT_HASH) found.sysv_hash = address;
  }
  return found;
}

static bool is(const struct tables *tables, uint32_t index, const char *name) {
  const ElfW(Sym) *symbol = &tables->symbols[index];
  return symbol->st_shndx != SHN_UNDEF && strcmp(tables->text + symbol->st_name, name) == 0;
}

/* System V gABI, "Hash Table": bucket count, chain count, buckets, chains. */
static bool in_sysv_hash(const struct tables *tables, const char *name) {
  uint32_t hash = 0;
  for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
    hash = (hash << 4) + *c;
    hash = (hash ^ ((hash & 0xf0000000u) >> 24)) & 0x0fffffffu;
  }
  const uint32_t *buckets = tables->sysv_hash + 2, *chains = buckets + tables->sysv_hash[0];
  for (uint32_t i = buckets[hash % tables->sysv_hash[0]]; i != STN_UNDEF; i = chains[i])
    if (is(tables, i, name)) return true;
  return false;
}

/* GNU's: bucket count, first symbol, words of the filter (64 bits each), shift, filter, buckets, chains. */
static bool in_gnu_hash(const struct tables *tables, const char *name) {
  uint32_t hash = 5381, count = tables->gnu_hash[0], first = tables->gnu_hash[1];
  for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) hash = hash * 33 + *c;
  const uint32_t *buckets = tables->gnu_hash + 4 + 2 * tables->gnu_hash[2], *chains = buckets + count;
  uint32_t i = count == 0 ? 0 : buckets[hash % count];
  if (i < first) return false;
  for (;; i++) { /* the last of a chain has its lowest bit set */
    if (((chains[i - first] ^ hash) >> 1) == 0 && is(tables, i, name)) return true;
    if ((chains[i - first] & 1) != 0) return false;
  }
}

bool vg_resolve_defines(void *library, const char *name) {
  struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL) return false;
  struct tables tables = tables_of(map);
  if (tables.symbols == NULL || tables.text == NULL) return false;
  if (tables.gnu_hash != NULL) return in_gnu_hash(&tables, name);
  return tables.sysv_hash != NULL && in_sysv_hash(&tables, name);
}
