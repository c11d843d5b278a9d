/*
 * channel.c - messages from ranks to ranks in the area. A channel has one writer and keeps the last messages that a
 * reader may still need: of those between all ranks each rank says how many operations it is done with, of those of a
 * pair the reader how many it has taken. The bytes of a message lie in one piece; a channel that no rank needs anything
 * of begins at the beginning again, so that short operations touch little memory.
 */
#include "base/prim.h"
#include "simcuda/nccl/communicator.h"
#include "simcuda/nccl/failure.h"
#include <string.h>

/* ---- of all ranks and of pairs ---- */

static uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* Where a message of so many bytes begins. needed: the first message that a reader still needs. */
static uint64_t place(const struct ncclComm *comm, const struct sc_channel *channel, uint64_t needed, uint64_t bytes) {
  uint64_t capacity = comm->area->channel_bytes, end = 0;
  if (channel->posted > 0) {
    const struct sc_message *last = &channel->messages[(channel->posted - 1) % SC_NCCL_DEPTH];
    end = last->begin + last->bytes;
  }
  return needed >= channel->posted || end % capacity + bytes > capacity ? round_up(end, capacity) : end;
}

static bool has_room(const struct ncclComm *comm, const struct sc_channel *channel, uint64_t needed, uint64_t bytes) {
  if (needed >= channel->posted) return true;
  if (channel->posted - needed >= SC_NCCL_DEPTH) return false;
  uint64_t oldest = channel->messages[needed % SC_NCCL_DEPTH].begin;
  return place(comm, channel, needed, bytes) + bytes - oldest <= comm->area->channel_bytes;
}

static void post(struct ncclComm *comm, struct sc_channel *channel, const struct sc_message *message) {
  channel->messages[channel->posted % SC_NCCL_DEPTH] = *message;
  VG_STORE(&channel->posted, channel->posted + 1);
  sc_area_ring(comm->area);
}

/* ---- between all ranks ---- */

static struct sc_channel *own_channel(const struct ncclComm *comm) {
  return &comm->area->collective[comm->rank];
}

/* The rank that is done with the fewest operations, and with how many. */
static uint64_t find_slowest(const struct ncclComm *comm, uint32_t *ret_rank) {
  uint64_t least = UINT64_MAX;
  *ret_rank = comm->rank;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    uint64_t done = VG_LOAD(&comm->area->ranks[rank].done);
    if (rank == comm->rank || done >= least) continue;
    least = done;
    *ret_rank = rank;
  }
  /* The own messages are read as well, by the own operations. */
  uint64_t own = VG_LOAD(&comm->area->ranks[comm->rank].done);
  if (own < least) *ret_rank = comm->rank;
  return own < least ? own : least;
}

bool sc_has_room(const struct ncclComm *comm, uint64_t bytes) {
  uint32_t slowest;
  return has_room(comm, own_channel(comm), find_slowest(comm, &slowest), bytes);
}

static bool is_done_with(const struct ncclComm *comm, uint32_t rank, uint64_t number) {
  return VG_LOAD(&comm->area->ranks[rank].done) > number;
}

ncclResult_t sc_wait_for_room(struct ncclComm *comm, uint64_t bytes) {
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && !sc_has_room(comm, bytes)) {
    uint32_t slowest;
    uint64_t done = find_slowest(comm, &slowest);
    if (slowest == comm->rank)
      return sc_nccl_fail(ncclInvalidUsage,
                          "too much of a group is captured at once: more than %u operations or %llu bytes",
                          SC_NCCL_DEPTH, (unsigned long long)comm->area->channel_bytes);
    result = sc_comm_wait(comm, is_done_with, slowest, done);
  }
  return result;
}

uint8_t *sc_begin_message(struct ncclComm *comm, struct sc_message *message) {
  uint32_t slowest;
  message->begin = place(comm, own_channel(comm), find_slowest(comm, &slowest), message->bytes);
  return sc_area_collective_data(comm->area, comm->rank) + message->begin % comm->area->channel_bytes;
}

void sc_post_message(struct ncclComm *comm, const struct sc_message *message) {
  post(comm, own_channel(comm), message);
}

bool sc_is_posted(const struct ncclComm *comm, uint32_t rank, uint64_t number) {
  return VG_LOAD(&comm->area->collective[rank].posted) > number;
}

const struct sc_message *sc_message_of(const struct ncclComm *comm, uint32_t rank, uint64_t number,
                                       const uint8_t **ret_bytes) {
  const struct sc_message *message = &comm->area->collective[rank].messages[number % SC_NCCL_DEPTH];
  *ret_bytes = sc_area_collective_data(comm->area, rank) + message->begin % comm->area->channel_bytes;
  return message;
}

void sc_release_messages(struct ncclComm *comm, uint64_t number) {
  VG_STORE(&comm->area->ranks[comm->rank].done, number + 1);
  sc_area_ring(comm->area);
}

/* ---- of a pair ---- */

static struct sc_channel *pair_to(const struct ncclComm *comm, uint32_t peer) {
  return &comm->area->pairs[comm->rank][peer];
}

bool sc_pair_has_room(const struct ncclComm *comm, uint32_t peer, uint64_t bytes) {
  const struct sc_channel *channel = pair_to(comm, peer);
  return has_room(comm, channel, VG_LOAD(&channel->taken), bytes);
}

static bool has_taken(const struct ncclComm *comm, uint32_t peer, uint64_t number) {
  return VG_LOAD(&pair_to(comm, peer)->taken) > number;
}

ncclResult_t sc_pair_wait_for_room(struct ncclComm *comm, uint32_t peer, uint64_t bytes) {
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && !sc_pair_has_room(comm, peer, bytes))
    result = sc_comm_wait(comm, has_taken, peer, VG_LOAD(&pair_to(comm, peer)->taken));
  return result;
}

uint8_t *sc_pair_begin(struct ncclComm *comm, uint32_t peer, struct sc_message *message) {
  const struct sc_channel *channel = pair_to(comm, peer);
  message->begin = place(comm, channel, VG_LOAD(&channel->taken), message->bytes);
  return sc_area_pair_data(comm->area, comm->rank, peer) + message->begin % comm->area->channel_bytes;
}

void sc_pair_post(struct ncclComm *comm, uint32_t peer, const struct sc_message *message) {
  post(comm, pair_to(comm, peer), message);
}

bool sc_pair_is_posted(const struct ncclComm *comm, uint32_t peer, uint64_t number) {
  return VG_LOAD(&comm->area->pairs[peer][comm->rank].posted) > number;
}

const struct sc_message *sc_pair_message_of(const struct ncclComm *comm, uint32_t peer, uint64_t number,
                                            const uint8_t **ret_bytes) {
  const struct sc_message *message = &comm->area->pairs[peer][comm->rank].messages[number % SC_NCCL_DEPTH];
  *ret_bytes = sc_area_pair_data(comm->area, peer, comm->rank) + message->begin % comm->area->channel_bytes;
  return message;
}

void sc_pair_release(struct ncclComm *comm, uint32_t peer, uint64_t number) {
  VG_STORE(&comm->area->pairs[peer][comm->rank].taken, number + 1);
  sc_area_ring(comm->area);
}

/* ---- on the host ---- */

ncclResult_t sc_exchange(struct ncclComm *comm, const void *mine, void *ret_all, uint32_t bytes) {
  struct sc_message message = {.kind = UINT32_MAX, .count = bytes, .bytes = bytes};
  ncclResult_t result = sc_wait_for_room(comm, bytes);
  if (result != ncclSuccess) return result;
  uint64_t number = comm->collectives++;
  memcpy(sc_begin_message(comm, &message), mine, bytes);
  sc_post_message(comm, &message);
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    const uint8_t *from;
    result = sc_comm_wait(comm, sc_is_posted, rank, number);
    if (result != ncclSuccess) return result;
    const struct sc_message *posted = sc_message_of(comm, rank, number, &from);
    if (posted->kind != message.kind || posted->bytes != bytes)
      return sc_nccl_fail(ncclInvalidUsage, "rank %u makes no communicator of this one when rank %u does", rank,
                          comm->rank);
    memcpy((uint8_t *)ret_all + (size_t)rank * bytes, from, bytes);
  }
  sc_release_messages(comm, number);
  return ncclSuccess;
}
