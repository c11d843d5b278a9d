/*
 * test_table.c - the table of allocations from several threads, each with keys of its own and all with shared ones:
 * what was put is found once, counts come out even, nothing is lost when the table grows.
 */
#include <pthread.h>

#include "check.h"
#include "ledger/records.h"

#define THREADS 4
#define KEYS 3000
#define SHARED_KEYS 16
#define SHARED_ROUNDS 20000
#define CONTEXT(n) ((CUcontext)(uintptr_t)(0x100 + (n)))

static uint64_t key_of(uint64_t thread, uint64_t i) {
  return thread << 40 | i << 21; /* as device addresses are: the low bits are all zero */
}

static void *own_keys(void *argument) {
  uint64_t thread = (uintptr_t)argument;
  for (uint64_t i = 0; i < KEYS; i++) {
    struct vg_record *record = vg_record_new(VG_RECORD_POINTER, NULL, CONTEXT(thread));
    CHECK(record);
    record->bytes = i;
    vg_table_put(record, key_of(thread, i));
  }
  for (uint64_t i = 0; i < KEYS; i += 2) {
    struct vg_record copy;
    CHECK(vg_table_look(VG_RECORD_POINTER, key_of(thread, i), &copy));
    CHECK(copy.bytes == i);
    struct vg_record *record = vg_table_take(VG_RECORD_POINTER, key_of(thread, i));
    CHECK(record && record->bytes == i);
    vg_record_free(record);
    CHECK(!vg_table_take(VG_RECORD_POINTER, key_of(thread, i)));
  }
  return NULL;
}

static uint64_t made, ended;

/* Every thread adds one to a shared chunk and takes it off again: the last one ends it. */
static void *shared_keys(void *argument) {
  struct check_random random = {97 + (uintptr_t)argument};
  for (int i = 0; i < SHARED_ROUNDS; i++) {
    uint64_t key = check_below(&random, SHARED_KEYS);
    struct vg_record *fresh = vg_record_new(VG_RECORD_CHUNK, NULL, NULL);
    CHECK(fresh);
    if (vg_table_add_or_put(fresh, key) == 1)
      __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    else
      vg_record_free(fresh);
    struct vg_record *last = NULL;
    if (vg_table_add(VG_RECORD_CHUNK, key, -1, &last) == 0) {
      CHECK(last);
      vg_record_free(last);
      __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
    }
  }
  return NULL;
}

static void in_threads(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void what_was_put_is_found_once(void) {
  in_threads(own_keys);
  for (uint64_t thread = 0; thread < THREADS; thread++) {
    uint64_t left = 0;
    for (struct vg_record *record = vg_table_take_context(CONTEXT(thread)), *next; record; record = next) {
      next = record->next;
      vg_record_free(record);
      left++;
    }
    CHECK(left == KEYS / 2);
  }
  CHECK(!vg_table_take_context(CONTEXT(0)));
}

static void shared_chunks_come_out_even(void) {
  in_threads(shared_keys);
  CHECK(made == ended);
  for (uint64_t key = 0; key < SHARED_KEYS; key++) CHECK(!vg_table_take(VG_RECORD_CHUNK, key));
}

int main(void) {
  RUN(what_was_put_is_found_once);
  RUN(shared_chunks_come_out_even);
  return 0;
}
