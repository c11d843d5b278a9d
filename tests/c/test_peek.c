/* test_peek.c - copies of memory that may not be there (vg_prim_peek): all of it or nothing, and errno is kept. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/prim.h"
#include "check.h"

static size_t page;

/* Two pages that can be read, then one that is not. */
static char *pages(void) {
  char *made = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(made != MAP_FAILED && mprotect(made + 2 * page, page, PROT_NONE) == 0);
  memset(made, 'x', 2 * page);
  return made;
}

static void what_can_be_read_is_copied(void) {
  char *from = pages(), copy[64];
  for (size_t bytes = 1; bytes <= sizeof copy; bytes++) {
    memset(copy, 0, sizeof copy);
    CHECK(vg_prim_peek(copy, from + 2 * page - bytes, bytes)); /* to the last byte */
    CHECK(copy[0] == 'x' && copy[bytes - 1] == 'x');
    CHECK(vg_prim_peek(copy, from + page - bytes / 2, bytes)); /* over an edge */
  }
  munmap(from, 3 * page);
}

static void nothing_is_copied_of_what_cannot(void) {
  char *from = pages(), copy[64] = {0};
  errno = EDOM;
  for (size_t bytes = 1; bytes <= sizeof copy; bytes++) CHECK(!vg_prim_peek(copy, from + 2 * page - bytes + 1, bytes));
  CHECK(!vg_prim_peek(copy, from + 2 * page, 1));
  CHECK(!vg_prim_peek(copy, NULL, sizeof copy));
  CHECK(!vg_prim_peek(copy, (const void *)16, sizeof copy));
  CHECK(!vg_prim_peek(copy, (const void *)(UINTPTR_MAX - 8), sizeof copy));             /* wraps */
  CHECK(!vg_prim_peek(copy, (const void *)(uintptr_t)0x8000000000000000, sizeof copy)); /* no address at all */
  CHECK(!vg_prim_peek(copy, from, SIZE_MAX / 2));
  CHECK(errno == EDOM && copy[0] == 0);
  munmap(from, 3 * page);
}

int main(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  RUN(what_can_be_read_is_copied);
  RUN(nothing_is_copied_of_what_cannot);
  return 0;
}
