/*
 * check.h - all that the C unit tests need: CHECK(condition) ends the program with the place and the condition,
 * RUN(test) says which test runs, and a small random number generator with a seed that is printed.
 * The programs are compiled and run by tests/test_c.py, under AddressSanitizer and under ThreadSanitizer.
 */
#ifndef CHECK_H
#define CHECK_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

#define RUN(test)                                                                                                      \
  do {                                                                                                                 \
    puts(#test);                                                                                                       \
    fflush(stdout);                                                                                                    \
    test();                                                                                                            \
  } while (0)

/* xorshift64*: good enough to shake a table, and the same numbers everywhere. */
struct check_random {
  uint64_t state;
};

static inline uint64_t check_random(struct check_random *random) {
  random->state ^= random->state >> 12;
  random->state ^= random->state << 25;
  random->state ^= random->state >> 27;
  return random->state * 2685821657736338717ull;
}

static inline uint64_t check_below(struct check_random *random, uint64_t limit) {
  return check_random(random) % limit;
}

#endif
