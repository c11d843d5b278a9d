/*
 * report.h - for the snippets: says of every name in names.inc (written by the test) where it leads to and what a call
 * of it returns. One line each: "<name> <file that holds it, or -> <result, or ->". The lines must not differ between a
 * hooked and an unhooked run but for the file.
 */
#ifndef REPORT_H
#define REPORT_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Every argument is this address: readable and writable zeros as a pointer, 0 as a 32-bit number. */
#define ARENA ((uintptr_t)0x100000000)
#define ARENA_BYTES (1 << 20)

typedef int any_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                         uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, double,
                         double, double, double);

__attribute__((unused)) static const char *const names[] = {
#define NAME(name) #name,
#include "names.inc"
#undef NAME
};
#define NAME_COUNT (sizeof names / sizeof names[0])

__attribute__((unused)) static void report(const char *name, void *function) {
  if (function == NULL) {
    printf("%s - -\n", name);
    return;
  }
  Dl_info info;
  const char *file = dladdr(function, &info) != 0 ? strrchr(info.dli_fname, '/') : NULL;
  void *arena =
      mmap((void *)ARENA, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (arena != (void *)ARENA) abort();
  any_function *call = (any_function *)function;
  int result = call(ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA, ARENA,
                    ARENA, ARENA, 0, 0, 0, 0);
  printf("%s %s %d\n", name, file == NULL ? "?" : file + 1, result);
  fflush(stdout);
}

#endif
