/*
 * kernels.c - see program.h. Reads no C++: a kernel is a `__global__` outside of comments with `extern "C"` before it
 * in the same declaration, and its name is the last word before the next parenthesis that begins its parameters.
 */
#include "simcuda/nvrtc/program.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.0\n.target sm_50\n.address_size 64\n" /* any architecture */
#define ENTRY ".visible .entry "
#define REST "() { ret; }\n"
#define MARK "__global__"

static bool is_word(char character) {
  return isalnum((unsigned char)character) || character == '_';
}

/* Comments become blanks. */
static void blank_comments(char *text) {
  for (char *at = text; *at != 0; at++) {
    if (at[0] != '/' || (at[1] != '/' && at[1] != '*')) continue;
    bool is_line = at[1] == '/';
    while (*at != 0 && (is_line ? *at != '\n' : !(at[0] == '*' && at[1] == '/'))) *at++ = ' ';
    if (*at == 0) return;
    if (!is_line) at[0] = at[1] = ' ';
  }
}

/* Whether the declaration around `mark` says extern "C". */
static bool is_plain(const char *text, const char *mark) {
  const char *begin = mark;
  while (begin > text && begin[-1] != ';' && begin[-1] != '}') begin--;
  for (; begin < mark; begin++)
    if (strncmp(begin, "extern", 6) == 0 && strncmp(begin + 6 + strspn(begin + 6, " \t\n"), "\"C\"", 3) == 0)
      return true;
  return false;
}

/* The name of the function that is declared from `at` on: attributes have parentheses as well. */
static const char *find_name(const char *at, size_t *ret_length) {
  for (;;) {
    const char *open = strchr(at, '(');
    if (open == NULL) return NULL;
    const char *end = open, *begin;
    while (end > at && isspace((unsigned char)end[-1])) end--;
    for (begin = end; begin > at && is_word(begin[-1]); begin--) {
    }
    *ret_length = (size_t)(end - begin);
    if (*ret_length == 0) return NULL;
    if (strncmp(begin, "__launch_bounds__", *ret_length) != 0 && strncmp(begin, "__attribute__", *ret_length) != 0)
      return begin;
    int depth = 0;
    for (at = open; *at != 0; at++) {
      depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
      if (depth == 0) break;
    }
  }
}

char *sc_nvrtc_find_kernels(const char *source, const char **ret_strange) {
  char *text = strdup(source);
  size_t count = 0;
  *ret_strange = NULL;
  if (text == NULL) return NULL;
  blank_comments(text);
  size_t name_bytes = 0;
  for (const char *at = text; (at = strstr(at, MARK)) != NULL; at += sizeof MARK - 1) {
    size_t length = 0;
    find_name(at + sizeof MARK - 1, &length);
    name_bytes += length; /* several marks may find the same name */
    count++;
  }
  char *made = malloc(sizeof HEAD + count * (sizeof ENTRY + sizeof REST) + name_bytes);
  if (made == NULL) {
    free(text);
    return NULL;
  }
  char *end = stpcpy(made, HEAD);
  if (count == 0) *ret_strange = "there is no kernel";
  for (const char *at = text; (at = strstr(at, MARK)) != NULL; at += sizeof MARK - 1) {
    size_t length = 0;
    const char *name = find_name(at + sizeof MARK - 1, &length);
    if (name == NULL || !is_plain(text, at)) {
      *ret_strange = "a kernel is not extern \"C\"";
      continue;
    }
    end = stpcpy(end, ENTRY);
    memcpy(end, name, length);
    end = stpcpy(end + length, REST);
  }
  free(text);
  return made;
}
