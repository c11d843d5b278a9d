/* gang.c - see gang.h: the board, and what an arbiter's round does with it. */
#include "arbiter/gang.h"

#include <limits.h>
#include <pthread.h>

#include "arbiter/state.h"
#include "base/prim.h"

#define MEMBERS_MAX (VG_SLICES_MAX * 4)
#define SEEN_NS 50000ull /* what two devices complete together is seen on both within this time */
#define LAST_RESORT_NS 1000000ull
#define LET_LEAST_NS 50000ull /* of work let through at once: little more than one launch */
#define LET_MOST_NS 2000000ull

struct member { /* a gang's part on one device */
  uint64_t slice_id;
  int wake_fd;
  struct vg_gang_part part;
  uint64_t window_ns; /* when its present window of rings began */
  uint32_t rings;     /* in it */
  bool owed;          /* there is news for it, and no ring was left in the window */
};

static pthread_mutex_t board_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct member members[MEMBERS_MAX];
static int member_count;

/* ---- the board ---- */

static struct member *find(uint64_t slice_id, int wake_fd) {
  for (int i = 0; i < member_count; i++)
    if (members[i].slice_id == slice_id && members[i].wake_fd == wake_fd) return &members[i];
  return NULL;
}

static struct member *next_of(uint64_t slice_id, const struct member *before) {
  for (int i = before ? (int)(before - members) + 1 : 0; i < member_count; i++)
    if (members[i].slice_id == slice_id) return &members[i];
  return NULL;
}

static bool is_behind(uint32_t mine, uint32_t other) {
  return (int32_t)(other - mine) > 0;
}

static void read_locked(uint64_t slice_id, int wake_fd, struct vg_gang_others *ret_others) {
  *ret_others = (struct vg_gang_others){.go = true};
  for (const struct member *member = NULL; (member = next_of(slice_id, member));) {
    if (member->wake_fd == wake_fd) continue;
    if (member->part.leads) {
      ret_others->turns = member->part.turns;
      ret_others->go = member->part.open;
    }
    ret_others->veto |= member->part.veto;
    ret_others->wants |= member->part.wants;
    ret_others->outstanding |= member->part.outstanding;
    if (is_behind(ret_others->collectives, member->part.collectives))
      ret_others->collectives = member->part.collectives;
    ret_others->idle_wants |= member->part.wants && !member->part.outstanding;
    if (member->part.overdue_ns > ret_others->overdue_ns) ret_others->overdue_ns = member->part.overdue_ns;
  }
}

/* How far the others are matters to a device that is behind and whose gate is closed. */
static bool is_news(const struct member *member, const struct vg_gang_others *before,
                    const struct vg_gang_others *now) {
  bool further = is_behind(before->collectives, now->collectives);
  if (further && !member->part.open && is_behind(member->part.collectives, now->collectives)) return true;
  if (before->overdue_ns != now->overdue_ns && !member->part.open && member->part.wants) return true;
  if (before->veto != now->veto) return true;
  if (!member->part.leads) return before->go != now->go || before->turns != now->turns;
  return before->wants != now->wants || before->outstanding != now->outstanding;
}

/* Wakes an arbiter, or returns when it may be woken. Without the limit two devices on which a tenant's pages change all
 * the time would wake each other in each round. */
static uint64_t ring(struct member *member, uint64_t now_ns) {
  if (now_ns >= member->window_ns + VG_NS_PER_MS) {
    member->window_ns = now_ns;
    member->rings = 0;
  }
  member->owed = member->rings == VG_GANG_RINGS_PER_MS;
  if (member->owed) return member->window_ns + VG_NS_PER_MS;
  member->rings++;
  vg_prim_eventfd_ring(member->wake_fd);
  return UINT64_MAX;
}

/* Puts a part on the board, and wakes the arbiters for which it is news. */
static uint64_t post_locked(struct member *self, const struct vg_gang_part *part, uint64_t now_ns) {
  struct vg_gang_others before[VG_DEVICES_MAX], now;
  struct member *others[VG_DEVICES_MAX];
  uint64_t again_ns = UINT64_MAX;
  int count = 0;
  for (struct member *member = NULL; count < VG_DEVICES_MAX && (member = next_of(self->slice_id, member));) {
    if (member == self) continue;
    read_locked(member->slice_id, member->wake_fd, &before[count]);
    others[count++] = member;
  }
  self->part = *part;
  for (int i = 0; i < count; i++) {
    read_locked(others[i]->slice_id, others[i]->wake_fd, &now);
    if (!others[i]->owed && !is_news(others[i], &before[i], &now)) continue;
    uint64_t due_ns = ring(others[i], now_ns);
    if (due_ns < again_ns) again_ns = due_ns;
  }
  return again_ns;
}

uint64_t vg_gang_post(uint64_t slice_id, int wake_fd, const struct vg_gang_part *part, uint64_t now_ns) {
  uint64_t again_ns = UINT64_MAX;
  pthread_mutex_lock(&board_mutex);
  struct member *self = find(slice_id, wake_fd);
  if (!self && member_count < MEMBERS_MAX) {
    self = &members[member_count++];
    *self = (struct member){.slice_id = slice_id, .wake_fd = wake_fd};
  }
  if (self) again_ns = post_locked(self, part, now_ns);
  pthread_mutex_unlock(&board_mutex);
  return again_ns;
}

void vg_gang_read(uint64_t slice_id, int wake_fd, struct vg_gang_others *ret_others) {
  pthread_mutex_lock(&board_mutex);
  read_locked(slice_id, wake_fd, ret_others);
  pthread_mutex_unlock(&board_mutex);
}

void vg_gang_leave(uint64_t slice_id, int wake_fd) {
  pthread_mutex_lock(&board_mutex);
  struct member *self = find(slice_id, wake_fd);
  if (self) *self = members[--member_count];
  for (const struct member *member = NULL; self && (member = next_of(slice_id, member));)
    vg_prim_eventfd_ring(member->wake_fd);
  pthread_mutex_unlock(&board_mutex);
}

/* ---- an arbiter's round ---- */

static bool is_led(const struct vg_core_slice *slice) {
  return slice->present && (slice->params.gang == VG_GANG_LEADER || slice->params.gang == VG_GANG_FOLLOWER);
}

static bool is_open(const struct vg_core_slice *slice) {
  return (slice->out.word & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

void vg_gang_round_begins(struct vg_arbiter *arbiter) {
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    struct vg_core_slice *slice = &arbiter->core.slices[i];
    struct vg_lane *lane = &arbiter->lanes[i];
    if (!is_led(slice)) continue;
    struct vg_gang_others elsewhere;
    vg_gang_read(slice->id, arbiter->wake_fd, &elsewhere);
    bool leads = slice->params.gang == VG_GANG_LEADER;
    slice->in.gang_turns = elsewhere.turns;
    slice->in.gang_go = elsewhere.go;
    slice->in.gang_stop = elsewhere.veto;
    slice->in.gang_busy = leads && elsewhere.outstanding;
    lane->others_collectives = elsewhere.collectives;
    lane->others_overdue_ns = elsewhere.overdue_ns;
    lane->others_idle_wants = elsewhere.idle_wants;
    lane->own_wants = slice->in.wants;
    lane->own_outstanding = slice->in.outstanding;
    if (!leads) continue;
    /* Work on a follower's device alone needs the slot all the same, and keeps it until it is done there. */
    if (is_open(slice)) slice->in.quiet &= !elsewhere.wants && !elsewhere.outstanding;
    slice->in.wants |= elsewhere.wants && !is_open(slice);
    slice->in.outstanding |= elsewhere.outstanding && is_open(slice);
    lane->stale = true; /* the next round sums up its own reports again */
  }
}

/* May a gang's device let launches through its closed gate? Until others may run beside it. */
static bool makes_up(const struct vg_arbiter *arbiter, const struct vg_core_slice *slice, uint64_t now_ns) {
  const struct vg_arbiter_params *params = &arbiter->core.params;
  return !is_open(slice) && now_ns < slice->gate.close_ns + params->bound_ns + params->overrun_ns;
}

static uint32_t launched(const struct vg_lane *lane) {
  uint32_t collectives = 0;
  for (const struct vg_process *process = lane->first; process; process = process->next)
    collectives += VG_LOAD(&process->report->collectives);
  return collectives;
}

static void let_through(struct vg_arbiter *arbiter, const struct vg_lane *lane, uint32_t more) {
  for (struct vg_process *process = lane->first; process; process = process->next) {
    struct vg_control_device *control = process->control;
    uint32_t collectives = VG_LOAD(&process->report->collectives);
    VG_STORE(&control->pass_collectives, more ? collectives + more : 0);
    if (!more || !process->reported.waiting) continue;
    vg_prim_futex_wake(&control->gate, INT_MAX);
    arbiter->due[process->index] |= VG_DUE_PAGE;
  }
}

static uint64_t overdue(const struct vg_lane *lane) {
  uint64_t last_ns = 0;
  for (const struct vg_process *process = lane->first; process; process = process->next)
    if (process->reported.overdue_ns > last_ns) last_ns = process->reported.overdue_ns;
  return last_ns;
}

static bool is_used(const struct vg_process *process) { /* what was let through last */
  return !is_behind(process->reported.passed_serial, VG_LOAD(&process->control->pass_serial));
}

/* May this process's launch be what the overdue work waits for? What it has launched before has ended, and that was not
 * it. Or nothing else can be, since a thread that would launch it waits here. */
static bool may_be_awaited(const struct vg_lane *lane, const struct vg_process *process, uint64_t overdue_ns) {
  const struct vg_reported *reported = &process->reported;
  uint64_t since_ns = reported->drained_ns > process->let_ns ? reported->drained_ns : process->let_ns;
  if (!overdue_ns || !reported->waiting || !is_used(process)) return false;
  if (!reported->outstanding) return overdue_ns > since_ns + SEEN_NS;
  if (lane->overdue_since_ns > since_ns) since_ns = lane->overdue_since_ns;
  return !lane->others_idle_wants && reported->overdue_ns > since_ns + LAST_RESORT_NS;
}

/* A thread that has just looked and is about to sleep misses it: so until it has passed, it is woken in each round. */
static void wake(struct vg_arbiter *arbiter, const struct vg_process *process) {
  vg_prim_futex_wake(&process->control->gate, INT_MAX);
  arbiter->due[process->index] |= VG_DUE_PAGE;
}

static void let(struct vg_arbiter *arbiter, struct vg_process *process, uint64_t work_ns, uint64_t now_ns) {
  process->let_ns = now_ns;
  VG_STORE(&process->control->pass_work_ns, work_ns);
  VG_STORE(&process->control->pass_serial, process->reported.passed_serial + 1);
  wake(arbiter, process);
}

static void let_no_more(struct vg_process *process) {
  if (VG_LOAD(&process->control->pass_work_ns)) VG_STORE(&process->control->pass_work_ns, 0);
  if (!is_used(process)) VG_STORE(&process->control->pass_serial, process->reported.passed_serial);
}

/* Kernels that spin for each other by whatever name: work of the gang is overdue, on any of its devices, and threads
 * wait at its gates. One launch is let through, and when that was not what the work waits for, more and more. */
static void let_awaited_through(struct vg_arbiter *arbiter, struct vg_lane *lane, uint64_t overdue_ns,
                                uint64_t now_ns) {
  bool ends = lane->overdue_since_ns && !overdue_ns;
  uint64_t next_ns = !lane->let_work_ns ? LET_LEAST_NS : 2 * lane->let_work_ns;
  if (next_ns > LET_MOST_NS) next_ns = LET_MOST_NS;
  if (!overdue_ns) lane->overdue_since_ns = lane->let_work_ns = 0;
  if (overdue_ns && !lane->overdue_since_ns) lane->overdue_since_ns = now_ns;
  for (struct vg_process *process = lane->first; process; process = process->next) {
    if (ends) let_no_more(process);
    if (may_be_awaited(lane, process, overdue_ns))
      let(arbiter, process, lane->let_work_ns = next_ns, now_ns);
    else if (process->reported.waiting && !is_used(process))
      wake(arbiter, process);
  }
}

/* At an open gate, or when the time is over. */
static void let_nothing_through(struct vg_lane *lane) {
  for (struct vg_process *process = lane->first; process; process = process->next) let_no_more(process);
  lane->overdue_since_ns = lane->let_work_ns = 0;
}

uint64_t vg_gang_round_ends(struct vg_arbiter *arbiter, uint64_t now_ns) {
  uint64_t due_ns = UINT64_MAX;
  for (int i = 0; i < arbiter->core.slice_count; i++) {
    const struct vg_core_slice *slice = &arbiter->core.slices[i];
    struct vg_lane *lane = &arbiter->lanes[i];
    bool led = is_led(slice);
    if (lane->in_gang && (!led || lane->gang_id != slice->id)) {
      vg_gang_leave(lane->gang_id, arbiter->wake_fd);
      lane->in_gang = false;
      let_nothing_through(lane);
    }
    if (!led) continue;
    lane->in_gang = true;
    lane->gang_id = slice->id;
    uint32_t mine = launched(lane), others = lane->others_collectives;
    bool more = makes_up(arbiter, slice, now_ns) && is_behind(mine, others);
    let_through(arbiter, lane, more ? others - mine : 0);
    uint64_t own_ns = overdue(lane), other_threads_ns = lane->others_overdue_ns;
    if (makes_up(arbiter, slice, now_ns))
      let_awaited_through(arbiter, lane, own_ns > other_threads_ns ? own_ns : other_threads_ns, now_ns);
    else
      let_nothing_through(lane);
    struct vg_gang_part part = {
        .leads = slice->params.gang == VG_GANG_LEADER,
        .turns = slice->saturating,
        .veto = slice->out.gang_veto,
        .open = is_open(slice),
        .wants = lane->own_wants,
        .outstanding = lane->own_outstanding,
        .collectives = mine,
        .overdue_ns = own_ns,
    };
    uint64_t again_ns = vg_gang_post(slice->id, arbiter->wake_fd, &part, now_ns);
    if (again_ns < due_ns) due_ns = again_ns;
  }
  return due_ns;
}

void vg_gang_arbiter_gone(struct vg_arbiter *arbiter) {
  for (int i = 0; i < arbiter->core.slice_count; i++)
    if (arbiter->lanes[i].in_gang) vg_gang_leave(arbiter->lanes[i].gang_id, arbiter->wake_fd);
}
