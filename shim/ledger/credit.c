/*
 * credit.c - see credit.h. Called by the memory hooks (any thread) and by the helper thread.
 *
 * held = granted (control page, by the daemon) - returned (ours). A request that fits into the credit held costs one
 * lock, and where threads meet at it each keeps what it releases for its next request (stock.h); otherwise one thread
 * at a time asks the daemon while its bytes are set aside, so that no other thread takes the credit that it was just
 * granted. Of the locks here only `ask_lock` is held while waiting, and none across a driver call (the pools' own is,
 * across calls that do not wait: hooks/pool.c).
 */
#include "ledger/credit.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/prim.h"
#include "ledger/granule.h"
#include "ledger/reclaim_watch.h"
#include "ledger/stock.h"
#include "session/helper_wake.h"

#define ASK_DEADLINE_NS (50 * VG_NS_PER_MS)
/* While the arbiter does not run (its heartbeat stands still, its socket is open) no request is decided: wait longer,
 * then coast. */
#define ASK_DEADLINE_STALLED_NS (1000 * VG_NS_PER_MS)
#define SETTLE_NS (1000 * VG_NS_PER_MS) /* between requests for memory that is used already */
#define ASK_POLL_NS (2 * VG_NS_PER_MS)
#define SLACK_BYTES_MIN (64ull << 20)
#define STOCK_NS (40 * VG_NS_PER_MS) /* until threads' stocks are taken into the ledger */

struct vg_memory_state {
  struct vg_lock lock; /* every request takes it twice; in one cache line with the fields that a request reads */
  uint64_t used_bytes;
  uint64_t asking_bytes; /* set aside for the thread that asks the daemon */
  uint64_t returned_bytes;
  pthread_mutex_t ask_lock;
  uint64_t peak_bytes;
  uint64_t coast_bytes; /* the ceiling while the daemon is gone, whatever its page says then */
  uint64_t denied;
  uint64_t settle_ns; /* no further request for memory that is used already before then */
  uint32_t want_seq;
  uint32_t contexts;
  bool stalled;      /* the arbiter neither answered nor ran: treated as gone until it runs again */
  uint64_t drain_ns; /* when the helper takes the stocks in; 0: not decided */
  bool asking __attribute__((aligned(64))); /* a thread wants all that is free: nothing goes to the stocks */
  bool stocked;                             /* something may be in stock */
  struct vg_stock stocks[VG_STOCKS];
} __attribute__((aligned(64)));

void (*vg_memory_refresh)(struct vg_device *device);

static uint64_t at_most(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t minus(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

int vg_memory_attach(struct vg_device *device) {
  struct vg_memory_state *state = aligned_alloc(64, sizeof *state);
  if (!state) return -ENOMEM;
  memset(state, 0, sizeof *state);
  pthread_mutex_init(&state->ask_lock, NULL);
  device->memory = state;
  return 0;
}

/* ---- under state->lock ---- */

static uint64_t held_bytes(const struct vg_device *device) {
  return device->control ? minus(VG_LOAD(&device->control->granted_bytes), device->memory->returned_bytes) : 0;
}

/* How much this process may use. Without pages there is no limit yet (not attached, or a device outside the slice). */
static uint64_t ceiling_bytes(const struct vg_device *device) {
  if (!device->control) return UINT64_MAX;
  if (VG_LOAD_RELAXED(&vg_session.link_lost)) return device->memory->coast_bytes;
  uint64_t held = held_bytes(device);
  uint64_t coast = VG_LOAD_RELAXED(&device->memory->stalled) ? VG_LOAD_RELAXED(&device->control->coast_bytes) : 0;
  return held > coast ? held : coast;
}

static bool runs(const struct vg_device *device, const struct vg_control_device *control, uint64_t now_ns) {
  return now_ns <= vg_arbiter_seen_ns(device, control, now_ns) + VG_HEARTBEAT_LATE_NS;
}

uint64_t vg_memory_limit_bytes(const struct vg_device *device) {
  if (!device->control) return UINT64_MAX;
  uint64_t limit = VG_LOAD_RELAXED(&device->control->limit_bytes);
  return limit ? limit : device->resolved.mem_max_bytes; /* 0: the arbiter has not made its first round yet */
}

static uint64_t slack_bytes(const struct vg_device *device) {
  uint64_t part = vg_memory_limit_bytes(device) / 16;
  return part > SLACK_BYTES_MIN ? part : SLACK_BYTES_MIN;
}

static void publish(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  if (state->used_bytes > state->peak_bytes) state->peak_bytes = state->used_bytes;
  struct vg_report_device *report = device->report;
  if (!report) return;
  VG_STORE_RELAXED(&report->used_bytes, state->used_bytes);
  VG_STORE_RELAXED(&report->peak_bytes, state->peak_bytes);
  vg_report_changes(device);
}

/* Takes in what threads have in stock: used_bytes is exact then. */
static void drain_stocks(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  VG_STORE(&state->stocked, false); /* first: a thread that finds its stock drained sets it again */
  state->used_bytes = minus(state->used_bytes, vg_stock_drain(state->stocks));
  publish(device);
}

/* The arbiter asks only processes with unused credit for it. Without any, nothing may be in stock: another process
 * would be refused memory that is free. */
static void drain_if_all_used(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  if (VG_LOAD(&state->stocked) && state->used_bytes >= held_bytes(device)) drain_stocks(device);
}

static void take(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  state->used_bytes += bytes;
  if (state->used_bytes > state->peak_bytes && VG_LOAD(&state->stocked)) drain_stocks(device); /* no part of the peak */
  publish(device);
  drain_if_all_used(device);
}

static bool fits(const struct vg_device *device, uint64_t used_bytes, uint64_t bytes) {
  uint64_t ceiling = ceiling_bytes(device);
  return used_bytes <= ceiling && bytes <= ceiling - used_bytes;
}

/* Returns credit beyond use and keep_bytes to the daemon. True: the daemon waits for it: ring, without the lock. */
static bool give_back(struct vg_device *device, uint64_t keep_bytes) {
  struct vg_memory_state *state = device->memory;
  if (!device->control || VG_LOAD_RELAXED(&vg_session.link_lost)) return false;
  if (keep_bytes == 0 && VG_LOAD(&state->stocked)) drain_stocks(device);
  uint64_t unused = minus(held_bytes(device), plus(state->used_bytes, state->asking_bytes));
  if (unused <= keep_bytes) return false;
  state->returned_bytes += unused - keep_bytes;
  VG_STORE(&device->report->returned_bytes, state->returned_bytes);
  return keep_bytes == 0;
}

static void count_denied(struct vg_device *device) {
  device->memory->denied++;
  if (device->report) VG_STORE_RELAXED(&device->report->denied, device->memory->denied);
}

/* ---- asking the daemon ---- */

/* Puts a request on the report page. Under state->lock; ring afterwards, without it. */
static uint32_t post_want(struct vg_device *device, uint64_t bytes, uint64_t least_bytes) {
  uint32_t seq = ++device->memory->want_seq;
  VG_STORE_RELAXED(&device->report->want_bytes, bytes);
  VG_STORE_RELAXED(&device->report->want_least_bytes, least_bytes);
  VG_STORE(&device->report->want_seq, seq);
  vg_report_changes(device);
  return seq;
}

/* Until when the daemon may take for its answer. Where it asks other slices to give memory back, it says how long, for
 * as long as it runs. */
static uint64_t answer_due_ns(struct vg_device *device, const struct vg_control_device *control, uint64_t begin_ns,
                              uint64_t now_ns) {
  bool running = VG_LOAD_RELAXED(&control->heartbeat_ns) >= begin_ns; /* since it was asked */
  uint64_t due_ns = begin_ns + (running ? ASK_DEADLINE_NS : ASK_DEADLINE_STALLED_NS);
  uint64_t others_ns = plus(VG_LOAD(&control->want_deadline_ns), ASK_DEADLINE_NS);
  bool waits = others_ns > due_ns && runs(device, control, now_ns);
  return waits ? others_ns : due_ns;
}

/* Waits for the answer to want_seq. False: the daemon did not answer in time. */
static bool answered(struct vg_device *device, const struct vg_control_device *control, uint32_t seq) {
  uint64_t begin_ns = vg_prim_now_ns();
  for (;;) {
    uint32_t word = VG_LOAD(&control->want_answered);
    if ((int32_t)(word - seq) >= 0) return true;
    uint64_t now_ns = vg_prim_now_ns();
    uint64_t deadline_ns = answer_due_ns(device, control, begin_ns, now_ns);
    if (now_ns >= deadline_ns)
      VG_STORE_RELAXED(&device->memory->stalled, VG_LOAD_RELAXED(&control->heartbeat_ns) < begin_ns);
    if (!runs(device, control, now_ns)) vg_helper_wake(); /* it may be asleep, and is to check the daemon */
    if (now_ns >= deadline_ns || VG_LOAD_RELAXED(&vg_session.link_lost) || VG_LOAD(&device->control) != control)
      return false;
    vg_prim_futex_wait(&control->want_answered, word, at_most(deadline_ns, now_ns + ASK_POLL_NS));
  }
}

/* Bytes to ask for beyond what is missing, while the limit is far, so that many small requests ask once. */
static uint64_t extra_bytes(const struct vg_device *device, uint64_t used_bytes) {
  uint64_t free_bytes =
      minus(vg_memory_limit_bytes(device), used_bytes + VG_LOAD_RELAXED(&device->control->slice_used_bytes));
  uint64_t granule = device->resolved.granule_bytes ? device->resolved.granule_bytes : 1;
  return at_most(free_bytes / 16, SLACK_BYTES_MIN) / granule * granule;
}

/* One request to the daemon. Under ask_lock, without state->lock. Returns 0 when it is worth trying again. */
static int ask(struct vg_device *device, uint64_t bytes, bool modest) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  const struct vg_control_device *control = device->control;
  uint64_t missing = minus(state->used_bytes + bytes, held_bytes(device));
  if (!control || VG_LOAD_RELAXED(&vg_session.link_lost) || !missing) {
    vg_unlock(&state->lock);
    return missing && control ? -ENOMEM : 0;
  }
  uint64_t extra = modest ? 0 : extra_bytes(device, state->used_bytes + bytes);
  uint32_t seq = post_want(device, missing + extra, missing);
  int doorbell_fd = device->doorbell_fd;
  vg_unlock(&state->lock);
  vg_prim_eventfd_ring(doorbell_fd);
  return answered(device, control, seq) || VG_LOAD(&device->control) != control ? 0 : -ENOMEM;
}

static bool try_take_asked(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  bool fit = fits(device, state->used_bytes, bytes);
  if (fit) take(device, bytes);
  vg_unlock(&state->lock);
  return fit;
}

static bool within_limit(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  uint64_t limit = vg_memory_limit_bytes(device);
  bool within = state->used_bytes <= limit && bytes <= limit - state->used_bytes;
  vg_unlock(&state->lock);
  return within;
}

static void begin_asking(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  state->asking_bytes = bytes;
  VG_STORE(&state->asking, true);
  drain_stocks(device);
  vg_unlock(&state->lock);
}

static void give_back_unused(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  state->asking_bytes = 0;
  give_back(device, 0);
  vg_unlock(&state->lock);
}

static int reserve_slowly(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  if (vg_memory_refresh) vg_memory_refresh(device);
  pthread_mutex_lock(&state->ask_lock);
  begin_asking(device, bytes);
  bool done = try_take_asked(device, bytes);
  /* First with extra bytes, then exactly what is missing. Refused: two processes may each hold a part of the free
   * memory and ask for the other's, so unused credit goes back before the last try. */
  for (int attempt = 0; !done && attempt < 3 && within_limit(device, bytes); attempt++) {
    if (attempt == 2) give_back_unused(device);
    if (ask(device, bytes, attempt > 0)) attempt = 2;
    done = try_take_asked(device, bytes);
  }
  vg_lock(&state->lock);
  state->asking_bytes = 0;
  VG_STORE(&state->asking, false);
  if (!done) count_denied(device);
  vg_unlock(&state->lock);
  pthread_mutex_unlock(&state->ask_lock);
  return done ? 0 : -ENOMEM;
}

/* ---- the interface ---- */

/* Takes the ledger's lock. A thread that finds it taken uses a stock of its own for a while. */
static void lock_or_stock(struct vg_memory_state *state, struct vg_stock *stock) {
  if (VG_LIKELY(vg_lock_try(&state->lock))) return;
  vg_stock_begin(stock);
  vg_lock(&state->lock);
}

int vg_memory_reserve(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  struct vg_stock *stock = vg_stock_here(state->stocks);
  if (bytes && vg_stock_is_used(stock) && vg_stock_take(stock, bytes)) return 0;
  lock_or_stock(state, stock);
  bool fit = fits(device, plus(state->used_bytes, state->asking_bytes), bytes);
  if (fit) take(device, bytes);
  vg_unlock(&state->lock);
  return VG_LIKELY(fit) ? 0 : reserve_slowly(device, bytes);
}

static bool is_pressed(const struct vg_device *device) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  return control && VG_LOAD_RELAXED(&control->memory_pressure);
}

/* At most, in one stock. All of them together hold no more than the process keeps unused anyway (slack_bytes). */
static uint64_t stock_bytes_max(const struct vg_device *device) {
  uint64_t part = slack_bytes(device) / VG_STOCKS, granule = vg_granule_bytes(device);
  return part > granule ? part : granule;
}

static bool put_in_stock(struct vg_device *device, struct vg_stock *stock, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  if (is_pressed(device) || !vg_stock_put(stock, bytes, stock_bytes_max(device), &state->asking)) return false;
  if (VG_LIKELY(VG_LOAD(&state->stocked))) return true;
  vg_lock(&state->lock);
  VG_STORE(&state->stocked, true);
  drain_if_all_used(device);
  bool stocked = VG_LOAD(&state->stocked);
  vg_unlock(&state->lock);
  if (stocked)
    vg_helper_wake(); /* soon nothing may be allocated any more, and other processes are to see what is free */
  return true;
}

void vg_memory_release(struct vg_device *device, uint64_t bytes) {
  struct vg_memory_state *state = device->memory;
  struct vg_stock *stock = vg_stock_here(state->stocks);
  if (vg_stock_is_used(stock) && put_in_stock(device, stock, bytes)) return;
  lock_or_stock(state, stock);
  state->used_bytes = minus(state->used_bytes, bytes);
  publish(device);
  bool ring = give_back(device, is_pressed(device) ? 0 : slack_bytes(device));
  vg_unlock(&state->lock);
  if (ring) vg_prim_eventfd_ring(device->doorbell_fd);
}

void vg_memory_force(struct vg_device *device, uint64_t bytes) {
  vg_lock(&device->memory->lock);
  take(device, bytes);
  vg_unlock(&device->memory->lock);
}

void vg_memory_info(struct vg_device *device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes) {
  if (vg_memory_refresh) vg_memory_refresh(device);
  vg_lock(&device->memory->lock);
  if (VG_LOAD(&device->memory->stocked)) drain_stocks(device);
  uint64_t total = vg_memory_limit_bytes(device);
  uint64_t used = device->memory->used_bytes;
  if (device->control) used += VG_LOAD_RELAXED(&device->control->slice_used_bytes);
  vg_unlock(&device->memory->lock);
  *ret_total_bytes = total;
  *ret_free_bytes = minus(total, used);
}

void vg_memory_contexts(struct vg_device *device, uint32_t contexts) {
  vg_lock(&device->memory->lock);
  device->memory->contexts = contexts;
  if (device->report) VG_STORE_RELAXED(&device->report->contexts, contexts);
  vg_report_changes(device);
  vg_unlock(&device->memory->lock);
}

/* ---- attach/attach.c and the helper thread ---- */

void vg_memory_lost(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  uint64_t held = held_bytes(device);
  uint64_t coast = device->control ? VG_LOAD_RELAXED(&device->control->coast_bytes) : 0;
  state->coast_bytes = held > coast ? held : coast;
  vg_unlock(&state->lock);
}

uint64_t vg_memory_held_bytes(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  uint64_t held = device->control ? ceiling_bytes(device) : 0;
  if (state->used_bytes > held) held = state->used_bytes;
  vg_unlock(&state->lock);
  return held;
}

void vg_memory_rebind(struct vg_device *device, const struct vg_control_device *control,
                      struct vg_report_device *report) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  state->returned_bytes = 0;
  state->want_seq = 0;
  VG_STORE(&report->returned_bytes, 0);
  VG_STORE_RELAXED(&device->rung_unread, 0);
  VG_STORE_RELAXED(&report->contexts, state->contexts);
  VG_STORE_RELAXED(&report->denied, state->denied);
  if (device->report) VG_STORE_RELAXED(&report->pinned_bytes, VG_LOAD_RELAXED(&device->report->pinned_bytes));
  VG_STORE(&device->report, report);
  VG_STORE(&device->control, control);
  publish(device);
  vg_unlock(&state->lock);
  vg_reclaim_bind(device);
}

/* Once the arbiter runs, requests credit for memory that is used beyond it (taken while the arbiter did not run, or
 * before we were attached), without waiting: the daemon has to account for it. Under state->lock; true: ring. */
static bool settle(struct vg_device *device, uint64_t now_ns) {
  struct vg_memory_state *state = device->memory;
  if (VG_LOAD_RELAXED(&vg_session.link_lost) || !runs(device, device->control, now_ns)) return false;
  VG_STORE_RELAXED(&state->stalled, false);
  uint64_t missing = minus(state->used_bytes, held_bytes(device));
  bool useless = state->used_bytes > vg_memory_limit_bytes(device) || state->asking_bytes;
  if (!missing || useless || now_ns < state->settle_ns) return false;
  state->settle_ns = now_ns + SETTLE_NS;
  post_want(device, missing, missing);
  return true;
}

/* Takes the stocks in some time after something was put there, or at once. Returns when; UINT64_MAX: no need. Under
 * state->lock. */
static uint64_t service_stocks(struct vg_device *device, bool at_once, uint64_t now_ns) {
  struct vg_memory_state *state = device->memory;
  if (!VG_LOAD(&state->stocked)) state->drain_ns = 0;
  if (!VG_LOAD(&state->stocked)) return UINT64_MAX;
  if (!state->drain_ns) state->drain_ns = now_ns + STOCK_NS;
  if (!at_once && now_ns < state->drain_ns) return state->drain_ns;
  drain_stocks(device);
  state->drain_ns = 0;
  return UINT64_MAX;
}

void vg_memory_return_unused(struct vg_device *device) {
  struct vg_memory_state *state = device->memory;
  vg_lock(&state->lock);
  drain_stocks(device);
  bool ring = give_back(device, 0);
  vg_unlock(&state->lock);
  if (ring) vg_prim_eventfd_ring(device->doorbell_fd);
}

uint64_t vg_memory_service(uint64_t now_ns) {
  uint64_t due_ns = UINT64_MAX; /* the daemon wakes the helper thread under pressure */
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_device *device = &vg_session.devices[i];
    if (!device->control) continue;
    vg_reclaim_notify(device);
    bool pressed = VG_LOAD(&device->control->memory_pressure);
    if (pressed && vg_memory_refresh) vg_memory_refresh(device);
    vg_lock(&device->memory->lock);
    due_ns = at_most(due_ns, service_stocks(device, pressed, now_ns));
    bool ring = settle(device, now_ns);
    if (pressed) ring |= give_back(device, 0);
    vg_unlock(&device->memory->lock);
    if (ring) vg_prim_eventfd_ring(device->doorbell_fd);
  }
  return due_ns;
}

void vg_memory_forked_child(void) {
  /* The parent's states are left as they are: its locks may be held by threads that do not exist here. */
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++) vg_session.devices[i].memory = NULL;
  vg_reclaim_forked_child();
}
