/*
 * mangled.c - see mangled.h. Only what these names need of the ABI is read: names with their lengths, literals,
 * substitutions, and the types of numbers, plain (f, d, i, l, ...) and PyTorch's own (c10::Half, BFloat16, complex).
 * A substitution of a type (S4_) is taken for the number that was named last, which it nearly always is.
 */
#include "simgpu/modules/mangled.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES 4.0
#define INPUTS_MAX 16
#define NAME_MAX_CHARS 4096

struct reader {
  const char *at;
  double last_bytes; /* of the number that was named last; 0: none */
};

static bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

/* Moves on behind the word if it is there. */
static bool skip_word(struct reader *reader, const char *word) {
  size_t length = strlen(word);
  if (strncmp(reader->at, word, length) != 0) return false;
  reader->at += length;
  return true;
}

/* A name with its length in front; NULL when none is there. */
static const char *read_name(struct reader *reader, size_t *ret_length) {
  if (!is_digit(*reader->at)) return NULL;
  char *end;
  unsigned long length = strtoul(reader->at, &end, 10);
  if (length > NAME_MAX_CHARS || strnlen(end, length) < length) return NULL;
  reader->at = end + length;
  *ret_length = length;
  return end;
}

static double plain_bytes(char letter) {
  switch (letter) {
  case 'b':
  case 'a':
  case 'c':
  case 'h':
    return 1;
  case 's':
  case 't':
    return 2;
  case 'i':
  case 'j':
  case 'f':
    return 4;
  case 'l':
  case 'm':
  case 'x':
  case 'y':
  case 'd':
    return 8;
  default:
    return 0;
  }
}

static bool read_type(struct reader *reader, double *ret_bytes);

/* N3c10...E: 3c10 is read. */
static bool read_c10(struct reader *reader, double *ret_bytes) {
  size_t length;
  const char *name = read_name(reader, &length);
  if (name == NULL) return false;
  if (length == 7 && strncmp(name, "complex", length) == 0) {
    double part_bytes;
    if (!skip_word(reader, "I") || !read_type(reader, &part_bytes) || !skip_word(reader, "E")) return false;
    *ret_bytes = 2 * part_bytes;
  } else if (length > 6 && strncmp(name, "Float8", 6) == 0) {
    *ret_bytes = 1;
  } else if ((length == 8 && strncmp(name, "BFloat16", 8) == 0) || (length == 4 && strncmp(name, "Half", 4) == 0)) {
    *ret_bytes = 2;
  } else {
    return false;
  }
  reader->last_bytes = *ret_bytes;
  return skip_word(reader, "E");
}

/* OpaqueTypeILi4EEE, a number of so many bytes. */
static bool read_opaque(struct reader *reader, double *ret_bytes) {
  char *end;
  if (!skip_word(reader, "L") || (*reader->at != 'i' && *reader->at != 'j')) return false;
  unsigned long bytes = strtoul(reader->at + 1, &end, 10);
  if (bytes == 0 || bytes > 64) return false;
  *ret_bytes = reader->last_bytes = (double)bytes;
  reader->at = end;
  return skip_word(reader, "EEE");
}

static bool read_substitution(struct reader *reader, double *ret_bytes) {
  const char *at = reader->at + 1;
  while (is_digit(*at) || (*at >= 'A' && *at <= 'Z')) at++;
  if (*at != '_' || reader->last_bytes == 0) return false;
  reader->at = at + 1;
  *ret_bytes = reader->last_bytes;
  return true;
}

/* The type of a number. False: something else is there, and the reader stays where it is. */
static bool read_type(struct reader *reader, double *ret_bytes) {
  struct reader ahead = *reader;
  bool is_read = false;
  const char *opaque = "10OpaqueTypeI";
  *ret_bytes = plain_bytes(*ahead.at);
  if (*ret_bytes > 0) {
    ahead.at++;
    is_read = true;
  } else if (skip_word(&ahead, "N3c10")) {
    is_read = read_c10(&ahead, ret_bytes);
  } else if (*ahead.at == 'S') {
    is_read = read_substitution(&ahead, ret_bytes);
  } else if (*ahead.at == 'N') {
    const char *found = strstr(ahead.at, opaque);
    ahead.at = found != NULL && found - reader->at <= 6 ? found + strlen(opaque) : "";
    is_read = read_opaque(&ahead, ret_bytes);
  }
  if (is_read) *reader = ahead;
  return is_read;
}

/* Li8E and the like. */
static bool skip_literal(struct reader *reader) {
  if (*reader->at != 'L' || plain_bytes(reader->at[1]) == 0) return false;
  const char *at = reader->at + 2;
  while (is_digit(*at) || *at == 'n') at++;
  if (*at != 'E') return false;
  reader->at = at + 1;
  return true;
}

/* Moves on by a name, a literal or a character. */
static void skip_part(struct reader *reader) {
  size_t length;
  if (skip_literal(reader) || read_name(reader, &length) != NULL) return;
  if (*reader->at == 'S' || *reader->at == 'T') { /* S12_, T3_, St: their digits are no lengths */
    reader->at++;
    while (is_digit(*reader->at)) reader->at++;
  }
  if (*reader->at != 0) reader->at++;
}

/* The first type of a number behind any I, the beginning of template arguments. */
static bool find_argument(struct reader *reader, double *ret_bytes) {
  while (*reader->at != 0) {
    bool is_beginning = *reader->at == 'I';
    skip_part(reader);
    if (!is_beginning) continue;
    while (skip_literal(reader)) {
    }
    if (read_type(reader, ret_bytes)) return true;
  }
  return false;
}

double sim_mangled_type_bytes(const char *name) {
  struct reader reader = {name, 0};
  double bytes;
  return find_argument(&reader, &bytes) ? bytes : DEFAULT_BYTES;
}

/* How many tensors an array of pointers has; 0: the name has no such array. */
static int count_tensors(const char *name) {
  const char *array = strstr(name, "5arrayIPcLm");
  if (array == NULL) array = strstr(name, "5ArrayIPcLi");
  if (array == NULL) return 0;
  long count = strtol(array + strlen("5arrayIPcLm"), NULL, 10);
  return count > 0 && count <= INPUTS_MAX ? (int)count : 0;
}

/* Where the operation ends in the name: before the array of pointers, or before the function that a kernel without one
 * is given, which takes an index. */
static const char *find_end(const char *name) {
  const char *end = strstr(name, "5arrayIPc"), *next;
  if (end == NULL) end = strstr(name, "5ArrayIPc");
  if (end != NULL) return end;
  for (next = strstr(name, "EUliE_"); next != NULL; next = strstr(next + 1, "EUliE_")) end = next;
  return end != NULL ? end : name + strlen(name);
}

static bool has_word(const char *name, const char *end, const char *word) {
  const char *found = strstr(name, word);
  return found != NULL && found < end;
}

/* The size of a result whose type the name does not have: it is that of the largest input, except for known ones. */
static double result_bytes(const char *name, const char *end, double largest_bytes) {
  if (has_word(name, end, "bfloat16_copy") || has_word(name, end, "float16_copy")) return 2;
  if (has_word(name, end, "float8_copy")) return 1;
  if (has_word(name, end, "compare_") || has_word(name, end, "logical_") || has_word(name, end, "isnan")) return 1;
  return largest_bytes;
}

/* BinaryFunctor<A, B, result, ...>; of AUnaryFunctor and BUnaryFunctor one of the two is no tensor. */
static bool read_binary(const char *name, const char *end, double *ret_bytes) {
  static const char *const words[] = {"13BinaryFunctorI", "13AUnaryFunctorI", "13BUnaryFunctorI"};
  for (int kind = 0; kind < 3; kind++) {
    const char *found = strstr(name, words[kind]);
    double a, b, result;
    if (found == NULL || found >= end) continue;
    struct reader reader = {found + strlen(words[kind]), 0};
    if (!read_type(&reader, &a) || !read_type(&reader, &b) || !read_type(&reader, &result)) return false;
    *ret_bytes = (kind == 1 ? 0 : a) + (kind == 2 ? 0 : b) + result;
    return true;
  }
  return false;
}

/* The last lambda before the end: its parameters are the inputs. */
static bool read_lambda(const char *name, const char *end, int count, double *ret_bytes) {
  const char *lambda = NULL;
  for (const char *next = strstr(name, "EUl"); next != NULL && next < end; next = strstr(next + 1, "EUl"))
    lambda = next;
  if (lambda == NULL) return false;
  struct reader named = {name, 0}, reader = {lambda + strlen("EUl"), 0};
  double bytes, sum = 0, largest = 0;
  int inputs = 0;
  while (named.at < lambda)
    if (!read_type(&named, &bytes)) skip_part(&named);
  reader.last_bytes = named.last_bytes; /* for substitutions */
  if (*reader.at == 'v') reader.at++;
  while (inputs < INPUTS_MAX && *reader.at != 'E' && read_type(&reader, &bytes)) {
    sum += bytes;
    largest = bytes > largest ? bytes : largest;
    inputs++;
  }
  if (*reader.at != 'E') return false;
  if (inputs == 0) largest = DEFAULT_BYTES;
  int results = count > inputs ? count - inputs : 1;
  *ret_bytes = sum + results * result_bytes(name, end, largest);
  return true;
}

/* An operation of one type, FillFunctor<float>: all tensors have it. */
static bool read_single(const char *name, const char *end, int count, double *ret_bytes) {
  const char *word = strstr(name, "unctor");
  double bytes;
  if (word == NULL || word >= end) return false;
  word = strchr(word, 'I');
  if (word == NULL || word >= end) return false;
  struct reader reader = {word + 1, 0};
  if (!read_type(&reader, &bytes)) return false;
  int results = count > 0 ? count : has_word(name, end, "CUDAFunctor_add") ? 3 : 2;
  *ret_bytes = (results - 1) * bytes + result_bytes(name, end, bytes);
  return true;
}

double sim_mangled_tensor_bytes(const char *name) {
  const char *end = find_end(name);
  int count = count_tensors(name);
  double bytes;
  if (read_binary(name, end, &bytes) || read_lambda(name, end, count, &bytes) || read_single(name, end, count, &bytes))
    return bytes;
  return DEFAULT_BYTES * (count > 0 ? count : 2);
}

/* Behind the type: Li<lists>ELi<lists that are read>E; optimizers have the first only, and write all lists but that of
 * gradients. Norms write nothing worth counting. */
double sim_mangled_list_bytes(const char *name) {
  const char *functor = strstr(name, "FunctorI");
  double bytes = DEFAULT_BYTES;
  if (functor == NULL) return 2 * bytes;
  struct reader reader = {functor + strlen("FunctorI"), 0};
  if (!read_type(&reader, &bytes)) return 2 * DEFAULT_BYTES;
  const char *lists = strstr(reader.at, "Li");
  if (lists == NULL) return 2 * bytes;
  char *end;
  long count = strtol(lists + 2, &end, 10), read_count = count;
  bool is_optimizer = strncmp(end, "ELi", 3) != 0;
  if (!is_optimizer) read_count = strtol(end + 3, NULL, 10);
  if (count < 1 || count > INPUTS_MAX || read_count < 1 || read_count > INPUTS_MAX) return 2 * bytes;
  if (is_optimizer) return (double)(2 * count - 1) * bytes;
  bool is_norm = strstr(name, "NormFunctor") != NULL || strstr(name, "MaxFunctor") != NULL;
  return (double)(read_count + (is_norm ? 0 : 1)) * bytes;
}
