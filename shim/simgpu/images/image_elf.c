/*
 * image_elf.c - reads a cubin: kernels are the function symbols marked as entries, their parameters stand in the
 * section .nv.info.<kernel>, global variables are the object symbols. Called by image_parse.c. Layout of .nv.info:
 * records {u8 format, u8 attribute, u16 value or size}; found by comparing cubins with their sources (attributes
 * below), as no public document describes it.
 */
#include "simgpu/images/image.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_SIZED 4 /* the u16 is the number of bytes that follow */
#define ATTRIBUTE_MAX_THREADS 0x05
#define ATTRIBUTE_PARAM 0x17    /* {u32, u16 ordinal, u16 offset, u32 size in the bits from 18} */
#define ATTRIBUTE_PARAM_V2 0x45 /* of kernels with over 4 KiB: {u32, u16 ordinal, u16 offset, u32 size} */
#define ATTRIBUTE_PARAM_BYTES 0x19
#define ATTRIBUTE_REGISTERS 0x2f /* {u32 symbol, u32 count}, in .nv.info */
#define ENTRY_SYMBOL 0x10        /* st_other of a kernel */

struct elf {
  const uint8_t *data;
  size_t bytes;
  Elf64_Ehdr header;
  const char *names;
  size_t names_bytes;
};

static bool inside(const struct elf *elf, uint64_t offset, uint64_t bytes) {
  return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

static bool section(const struct elf *elf, uint32_t index, Elf64_Shdr *ret_section) {
  if (index >= elf->header.e_shnum) return false;
  memcpy(ret_section, elf->data + elf->header.e_shoff + (size_t)index * sizeof *ret_section, sizeof *ret_section);
  return ret_section->sh_type == SHT_NOBITS || inside(elf, ret_section->sh_offset, ret_section->sh_size);
}

static const char *text_at(const char *table, size_t bytes, uint32_t offset) {
  return offset < bytes && memchr(table + offset, 0, bytes - offset) != NULL ? table + offset : "";
}

static const char *section_name(const struct elf *elf, const Elf64_Shdr *s) {
  return text_at(elf->names, elf->names_bytes, s->sh_name);
}

static bool read_header(const uint8_t *data, size_t bytes, Elf64_Ehdr *ret_header) {
  if (bytes < sizeof *ret_header) return false;
  memcpy(ret_header, data, sizeof *ret_header);
  return memcmp(ret_header->e_ident, ELFMAG, SELFMAG) == 0 && ret_header->e_ident[EI_CLASS] == ELFCLASS64 &&
         ret_header->e_shentsize == sizeof(Elf64_Shdr);
}

size_t sim_image_elf_bytes(const uint8_t *data, size_t limit_bytes) {
  Elf64_Ehdr h;
  if (!read_header(data, limit_bytes, &h)) return 0;
  uint64_t tables[2] = {h.e_shoff + (uint64_t)h.e_shnum * h.e_shentsize,
                        h.e_phoff + (uint64_t)h.e_phnum * h.e_phentsize};
  uint64_t end = tables[0] > tables[1] ? tables[0] : tables[1];
  if (end > limit_bytes || h.e_shoff > limit_bytes) return 0;
  for (uint32_t i = 0; i < h.e_shnum; i++) {
    Elf64_Shdr s;
    memcpy(&s, data + h.e_shoff + (size_t)i * sizeof s, sizeof s);
    if (s.sh_type == SHT_NOBITS || s.sh_offset > limit_bytes || s.sh_size > limit_bytes) continue;
    if (s.sh_offset + s.sh_size > end) end = s.sh_offset + s.sh_size;
  }
  return end > limit_bytes ? 0 : end;
}

static uint32_t word_at(const uint8_t *data) {
  uint32_t word;
  memcpy(&word, data, sizeof word);
  return word;
}

static int read_param(struct sim_image_kernel *kernel, const uint8_t *value, uint32_t attribute) {
  uint32_t place = word_at(value + 4);
  uint32_t size_bytes = word_at(value + 8) >> (attribute == ATTRIBUTE_PARAM ? 18 : 0);
  return sim_image_add_param(kernel, place & 0xffff, place >> 16, size_bytes);
}

static int read_kernel_info(struct sim_image_kernel *kernel, const uint8_t *data, size_t bytes) {
  for (size_t at = 0; at + 4 <= bytes;) {
    uint32_t format = data[at], attribute = data[at + 1], half = data[at + 2] | data[at + 3] << 8;
    const uint8_t *value = data + at + 4;
    at += 4;
    if (format == FORMAT_SIZED) {
      if (half > bytes - at) return -EINVAL;
      at += half;
    }
    int result = 0;
    if ((attribute == ATTRIBUTE_PARAM || attribute == ATTRIBUTE_PARAM_V2) && half >= 12)
      result = read_param(kernel, value, attribute);
    else if (attribute == ATTRIBUTE_PARAM_BYTES && format != FORMAT_SIZED && half > kernel->param_bytes)
      kernel->param_bytes = half;
    else if (attribute == ATTRIBUTE_MAX_THREADS && half >= 12)
      kernel->max_threads = word_at(value) * word_at(value + 4) * word_at(value + 8);
    if (result != 0) return result;
  }
  return 0;
}

static int read_kernel(struct sim_image *image, const struct elf *elf, const char *name) {
  bool fresh;
  struct sim_image_kernel *kernel = sim_image_add_kernel(image, name, strlen(name), &fresh);
  if (kernel == NULL) return -ENOMEM;
  if (!fresh) return 0;
  for (uint32_t i = 0; i < elf->header.e_shnum; i++) {
    Elf64_Shdr s;
    if (!section(elf, i, &s)) return -EINVAL;
    const char *section_of = section_name(elf, &s);
    if (strncmp(section_of, ".nv.info.", 9) == 0 && strcmp(section_of + 9, name) == 0) {
      int result = read_kernel_info(kernel, elf->data + s.sh_offset, s.sh_size);
      if (result != 0) return result;
    } else if (strncmp(section_of, ".nv.shared.", 11) == 0 && strcmp(section_of + 11, name) == 0) {
      /* Compute capability 9 and later reserve the first KiB of a block's shared memory for the system. */
      kernel->shared_bytes = s.sh_size > 1024 ? s.sh_size - 1024 : s.sh_size;
    }
  }
  return 0;
}

static int read_variable(struct sim_image *image, const struct elf *elf, const char *name, const Elf64_Sym *symbol) {
  Elf64_Shdr s;
  if (!section(elf, symbol->st_shndx, &s)) return -EINVAL;
  const char *section_of = section_name(elf, &s);
  bool constant = strncmp(section_of, ".nv.constant", 12) == 0;
  if (!constant && strncmp(section_of, ".nv.global", 10) != 0) return 0;
  if (symbol->st_size > SIM_IMAGE_BYTES_MAX * 64) return -EINVAL;
  bool fresh;
  struct sim_image_global *global = sim_image_add_global(image, name, strlen(name), &fresh);
  if (global == NULL) return -ENOMEM;
  if (!fresh) return 0;
  global->bytes = symbol->st_size;
  global->constant = constant;
  if (s.sh_type == SHT_NOBITS || symbol->st_size == 0) return 0;
  if (symbol->st_value > s.sh_size || symbol->st_size > s.sh_size - symbol->st_value) return -EINVAL;
  global->contents = malloc(symbol->st_size);
  if (global->contents == NULL) return -ENOMEM;
  memcpy(global->contents, elf->data + s.sh_offset + symbol->st_value, symbol->st_size);
  return 0;
}

static int read_symbols(struct sim_image *image, const struct elf *elf, const Elf64_Shdr *table) {
  Elf64_Shdr strings;
  if (!section(elf, table->sh_link, &strings) || strings.sh_type == SHT_NOBITS) return -EINVAL;
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    memcpy(&symbol, elf->data + table->sh_offset + at, sizeof symbol);
    const char *name = text_at((const char *)elf->data + strings.sh_offset, strings.sh_size, symbol.st_name);
    int type = ELF64_ST_TYPE(symbol.st_info), result = 0;
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE || name[0] == 0) continue;
    if (type == STT_FUNC && (symbol.st_other & ENTRY_SYMBOL) != 0)
      result = read_kernel(image, elf, name);
    else if (type == STT_OBJECT)
      result = read_variable(image, elf, name, &symbol);
    if (result != 0) return result;
  }
  return 0;
}

/* Registers of the kernels, by symbol number: .nv.info holds them for the whole file. Missing ones keep the default. */
static void read_registers(struct sim_image *image, const struct elf *elf, const Elf64_Shdr *info) {
  Elf64_Shdr table, strings;
  if (!section(elf, info->sh_link, &table) || !section(elf, table.sh_link, &strings)) return;
  if (table.sh_type != SHT_SYMTAB || strings.sh_type != SHT_STRTAB) return;
  const uint8_t *data = elf->data + info->sh_offset;
  for (uint64_t at = 0; at + 4 <= info->sh_size;) {
    uint32_t half = data[at + 2] | data[at + 3] << 8;
    bool sized = data[at] == FORMAT_SIZED, registers = data[at + 1] == ATTRIBUTE_REGISTERS;
    const uint8_t *value = data + at + 4;
    at += 4 + (sized ? half : 0);
    if (!sized || !registers || half < 8 || at > info->sh_size) continue;
    uint64_t index = word_at(value);
    if ((index + 1) * sizeof(Elf64_Sym) > table.sh_size) continue;
    Elf64_Sym symbol;
    memcpy(&symbol, elf->data + table.sh_offset + index * sizeof symbol, sizeof symbol);
    const char *name = text_at((const char *)elf->data + strings.sh_offset, strings.sh_size, symbol.st_name);
    struct sim_image_kernel *kernel = sim_image_find_kernel(image, name);
    if (kernel != NULL) kernel->registers = word_at(value + 4);
  }
}

int sim_image_read_elf(struct sim_image *image, const uint8_t *data, size_t bytes) {
  struct elf elf = {.data = data, .bytes = bytes};
  Elf64_Shdr s;
  if (!read_header(data, bytes, &elf.header)) return -EINVAL;
  if (!inside(&elf, elf.header.e_shoff, (uint64_t)elf.header.e_shnum * sizeof(Elf64_Shdr))) return -EINVAL;
  if (!section(&elf, elf.header.e_shstrndx, &s) || s.sh_type == SHT_NOBITS) return -EINVAL;
  elf.names = (const char *)data + s.sh_offset;
  elf.names_bytes = s.sh_size;
  for (uint32_t i = 0; i < elf.header.e_shnum; i++) {
    if (!section(&elf, i, &s)) return -EINVAL;
    if (s.sh_type != SHT_SYMTAB) continue;
    int result = read_symbols(image, &elf, &s);
    if (result != 0) return result;
  }
  for (uint32_t i = 0; i < elf.header.e_shnum; i++)
    if (section(&elf, i, &s) && s.sh_type != SHT_NOBITS && strcmp(section_name(&elf, &s), ".nv.info") == 0)
      read_registers(image, &elf, &s);
  return 0;
}
