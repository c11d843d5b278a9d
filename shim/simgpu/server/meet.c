/*
 * meet.c - kernels that run only together, as those of a collective (NCCL) do: each has the SMs of its device and spins
 * until one of each device runs, and they make progress only while all of them do. Called by engine.c.
 *
 * Which meet: those that say the same group and number (a communicator and its operation); of those that say none, the
 * kernels of one process group, by the order of their launches in their contexts: the first such kernel of a context
 * meets the first ones of contexts on other devices, and so on. One that is alone in having the SMs (its partner is not
 * launched, waits in its stream, or another context has that device's slice) keeps spinning: that is busy time of its
 * context. Kernels of other streams of the context go first as long as not all of the meeting have reached the SMs, as
 * they would beside a collective's few blocks; so do other meetings of the context that are complete. A process may
 * leave a group (disband): its kernels in there then run by themselves.
 *
 * Time: a device that has reached such a kernel stops deciding. When all devices of the meeting have reached theirs,
 * they run together up to the first end of a slice or of the kernel. When nothing else is left to decide, all that
 * spin do so up to the first end of a slice, or up to now: a device that does not spin and has nothing to run can begin
 * something at any time from now on, and a device that spins can begin something else only when a slice ends.
 */
#include "simgpu/server/meeting.h"

/* A member whose context spins in another meeting can run as well: such kernels take few of the SMs. */
static bool all_run(const struct meeting *meeting) {
  if (meeting->count < meeting->size) return false;
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct stream *spins = meeting->members[i]->context->device->meets;
    if (!spins || spins->context != meeting->members[i]->context) return false;
  }
  return true;
}

static void complete(struct meeting *meeting) {
  struct stream *members[SIM_DEVICES_MAX];
  uint32_t count = meeting->count;
  for (uint32_t i = 0; i < count; i++) members[i] = meeting->members[i];
  for (uint32_t i = 0; i < count; i++) meet_leave(members[i]); /* the last one frees it */
  for (uint32_t i = 0; i < count; i++) engine_complete(members[i]);
}

/* All members run, each on its device from sm_ns to slice_end_ns. */
static void go_on(struct meeting *meeting) {
  uint64_t begin_ns = 0, end_ns = NEVER;
  for (uint32_t i = 0; i < meeting->count; i++) {
    const struct device *device = meeting->members[i]->context->device;
    if (device->sm_ns > begin_ns) begin_ns = device->sm_ns;
    if (device->slice_end_ns < end_ns) end_ns = device->slice_end_ns;
  }
  if (end_ns > begin_ns + meeting->left_ns) end_ns = begin_ns + meeting->left_ns;
  if (end_ns > begin_ns) meeting->left_ns -= end_ns - begin_ns;
  for (uint32_t i = 0; i < meeting->count; i++) {
    struct device *device = meeting->members[i]->context->device;
    device->meets = NULL; /* the engine decides again what runs */
    if (device->sm_ns < end_ns) engine_advance(device, end_ns);
  }
  if (meeting->left_ns == 0) complete(meeting);
}

void meet_run(void) {
  for (struct meeting *meeting = meetings; meeting; meeting = meeting->next) {
    if (!all_run(meeting)) continue;
    go_on(meeting);
    return; /* the list may have changed; the round comes back */
  }
}

void meet_spin(uint64_t now_ns) {
  uint64_t until_ns = NEVER;
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    const struct device *device = &server.devices[i];
    if (device->meets && device->slice_end_ns < until_ns) until_ns = device->slice_end_ns;
  }
  if (until_ns > now_ns + LOOK_AHEAD_NS) until_ns = now_ns;
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    struct device *device = &server.devices[i];
    if (device->meets && device->sm_ns < until_ns) engine_advance(device, until_ns);
  }
}
