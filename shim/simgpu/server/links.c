/*
 * links.c - the link between host and device, one for each direction: all that is on its way shares its rate. Called by
 * engine.c's round. Each context, and memory of a process that is checkpointed, has an equal part of the link; what one
 * does not take (pageable memory has a rate of its own) goes to the others. Copies of one context go one after the
 * other, as on its copy engine, so a program gains nothing by many streams.
 *
 * As for SMs, time is decided retroactively: a part is computed again at every beginning and end, whenever the server
 * learns of it. Never decided: an end later than now + LOOK_AHEAD_NS. Instances of a GPU use that GPU's links.
 */
#include "simgpu/server/server.h"
#include <math.h>

#define EQUAL_NS 0.5 /* less is left of rounding only */

static void list_add(struct link *link, struct transfer *transfer) {
  transfer->previous = NULL;
  transfer->next = link->first;
  if (link->first) link->first->previous = transfer;
  link->first = transfer;
}

static void list_remove(struct transfer *transfer) {
  if (transfer->previous) transfer->previous->next = transfer->next;
  if (transfer->next) transfer->next->previous = transfer->previous;
  if (transfer->link->first == transfer) transfer->link->first = transfer->next;
  transfer->link = NULL;
}

static bool comes_first(const struct transfer *one, const struct transfer *other) {
  return !other || one->ready_ns < other->ready_ns;
}

/* Gives everything on its way its part of the link. Returns when the next of the others begins, or NEVER. */
static uint64_t divide(struct link *link) {
  uint64_t next_ns = NEVER;
  double users = 0;
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next) transfer->user->current = NULL;
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next) {
    transfer->part = 0;
    if (transfer->ready_ns > link->decided_ns) {
      if (transfer->ready_ns < next_ns) next_ns = transfer->ready_ns;
    } else if (comes_first(transfer, transfer->user->current)) {
      if (!transfer->user->current) users++;
      transfer->user->current = transfer;
    }
  }
  /* Those with a rate of their own first: what they leave is divided among the rest. */
  double left = 1, rest = users;
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next) {
    if (transfer->user->current != transfer || transfer->most_part >= 1 / users) continue;
    transfer->part = transfer->most_part;
    left -= transfer->most_part;
    rest--;
  }
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next)
    if (transfer->user->current == transfer && transfer->part == 0)
      transfer->part = fmin(left / rest, transfer->most_part);
  return next_ns;
}

static uint64_t end_of(const struct transfer *transfer, uint64_t decided_ns) {
  return decided_ns + (uint64_t)ceil(transfer->left_ns / transfer->part);
}

/* Of what is on its way, that which ends first if nothing else begins. */
static struct transfer *first_to_end(const struct link *link) {
  struct transfer *first = NULL;
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next)
    if (transfer->part > 0 && (!first || transfer->left_ns / transfer->part < first->left_ns / first->part))
      first = transfer;
  return first;
}

static void advance(struct link *link, uint64_t until_ns) {
  double passed_ns = (double)(until_ns - link->decided_ns);
  for (struct transfer *transfer = link->first; transfer; transfer = transfer->next) {
    if (transfer->part == 0 || passed_ns == 0) continue;
    double used_ns = fmin(passed_ns * transfer->part, transfer->left_ns);
    transfer->left_ns -= used_ns;
    if (transfer->left_ns < EQUAL_NS) transfer->left_ns = 0;
    link_log_use(link, transfer, until_ns, used_ns);
    transfer->device->link_ns[link->direction] += used_ns;
    transfer->device->changed = true;
  }
  link->decided_ns = until_ns;
}

void link_add(struct link *link, struct transfer *transfer) {
  transfer->link = link;
  transfer->all_ns = transfer->left_ns;
  transfer->part = 0;
  transfer->logged_bytes = 0;
  list_add(link, transfer);
}

/* What it has moved so far has used the link. */
void link_remove(struct transfer *transfer, uint64_t now_ns) {
  struct link *link = transfer->link;
  if (!link) return;
  uint64_t until_ns = divide(link);
  const struct transfer *first = first_to_end(link);
  if (first && end_of(first, link->decided_ns) < until_ns) until_ns = end_of(first, link->decided_ns);
  if (now_ns < until_ns) until_ns = now_ns;
  if (until_ns > link->decided_ns) advance(link, until_ns);
  list_remove(transfer);
}

struct transfer *link_run(struct link *link, uint64_t now_ns, uint64_t *ret_end_ns) {
  link->next_decision_ns = NEVER;
  while (link->first) {
    uint64_t begin_ns = divide(link);
    struct transfer *ending = first_to_end(link);
    uint64_t end_ns = ending ? end_of(ending, link->decided_ns) : NEVER;
    uint64_t at_ns = end_ns <= begin_ns ? end_ns : begin_ns;
    if (at_ns > now_ns + LOOK_AHEAD_NS) {
      link->next_decision_ns = at_ns;
      return NULL;
    }
    advance(link, at_ns);
    if (at_ns != end_ns) continue;
    list_remove(ending);
    *ret_end_ns = end_ns;
    return ending;
  }
  return NULL;
}
