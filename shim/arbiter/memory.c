/* memory.c - see memory.h. */
#include "arbiter/memory.h"

static uint64_t held(const struct vg_memory_row *row) {
  return row->granted_bytes - row->returned_bytes;
}

static uint64_t at_least(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

bool vg_memory_row_update(struct vg_memory_row *row, uint64_t returned_bytes, uint64_t used_bytes, uint64_t want_bytes,
                          uint32_t want_seq, uint64_t now_ns) {
  struct vg_memory_row before = *row;
  if (returned_bytes > row->returned_bytes) row->returned_bytes = at_most(returned_bytes, row->granted_bytes);
  row->used_bytes = at_most(used_bytes, held(row));
  bool open = want_seq != row->want_answered;
  if (open && (row->want_since_ns == 0 || want_seq != row->want_seq)) row->want_since_ns = now_ns ? now_ns : 1;
  if (!open) row->want_since_ns = 0;
  row->want_seq = want_seq;
  row->want_bytes = want_bytes;
  return row->returned_bytes != before.returned_bytes || row->used_bytes != before.used_bytes ||
         row->want_seq != before.want_seq || row->want_since_ns != before.want_since_ns ||
         (open && want_bytes != before.want_bytes);
}

static struct vg_memory_slice *slice_of(const struct vg_memory_table *table, const struct vg_memory_row *row) {
  return &table->slices[row->slice];
}

static void sum_up(struct vg_memory_table *table) {
  for (int i = 0; i < table->slice_count; i++) {
    struct vg_memory_slice *slice = &table->slices[i];
    slice->held_bytes = slice->used_bytes = slice->unattributed_bytes + slice->disconnected_bytes;
    slice->rows = 0;
  }
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_slice *slice = slice_of(table, table->rows[i]);
    slice->held_bytes += held(table->rows[i]);
    slice->used_bytes += table->rows[i]->used_bytes;
    slice->rows++;
  }
}

/* The memory for this slice once all other slices' minima, or what they hold if that is more, are set aside. */
static uint64_t device_free(const struct vg_memory_table *table, const struct vg_memory_slice *slice) {
  uint64_t others_bytes = 0;
  for (int i = 0; i < table->slice_count; i++) {
    const struct vg_memory_slice *other = &table->slices[i];
    if (other != slice && !other->away) others_bytes += at_least(other->min_bytes, other->held_bytes);
  }
  return minus(table->total_bytes, others_bytes);
}

static uint64_t headroom(const struct vg_memory_table *table, const struct vg_memory_slice *slice) {
  uint64_t free_bytes = slice->away ? UINT64_MAX : device_free(table, slice);
  uint64_t allowed_bytes = at_most(slice->max_bytes, at_least(slice->min_bytes, free_bytes));
  return minus(allowed_bytes, slice->held_bytes);
}

/* Asks unused credit back where it can help this want: from the slice's other processes always, from other slices when
 * they hold more than their minimum. Returns how much can come back. */
static uint64_t press(struct vg_memory_table *table, const struct vg_memory_row *wanting) {
  const struct vg_memory_slice *slice = slice_of(table, wanting);
  uint64_t coming_bytes = 0;
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_row *row = table->rows[i];
    uint64_t unused_bytes = held(row) - row->used_bytes;
    if (row == wanting || !unused_bytes) continue;
    const struct vg_memory_slice *owner = slice_of(table, row);
    if (owner != slice && owner->away) continue;
    if (owner != slice) unused_bytes = at_most(unused_bytes, minus(owner->held_bytes, owner->min_bytes));
    if (!unused_bytes) continue;
    row->pressure = true;
    coming_bytes += unused_bytes;
  }
  return coming_bytes;
}

static void answer(struct vg_memory_row *row, uint64_t grant_bytes) {
  row->granted_bytes += grant_bytes;
  row->want_answered = row->want_seq;
  row->want_since_ns = 0;
  row->denied = grant_bytes == 0;
}

static bool serve(struct vg_memory_table *table, struct vg_memory_row *row, uint64_t now_ns) {
  struct vg_memory_slice *slice = slice_of(table, row);
  if (row->want_bytes <= headroom(table, slice)) {
    answer(row, row->want_bytes);
    slice->held_bytes += row->want_bytes;
    return true;
  }
  if (table->stale) return false;
  bool late = now_ns >= row->want_since_ns + VG_MEMORY_PATIENCE_NS;
  if (late || row->want_bytes > slice->max_bytes || press(table, row) == 0) {
    answer(row, 0);
    return true;
  }
  return false;
}

static void set_coast(struct vg_memory_table *table) {
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_row *row = table->rows[i];
    const struct vg_memory_slice *slice = slice_of(table, row);
    row->coast_bytes = held(row) + minus(slice->min_bytes, slice->held_bytes) / slice->rows;
  }
}

uint64_t vg_memory_table_step(struct vg_memory_table *table, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  sum_up(table);
  for (int i = 0; i < table->row_count; i++) table->rows[i]->pressure = table->rows[i]->denied = false;
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_row *row = table->rows[i];
    if (row->want_seq == row->want_answered) continue;
    if (serve(table, row, now_ns)) continue;
    deadline_ns = at_most(deadline_ns, table->stale ? now_ns : row->want_since_ns + VG_MEMORY_PATIENCE_NS);
  }
  set_coast(table);
  return deadline_ns;
}
