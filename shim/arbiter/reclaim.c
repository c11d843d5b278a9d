/* reclaim.c - see reclaim.h. */
#include "arbiter/reclaim.h"

static uint64_t returned(const struct vg_reclaim *reclaim, uint64_t used_bytes) {
  return reclaim->begin_used_bytes > used_bytes ? reclaim->begin_used_bytes - used_bytes : 0;
}

static void end(struct vg_reclaim *reclaim, uint64_t used_bytes, uint64_t now_ns, bool late) {
  reclaim->last_was_late = late;
  reclaim->last_asked_bytes = reclaim->asked_bytes;
  reclaim->last_returned_bytes = returned(reclaim, used_bytes);
  reclaim->last_took_ns = now_ns - reclaim->begin_ns;
  reclaim->end_count++;
  reclaim->remaining_bytes = 0;
  if (late) reclaim->again_ns = now_ns + VG_RECLAIM_AGAIN_NS;
}

bool vg_reclaim_is_possible(const struct vg_reclaim *reclaim, uint64_t now_ns) {
  return reclaim->remaining_bytes || now_ns >= reclaim->again_ns;
}

void vg_reclaim_expire(struct vg_reclaim *reclaim, uint64_t used_bytes, uint64_t now_ns) {
  if (!reclaim->remaining_bytes || now_ns < reclaim->deadline_ns) return;
  end(reclaim, used_bytes, now_ns, returned(reclaim, used_bytes) < reclaim->asked_bytes);
}

void vg_reclaim_update(struct vg_reclaim *reclaim, uint64_t bytes, uint64_t used_bytes, uint64_t deadline_ns,
                       uint64_t now_ns) {
  if (!bytes) {
    if (reclaim->remaining_bytes) end(reclaim, used_bytes, now_ns, false);
    return;
  }
  if (!vg_reclaim_is_possible(reclaim, now_ns)) return;
  bool begins = !reclaim->remaining_bytes;
  if (begins) {
    reclaim->begin_used_bytes = used_bytes;
    reclaim->begin_ns = now_ns;
  }
  uint64_t all_bytes = returned(reclaim, used_bytes) + bytes;
  if (begins || all_bytes > reclaim->asked_bytes + VG_RECLAIM_STEP_BYTES) {
    reclaim->asked_bytes = all_bytes;
    reclaim->deadline_ns = deadline_ns;
    reclaim->serial++;
  }
  reclaim->remaining_bytes = bytes;
}
