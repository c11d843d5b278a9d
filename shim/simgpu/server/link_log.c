/*
 * link_log.c - the log of each device's links: which process used how much of one when. Called by links.c for every
 * span of time in which the parts stay as they are; spans of one process within a millisecond become one record.
 */
#include "simgpu/server/server.h"

static void record_close(struct link_record *record) {
  if (record->use.pid) log_add(&record->device->link_log, &record->use, sizeof record->use);
  record->use.pid = 0;
}

/* The record that grows for this process on this device, or a place for a new one. */
static struct link_record *record_of(struct link *link, const struct transfer *transfer) {
  struct link_record *oldest = &link->records[0];
  for (uint32_t i = 0; i < LINK_RECORDS; i++) {
    struct link_record *record = &link->records[i];
    if (record->use.pid == transfer->process->pid && record->device == transfer->device) return record;
    if (!record->use.pid || (oldest->use.pid && record->use.begin_ns < oldest->use.begin_ns)) oldest = record;
  }
  return oldest;
}

void link_log_use(struct link *link, struct transfer *transfer, uint64_t end_ns, double used_ns) {
  struct link_record *record = record_of(link, transfer);
  struct sim_link_use *use = &record->use;
  bool joins = use->pid == transfer->process->pid && record->device == transfer->device &&
               link->decided_ns - use->end_ns <= BUSY_GAP_NS && end_ns - use->begin_ns <= BUSY_JOIN_NS;
  if (!joins) {
    record_close(record);
    *record = (struct link_record){
        .device = transfer->device,
        .use = {.begin_ns = link->decided_ns, .pid = transfer->process->pid, .direction = link->direction}};
  }
  double moved = transfer->all_ns > 0 ? 1 - transfer->left_ns / transfer->all_ns : 1;
  uint64_t moved_bytes = (uint64_t)(moved * (double)transfer->bytes);
  use->end_ns = end_ns;
  use->link_ns += used_ns;
  use->bytes += moved_bytes - transfer->logged_bytes;
  transfer->logged_bytes = moved_bytes;
}

void link_log_round(struct link *link, uint64_t now_ns, bool everything) {
  for (uint32_t i = 0; i < LINK_RECORDS; i++)
    if (everything || now_ns > link->records[i].use.end_ns + BUSY_JOIN_NS) record_close(&link->records[i]);
}
