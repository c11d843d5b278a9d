/*
 * wild.h - what a program of test_wild_pointers.py gives to entry points: pointers to nothing, where nothing can be
 * read, to zeros, and to such pointers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gen/abi/cuda_abi.h"

/* What an argument is given: by what it is, and by the case's pattern. */
enum { NOTHING, WILD, ZEROS, WILDS, PATTERNS };
enum kind { SCALAR, HANDLE, POINTER };

static char *wild, zeros[1 << 16], wilds[1 << 16];

static void start(int after) {
  /* always there: where it is read as a number, it is the same one in each run */
  wild = mmap((void *)0x100012340000, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (after && cuInit(0) != CUDA_SUCCESS) exit(3);
}

/* Before each case: what an earlier one has written, or ended, is as it was. */
static void prepare(int in_context) {
  CUcontext context;
  memset(zeros, 0, sizeof zeros);
  for (size_t i = 0; i < sizeof wilds; i += sizeof wild) memcpy(wilds + i, &wild, sizeof wild);
  if (!in_context) return;
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS) exit(4);
}

/* one: the invalid pointer among valid ones, by its number; -1: none. */
static void fill(void *argument, size_t bytes, enum kind kind, int pattern, int handles_wild, int is_one) {
  memset(argument, 0, bytes);
  const char *pointers[] = {NULL, wild, zeros, wilds};
  const char *pointer = is_one ? wild : pointers[pattern];
  if (kind == POINTER) memcpy(argument, &pointer, sizeof pointer);
  if (kind == HANDLE && handles_wild) memcpy(argument, &wild, sizeof wild);
  if (kind == SCALAR && pattern != NOTHING) memset(argument, 1, 1); /* little-endian: 1 */
}

#define KIND(type, name) (strchr(#type, '*') ? POINTER : __builtin_classify_type(name) == 5 ? HANDLE : SCALAR)
#define ARGUMENT(type, number, name)                                                                                   \
  type name;                                                                                                           \
  fill((void *)&name, sizeof name, KIND(type, name), pattern, handles_wild, one == number)
