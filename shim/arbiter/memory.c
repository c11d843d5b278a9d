/* memory.c - see memory.h. */
#include "arbiter/memory.h"

#include <stddef.h>

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
    slice->movable_bytes = slice->rows = slice->watchers = 0;
  }
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_slice *slice = slice_of(table, table->rows[i]);
    slice->held_bytes += held(table->rows[i]);
    slice->used_bytes += table->rows[i]->used_bytes;
    slice->movable_bytes += at_most(table->rows[i]->movable_bytes, table->rows[i]->used_bytes);
    slice->rows++;
    slice->watchers += table->rows[i]->watchers != 0;
  }
}

/* What an away slice has on the device. */
static uint64_t left_there(const struct vg_memory_slice *slice) {
  return slice->moves_itself ? slice->used_bytes - slice->movable_bytes : 0;
}

/* What the device has beyond all credit. */
static uint64_t unheld(const struct vg_memory_table *table) {
  uint64_t held_bytes = 0;
  for (int i = 0; i < table->slice_count; i++)
    held_bytes += table->slices[i].away ? left_there(&table->slices[i]) : table->slices[i].held_bytes;
  return minus(table->total_bytes, held_bytes);
}

/* The minima of all slices but this one, or what they hold if that is more, and the space for one that is to come. */
static uint64_t claims(const struct vg_memory_table *table, const struct vg_memory_slice *but) {
  uint64_t sum_bytes = table->space_bytes;
  for (int i = 0; i < table->slice_count; i++) {
    const struct vg_memory_slice *other = &table->slices[i];
    if (other == but) continue;
    sum_bytes += other->away ? left_there(other) : at_least(other->min_bytes, other->held_bytes);
  }
  return sum_bytes;
}

static uint64_t headroom(const struct vg_memory_table *table, const struct vg_memory_slice *slice) {
  uint64_t free_bytes = slice->away ? 0 : minus(table->total_bytes, claims(table, slice));
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

/* ---- memory that is promised and in use ---- */

/* What a slice can be asked to give back. */
static uint64_t reclaimable(const struct vg_memory_slice *slice, uint64_t now_ns) {
  bool asks = slice->watchers && !slice->away && vg_reclaim_is_possible(&slice->reclaim, now_ns);
  return asks ? minus(slice->used_bytes, slice->min_bytes) : 0;
}

static uint64_t reclaimable_from_all(const struct vg_memory_table *table, uint64_t now_ns) {
  uint64_t sum_bytes = 0;
  for (int i = 0; i < table->slice_count; i++) sum_bytes += reclaimable(&table->slices[i], now_ns);
  return sum_bytes;
}

/* Whether a guaranteed want waits for memory that others hold. Returns until when, 0: it does not. */
static uint64_t wait_for_others(struct vg_memory_table *table, struct vg_memory_row *row, uint64_t bytes,
                                uint64_t now_ns) {
  uint64_t lacking_bytes = minus(bytes, unheld(table)), coming_bytes = press(table, row);
  uint64_t patient_ns = at_least(row->want_since_ns, row->waited_ns) + VG_MEMORY_PATIENCE_NS;
  if (now_ns >= patient_ns) coming_bytes = 0;
  if (coming_bytes >= lacking_bytes) return patient_ns;
  uint64_t deadline_ns = row->want_since_ns + table->grace_ns;
  if (now_ns >= deadline_ns || reclaimable_from_all(table, now_ns) < lacking_bytes - coming_bytes) return 0;
  table->waiting_bytes += bytes;
  table->waiting_deadline_ns = at_least(table->waiting_deadline_ns, deadline_ns);
  row->waited_ns = now_ns;
  row->want_deadline_ns = deadline_ns;
  return deadline_ns;
}

/* Of the space for one that is to come back. */
static uint64_t missing_space(const struct vg_memory_table *table) {
  return table->space_bytes ? minus(claims(table, NULL), table->total_bytes) : 0;
}

/* Of what slices use beyond their minima, in equal parts; and of one whose maximum is below what it uses, the rest. */
static void ask_back(struct vg_memory_table *table, uint64_t now_ns) {
  uint64_t missing_bytes = table->waiting_bytes ? minus(table->waiting_bytes, unheld(table)) : 0;
  uint64_t space_bytes = missing_space(table); /* wants are within minima, for which it leaves enough */
  uint64_t others_deadline_ns = space_bytes ? now_ns + table->grace_ns : 0;
  others_deadline_ns = at_least(others_deadline_ns, table->waiting_deadline_ns);
  missing_bytes = at_least(missing_bytes, space_bytes);
  for (int i = 0; i < table->slice_count; i++) { /* unused credit is pressed for, not asked for */
    const struct vg_memory_slice *slice = &table->slices[i];
    if (!slice->away)
      missing_bytes = minus(missing_bytes, minus(slice->held_bytes, at_least(slice->min_bytes, slice->used_bytes)));
  }
  uint64_t all_bytes = reclaimable_from_all(table, now_ns);
  for (int i = 0; i < table->slice_count; i++) {
    struct vg_memory_slice *slice = &table->slices[i];
    uint64_t own_bytes = reclaimable(slice, now_ns), part_bytes = 0;
    if (own_bytes && missing_bytes)
      part_bytes = (uint64_t)(((unsigned __int128)missing_bytes * own_bytes + all_bytes - 1) / all_bytes);
    part_bytes = at_most(part_bytes, own_bytes);
    uint64_t over_bytes = slice->watchers && !slice->away ? minus(slice->used_bytes, slice->max_bytes) : 0;
    bool lowered = over_bytes > part_bytes;
    uint64_t deadline_ns = lowered ? now_ns + table->grace_ns : others_deadline_ns;
    vg_reclaim_update(&slice->reclaim, table->grace_ns ? at_least(part_bytes, over_bytes) : 0, slice->used_bytes,
                      deadline_ns, now_ns);
  }
}

/* What such slices do not use is not theirs any more, nor what is lent out of the space of one that is to come. */
static void press_asked(struct vg_memory_table *table) {
  bool lent = missing_space(table) != 0;
  for (int i = 0; i < table->row_count; i++) {
    const struct vg_memory_slice *slice = slice_of(table, table->rows[i]);
    uint64_t most_bytes = lent && !slice->away ? at_most(slice->min_bytes, slice->max_bytes) : slice->max_bytes;
    bool over = slice->held_bytes > most_bytes && held(table->rows[i]) > table->rows[i]->used_bytes;
    table->rows[i]->pressure |= over || slice->reclaim.remaining_bytes;
  }
}

/* Requests can be decided about only by rows as of now. */
static bool asks(const struct vg_memory_table *table, uint64_t now_ns) {
  bool any = table->space_bytes != 0;
  for (int i = 0; i < table->slice_count && table->grace_ns; i++) {
    const struct vg_memory_slice *slice = &table->slices[i];
    any |= slice->reclaim.remaining_bytes ||
           (slice->watchers && slice->used_bytes > slice->max_bytes && reclaimable(slice, now_ns));
  }
  return any;
}

/* Returns when the requests must be looked at again. */
static uint64_t serve_requests(struct vg_memory_table *table, uint64_t now_ns) {
  uint64_t deadline_ns = UINT64_MAX;
  if (table->stale) return asks(table, now_ns) ? now_ns : UINT64_MAX;
  ask_back(table, now_ns);
  press_asked(table);
  bool lent = missing_space(table) != 0;
  for (int i = 0; i < table->slice_count; i++) {
    const struct vg_reclaim *reclaim = &table->slices[i].reclaim;
    if (reclaim->remaining_bytes)
      deadline_ns = at_most(deadline_ns, reclaim->deadline_ns);
    else if (lent && reclaim->again_ns > now_ns)
      deadline_ns = at_most(deadline_ns, reclaim->again_ns);
  }
  return deadline_ns;
}

/* ---- wants ---- */

static void note_shortage(struct vg_memory_slice *slice, uint64_t bytes) {
  if (!bytes) return;
  slice->shortages++;
  slice->last_short_bytes = bytes;
}

/* Returns when the want must be looked at again; 0: it is answered. */
static uint64_t serve(struct vg_memory_table *table, struct vg_memory_row *row, uint64_t now_ns) {
  struct vg_memory_slice *slice = slice_of(table, row);
  row->want_deadline_ns = 0;
  if (row->want_bytes <= headroom(table, slice)) {
    uint64_t bytes = row->want_bytes;
    if (!slice->away && bytes > unheld(table)) { /* its minimum, and others hold the memory */
      if (table->stale) return now_ns;
      if (row->want_least_bytes && row->want_least_bytes < bytes) bytes = row->want_least_bytes;
      uint64_t due_ns = bytes > unheld(table) ? wait_for_others(table, row, bytes, now_ns) : 0;
      if (due_ns) return due_ns;
      note_shortage(slice, minus(bytes, unheld(table)));
    }
    answer(row, bytes);
    slice->held_bytes += bytes;
    return 0;
  }
  if (table->stale) return now_ns;
  uint64_t due_ns = row->want_since_ns + VG_MEMORY_PATIENCE_NS;
  if (now_ns < due_ns && row->want_bytes <= slice->max_bytes && press(table, row)) return due_ns;
  answer(row, 0);
  return 0;
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
  table->waiting_bytes = table->waiting_deadline_ns = 0;
  for (int i = 0; i < table->slice_count && !table->stale; i++)
    vg_reclaim_expire(&table->slices[i].reclaim, table->slices[i].used_bytes, now_ns);
  for (int i = 0; i < table->row_count; i++) table->rows[i]->pressure = table->rows[i]->denied = false;
  for (int i = 0; i < table->row_count; i++) {
    struct vg_memory_row *row = table->rows[i];
    if (row->want_seq == row->want_answered) continue;
    uint64_t due_ns = serve(table, row, now_ns);
    if (due_ns) deadline_ns = at_most(deadline_ns, due_ns);
  }
  deadline_ns = at_most(deadline_ns, serve_requests(table, now_ns));
  set_coast(table);
  return deadline_ns;
}
