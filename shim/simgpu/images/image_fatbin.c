/*
 * image_fatbin.c - walks a fatbin container: a header and a row of entries (PTX or cubin, for one architecture each,
 * plain or compressed with LZ4). Called by image_parse.c. Entries that cannot be read (Zstandard, LTO-IR) make the
 * image accept every kernel name, which keeps programs running that ship such code.
 */
#include "simgpu/images/image.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KIND_PTX 1
#define KIND_ELF 2
#define KIND_FATBIN 3 /* a whole fatbin inside: written by linker.c only */
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u

struct fatbin_header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};

struct fatbin_entry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t body_bytes;
  uint32_t packed_bytes;
  uint32_t unknown;
  uint16_t minor;
  uint16_t major;
  uint32_t architecture;
  uint32_t name_offset;
  uint32_t name_bytes;
  uint64_t flags;
  uint64_t zero;
  uint64_t unpacked_bytes;
};

int64_t sim_image_unpack_lz4(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes) {
  size_t at = 0, written = 0;
  while (at < in_bytes) {
    uint8_t token = in[at++];
    size_t literals = token >> 4, match = token & 15;
    for (uint8_t more = 255; literals >= 15 && more == 255 && at < in_bytes; literals += more) more = in[at++];
    if (literals > in_bytes - at || literals > out_bytes - written) return -EINVAL;
    memcpy(out + written, in + at, literals);
    at += literals;
    written += literals;
    if (at == in_bytes) return written; /* the last sequence has no match */
    if (in_bytes - at < 2) return -EINVAL;
    size_t distance = in[at] | in[at + 1] << 8;
    at += 2;
    for (uint8_t more = 255; match >= 15 && more == 255 && at < in_bytes; match += more) more = in[at++];
    match += 4;
    if (distance == 0 || distance > written || match > out_bytes - written) return -EINVAL;
    for (; match > 0; match--, written++) out[written] = out[written - distance]; /* may overlap: byte by byte */
  }
  return written;
}

static int read_body(struct sim_image *image, uint32_t kind, const uint8_t *body, size_t bytes) {
  return kind == KIND_ELF ? sim_image_read_elf(image, body, bytes)
                          : sim_image_read_ptx(image, (const char *)body, bytes);
}

static int read_packed(struct sim_image *image, const struct fatbin_entry *entry, const uint8_t *body) {
  if (entry->packed_bytes > entry->body_bytes || entry->unpacked_bytes > SIM_IMAGE_BYTES_MAX) return -EINVAL;
  uint8_t *plain = malloc(entry->unpacked_bytes + 1);
  if (plain == NULL) return -ENOMEM;
  int64_t bytes = sim_image_unpack_lz4(body, entry->packed_bytes, plain, entry->unpacked_bytes);
  int result = bytes < 0 ? (int)bytes : read_body(image, entry->kind, plain, bytes);
  free(plain);
  return result;
}

static int read_container(struct sim_image *image, const uint8_t *data, size_t bytes, int depth);

static int read_entry(struct sim_image *image, const struct fatbin_entry *entry, const uint8_t *body, int depth) {
  if (entry->kind == KIND_FATBIN && depth == 0) return read_container(image, body, entry->body_bytes, 1);
  bool is_code = entry->kind == KIND_PTX || entry->kind == KIND_ELF;
  if (!is_code || (entry->flags & FLAG_ZSTD) != 0) {
    image->any_name = true;
    return 0;
  }
  if ((entry->flags & FLAG_LZ4) != 0) return read_packed(image, entry, body);
  return read_body(image, entry->kind, body, entry->body_bytes);
}

/* The same kernel may have other limits in code for other devices, and the first that is read counts: fits reads the
 * code for the usual device (SIM_IMAGE_ARCHITECTURE, also where another one is simulated), !fits all the rest. */
static int read_entries(struct sim_image *image, const uint8_t *at, const uint8_t *end, int depth, bool fits) {
  while ((size_t)(end - at) >= sizeof(struct fatbin_entry)) {
    struct fatbin_entry entry;
    memcpy(&entry, at, sizeof entry);
    size_t left = end - at;
    if (entry.header_bytes < 32 || entry.header_bytes > left || entry.body_bytes > left - entry.header_bytes)
      return -EINVAL;
    const uint8_t *body = at + entry.header_bytes;
    bool entry_fits = entry.kind == KIND_ELF && entry.architecture == SIM_IMAGE_ARCHITECTURE;
    int result = entry_fits == fits ? read_entry(image, &entry, body, depth) : 0;
    if (result != 0) return result;
    at = body + entry.body_bytes;
  }
  return 0;
}

static int read_container(struct sim_image *image, const uint8_t *data, size_t bytes, int depth) {
  struct fatbin_header header;
  if (bytes < sizeof header) return -EINVAL;
  memcpy(&header, data, sizeof header);
  if (header.header_bytes < sizeof header || header.header_bytes > bytes) return -EINVAL;
  if (header.body_bytes > bytes - header.header_bytes) return -EINVAL;
  const uint8_t *begin = data + header.header_bytes, *end = begin + header.body_bytes;
  int result = read_entries(image, begin, end, depth, true);
  return result == 0 ? read_entries(image, begin, end, depth, false) : result;
}

int sim_image_read_fatbin(struct sim_image *image, const uint8_t *data, size_t bytes) {
  return read_container(image, data, bytes, 0);
}
