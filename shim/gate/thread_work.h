/*
 * thread_work.h - the outstanding work of one thread on one device: per stream the estimated time of launches that have
 * not been seen to complete, and the markers (events) that show it. Each thread has its own, so that launches of
 * several threads do not contend; process_work.c adds them up. Under the work's own lock, except for fields that only
 * its thread uses, and for the tally. Driver calls here are in the caller's own stream variant.
 */
#ifndef VG_GATE_WORK_H
#define VG_GATE_WORK_H
#include "base/lock.h"
#include "base/run_time.h"
#include "gate/context_clock.h"
#include "gate/estimate.h"
#include "gate/row.h"
#include "gen/abi/cuda_abi.h"

struct vg_device;

#define VG_WORK_STREAMS 32
#define VG_WORK_MARKERS 256
#define VG_WORK_ESTIMATES_LOG2 10
#define VG_WORK_ESTIMATES (1 << VG_WORK_ESTIMATES_LOG2)
#define VG_WORK_PROBES 8
#define VG_GAPS_LEAST_NS 100000ull

struct vg_marker {
  CUevent event;
  CUevent timing_begin;         /* not NULL: event is a timing event, and the pair brackets one launch of estimate */
  struct vg_estimate *estimate; /* of the last launch before it; NULL: at a wait of the stream, see stream_wait.c */
  uint64_t cost_ns;             /* estimated work since the marker before */
  uint64_t last_ns;             /* of that, the cost of the last launch; 0 at a wait */
  uint64_t put_ns;              /* when it was recorded */
  uint64_t others_ns;           /* when it was recorded: how long other processes had work outstanding */
  uint64_t after_ns;            /* when the thread had recorded one before, in any stream */
  uint64_t recorded_ns;         /* of a launch that is timed: when the event had been recorded */
  uint64_t timed_ns;            /* and when the call for timing_begin began */
  uint64_t held_up_ns;          /* between the two events the thread had no processor for so long */
  uint64_t call_ns;             /* between them the call of the launch took so long */
  uint64_t served_ns;   /* of a graph that waits inside: what of its cost has counted as running, see work_runs.c */
  uint64_t reported_ns; /* of served_ns, what has been reported as completed */
  uint32_t row;         /* not 0: the pair of events brackets so many launches of estimate */
  bool ends_wait;       /* it completes when what the stream waits for has come */
  bool has_time;        /* the event is a timing event */
  bool was_known;       /* last_ns is what timings of the same kind had shown */
};

struct vg_stream {
  bool used;
  bool per_thread;     /* the default stream of one thread (handle is its owner's line) */
  bool programmatic;   /* some launches were programmatic: a marker between two of them would end their overlap */
  bool stale;          /* makes no progress: waits for something outside the device */
  bool shared;         /* by all streams beyond VG_WORK_STREAMS; handle is that of the last launch */
  bool blocking;       /* the legacy default stream and this one wait for each other */
  bool waits;          /* for something else: what is launched does not run, see stream_wait.c */
  bool is_gone;        /* the program has destroyed it: its handle may not be used any more */
  bool wait_lost;      /* no marker has been recorded at its last wait: the next one ends it, with what is before it */
  uint32_t waits_seen; /* vg_gate_wait_count() when the last marker that ends a wait was recorded */
  CUstream handle;
  CUcontext context;
  const void *owner;
  uint64_t last_epoch; /* of the last launch, see vg_gate_sync_begin() */
  uint64_t unmarked_ns;
  uint64_t cost_ns;      /* all outstanding work */
  uint64_t moved_ns;     /* when a marker last completed, or the first was recorded */
  uint64_t pending_ns;   /* when its oldest marker was last seen not to have completed */
  uint64_t run_from_ns;  /* while the work measures: since when what is outstanding may have run */
  bool run_begins_later; /* that is when the stream became empty; the launches since are not known by time */
  uint64_t launched_ns;  /* not 0: its first launch was held up, and may have begun as late as that */
  uint64_t timed_ns, timed_delay_ns; /* when a timing last began, and the thread's run delay then */
  uint64_t timed_others_ns;          /* and how long other processes had had work outstanding */
  uint64_t call_begin_ns;            /* when the driver was called for the launch that is timed */
  struct vg_row row;
  struct vg_marker markers[VG_WORK_MARKERS];
  uint32_t head, tail;
};

/* Launches that the thread has counted without the lock (short_path.h): each takes its charge (estimate.h) from the
 * rest of the tally, which only the thread writes. The books have the difference to what was left of it in the first
 * place up to taken; whoever takes the lock takes the rest. */
struct vg_tally {
  struct vg_estimate *estimate; /* of the launch on its way */
  bool in_flight;               /* the thread's mark: a launch is on its way to the device (thread_line.h) */
  int64_t left; /* more than the charge of a launch that is counted here; 0: closed; below, if a charge has risen */
  /* what a launch must have to be counted here; changed by the thread under the lock */
  CUstream handle; /* CU_STREAM_PER_THREAD for NULL in the per-thread variant */
  uint64_t epoch;
  bool programmatic; /* the stream is; else the launch may not be */
  /* under the lock */
  struct vg_stream *stream; /* where it belongs in the books; NULL: its context has ended */
  int64_t taken;
};

/* Work of which is known how long it ran, and between which times; as much of that as other threads did not run in. */
#define VG_PIECES 64
struct vg_pieces {
  uint32_t count;
  struct vg_piece {
    uint64_t begin_ns, end_ns, length_ns;
    bool first; /* as early as possible, else as late */
  } of[VG_PIECES];
};

/* Of graphs that wait inside, see work_runs.c. */
struct vg_graph_runs {
  uint64_t until_ns; /* up to here one has run */
  uint64_t again_ns; /* what has counted for pending ones while another one ran */
};

struct vg_work {
  struct vg_lock lock;
  struct vg_device *device;
  struct vg_work *next;      /* of another thread on the same device */
  uint32_t rank;             /* how many are behind it */
  uint64_t outstanding_ns;   /* in the books, without stale streams; see vg_work_outstanding() */
  uint64_t published_ns;     /* outstanding_ns when it was last published, see vg_gate_publish() */
  uint64_t other_threads_ns; /* published by the other threads when this one last looked; only its thread uses it */
  uint64_t done_ns;          /* completed and not yet reported */
  uint64_t launched;         /* counted launches so far */
  uint64_t reported;         /* the part of them that is in the report page */
  uint64_t last_launch_ns;   /* while coasting */
  uint64_t moved_ns;         /* when a marker of any of its streams last completed */
  uint64_t marked_ns;        /* when the last marker was recorded */
  uint64_t waited_ns;        /* when it was last let through, at the gate or at the bound */
  bool has_gaps;             /* it was longer between two markers than the work between them takes */
  /* The thread recorded its next marker so late that all others had completed: 0, or when it continued, since when it
   * may have had no processor, and what was outstanding then. */
  uint64_t continued_ns, paused_ns, continued_left_ns;
  /* While launches pass uncounted, see solo.c. */
  CUevent probe_event; /* behind what the thread had launched when it looked last, in this context; NULL: none */
  CUcontext probe_context;
  uint32_t credit; /* the last one that it was given; 0: none yet */

  /* While the process measures when its work runs, see work_runs.c. */
  struct vg_context_clock *clock; /* NULL: it does not */
  struct vg_runs runs;            /* not taken yet */
  struct vg_pieces pieces;        /* the same, of which it is only known when they ran at most */
  struct vg_graph_runs graphs;    /* not taken yet */
  uint64_t least_call_ns;         /* of the calls of timed launches, lately */
  uint64_t sample_ppm;            /* timed launches took so many millionths of their estimates lately; 0: none yet */
  uint32_t sample_count;          /* so many count in it */
  uint64_t seen_ns;               /* for so long was work outstanding that took longer than by its estimates */
  int64_t unpaid_ns;              /* of that, beyond the estimates and the time of others */
  uint64_t run_delay_ns;          /* of its thread, when a launch last took long */

  struct vg_stream *last;        /* the stream of the last launch */
  CUevent pool[VG_WORK_MARKERS]; /* events of pool_context, ready for use */
  CUcontext pool_context;
  int pooled;
  struct vg_stream streams[VG_WORK_STREAMS];
  struct vg_tally tally; /* between what only its own thread writes often */
  struct vg_estimate estimates[VG_WORK_ESTIMATES];
  uint64_t samples_ns[VG_WORK_ESTIMATES][VG_ESTIMATE_SAMPLES];
};

struct vg_work *vg_work_new(struct vg_device *device); /* NULL: no memory */

/* Takes the lock and what the tally has counted meanwhile. */
void vg_work_lock(struct vg_work *work);
void vg_work_take_tally(struct vg_work *work);                   /* under the lock, as what follows */
void vg_work_open_tally(struct vg_work *work, uint64_t room_ns); /* by its thread; 0: closes it */

/* log2 of the threads launched. */
static inline uint32_t vg_work_grid_class(uint64_t threads) {
  return 63 - (uint32_t)__builtin_clzll(threads | 1);
}

/* Function and grid class, which is below 64, in one word. Handles are addresses of at least 8 bytes. */
static inline uint64_t vg_work_key(const void *function, uint64_t threads) {
  return (uint64_t)(uintptr_t)function * 8 + vg_work_grid_class(threads);
}

/* Where the estimate of a key is looked for first. Called by the work's own thread without the lock: no other thread
 * adds estimates. */
static inline struct vg_estimate *vg_work_estimate_at(struct vg_work *work, uint64_t key) {
  return &work->estimates[(uint32_t)key * 0x9E3779B1u >> (32 - VG_WORK_ESTIMATES_LOG2)];
}

/* Of a function that has been timed; 0: unknown. Under the lock. */
uint64_t vg_work_known_cost(const struct vg_work *work, const void *function, uint64_t threads);

/* Makes one if there is none, in the place of another if need be. */
struct vg_estimate *vg_work_find_estimate(struct vg_work *work, const void *function, uint64_t threads);

/* A launch whose timing is due: returns the event recorded before it; NULL: it is not timed. */
CUevent vg_work_time_begin(const struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate);

/* What is in the books and what the tally has counted since; for other threads, without the lock, an approximation: the
 * tally may be opened again in between. */
static inline uint64_t vg_work_outstanding(const struct vg_work *work) {
  int64_t taken = VG_LOAD(&work->tally.taken), left = VG_LOAD(&work->tally.left);
  uint64_t added_ns = taken > left ? (uint64_t)(taken - left) >> VG_TALLY_LAUNCH_BITS : 0;
  return added_ns + VG_LOAD_RELAXED(&work->outstanding_ns);
}

static inline void vg_work_set_outstanding(struct vg_work *work, uint64_t cost_ns) {
  VG_STORE_RELAXED(&work->outstanding_ns, cost_ns);
}

/* Work of cost_ns was launched and no more in that time: was the device idle meanwhile, for a good part of it? */
static inline bool vg_work_has_gaps(uint64_t time_ns, uint64_t cost_ns) {
  return time_ns > VG_GAPS_LEAST_NS && time_ns > cost_ns + cost_ns / 4;
}

bool vg_work_mark(struct vg_work *work, struct vg_stream *stream, struct vg_estimate *estimate, CUevent timing_begin,
                  uint64_t cost_ns);

/* Has everything completed that was launched when this was asked before? An event is recorded behind what the stream
 * has now. True where none can be recorded: markers could not either, and without them nothing is bounded. */
bool vg_work_keeps_up(struct vg_work *work, const struct vg_stream *stream);

/* The driver has refused a launch: it adds no outstanding work. */
void vg_work_refused(struct vg_estimate *estimate, CUevent timing_begin);
void vg_work_reap(struct vg_work *work, uint64_t now_ns); /* takes out what has completed */
void vg_work_reap_stream(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns);
void vg_work_reap_waiting(struct vg_work *work, uint64_t now_ns); /* of streams that waited */
/* Of all threads of the process. */
struct vg_process_totals {
  uint64_t moved_ns;    /* when any stream last made progress */
  uint64_t accepted_ns; /* since when launches pass the gate; 0: it is closed */
  uint64_t left_ns;     /* what all have outstanding */
  /* of a slice that is alone */
  bool alone;
  bool unknown_runs;  /* a function that has never been seen to end has begun */
  uint64_t pieces_ns; /* what is before the oldest marker of each stream, where it is known how long that takes */
};
void vg_work_add_pieces(const struct vg_work *work, struct vg_process_totals *together); /* of a slice that is alone */
/* Launches pass the gate again, perhaps those that streams wait for: these count as outstanding once more. */
void vg_work_renew_waiting(struct vg_work *work);
/* After the reap of all threads: streams that make no progress are no longer counted. */
void vg_work_review_stale(struct vg_work *work, const struct vg_process_totals *together, uint64_t now_ns);
uint64_t vg_work_unmarked(const struct vg_work *work); /* in streams without a marker: nothing shows its end */
bool vg_work_is_over(CUevent event);                   /* of the program */
/* Around a call after which the stream may wait: markers behind what was launched before it, and before the next
 * launch.
 */
void vg_work_mark_before_wait(struct vg_work *work, struct vg_stream *stream);
void vg_work_mark_wait_end(struct vg_work *work, struct vg_stream *stream);
/* By the helper, where streams that wait may hide that all others are done: markers behind what has none yet. Nothing
 * has been launched since since_ns, and no stream captures; of another thread's default stream the time shows it. Not
 * within a launch, which may take long: a marker would be behind a part of it. */
void vg_work_mark_tails(struct vg_work *work, uint64_t since_ns, uint64_t now_ns);
/* What is outstanding in streams that wait for something else, as of the last reap; *ret_counts: of it what counts as
 * outstanding, without stale streams. */
uint64_t vg_work_waiting(const struct vg_work *work, uint64_t *ret_counts);
/* The rest: outstanding work that may run. */
uint64_t vg_work_running(const struct vg_work *work);
enum vg_timed { VG_TIMED_NONE, VG_TIMED_QUEUED, VG_TIMED_RUNS };
/* The state of a launch of this function and size that is being timed, and not behind a wait for something else. Under
 * the lock. */
enum vg_timed vg_work_timed(const struct vg_work *work, const void *function, uint32_t grid_class);
/* After vg_work_reap(): is any marker pending in a stream that does not wait for something else? *ret_pending_ns: when
 * one was last seen to be, if later than it is. */
bool vg_work_pending(const struct vg_work *work, uint64_t *ret_pending_ns);
/* For how long the device has run the oldest piece of it. */
uint64_t vg_work_progress(const struct vg_work *work, uint64_t now_ns);
/* The outstanding work before markers, which are seen to complete; the few launches since the last marker count as
 * outstanding for a multiple of their estimate. */
uint64_t vg_work_seen(const struct vg_work *work, uint64_t now_ns);
/* After vg_work_reap(): have all launches before since_ns completed? By the markers alone, for when no probe may be
 * recorded; the few launches behind the last marker count as completed after a multiple of their estimate. */
bool vg_work_settled(const struct vg_work *work, uint64_t since_ns, uint64_t now_ns);
/* What was launched has completed, by done_ns; earlier: some time before that. */
void vg_work_clear_stream(struct vg_work *work, struct vg_stream *stream, uint64_t done_ns, bool earlier);
void vg_work_clear(struct vg_work *work, uint64_t done_ns, bool earlier);
void vg_work_forget_context(struct vg_work *work, CUcontext context); /* its events are gone with it */

/* ---- when work runs (work_runs.c) ---- */

void vg_work_begin_measuring(struct vg_work *work, struct vg_context_clock *clock, uint64_t now_ns);
void vg_stream_begin_run(struct vg_stream *stream,
                         uint64_t now_ns); /* the next launch is the first that is outstanding */
/* The first launch has been made, by the thread whose work it is. */
void vg_work_note_launch(struct vg_work *work, struct vg_stream *stream, uint64_t now_ns);
/* Adds when the work has run since this was last asked. *sure_ns, which is now or earlier: reduced to the time up to
 * which that is certain. */
void vg_work_take_runs(struct vg_work *work, struct vg_runs *runs, uint64_t *sure_ns);
void vg_work_take_graphs(struct vg_work *work, struct vg_graph_runs *graphs);
void vg_work_serve_graphs(struct vg_work *work, struct vg_graph_runs *graphs, struct vg_runs *runs);

#endif
