/*
 * own_calls.c - see resolve.h, vg_resolve_own_calls(). Called by resolve.c and ml/resolve_ml.c right after they have
 * loaded the real library, before anybody can have its functions.
 *
 * NVIDIA's NVML calls its own exported functions through its symbol table, and the loader binds these calls to a
 * preloaded hook of that name: one nvmlInit of a program would be three to us, and the library's own counts and indices
 * would be a slice's. They are bound again to the library itself, as -Bsymbolic would have done when it was linked. So
 * a call is met when a program makes it and passes when the library makes it: in any of its threads, out of entries
 * that have no hook, and by a jump as well as by a call, none of which a mark per thread or a look at the return
 * address could tell; and it costs nothing afterwards.
 *
 * Must hold: what another library than this one has interposed stays as it is. Memory that the loader has made
 * read-only is so again at the end. All is done under the loader's own lock (dl_iterate_phdr), since two threads may
 * both be the first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "resolve.h"

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
  struct range code;      /* the library's segments, from first to last */
  struct range shim;      /* the same of this library */
  struct range read_only; /* what the loader made so after it had relocated it; empty: nothing */
  bool opened;            /* and is writable at the moment */
  const ElfW(Sym) * symbols;
  int error;
};

static bool within(const struct range *range, uintptr_t address) {
  return address >= range->begin && address < range->end;
}

/* Its loaded segments and what is read-only after relocation, in whole pages as the loader rounds them. */
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

static void write_word(struct own *own, uintptr_t *word, uintptr_t value) {
  if (within(&own->read_only, (uintptr_t)word) && !own->opened) {
    own->error = protect(&own->read_only, PROT_READ | PROT_WRITE);
    own->opened = own->error == 0;
  }
  if (own->error == 0) __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* A reference to a function that the library defines itself. It is bound to us, or to nothing yet (a call that is bound
 * when it is first made points into the library), or somebody else has interposed it. */
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

/* The loader lists objects in no order that helps: first both are measured, then it is done. */
static int find_both(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  struct own *own = data;
  struct range code, read_only;
  measure(info, &code, &read_only);
  if (within(&code, (uintptr_t)&vg_resolve_own_calls)) own->shim = code;
  if (within(&code, (uintptr_t)own->map->l_ld)) {
    own->code = code;
    own->read_only = read_only;
  }
  if (own->shim.end == 0 || own->code.end == 0) return 0;
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
    VG_LOG_ONCE("calls of %s to itself cannot be told from a program's: mprotect: %s", map->l_name,
                strerror(own.error));
  errno = saved_errno;
}
