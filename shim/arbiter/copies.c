/* copies.c - see copies.h. */
#include "arbiter/copies.h"

/* What a slice may always copy, so that its demand shows: of the link. */
#define LEAST_PART 64
/* By such a part of itself a demand fades in a window. */
#define FADES 4
#define FADES_DELAYED 16

uint64_t vg_core_copy_demand(uint64_t copied_bytes_per_ms, bool delayed, uint64_t before_bytes_per_ms,
                             uint64_t link_bytes_per_ms) {
  /* Twice what it does, not all: a page may claim delays and copy nothing. */
  uint64_t more = delayed ? copied_bytes_per_ms : copied_bytes_per_ms / 4;
  uint64_t now = copied_bytes_per_ms + more + link_bytes_per_ms / LEAST_PART;
  /* A piece may take several windows, so a demand fades. */
  uint64_t faded = before_bytes_per_ms - before_bytes_per_ms / (delayed ? FADES_DELAYED : FADES);
  return vg_core_least(now > faded ? now : faded, link_bytes_per_ms);
}

static uint64_t part_of(uint64_t link_bytes_per_ms, uint32_t milli) {
  return link_bytes_per_ms * milli / VG_CORE_MILLI;
}

static uint64_t want_of(const struct vg_core_copier *copier, uint64_t link_bytes_per_ms) {
  return vg_core_least(copier->demand_bytes_per_ms, part_of(link_bytes_per_ms, copier->max_milli));
}

/* One round: divides what is left by weight among those that want more. Returns what is left after it. */
static uint64_t divide_rest(struct vg_core_copier *copiers, int count, uint64_t link_bytes_per_ms, uint64_t left) {
  uint64_t weights = 0, given = 0;
  for (int i = 0; i < count; i++)
    if (copiers[i].granted_bytes_per_ms < want_of(&copiers[i], link_bytes_per_ms)) weights += copiers[i].weight;
  for (int i = 0; weights && i < count; i++) {
    uint64_t more = want_of(&copiers[i], link_bytes_per_ms) - copiers[i].granted_bytes_per_ms;
    more = vg_core_least(more, left * copiers[i].weight / weights);
    copiers[i].granted_bytes_per_ms += more;
    given += more;
  }
  return left - given;
}

void vg_core_divide_link(struct vg_core_copier *copiers, int count, uint64_t link_bytes_per_ms) {
  uint64_t left = link_bytes_per_ms;
  for (int i = 0; i < count; i++) {
    uint64_t least = part_of(link_bytes_per_ms, copiers[i].min_milli);
    copiers[i].granted_bytes_per_ms = vg_core_least(least, want_of(&copiers[i], link_bytes_per_ms));
    left -= vg_core_least(left, copiers[i].granted_bytes_per_ms);
  }
  for (int round = 0; round < count && left; round++) left = divide_rest(copiers, count, link_bytes_per_ms, left);
  for (int i = 0; i < count; i++) {
    uint64_t most = part_of(link_bytes_per_ms, copiers[i].max_milli);
    uint64_t least = part_of(link_bytes_per_ms, copiers[i].min_milli) + link_bytes_per_ms / LEAST_PART;
    uint64_t rate = copiers[i].granted_bytes_per_ms + left;
    if (rate < least) rate = least;
    copiers[i].bytes_per_ms = vg_core_least(rate, most) + 1;
  }
}
