/*
 * own_calls.c - see resolve.h, vg_resolve_own_calls(). Called by open.c right after the real library is loaded, before
 * any caller can have its functions.
 *
 * NVIDIA's NVML calls its own exported functions through its symbol table, and the loader binds these references to a
 * preloaded hook of the same name: one nvmlInit of a program would reach three hooks, and the library's internal counts
 * and indices would be those of a slice. Here they are bound to the library itself, as -Bsymbolic would have done when
 * it was linked. Hooks then see the program's calls only, whichever thread calls, whether the entry in between has a
 * hook or is a jump, and whether the library calls or tail-calls. Neither a flag per thread nor the return address
 * distinguishes all of these, and both would cost time at every call.
 *
 * Invariants: a reference that another library has interposed is left alone. Pages that the loader has made read-only
 * are read-only again at the end. Everything happens under the loader's lock (dl_iterate_phdr), because two threads may
 * load the library at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "driver/resolve.h"

#if defined(__x86_64__)
#define RELOCATION_CALL R_X86_64_JUMP_SLOT
#define RELOCATION_TABLE R_X86_64_GLOB_DAT
#define RELOCATION_DATA R_X86_64_64
#elif defined(__aarch64__)
#define RELOCATION_CALL R_AARCH64_JUMP_SLOT
#define RELOCATION_TABLE R_AARCH64_GLOB_DAT
#define RELOCATION_DATA R_AARCH64_ABS64
#endif

struct range {
  uintptr_t begin, end;
};

struct own {
  const struct link_map *map;
  const struct dl_phdr_info *info;
  struct range code;      /* the library's segments, from first to last */
  struct range shim;      /* this library's segments */
  struct range read_only; /* PT_GNU_RELRO: read-only since the relocation; may be empty */
  bool opened;            /* read_only has been made writable */
  const ElfW(Sym) * symbols;
  int error;
};

static bool within(const struct range *range, uintptr_t address) {
  return address >= range->begin && address < range->end;
}

/* The segments of an object; read_only in whole pages, rounded as the loader does. */
static void measure(const struct dl_phdr_info *info, struct range *ret_code, struct range *ret_read_only) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  *ret_code = (struct range){UINTPTR_MAX, 0};
  *ret_read_only = (struct range){0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;
    if (header->p_type == PT_LOAD && begin < ret_code->begin) ret_code->begin = begin;
    if (header->p_type == PT_LOAD && end > ret_code->end) ret_code->end = end;
    if (header->p_type == PT_GNU_RELRO) *ret_read_only = (struct range){begin & -page, end & -page};
  }
}

static int protect(const struct range *range, int protection) {
  return mprotect((void *)range->begin, range->end - range->begin, protection) != 0 ? errno : 0;
}

/* A relocation in a segment that was never writable (DT_TEXTREL) is not touched. */
static bool in_data(const struct own *own, uintptr_t address) {
  for (int i = 0; i < own->info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &own->info->dlpi_phdr[i];
    uintptr_t begin = own->info->dlpi_addr + header->p_vaddr;
    struct range segment = {begin, begin + header->p_memsz};
    if (header->p_type == PT_LOAD && (header->p_flags & PF_W) && within(&segment, address)) return true;
  }
  return false;
}

static void write_word(struct own *own, uintptr_t *word, uintptr_t value) {
  if (!in_data(own, (uintptr_t)word)) return;
  if (within(&own->read_only, (uintptr_t)word) && !own->opened) {
    own->error = protect(&own->read_only, PROT_READ | PROT_WRITE);
    own->opened = own->error == 0;
  }
  if (own->error == 0) __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Binds one reference. A reference to a function that the library defines itself points into the shim, into the library
 * (bound to it already, or not bound before its first call), or into a third object that has interposed it. */
static void bind(struct own *own, const ElfW(Rela) * relocation) {
  unsigned long type = ELF64_R_TYPE(relocation->r_info);
  if (type != RELOCATION_CALL && type != RELOCATION_TABLE && type != RELOCATION_DATA) return;
  const ElfW(Sym) *symbol = &own->symbols[ELF64_R_SYM(relocation->r_info)];
  if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return;
  uintptr_t *word = (uintptr_t *)(own->map->l_addr + relocation->r_offset);
  uintptr_t value = own->map->l_addr + symbol->st_value;
  if (type == RELOCATION_DATA) value += (uintptr_t)relocation->r_addend;
  uintptr_t bound = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  if (bound != value && (within(&own->shim, bound) || within(&own->code, bound))) write_word(own, word, value);
}

static void bind_all(struct own *own) {
  const ElfW(Rela) * tables[2] = {NULL, NULL}; /* of data, of calls */
  size_t bytes[2] = {0, 0};
  for (const ElfW(Dyn) *entry = own->map->l_ld; entry->d_tag != DT_NULL; entry++) {
    /* glibc has relocated these addresses when the library was loaded */
    if (entry->d_tag == DT_SYMTAB) own->symbols = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_RELA) tables[0] = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_RELASZ) bytes[0] = entry->d_un.d_val;
    if (entry->d_tag == DT_JMPREL) tables[1] = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_PLTRELSZ) bytes[1] = entry->d_un.d_val;
  }
  for (int i = 0; own->symbols != NULL && i < 2; i++)
    for (size_t j = 0; tables[i] != NULL && j < bytes[i] / sizeof(ElfW(Rela)) && own->error == 0; j++)
      bind(own, &tables[i][j]);
  if (own->opened) own->error = protect(&own->read_only, PROT_READ);
}

/* Objects come in the order in which they were loaded: a library before the shim is not bound to it. */
static int find_both(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  struct own *own = data;
  struct range code, read_only;
  measure(info, &code, &read_only);
  if (within(&code, (uintptr_t)&vg_resolve_own_calls)) own->shim = code;
  if (!within(&code, (uintptr_t)own->map->l_ld)) return 0;
  own->info = info;
  own->code = code;
  own->read_only = read_only;
  bind_all(own);
  return 1;
}

void vg_resolve_own_calls(void *library) {
  struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL) return;
  struct own own = {.map = map};
  int saved_errno = errno;
  dl_iterate_phdr(find_both, &own);
  if (own.error != 0)
    VG_LOG_ONCE("cannot distinguish calls of %s to itself from a program's: mprotect: %s", map->l_name,
                strerror(own.error));
  errno = saved_errno;
}
