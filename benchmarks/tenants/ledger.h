/*
 * ledger.h - the stress of the memory ledger: a table of families of memory (ledger_families.c), and workers that make
 * and drop objects of them (ledger.c). An object is whatever one make() took from the device and one drop() gives back.
 */
#ifndef BENCH_LEDGER_H
#define BENCH_LEDGER_H
#include "gen/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define LARGE_BYTES (1ull << 30) /* more than draw_bytes() draws: of a request that is to be refused */
enum { OBJECTS_MAX = 64, STREAMS = 2, PARTS_MAX = 4 };

struct object {
  const struct family *family;  /* NULL: free place */
  CUdeviceptr parts[PARTS_MAX]; /* handles and addresses, as its family likes */
  uint64_t bytes;
};

struct worker {
  unsigned index;
  uint64_t random;
  CUcontext context; /* the primary one */
  CUstream streams[STREAMS];
  CUmemoryPool pool;
  uint64_t operations, refused, unsupported;
  struct object objects[OBJECTS_MAX];
};

struct family {
  const char *name;
  unsigned weight; /* how often, against the others */
  bool passing;    /* not charged for exactly what it takes: gone at quiet points. Graphs are charged for what they may
                    take, small arrays by their size, since nobody says in which granule they lie. */
  bool (*make)(struct worker *worker, struct object *object); /* false: refused or not supported, nothing is left */
  void (*drop)(struct worker *worker, struct object *object);
};

extern const struct family families[];
extern const unsigned family_count;

/* Whether a call that may be refused (over the limit, not supported) succeeded. Any other code ends the program, unless
 * codes are forgiven. */
bool may(struct worker *worker, CUresult code, const char *call);
extern bool forgiving; /* a fault is injected: every code is taken as a refusal */
#define MAY(call) may(worker, (call), #call)
/* A call that gives back: it is tried again where a fault is injected, and must succeed. */
#define MUST(call)                                                                                                     \
  do {                                                                                                                 \
    if (!must((call), #call)) (void)must((call), NULL);                                                                \
  } while (0)
bool must(CUresult code, const char *call); /* call NULL: the second try */

uint64_t draw(struct worker *worker, uint64_t below);
uint64_t draw_bytes(struct worker *worker); /* small ones, granules, odd large ones */

#endif
