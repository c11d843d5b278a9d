/*
 * own_calls.c - a library that is linked as NVIDIA's NVML is: OUTER and a table call INNER, which it exports as well,
 * through the symbol table. INNER says whether it was reached straight from here or by way of another library.
 */
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"), noinline))

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
static int straight, reached;

EXPORT int INNER(int flags) {
  const char *caller = __builtin_return_address(0);
  straight = caller >= __ehdr_start && caller < _end;
  reached++;
  return flags & 0;
}

EXPORT int OUTER(int flags) {
  int result = INNER(flags);
  __asm__ volatile(""); /* a call, no jump */
  return result;
}

EXPORT int (*const own_table[])(int) = {INNER};

/* How often INNER was reached straight: by a call, through the table; -1: not at all. */
EXPORT int own_calls(void) {
  reached = straight = 0;
  OUTER(0);
  int by_call = straight;
  straight = 0;
  int (*const volatile *table)(int) = own_table;
  table[0](0);
  return reached == 0 ? -1 : by_call + straight;
}

/* Whether the words that the loader has filled for the table are writable: what was read-only stays so. */
EXPORT int own_table_is_writable(void) {
  unsigned long begin, end;
  char line[512], rights[8];
  int writable = -1;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3 && (unsigned long)own_table >= begin &&
        (unsigned long)own_table < end)
      writable = rights[1] == 'w';
  if (maps) fclose(maps);
  return writable;
}
