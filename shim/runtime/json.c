/* json.c - finds one string in the outermost object of a JSON text. Called by hook.c.
 *
 * The state that an engine gives to a hook is the only JSON that this program reads, and two strings of it are all that
 * it needs. It is read as untrusted: any bytes give a value or an error. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
  const char *at, *end;
};

static void skip_space(struct reader *reader) {
  while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at) reader->at++;
}

static bool take(struct reader *reader, char wanted) {
  skip_space(reader);
  if (reader->at == reader->end || *reader->at != wanted) return false;
  reader->at++;
  return true;
}

/* Four hexadecimal digits, or -1. */
static int hex4(struct reader *reader) {
  if (reader->end - reader->at < 4) return -1;
  char digits[5] = {0};
  memcpy(digits, reader->at, 4);
  if (strspn(digits, "0123456789abcdefABCDEF") != 4) return -1;
  reader->at += 4;
  return (int)strtol(digits, NULL, 16);
}

static size_t utf8(unsigned code, char *out) {
  if (code < 0x80) return out[0] = (char)code, 1;
  if (code < 0x800) return out[0] = (char)(0xc0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), 2;
  if (code < 0x10000) {
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 63));
    return out[2] = (char)(0x80 | (code & 63)), 3;
  }
  out[0] = (char)(0xf0 | code >> 18);
  out[1] = (char)(0x80 | (code >> 12 & 63));
  out[2] = (char)(0x80 | (code >> 6 & 63));
  return out[3] = (char)(0x80 | (code & 63)), 4;
}

/* What follows a backslash. Returns the number of bytes it stands for, 0 where it is none; never a NUL, which would cut
 * the value short. */
static size_t unescape(struct reader *reader, char *out) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (reader->at == reader->end || !*reader->at) return 0;
  char letter = *reader->at++;
  const char *known = strchr(letters, letter);
  if (known) return out[0] = meanings[known - letters], 1;
  int code = letter == 'u' ? hex4(reader) : -1;
  if (code >= 0xd800 && code < 0xdc00) {
    if (reader->end - reader->at < 2 || reader->at[0] != '\\' || reader->at[1] != 'u') return 0;
    reader->at += 2;
    int low = hex4(reader);
    if (low < 0xdc00 || low > 0xdfff) return 0;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  return code <= 0 ? 0 : utf8((unsigned)code, out);
}

/* Reads a string whose opening quote was taken; out NULL: skips it. -EINVAL or -E2BIG. */
static int read_string(struct reader *reader, char *out, size_t out_bytes) {
  size_t used = 0;
  while (reader->at < reader->end) {
    char piece[4];
    size_t count = 1;
    piece[0] = *reader->at++;
    if (piece[0] == '"') {
      if (out) out[used] = 0;
      return 0;
    }
    if ((unsigned char)piece[0] < ' ') return -EINVAL;
    if (piece[0] == '\\' && !(count = unescape(reader, piece))) return -EINVAL;
    if (!out) continue;
    if (used + count >= out_bytes) return -E2BIG;
    memcpy(out + used, piece, count);
    used += count;
  }
  return -EINVAL;
}

/* Skips any value: strings are read as such, brackets counted; what is between is not looked at. */
static int skip_value(struct reader *reader) {
  size_t depth = 0;
  skip_space(reader);
  const char *begin = reader->at;
  while (reader->at < reader->end) {
    char c = *reader->at;
    if (depth == 0 && (c == ',' || c == '}')) return reader->at > begin ? 0 : -EINVAL;
    reader->at++;
    if (c == '"' && read_string(reader, NULL, 0)) return -EINVAL;
    if (c == '{' || c == '[') depth++;
    if (c == '}' || c == ']') {
      if (depth == 0) return -EINVAL;
      depth--;
    }
  }
  return -EINVAL;
}

int vr_json_string(const char *json, size_t json_bytes, const char *key, char *ret_value, size_t value_bytes) {
  struct reader reader = {json, json + json_bytes};
  if (!take(&reader, '{')) return -EINVAL;
  if (take(&reader, '}')) return -ENOENT;
  do {
    char name[64];
    if (!take(&reader, '"')) return -EINVAL;
    const char *begin = reader.at;
    int error = read_string(&reader, name, sizeof name);
    if (error == -E2BIG) { /* a long name is none that we look for */
      name[0] = 0;
      reader.at = begin;
      error = read_string(&reader, NULL, 0);
    }
    if (error || !take(&reader, ':')) return -EINVAL;
    if (!strcmp(name, key)) return take(&reader, '"') ? read_string(&reader, ret_value, value_bytes) : -EINVAL;
    if (skip_value(&reader)) return -EINVAL;
  } while (take(&reader, ','));
  return take(&reader, '}') ? -ENOENT : -EINVAL;
}
