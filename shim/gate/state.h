/* state.h - the state that the sources of the gate share: launching threads (enter.c, wait.c, count.c), the helper
 * thread (helper.c) and the reports to the arbiter (report.c). */
#ifndef VG_GATE_STATE_H
#define VG_GATE_STATE_H
#include <pthread.h>

#include "gate/copies.h"
#include "gate/gate.h"
#include "gate/idle_probe.h"
#include "gate/residence.h"
#include "gate/thread_line.h"
#include "gate/thread_work.h"

#define VG_SOLO_BOUND_NS (50 * VG_NS_PER_MS) /* on the outstanding work of a slice that is alone */

enum vg_drain { VG_DRAIN_NONE, VG_DRAIN_IN_FLIGHT, VG_DRAIN_MARKERS, VG_DRAIN_PROBED };

struct vg_gate_span {
  uint64_t since_ns; /* 0: not now */
  uint64_t total_ns; /* up to since_ns or its last end */
};

#define VG_WAIT_PLACES 64
struct vg_waits { /* how often streams have begun to wait for something else, by a hash of the handle */
  uint32_t all_streams, any_stream;
  uint32_t of[VG_WAIT_PLACES];
};

struct vg_gate_state {
  pthread_mutex_t mutex; /* guards what follows; never held while waiting; taken before the lock of a work */
  struct vg_probes probes;
  struct vg_report_device *page; /* the report page that the spans are written to */
  struct vg_gate_span active;    /* work outstanding (see busy), or a thread waiting at the closed gate */
  uint32_t collectives;          /* launched so far, see collectives.c */
  uint32_t waiters;
  uint64_t idle_since_ns;
  bool helper_rests;         /* the helper is to be woken when work begins */
  bool naps_behind_drain;    /* the same for a moment: it looks again soon, too late for work that begins */
  bool solo_dirty;           /* launches passed uncounted: only a probe can show whether they are done */
  bool deep;                 /* alone, but the device does not keep up: launches are counted all the same, see solo.c */
  uint64_t shallow_since_ns; /* meanwhile: little has been outstanding since then; 0: much was at the last look */
  uint64_t reaped_ns, reaped_left_ns; /* a thread that waits for the bound has looked, and found so much outstanding */
  bool coasting;                      /* no daemon: the timetable decides */
  uint64_t span_done_ns;              /* completed, by the estimates, since work is outstanding */
  /* the helper thread's own */
  enum vg_drain drain;
  uint32_t drain_word; /* the closed word being drained */
  uint64_t drain_begun_ns;
  uint64_t pass_until_ns; /* launches pass the closed gate until work up to then is outstanding, see collectives.c */
  uint64_t drain_left_ns, drain_forecast_ns; /* of a gang: when work last completed, what was left and its end */
  bool idle_probe;                           /* a probe is under way to see whether any work is left */
  uint64_t idle_probe_launched;
  uint64_t look_due_ns;           /* when it meant to look at outstanding work again; 0: it did not */
  uint64_t probed_ns;             /* when the last probe was recorded */
  uint64_t launched, launched_ns; /* how many launches, and when the helper first saw this number */
  /* numbers of the last departure that has come so far; see departure.c */
  uint32_t submitted_residence;                  /* nothing more is submitted */
  uint32_t quiet_residence, completed_residence; /* nor is the driver asked; all has completed; read by all threads */
  uint32_t carried_residence;                    /* the number of quiet_residence under the daemon before */
  bool departure_probed;

  bool waits;                             /* some outstanding work waits for something else, see stream_wait.c */
  uint64_t waiting_ns;                    /* such work that counts as outstanding */
  uint64_t waits_since_ns, waits_seen_ns; /* while only such work is left: since when, and when it was last looked at */
  uint64_t accepted_ns;                   /* when the present word was accepted; 0: it is closed */
  /* Since streams may wait, the process measures when its work runs, see work_runs.c. */
  bool measures;
  struct vg_context_clock clock;
  struct vg_runs runs; /* not settled */
  struct vg_graph_runs graphs;
  uint64_t settled_ns; /* up to here the time in which work ran is in busy.total_ns */
  uint64_t ran_ns;     /* when the last of it ended */
  struct vg_copy_bucket copies[VG_COPY_DIRECTIONS];
  uint64_t published_ns __attribute__((aligned(64))); /* see vg_gate_publish(): written by all launching threads */
  /* read by launching threads; apart from fields that are written often */
  struct vg_work *works __attribute__((aligned(64))); /* of all threads that have ever launched; never freed */
  struct vg_waits wait_counts;
  struct vg_gate_span busy; /* work outstanding that does not wait for something else; ends only under the locks of all
                               works, see vg_gate_stop_tallies() */
} __attribute__((aligned(64)));

extern uint32_t vg_gate_captures __attribute__((visibility("hidden"))); /* how many streams capture now */
extern pthread_mutex_t vg_gate_capture_mutex;

void vg_gate_capture_forked_child(void);
void vg_gate_sync_forked_child(void);
/* May a launch pass the gate that is closed by this word, because another device of the gang is further? */
bool vg_gate_gang_passes(struct vg_device *device, uint32_t word);
/* A look at a drain, with what is left by the estimates: in a gang, reports whether work is overdue, and returns it. */
bool vg_gate_gang_report_overdue(struct vg_device *device, uint64_t remaining_ns, uint64_t now_ns);
/* A kernel has been launched in a gang: counts it if it is a collective. Called by the thread that launched it. */
void vg_gate_gang_kernel(struct vg_device *device, struct vg_estimate *estimate);

struct vg_work *vg_gate_new_work(struct vg_device *device);        /* NULL: no memory */
struct vg_work *vg_gate_work_here(const struct vg_device *device); /* the calling thread's; NULL: none yet */
uint64_t vg_gate_outstanding(const struct vg_device *device);      /* roughly, at any time */
/* Adds what the thread has outstanding to the sum that all threads see, where its last addition was. Returns the part
 * of the other threads, as of their last markers or of when the helper looked. So a thread knows what the others have
 * outstanding without reading the lines that they write at each launch. Under the work's lock. */
uint64_t vg_gate_publish(struct vg_work *work);

/* ---- waiting before a launch (wait.c) ---- */

enum vg_passage {
  VG_PASSAGE_ACCEPTED,  /* the present gate word has been accepted: the launch asks again */
  VG_PASSAGE_PASS_ONCE, /* this one launch passes: coasting, or in a gang whose devices are not equally far */
};
enum vg_passage vg_gate_wait_until_admitted(struct vg_device *device);
/* Until what is outstanding has come down to the bound, or twice that time has passed. In a slice that is alone only
 * while its work makes progress, see vg_work_review_stale(). Returns how much of what is outstanding has run. */
uint64_t vg_gate_wait_for_bound(struct vg_device *device, struct vg_work *work, const struct vg_estimate *estimate,
                                uint64_t bound_ns);
/* Of the function's first launch; for a second at most. */
void vg_gate_wait_for_first_timing(struct vg_device *device, struct vg_work *work, const struct vg_estimate *estimate);

/* ---- when the slice's memory leaves the device (residence.c, departure.c) ---- */

void vg_residence_review(void); /* by the helper, and at attach: may it leave? */
/* By the helper, under the mutex: the next step of leaving the driver, while the gate is closed by this word. Returns
 * when the next one is due; UINT64_MAX: none, or with the drain. */
uint64_t vg_departure_step(struct vg_device *device, uint32_t word, uint64_t now_ns);
/* The helper calls the driver no more until the memory is back. */
bool vg_departure_is_over(const struct vg_device *device);

/* ---- launches that pass uncounted (solo.c) ---- */

void vg_gate_give_credit(struct vg_work *work);    /* for more of them by the calling thread */
void vg_gate_begin_deep(struct vg_device *device); /* launches are counted from now on */
/* By the helper, which has found so much outstanding: are they to be counted any longer? Under the mutex. */
void vg_gate_review_solo(struct vg_device *device, uint64_t left_ns, uint64_t now_ns);

/* ---- streams that wait for something else (stream_wait.c) ---- */

bool vg_gate_is_captured(CUstream stream, bool per_thread); /* what is launched into it becomes part of a graph */
/* Then a probe behind a whole context may wait with one of its streams, also with one into which nothing is launched.
 */
bool vg_gate_may_wait(const struct vg_device *device);
/* The thread begins to wait for work, in a process that measures: markers behind what it has launched. */
void vg_gate_mark_before_sync(struct vg_device *device);
/* Grows when the stream may have begun to wait. */
uint32_t vg_gate_wait_count(const struct vg_device *device, const struct vg_stream *stream);
/* Before a launch: has the stream begun to wait since the last one, or does it wait? */
bool vg_gate_is_behind_wait(const struct vg_ticket *ticket);
/* Paces launches behind a wait that lasts: no more is queued there than a multiple of the time for which it has lasted,
 * since it may be for a thread that got no processor meanwhile, and what is queued cannot be taken back. */
void vg_gate_pace_behind_wait(const struct vg_ticket *ticket);
void vg_gate_mark_wait_end(const struct vg_ticket *ticket); /* if it has: a marker between the wait and the launch */
void vg_gate_begin_measuring(struct vg_device *device); /* when work runs, if that is not done yet; takes the mutex */
void vg_gate_renew_waiting(struct vg_device *device);   /* the gate is open; under the mutex */
void vg_gate_begin_waiting(struct vg_device *device);   /* work has been launched that waits, and no other runs */
/* By the helper, when nothing has been launched for a while: see vg_work_mark_tails(). Under the mutex. */
void vg_gate_mark_tails(struct vg_device *device, uint64_t since_ns, uint64_t now_ns);
/* After vg_gate_reap(), under the mutex: where streams may wait, and all that does not has completed, none counts as
 * running, whatever a probe says. True: so it is. */
bool vg_gate_rest(struct vg_device *device, uint64_t now_ns);
/* The same for the helper while all work waits. Returns when to look again; 0: work runs now. */
uint64_t vg_gate_look_at_waiting(struct vg_device *device, uint64_t now_ns);

/* ---- graphs that wait for something else (graph_work.c) ---- */

extern uint32_t vg_gate_graphs_that_wait __attribute__((visibility("hidden")));
/* Before a launch: if the estimate is that of such a graph, limits it to what the graph's kernels take. */
void vg_gate_limit_graph(const struct vg_device *device, struct vg_work *work, struct vg_estimate *estimate);
void vg_gate_graphs_forked_child(void);

/* ---- counting of launches (count.c) ---- */

/* Has the process accepted SOLO? Its launches may be counted all the same, see solo.c. */
static inline bool vg_gate_is_alone(const struct vg_device *device) {
  return (VG_LOAD_RELAXED(&device->open_word) & VG_GATE_STATE_MASK) == VG_GATE_SOLO;
}
uint64_t vg_gate_bound(const struct vg_device *device); /* on outstanding work, as it is now */
/* After a launch that was counted: the device became idle while it was under way, since another thread has waited for
 * all work. Busy again, unless that wait has covered this launch, too. */
void vg_gate_stay_busy(struct vg_device *device);
/* Counts a launch that entered the short path but may not be counted there. */
void vg_gate_count_long(struct vg_work *work, struct vg_estimate *estimate, bool kernel, bool programmatic);

/* ---- accounting of launches (count.c), under the work's lock ---- */

/* Where a stream is accounted for; more streams at once than there are places share one. owner: the calling thread's
 * line, for the default stream of one thread. */
struct vg_stream *vg_work_stream(struct vg_work *work, CUstream handle, bool per_thread, const void *owner);
/* A launch has gone to the driver. bound_ns decides how often markers are recorded; while streams capture, one is
 * behind every launch, since only markers show then that it has completed. True: one was recorded. */
bool vg_work_launched(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate,
                      CUevent timing_begin, uint64_t bound_ns, bool captures);

/* ---- under the mutex, all of them ---- */

void vg_gate_set_open_word(struct vg_device *device, uint32_t word); /* VG_GATE_NO_WORD: nothing is accepted */
uint64_t vg_gate_launched(const struct vg_device *device);           /* counted launches so far */
/* Takes out completed work and reports it. Returns how much is left, by the estimates, less the time for which the
 * device has run the oldest piece. */
uint64_t vg_gate_reap(struct vg_device *device, uint64_t now_ns);
/* The same by a launching thread that lost its processor among launches (work->continued_ns); takes the mutex. */
void vg_gate_launched_late(struct vg_device *device, struct vg_work *work);
/* After vg_gate_reap(), by a thread that meant to look at due_ns and had no processor until now: the device may have
 * been idle meanwhile although work counted as outstanding. If all markers have completed, the time since due_ns that
 * what was launched does not explain is taken back. Launches that are not counted explain any time. */
void vg_gate_looked_late(struct vg_device *device, uint64_t due_ns, uint64_t now_ns);
uint64_t vg_gate_seen(const struct vg_device *device, uint64_t now_ns); /* see vg_work_seen() */
/* After vg_gate_reap(), while a stream captures: see vg_work_settled(). */
bool vg_gate_settled(const struct vg_device *device, uint64_t since_ns, uint64_t now_ns);
void vg_gate_forget_context(struct vg_device *device, CUcontext context);
void vg_gate_take_news(struct vg_work *work, uint64_t *done_ns, uint64_t *launches); /* under the work's lock */
void vg_gate_lock_all(const struct vg_device *device, struct vg_work **ret_first);
void vg_gate_unlock_all(struct vg_work *locked);
uint64_t vg_gate_running(const struct vg_work *locked); /* outstanding, and does not wait for something else */
uint64_t vg_gate_launched_all(const struct vg_work *locked);
/* Sends all launches to the long path, where they wait for the locks, and brings the books up to date: what they say
 * then stays true until the locks are released. To be followed by vg_gate_become_idle() or vg_gate_set_counted_word().
 */
void vg_gate_stop_tallies(struct vg_device *device, struct vg_work *locked);
void vg_gate_set_counted_word(struct vg_device *device); /* as open_word and busy are now */
/* Does no work run, however long ago it was looked at? Under the mutex. True: the tallies are stopped, and
 * vg_gate_become_idle() is to follow. */
bool vg_gate_none_runs(struct vg_device *device, struct vg_work *locked);
/* All work had completed by done_ns; earlier: some time before that. */
void vg_gate_clear_all(struct vg_work *locked, uint64_t done_ns, bool earlier);
void vg_gate_report_all(struct vg_device *device, struct vg_work *locked);
void vg_gate_become_busy(struct vg_device *device, uint64_t now_ns);
/* Under the locks of all works and with the tallies stopped: all work has completed. Returns whether any was
 * outstanding before: then vg_gate_ring_edge() is to follow. */
bool vg_gate_become_idle(struct vg_device *device, uint64_t now_ns);
/* When all work had completed, which is seen only now: no later than now, no earlier than seen_ns, and between these
 * after as long as it takes by the estimates. */
uint64_t vg_gate_busy_end(const struct vg_device *device, uint64_t left_ns, uint64_t seen_ns, uint64_t now_ns);
/* Time that work did not really take. Nothing where it is measured when work runs. */
void vg_gate_take_back(struct vg_device *device, uint64_t idle_ns);
/* Reports for how long work has run up to sure_ns; what is later counts as running while any is outstanding. */
void vg_gate_settle(struct vg_device *device, uint64_t sure_ns);
void vg_gate_ring_edge(struct vg_device *device);
void vg_gate_wake_helper(struct vg_device *device); /* if it rests: work begins, or may begin, or a thread waits */
void vg_gate_wait_begins(struct vg_device *device, uint64_t now_ns);
void vg_gate_wait_ends(struct vg_device *device, uint64_t begun_ns, uint64_t now_ns);
/* A thread waited for the slice's memory: for part_ns since its last report; whole_ns, if it has it now, in all. Takes
 * the gate's lock. */
void vg_gate_report_memory_wait(struct vg_device *device, uint64_t part_ns, uint64_t whole_ns);
void vg_gate_report_news(struct vg_device *device, uint64_t done_ns, uint64_t launches); /* since the last report */
void vg_gate_report_again(struct vg_device *device); /* on a new page, of another daemon */

#endif
