/*
 * free_room.c - whether a request fits into memory that is taken from the device already. Asked where credit is
 * missing, so that the driver is called only if it need not take more: what it takes all the same is beyond the limit
 * until it is undone. Called by charge.c and pool.c, any thread.
 *
 * The table says where allocations lie: small ones, in chunks of a granule that they share, leave holes; large ones
 * have granules of their own.
 */
#include "hooks/free_room.h"

#include <stdlib.h>

#include "ledger/granule.h"
#include "ledger/records.h"

#define ALIGN_BYTES 512 /* of small allocations [measured] */

struct span {
  uint64_t begin, end;
};

struct search {
  enum vg_record_kind kind;
  const struct vg_device *device;
  uint64_t owner; /* a CUcontext or, of pools' allocations, a CUmemoryPool */
  uint64_t large_bytes;
  struct span *small;
  size_t count, places;
  bool failed; /* out of memory for the list */
};

static void note(const struct vg_record *record, void *argument) {
  struct search *search = argument;
  uint64_t owner = search->kind == VG_RECORD_POOLED ? record->other : (uint64_t)(uintptr_t)record->context;
  uint64_t granule = vg_granule_bytes(search->device);
  if (record->device != search->device || owner != search->owner || record->bytes) return;
  if (record->size >= granule) {
    search->large_bytes += vg_round_up(record->size, granule);
    return;
  }
  if (search->count == search->places) {
    size_t places = search->places ? search->places * 2 : 64;
    struct span *more = realloc(search->small, places * sizeof *more);
    search->failed |= !more;
    if (!more) return;
    search->small = more;
    search->places = places;
  }
  search->small[search->count++] = (struct span){record->key, record->key + vg_round_up(record->size, ALIGN_BYTES)};
}

static int by_place(const void *left, const void *right) {
  const struct span *a = left, *b = right;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Whether one of the shared granules has a hole of that size. *ret_chunks: how many granules are shared. */
static bool has_hole(struct search *search, uint64_t bytes, uint64_t *ret_chunks) {
  uint64_t granule = vg_granule_bytes(search->device), chunk_end = 0, end = 0;
  bool found = false;
  *ret_chunks = 0;
  if (search->count) qsort(search->small, search->count, sizeof *search->small, by_place);
  for (size_t i = 0; i < search->count; i++) {
    const struct span *span = &search->small[i];
    if (span->begin >= chunk_end) { /* the first of its chunk */
      found |= chunk_end - end >= bytes;
      end = span->begin / granule * granule;
      chunk_end = end + granule;
      ++*ret_chunks;
    }
    found |= span->begin > end && span->begin - end >= bytes;
    if (span->end > end) end = span->end;
  }
  return found || (chunk_end > end && chunk_end - end >= bytes);
}

bool vg_room_by_address(const struct vg_device *device, CUcontext context, uint64_t bytes) {
  struct search search = {.kind = VG_RECORD_POINTER, .device = device, .owner = (uintptr_t)context};
  uint64_t chunks;
  vg_table_each(search.kind, note, &search);
  bool found = has_hole(&search, vg_round_up(bytes, ALIGN_BYTES), &chunks);
  free(search.small);
  return found && !search.failed;
}

bool vg_room_in_pool(const struct vg_device *device, CUmemoryPool pool, uint64_t held_bytes, uint64_t bytes) {
  struct search search = {.kind = VG_RECORD_POOLED, .device = device, .owner = (uintptr_t)pool};
  uint64_t granule = vg_granule_bytes(device), chunks;
  vg_table_each(search.kind, note, &search);
  bool found = has_hole(&search, vg_round_up(bytes, ALIGN_BYTES), &chunks) && bytes < granule;
  uint64_t taken = search.large_bytes + chunks * granule;
  if (taken <= held_bytes && vg_round_up(bytes, granule) <= held_bytes - taken) found = true;
  free(search.small);
  return found && !search.failed;
}
