/* stock.c - see stock.h. */
#include "ledger/stock.h"

static uint32_t threads;                                                 /* that have asked for a stock */
static __thread uint32_t own __attribute__((tls_model("initial-exec"))); /* 0: none yet; else a number from 1 */

struct vg_stock *vg_stock_here(struct vg_stock *stocks) {
  if (VG_UNLIKELY(!own)) own = __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % VG_STOCKS + 1;
  return &stocks[own - 1];
}

void vg_stock_begin(struct vg_stock *stock) {
  vg_lock(&stock->lock);
  VG_STORE_RELAXED(&stock->rounds, VG_STOCK_ROUNDS);
  vg_unlock(&stock->lock);
}

bool vg_stock_take(struct vg_stock *stock, uint64_t bytes) {
  vg_lock(&stock->lock);
  bool enough = stock->bytes >= bytes;
  if (enough) stock->bytes -= bytes;
  vg_unlock(&stock->lock);
  return enough;
}

bool vg_stock_put(struct vg_stock *stock, uint64_t bytes, uint64_t most_bytes, const bool *closed) {
  vg_lock(&stock->lock);
  bool fits = bytes <= most_bytes && stock->bytes <= most_bytes - bytes && !VG_LOAD_RELAXED(closed);
  if (fits) stock->bytes += bytes;
  if (stock->rounds) VG_STORE_RELAXED(&stock->rounds, stock->rounds - 1);
  vg_unlock(&stock->lock);
  return fits;
}

uint64_t vg_stock_drain(struct vg_stock *stocks) {
  uint64_t bytes = 0;
  for (struct vg_stock *stock = stocks; stock < stocks + VG_STOCKS; stock++) {
    vg_lock(&stock->lock);
    bytes += stock->bytes;
    stock->bytes = 0;
    vg_unlock(&stock->lock);
  }
  return bytes;
}
