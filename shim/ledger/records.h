/*
 * records.h - what this process has allocated: a record per live allocation, found by its handle, and how many of
 * them touch each chunk of the device. Used by the memory hooks, from any thread. Records are made before the driver is
 * called (vg_record_new), so that nothing can fail after it.
 */
#ifndef VG_RECORDS_H
#define VG_RECORDS_H
#include <stdbool.h>
#include <stdint.h>

#include "gen/abi/cuda_abi.h"
#include "session/session.h"

enum vg_record_kind {
  VG_RECORD_POINTER, /* key: device address; count: VG_POINTER_*; other, of a large one: its struct vg_movable, or 0 */
  VG_RECORD_CHUNK,   /* key: chunk number; count: live small allocations that touch it */
  VG_RECORD_ARRAY,   /* key: CUarray or CUmipmappedArray */
  VG_RECORD_HANDLE,  /* key: CUmemGenericAllocationHandle; count: references */
  VG_RECORD_MAPPING, /* key: device address; other: the handle mapped there */
  VG_RECORD_POOLED,  /* key: device address, of a pool's memory; other: CUmemoryPool */
  VG_RECORD_GRAPH,   /* key: CUgraphExec; other: how many of its kernels are collectives */
  VG_RECORD_CAPTURE, /* key: CUstream that captures */
  VG_RECORD_LIMIT,   /* key: context + CUlimit; size: what is a part of the context's cost */
  VG_RECORD_PINNED,  /* key: host address; size: pinned there */
};

enum { VG_POINTER_DEVICE = 1, VG_POINTER_MANAGED = 2, VG_POINTER_FREED = 3 /* by the program: hooks/late_free.h */ };

struct vg_record {
  struct vg_record *next;
  uint64_t key;
  enum vg_record_kind kind;
  uint32_t count;
  struct vg_device *device;
  CUcontext context; /* whose end frees the allocation; NULL: none's */
  uint64_t bytes;    /* charged as such; 0 for small ones, which are charged by the chunk */
  uint64_t size;     /* as asked for */
  uint64_t other;
};

struct vg_record *vg_record_new(enum vg_record_kind kind, struct vg_device *device, CUcontext context); /* or NULL */
void vg_record_free(struct vg_record *record);
void vg_table_put(struct vg_record *record, uint64_t key);               /* the table owns it now */
struct vg_record *vg_table_take(enum vg_record_kind kind, uint64_t key); /* the caller owns it now; NULL: unknown */
/* Takes all records of a context out, as a list. */
struct vg_record *vg_table_take_context(CUcontext context);
/* Adds to the count of a record and returns the new count; 0: unknown. A record that falls to 0 is taken out into
 * *ret_record. */
uint32_t vg_table_add(enum vg_record_kind kind, uint64_t key, int delta, struct vg_record **ret_record);
/* As vg_table_add(+1), but puts `fresh` there with count 1 when the key is unknown. Returns the new count. */
uint32_t vg_table_add_or_put(struct vg_record *fresh, uint64_t key);
/* A copy of a record; false: unknown. */
bool vg_table_look(enum vg_record_kind kind, uint64_t key, struct vg_record *ret_copy);
/* All records of a kind, each under a lock of the table. */
void vg_table_each(enum vg_record_kind kind, void (*visit)(const struct vg_record *record, void *argument),
                   void *argument);
void vg_table_forked_child(void);

#endif
