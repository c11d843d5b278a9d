/*
 * ledger.h - the stress of the memory ledger: a table of families of memory (ledger_families.c; larger ones have files
 * of their own), and workers that make and drop objects of them (ledger.c). An object is whatever one make() took from
 * the device and one drop() gives back.
 */
#ifndef BENCH_LEDGER_H
#define BENCH_LEDGER_H
#include "gen/abi/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define GRANULE (2ull << 20)
#define LARGE_BYTES (1ull << 30) /* more than draw_bytes() draws: of a request that is to be refused */
enum { OBJECTS_MAX = 64, STREAMS = 2, PARTS_MAX = 4 };

struct object {
  const struct family *family;  /* NULL: free place */
  CUdeviceptr parts[PARTS_MAX]; /* handles and addresses, as its family likes */
  uint64_t bytes;
};

struct worker {
  unsigned index;
  unsigned resets; /* that it has seen */
  uint64_t random;
  CUcontext context; /* the primary one */
  CUstream streams[STREAMS];
  CUstream capturing; /* for nothing else: others free in the streams */
  CUmemoryPool pool;
  uint64_t operations, refused, unsupported, opened;
  unsigned next_offer; /* of the shelf, to be looked at */
  struct object objects[OBJECTS_MAX];
};

struct family {
  const char *name;
  unsigned weight;      /* how often, against the others */
  bool of_primary;      /* ends with the primary context: it is not dropped before a reset */
  bool takes_no_memory; /* however large it is asked for, nothing of it is refused */
  bool (*make)(struct worker *worker, struct object *object); /* false: refused or not supported, nothing is left */
  void (*drop)(struct worker *worker, struct object *object);
};

/* The families that have files of their own. */
#define FAMILY(name)                                                                                                   \
  bool make_##name(struct worker *worker, struct object *object);                                                      \
  void drop_##name(struct worker *worker, struct object *object)
FAMILY(mapped); /* ledger_handles.c */
FAMILY(unmapped);
FAMILY(bound);
FAMILY(sparse);
FAMILY(graph); /* ledger_graphs.c */
FAMILY(captured);
FAMILY(context); /* ledger_contexts.c */
FAMILY(green);
FAMILY(shared_memory); /* ledger_shared.c */
FAMILY(shared_physical);
FAMILY(shared_pool);
FAMILY(shared_event);
bool make_opened(struct worker *worker, struct object *object); /* and closed: there is nothing to drop */

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

void shelf_open(const char *path); /* ledger_shared.c: what all processes offer to each other; NULL: this one alone */

uint64_t draw(struct worker *worker, uint64_t below);
uint64_t draw_bytes(struct worker *worker); /* small ones, granules, odd large ones */

static inline CUstream stream_of(struct worker *worker) {
  return worker->streams[draw(worker, STREAMS)];
}

static inline uint64_t in_granules(uint64_t bytes) {
  return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

#endif
