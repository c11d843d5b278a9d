/*
 * test_arbiter_memory.c - how much each process may hold: the invariants after each of many random steps, whatever the
 * tenants write into their report pages.
 */
#include "arbiter/memory.h"
#include "check.h"

#define MIB (1024ull * 1024)
#define SLICES 4
#define ROWS 12
#define TOTAL_BYTES (1024 * MIB)

static struct vg_memory_slice slices[SLICES];
static struct vg_memory_row rows[ROWS];
static struct vg_memory_row *row_pointers[ROWS];
static struct vg_memory_table table;

static void set_up(void) {
  for (int i = 0; i < SLICES; i++)
    slices[i] = (struct vg_memory_slice){.min_bytes = 100 * MIB * i, .max_bytes = 100 * MIB + 250 * MIB * i};
  for (int i = 0; i < ROWS; i++) {
    rows[i] = (struct vg_memory_row){.slice = i % SLICES};
    row_pointers[i] = &rows[i];
  }
  table = (struct vg_memory_table){
      .total_bytes = TOTAL_BYTES, .slices = slices, .slice_count = SLICES, .rows = row_pointers, .row_count = ROWS};
}

static uint64_t held(const struct vg_memory_row *row) {
  return row->granted_bytes - row->returned_bytes;
}

static void check_table(void) {
  uint64_t all_bytes = 0;
  for (int i = 0; i < SLICES; i++) {
    uint64_t slice_bytes = 0;
    for (int j = 0; j < ROWS; j++) {
      CHECK(rows[j].returned_bytes <= rows[j].granted_bytes);
      CHECK(rows[j].used_bytes <= held(&rows[j]));
      if (rows[j].slice == i) slice_bytes += held(&rows[j]);
    }
    CHECK(slice_bytes == slices[i].held_bytes);
    CHECK(slice_bytes <= slices[i].max_bytes);
    all_bytes += slice_bytes > slices[i].min_bytes ? slice_bytes : slices[i].min_bytes;
  }
  CHECK(all_bytes <= TOTAL_BYTES); /* so every minimum can still be had */
}

/* An honest or a hostile report: the fields may be anything. */
static void random_report(struct check_random *random, struct vg_memory_row *row, uint64_t now_ns) {
  uint64_t returned_bytes = row->returned_bytes, used_bytes = row->used_bytes;
  uint32_t seq = row->want_seq;
  switch (check_below(random, 6)) {
  case 0: /* gives everything back that it does not use */
    returned_bytes = row->granted_bytes - used_bytes;
    break;
  case 1:
    used_bytes = check_below(random, held(row) + 1);
    break;
  case 2: /* lies */
    returned_bytes = check_random(random);
    used_bytes = check_random(random);
    break;
  default:
    seq++;
  }
  uint64_t want_bytes = check_below(random, 50) ? check_below(random, 120 * MIB) : check_random(random);
  vg_memory_row_update(row, returned_bytes, used_bytes, want_bytes, seq, now_ns);
}

static void limits_hold_in_every_state(void) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    struct check_random random = {seed * 7919};
    uint64_t now_ns = 1;
    set_up();
    for (int step = 0; step < 3000; step++) {
      random_report(&random, &rows[check_below(&random, ROWS)], now_ns);
      uint64_t next_ns = vg_memory_table_step(&table, now_ns);
      CHECK(next_ns > now_ns || next_ns == UINT64_MAX);
      for (int i = 0; i < SLICES; i++) CHECK(slices[i].held_bytes <= slices[i].max_bytes);
      now_ns += check_below(&random, VG_MEMORY_PATIENCE_NS);
    }
    /* sum_up counted the held bytes before the last grants; a quiet step brings them up to date */
    vg_memory_table_step(&table, now_ns + VG_MEMORY_PATIENCE_NS * 2);
    vg_memory_table_step(&table, now_ns + VG_MEMORY_PATIENCE_NS * 2);
    check_table();
  }
}

static void every_want_is_answered(void) {
  set_up();
  uint64_t now_ns = 1000;
  for (int i = 0; i < ROWS; i++) vg_memory_row_update(&rows[i], 0, 0, 80 * MIB, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  now_ns += VG_MEMORY_PATIENCE_NS;
  CHECK(vg_memory_table_step(&table, now_ns) == UINT64_MAX);
  for (int i = 0; i < ROWS; i++) CHECK(rows[i].want_answered == 1);
  check_table();
}

static void a_minimum_can_be_had_beside_borrowers(void) {
  set_up();
  uint64_t now_ns = 1000;
  /* slice 2 (row 2) borrows what it can, then slice 3 (row 3) asks for its whole minimum */
  vg_memory_row_update(&rows[2], 0, 0, 500 * MIB, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  CHECK(rows[2].granted_bytes == 500 * MIB);
  vg_memory_row_update(&rows[2], 0, 500 * MIB, 500 * MIB, 1, now_ns);
  vg_memory_row_update(&rows[3], 0, 0, slices[3].min_bytes, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  CHECK(rows[3].granted_bytes == slices[3].min_bytes);
  CHECK(!rows[3].denied);
}

static void unused_credit_comes_back_under_pressure(void) {
  set_up();
  uint64_t now_ns = 1000;
  vg_memory_row_update(&rows[1], 0, 0, 350 * MIB, 1, now_ns); /* slice 1: all of its maximum, unused */
  vg_memory_table_step(&table, now_ns);
  CHECK(rows[1].granted_bytes == 350 * MIB);
  vg_memory_row_update(&rows[5], 0, 0, 200 * MIB, 1, now_ns); /* another process of the same slice */
  CHECK(vg_memory_table_step(&table, now_ns) == now_ns + VG_MEMORY_PATIENCE_NS);
  CHECK(rows[1].pressure);
  vg_memory_row_update(&rows[1], 350 * MIB, 0, 350 * MIB, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  CHECK(rows[5].granted_bytes == 200 * MIB);
  CHECK(!rows[1].pressure);
}

static void no_want_is_refused_by_stale_rows(void) {
  set_up();
  uint64_t now_ns = 1000;
  vg_memory_row_update(&rows[1], 0, 0, 350 * MIB, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  vg_memory_row_update(&rows[1], 0, 350 * MIB, 350 * MIB, 1, now_ns);
  vg_memory_row_update(&rows[5], 0, 0, 200 * MIB, 1, now_ns); /* of the same slice, which has no more */
  table.stale = true;
  CHECK(vg_memory_table_step(&table, now_ns) == now_ns);
  CHECK(!rows[1].pressure && rows[5].want_answered == 0);
  table.stale = false;
  CHECK(vg_memory_table_step(&table, now_ns) == UINT64_MAX);
  CHECK(rows[5].denied && rows[5].want_answered == 1);
}

/* What an away slice does not move is not lent; a page that says more than it uses has it no larger. */
static void what_an_away_slice_leaves_on_the_device_is_its_own(void) {
  uint64_t now_ns = 1;
  set_up();
  table.slice_count = 2;
  table.row_count = 2;
  slices[0] = (struct vg_memory_slice){.max_bytes = TOTAL_BYTES, .moves_itself = true};
  slices[1] = (struct vg_memory_slice){.max_bytes = TOTAL_BYTES};
  vg_memory_row_update(&rows[0], 0, 0, 600 * MIB, 1, now_ns);
  vg_memory_table_step(&table, now_ns);
  vg_memory_row_update(&rows[0], 0, 600 * MIB, 0, 1, now_ns);
  rows[0].movable_bytes = 580 * MIB;
  slices[0].away = true;
  vg_memory_row_update(&rows[1], 0, 0, TOTAL_BYTES - 20 * MIB, 1, ++now_ns);
  vg_memory_table_step(&table, now_ns);
  CHECK(held(&rows[1]) == TOTAL_BYTES - 20 * MIB);
  vg_memory_row_update(&rows[1], 0, held(&rows[1]), 2 * MIB, 2, ++now_ns);
  vg_memory_table_step(&table, now_ns += VG_MEMORY_PATIENCE_NS + 1);
  CHECK(rows[1].denied && held(&rows[1]) == TOTAL_BYTES - 20 * MIB);
  rows[0].movable_bytes = UINT64_MAX;
  vg_memory_row_update(&rows[1], 0, held(&rows[1]), 40 * MIB, 3, ++now_ns);
  vg_memory_table_step(&table, now_ns += VG_MEMORY_PATIENCE_NS + 1);
  CHECK(held(&rows[1]) <= TOTAL_BYTES);
}

int main(void) {
  RUN(limits_hold_in_every_state);
  RUN(every_want_is_answered);
  RUN(a_minimum_can_be_had_beside_borrowers);
  RUN(unused_credit_comes_back_under_pressure);
  RUN(no_want_is_refused_by_stale_rows);
  RUN(what_an_away_slice_leaves_on_the_device_is_its_own);
  return 0;
}
