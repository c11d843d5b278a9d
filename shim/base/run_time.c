/* run_time.c - see run_time.h. What is added and asked is mostly of late, so the set is looked through from its end. */
#include "base/run_time.h"

#include <string.h>

static void take_out(struct vg_runs *runs, uint32_t first, uint32_t count) {
  memmove(&runs->of[first], &runs->of[first + count], (runs->count - first - count) * sizeof runs->of[0]);
  runs->count -= count;
}

static void join_nearest(struct vg_runs *runs) {
  uint32_t nearest = 1;
  for (uint32_t i = 2; i < runs->count; i++) {
    uint64_t pause_ns = runs->of[i].begin_ns - runs->of[i - 1].end_ns;
    if (pause_ns < runs->of[nearest].begin_ns - runs->of[nearest - 1].end_ns) nearest = i;
  }
  runs->of[nearest - 1].end_ns = runs->of[nearest].end_ns;
  take_out(runs, nearest, 1);
}

void vg_runs_add(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns) {
  if (end_ns <= begin_ns) return;
  if (runs->count == VG_RUNS) join_nearest(runs);
  uint32_t last = runs->count, first; /* those from first to before last meet it */
  while (last && runs->of[last - 1].begin_ns > end_ns) last--;
  for (first = last; first && runs->of[first - 1].end_ns >= begin_ns; first--) {
    if (runs->of[first - 1].begin_ns < begin_ns) begin_ns = runs->of[first - 1].begin_ns;
    if (runs->of[first - 1].end_ns > end_ns) end_ns = runs->of[first - 1].end_ns;
  }
  if (last > first) {
    take_out(runs, first + 1, last - first - 1);
  } else {
    memmove(&runs->of[first + 1], &runs->of[first], (runs->count - first) * sizeof runs->of[0]);
    runs->count++;
  }
  runs->of[first] = (struct vg_run){begin_ns, end_ns};
}

void vg_runs_fill_latest(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns, uint64_t length_ns) {
  uint64_t from_ns = end_ns; /* all from here to the end is in the set, or added */
  for (uint32_t i = runs->count; i && length_ns && from_ns > begin_ns; i--) {
    const struct vg_run *run = &runs->of[i - 1];
    if (run->begin_ns >= from_ns) continue;
    uint64_t pause_ns = run->end_ns < from_ns ? from_ns - run->end_ns : 0;
    if (pause_ns >= length_ns) break;
    length_ns -= pause_ns;
    from_ns = run->begin_ns;
  }
  from_ns = from_ns > length_ns ? from_ns - length_ns : 0;
  vg_runs_add(runs, from_ns > begin_ns ? from_ns : begin_ns, end_ns);
}

void vg_runs_fill_first(struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns, uint64_t length_ns) {
  uint64_t to_ns = begin_ns;
  for (uint32_t i = 0; i < runs->count && length_ns && to_ns < end_ns; i++) {
    const struct vg_run *run = &runs->of[i];
    if (run->end_ns <= to_ns) continue;
    uint64_t pause_ns = run->begin_ns > to_ns ? run->begin_ns - to_ns : 0;
    if (pause_ns >= length_ns) break;
    length_ns -= pause_ns;
    to_ns = run->end_ns;
  }
  to_ns += length_ns;
  vg_runs_add(runs, begin_ns, to_ns < end_ns ? to_ns : end_ns);
}

void vg_runs_add_all(struct vg_runs *runs, const struct vg_runs *more) {
  for (uint32_t i = 0; i < more->count; i++) vg_runs_add(runs, more->of[i].begin_ns, more->of[i].end_ns);
}

uint64_t vg_runs_within(const struct vg_runs *runs, uint64_t begin_ns, uint64_t end_ns) {
  uint64_t sum_ns = 0;
  for (uint32_t i = runs->count; i && runs->of[i - 1].end_ns > begin_ns; i--) {
    uint64_t from_ns = runs->of[i - 1].begin_ns > begin_ns ? runs->of[i - 1].begin_ns : begin_ns;
    uint64_t to_ns = runs->of[i - 1].end_ns < end_ns ? runs->of[i - 1].end_ns : end_ns;
    if (to_ns > from_ns) sum_ns += to_ns - from_ns;
  }
  return sum_ns;
}

uint64_t vg_runs_last(const struct vg_runs *runs, uint64_t until_ns) {
  uint64_t last_ns = 0;
  for (uint32_t i = 0; i < runs->count && runs->of[i].begin_ns < until_ns; i++)
    last_ns = runs->of[i].end_ns < until_ns ? runs->of[i].end_ns : until_ns;
  return last_ns;
}

void vg_runs_forget(struct vg_runs *runs, uint64_t until_ns) {
  uint32_t over = 0;
  while (over < runs->count && runs->of[over].end_ns <= until_ns) over++;
  if (over) take_out(runs, 0, over);
}
