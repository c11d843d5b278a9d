/*
 * stock.h - credit that a thread has released and keeps for its next allocation, so that threads which allocate at the
 * same time do not all write the ledger's line (as the per-CPU stocks of Linux's memory cgroups, mm/memcontrol.c). Kept
 * by credit.c; what is in stock counts as used there until it is taken out.
 */
#ifndef VG_STOCK_H
#define VG_STOCK_H
#include "base/lock.h"

#define VG_STOCKS 8         /* threads beyond that share them */
#define VG_STOCK_ROUNDS 256 /* how many releases go to the stock after the ledger was found taken */

struct vg_stock {
  struct vg_lock lock;
  uint32_t rounds; /* left; 0: the ledger itself is used */
  uint64_t bytes;
} __attribute__((aligned(64)));

struct vg_stock *vg_stock_here(struct vg_stock *stocks); /* the calling thread's, of VG_STOCKS */

/* Whether the stock is in use; for its thread, without the lock. */
static inline bool vg_stock_is_used(const struct vg_stock *stock) {
  return VG_LOAD_RELAXED(&stock->rounds) != 0;
}

void vg_stock_begin(struct vg_stock *stock);
bool vg_stock_take(struct vg_stock *stock, uint64_t bytes); /* false: it has less */
/* Puts bytes in, up to most_bytes, unless *closed; false: they belong to the ledger. Closing it and then draining finds
 * everything that was put in. */
bool vg_stock_put(struct vg_stock *stock, uint64_t bytes, uint64_t most_bytes, const bool *closed);
uint64_t vg_stock_drain(struct vg_stock *stocks); /* takes all out, of VG_STOCKS */

#endif
