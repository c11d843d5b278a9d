/*
 * image_ptx.c - reads the declarations of PTX text: `.entry` with its parameter list and launch bounds, module-scope
 * `.global` and `.const` variables. Bodies are skipped by counting braces. Called by image_parse.c. Grammar: "PTX ISA",
 * chapters "Kernel and Function Directives" and "State Spaces, Types and Variables".
 */
#define _GNU_SOURCE /* memmem */
#include "simgpu/images/image.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
  const char *at;
  const char *end;
};

struct token {
  const char *text;
  size_t length;
};

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static void skip_blank(struct reader *r) {
  while (r->at < r->end) {
    if (isspace((unsigned char)*r->at)) {
      r->at++;
    } else if (r->end - r->at >= 2 && r->at[0] == '/' && r->at[1] == '/') {
      while (r->at < r->end && *r->at != '\n') r->at++;
    } else if (r->end - r->at >= 2 && r->at[0] == '/' && r->at[1] == '*') {
      const char *close = memmem(r->at + 2, r->end - r->at - 2, "*/", 2);
      r->at = close == NULL ? r->end : close + 2;
    } else {
      return;
    }
  }
}

/* A word, a string, or one punctuation character; length 0 at the end. */
static struct token next(struct reader *r) {
  skip_blank(r);
  struct token t = {r->at, 0};
  if (r->at >= r->end || *r->at == 0) return t;
  if (*r->at == '"') {
    r->at++;
    while (r->at < r->end && *r->at != '"') r->at++;
    if (r->at < r->end) r->at++;
  } else if (is_word(*r->at)) {
    while (r->at < r->end && is_word(*r->at)) r->at++;
  } else {
    r->at++;
  }
  t.length = r->at - t.text;
  return t;
}

static bool is(struct token t, const char *word) {
  return t.length == strlen(word) && memcmp(t.text, word, t.length) == 0;
}

/* Decimal, 0x hexadecimal, or the bits of a float (0f3F800000, 0d3FF0000000000000). */
static uint64_t number(struct token t) {
  char text[24] = {0};
  memcpy(text, t.text, t.length < sizeof text - 1 ? t.length : sizeof text - 1);
  bool bits = text[0] == '0' && text[1] != 0 && strchr("fFdD", text[1]) != NULL;
  return bits ? strtoull(text + 2, NULL, 16) : strtoull(text, NULL, 0);
}

/* Bytes of .u8 .. .b128, 0 for any other word. Opaque handles (.texref and its kind) are 64-bit. */
static uint32_t type_bytes(struct token t) {
  if (is(t, ".texref") || is(t, ".samplerref") || is(t, ".surfref")) return 8;
  if (t.length < 3 || t.text[0] != '.' || strchr("bsuf", t.text[1]) == NULL) return 0;
  char *end;
  char text[8] = {0};
  memcpy(text, t.text + 2, t.length - 2 < sizeof text - 1 ? t.length - 2 : sizeof text - 1);
  unsigned long bits = strtoul(text, &end, 10);
  return end != text && *end == 0 && bits % 8 == 0 && bits <= 128 ? bits / 8 : 0;
}

struct variable {
  struct token name;
  uint64_t bytes;
  uint32_t align_bytes;
  uint32_t element_bytes;
};

/* After the state space: `.align N .v4 .type name[n][m]` with attributes between; ends before , ) ; = { */
static struct variable read_variable(struct reader *r) {
  struct variable v = {{NULL, 0}, 0, 0, 0};
  uint64_t count = 1;
  bool pointer = false; /* behind .ptr the alignment is that of what it points to */
  for (;;) {
    struct reader before = *r;
    struct token t = next(r);
    if (t.length == 0 || strchr(",);={}", *t.text) != NULL) {
      *r = before;
      break;
    }
    if (is(t, ".align")) {
      uint64_t align_bytes = number(next(r));
      if (!pointer && align_bytes <= 4096) v.align_bytes = align_bytes;
    } else if (is(t, ".ptr")) {
      pointer = true;
    } else if (is(t, ".v2") || is(t, ".v4") || is(t, ".v8")) {
      count *= t.text[2] - '0';
    } else if (is(t, ".attribute")) {
      while ((t = next(r)).length != 0 && *t.text != ')') continue;
    } else if (*t.text == '[') {
      t = next(r);
      uint64_t extent = t.length != 0 && *t.text != ']' ? number(t) : 0;
      count = extent < SIM_IMAGE_BYTES_MAX * 64 && count < SIM_IMAGE_BYTES_MAX * 64 ? count * extent : 0;
      while (t.length != 0 && *t.text != ']') t = next(r);
    } else if (*t.text != '.') {
      v.name = t;
    } else if (v.element_bytes == 0) {
      v.element_bytes = type_bytes(t);
    }
  }
  v.bytes = count * v.element_bytes;
  if (v.element_bytes > v.align_bytes) v.align_bytes = v.element_bytes;
  return v;
}

static int read_params(struct reader *r, struct sim_image_kernel *kernel) {
  uint32_t index = 0;
  uint64_t offset = 0;
  for (struct token t = next(r); t.length != 0 && *t.text != ')'; t = next(r)) {
    if (!is(t, ".param")) continue;
    struct variable v = read_variable(r);
    if (v.name.length == 0 || v.bytes > 32768 || offset > 32768) return -EINVAL;
    if (v.align_bytes > 1) offset = (offset + v.align_bytes - 1) / v.align_bytes * v.align_bytes;
    int result = sim_image_add_param(kernel, index++, offset, v.bytes);
    if (result != 0) return result;
    offset += v.bytes;
  }
  return 0;
}

/* Static shared memory of a body, while skipping it: the reader stands behind its opening brace. */
static void skip_body(struct reader *r, struct sim_image_kernel *kernel) {
  for (int depth = 1; depth > 0;) {
    struct token t = next(r);
    if (t.length == 0) return;
    if (*t.text == '{') depth++;
    if (*t.text == '}') depth--;
    if (kernel != NULL && is(t, ".shared")) kernel->shared_bytes += read_variable(r).bytes;
  }
}

static int read_entry(struct sim_image *image, struct reader *r) {
  struct token name = next(r);
  if (name.length == 0) return -EINVAL;
  bool fresh;
  struct sim_image_kernel *kernel = sim_image_add_kernel(image, name.text, name.length, &fresh);
  if (kernel == NULL) return -ENOMEM;
  for (struct token t = next(r); t.length != 0; t = next(r)) {
    if (*t.text == ';') return 0;
    if (*t.text == '{') {
      skip_body(r, fresh ? kernel : NULL);
      return 0;
    }
    if (*t.text == '(' && fresh) {
      int result = read_params(r, kernel);
      if (result != 0) return result;
    } else if (is(t, ".maxntid") || is(t, ".reqntid")) {
      kernel->max_threads = number(next(r));
      for (struct reader more = *r; *(t = next(&more)).text == ',' && t.length != 0; *r = more)
        kernel->max_threads *= number(next(&more));
    }
  }
  return 0;
}

static int read_global(struct sim_image *image, struct reader *r, bool constant) {
  struct variable v = read_variable(r);
  if (v.name.length == 0) return 0;
  bool fresh;
  struct sim_image_global *global = sim_image_add_global(image, v.name.text, v.name.length, &fresh);
  if (global == NULL) return -ENOMEM;
  if (!fresh) return 0;
  global->bytes = v.bytes;
  global->constant = constant;
  struct reader ahead = *r;
  if (*next(&ahead).text != '=' || v.bytes == 0 || v.bytes > SIM_IMAGE_BYTES_MAX) return 0;
  /* Lists of numbers and single numbers are read; other initialisers (addresses) start as zeros. */
  struct token t = next(&ahead);
  bool list = t.length != 0 && *t.text == '{';
  if (list) t = next(&ahead);
  global->contents = calloc(1, v.bytes);
  if (global->contents == NULL) return -ENOMEM;
  uint32_t element = v.element_bytes < 8 ? v.element_bytes : 8;
  for (uint64_t at = 0; at + element <= v.bytes && t.length != 0 && isdigit((unsigned char)*t.text); at += element) {
    uint64_t value = number(t);
    memcpy(global->contents + at, &value, element);
    if (!list || *next(&ahead).text != ',') break;
    t = next(&ahead);
  }
  return 0;
}

static int read_module(struct sim_image *image, struct reader *r) {
  for (struct token t = next(r); t.length != 0; t = next(r)) {
    int result = 0;
    if (is(t, ".entry"))
      result = read_entry(image, r);
    else if (is(t, ".global") || is(t, ".const"))
      result = read_global(image, r, is(t, ".const"));
    else if (*t.text == '{')
      skip_body(r, NULL);
    if (result != 0) return result;
  }
  return 0;
}

int sim_image_read_ptx(struct sim_image *image, const char *text, size_t bytes) {
  char *copy = strndup(text, bytes); /* with its terminating zero one may always look at the next character */
  if (copy == NULL) return -ENOMEM;
  struct reader r = {copy, copy + strlen(copy)};
  int result = read_module(image, &r);
  free(copy);
  return result;
}
