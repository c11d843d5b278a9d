/*
 * server.h - the inside of vgpu-simd. One thread; a round (engine_round) takes new commands from all rings and decides
 * the simulation up to now plus a small look-ahead. From the top: main.c: loop and sockets; client.c: processes,
 * requests, death; places.c: bounds of connections; checkpoint.c: processes that are moved off; fault.c: kernels that
 * fault; engine.c: a round over SMs and copy engines; links.c: links between host and devices; meet.c: kernels that run
 * only together; sm.c: decided SM time; queue.c: streams; ready.c: heads that are with an engine; meeting.c: lists of
 * kernels that meet; share.c: memory of several processes; managed.c: managed memory that does not all fit;
 * memory_limits.c: limits of cgroups; config.c: configuration; instances.c: GPUs in MIG mode; report.c: busy log and
 * state page; link_log.c: use of links; log.c: files of records; state.c: the structure that all of them work on.
 */
#ifndef VG_SIM_SERVER_H
#define VG_SIM_SERVER_H
#include "base/prim.h"
#include "simgpu/constants.h"
#include "simgpu/wire.h"
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#define NEVER UINT64_MAX
#define SIM_DISBANDED_MAX 256u
#define LOOK_AHEAD_NS 50000ull        /* decisions are taken this much early, so that waiters sleep to the exact time */
#define ROUND_NS 1000000ull           /* longest time between rounds while there is work */
#define ROUND_MIN_NS 20000ull         /* shortest, while a process waits for something undecided */
#define LATE_MAX_NS 2000000000ull     /* how far back a time stamp is believed: this process may have been stopped */
#define COST_MAX_NS 86400000000000ull /* a day */
#define LINGER_NS 4000000ull          /* from the last command until the server stops its rounds and sleeps */
#define DOZE_NS 100000000ull          /* a process without commands for so long is not looked at any more */
#define BUSY_JOIN_NS 1000000ull       /* spans of one context within this become one record of the busy log */
#define BUSY_GAP_NS 200000ull         /* ... when they are not further apart than this */
#define LOG_BUFFER_BYTES 12288u
#define LOG_FILE_BYTES (256ull << 20) /* then a new file begins: three hours of a saturated device */
#define LOG_WRITE_NS 10000000ull      /* records are written at least this often */
#define LINK_RECORDS 16               /* processes whose records of one link grow at the same time */

struct config_device {
  char name[64];
  uint8_t uuid[16];
  uint64_t memory_bytes;
  uint32_t sm_count;
  uint32_t nvlink_group;
  uint32_t compute_major, compute_minor;
  char instances[128];             /* of a GPU in MIG mode: their profiles; "" = it is not in it */
  uint32_t parent, number, slices; /* of an instance, as in struct sim_page_device */
};

struct config {
  uint32_t device_count;
  uint64_t slice_ns;
  uint64_t switch_ns;
  uint64_t launch_cost_ns;
  uint64_t link_bytes_per_us;
  uint64_t context_bytes;
  uint64_t managed_fault_ns;  /* what a fault costs beside the transfer */
  uint64_t host_memory_bytes; /* most that may lie behind the device memory of all processes */
  bool memory_limits;         /* the driver has limits per cgroup, as r615 */
  bool checkpoint;            /* it has cuCheckpointProcess*, as 570 */
  uint64_t speed;             /* kernels and copies take such a part of their time; 1 = all of it */
  char model[256];
  struct config_device devices[SIM_DEVICES_MAX];
};

int config_read(const char *path, struct config *ret_config); /* path NULL: defaults. Says on stderr what is wrong. */
int instances_make(struct config *config);                    /* from the profiles; says what is wrong as well */

struct entry { /* a queued command */
  uint64_t submit_ns;
  uint64_t cost_ns;
  uint64_t value;
  uint64_t group; /* of a kernel that meets: whose kernels it meets; 0: the process group's */
  uint32_t target;
  uint16_t op;
  uint16_t engine;
  uint16_t meet;   /* of a kernel: then target is its number in its group, or among those of its context */
  bool pageable;   /* of a copy from or to host memory that is not pinned */
  uint64_t amount; /* of a copy: bytes */
};

struct link;

/* Who has an equal part of a link: a context, or memory of a checkpointed process on one device. */
struct link_user {
  struct transfer *current; /* links.c */
};

/* Something that crosses a link: the copy at the head of a stream, or memory of a checkpointed process. */
struct transfer {
  struct link *link; /* NULL: it is with none */
  struct link_user *user;
  struct process *process;
  struct device *device;
  struct stream *stream; /* NULL: memory of a checkpointed process */
  uint64_t bytes;
  uint64_t ready_ns;
  double most_part; /* of the link, when it is alone */
  double left_ns;   /* time that it still needs of the whole link */
  double all_ns;    /* the same at its beginning */
  double part;      /* of the link that it has now; 0: it waits */
  uint64_t logged_bytes;
  struct transfer *next, *previous;
};

enum stream_state {
  STREAM_IDLE,
  STREAM_ON_SM,
  STREAM_AT_EVENT,
  STREAM_ON_COPY,
  STREAM_ON_LINK,
  STREAM_WAITS,
  STREAM_HELD
};

struct stream {
  uint32_t slot;
  enum stream_state state; /* of the command at the head */
  struct process *process;
  struct context *context; /* NULL: its context is gone */
  int priority;
  struct entry *queue; /* ring of capacity entries */
  uint32_t capacity;
  uint32_t first;
  uint32_t count;
  uint64_t done_seq;
  uint64_t done_ns;         /* when the last decided command was done */
  uint64_t ready_ns;        /* of the head, once it is with an engine */
  uint64_t left_ns;         /* SM time that the head still needs */
  uint64_t fetch_ns;        /* SM time that the next kernel waits for managed memory which it uses */
  struct meeting *meeting;  /* the head runs only together with others, else NULL */
  uint64_t order;           /* place of the head in the process's submission order */
  struct transfer transfer; /* of the head, when it crosses a link */
  uint32_t releases;        /* RELEASE commands not yet used */
  uint64_t release_ns;
  struct stream *next; /* list of its engine */
  struct stream *previous;
  struct stream *waiters; /* streams whose head waits for this one */
  struct stream *next_waiter;
  struct stream *waits_for;
  struct stream *next_work; /* work list of queue.c */
  bool on_work_list;
  bool copied; /* its last work was a copy: a copy engine writes the events behind it */
};

struct stream_list {
  struct stream *first;
};

struct context {
  uint32_t id; /* the process's number for it */
  struct process *process;
  struct device *device;
  struct context *next;       /* of the device */
  struct context *next_ready; /* round robin order of those with heads that need the SMs, or events */
  uint64_t order;             /* in it: the latest context comes first */
  struct stream_list ready;   /* heads that need the SMs */
  struct stream_list events;  /* heads that are events, written when the context has the SMs */
  struct stream *preempted;   /* its kernel continues first */
  uint32_t meetings;          /* kernels that meet, so far */
  struct link_user links[SIM_LINKS];
};

struct copy_engine { /* of copies on the device */
  uint64_t free_ns;
  struct stream_list pending;
};

struct log {
  char name[32];
  int fd;
  uint64_t bytes;
  uint64_t written_ns;
  uint32_t filled;
  char buffer[LOG_BUFFER_BYTES];
};

struct link_record { /* a record that still grows; use.pid 0: none */
  struct device *device;
  struct sim_link_use use;
};

struct link {
  uint32_t direction; /* SIM_ENGINE_TO_DEVICE or _FROM_DEVICE */
  uint64_t decided_ns;
  uint64_t next_decision_ns;
  struct transfer *first;
  struct link_record records[LINK_RECORDS];
};

struct device {
  uint32_t index;
  uint64_t memory_bytes;
  uint64_t used_bytes;
  uint64_t busy_ns;
  uint64_t copy_busy_ns;
  uint64_t most_bytes; /* this and the next six: as in struct sim_page_device */
  uint64_t most_launches;
  uint64_t launches;
  uint64_t launch_ns;
  uint64_t copy_ns;
  uint64_t copy_bytes[SIM_COPY_DIRECTIONS];
  double flops;
  struct managed_block *oldest_block; /* of managed memory that is there, by its last use */
  struct managed_block *newest_block;
  struct context *contexts;
  struct context *ready; /* those with heads that need the SMs, or events */
  uint64_t contexts_made;
  struct context *running;
  struct context *last; /* whose state the SMs hold */
  uint64_t sm_ns;       /* decided up to here */
  uint64_t slice_begin_ns;
  uint64_t slice_end_ns;
  enum sim_time_slice time_slice;
  uint64_t next_decision_ns; /* when there is something to decide again, or NEVER */
  struct stream *meets;      /* at sm_ns it runs the SMs and is of a meeting, else NULL */
  struct copy_engine engine;
  struct link *links; /* SIM_LINKS of them: its own_links, or those of the GPU that it is an instance of */
  struct link own_links[SIM_LINKS];
  double link_ns[SIM_LINKS]; /* how long its copies have used the links, as if each had the whole one */
  struct log link_log;
  /* report.c */
  struct log log;
  struct sim_busy open; /* record that still grows; pid 0 = none */
  uint64_t open_end_ns;
  bool changed;       /* state page is to be written */
  bool crowd_changed; /* with all of its processes: which there are, and what they have */
};

/* As CUprocessState has them. */
enum checkpoint { CHECKPOINT_RUNNING, CHECKPOINT_LOCKED, CHECKPOINT_SAVED };

struct process {
  struct process *next;
  int socket;
  int pidfd;
  pid_t pid;
  uid_t uid;
  pid_t group;         /* its process group: whose kernels may meet */
  struct arena *arena; /* what its device memory is made of, once it shares some; else NULL */
  bool greeted;
  bool spoke; /* has sent a request */
  uint64_t accepted_ns;
  bool dead;    /* to be removed at the end of the loop */
  bool decided; /* the bell is to be rung */
  bool awake;   /* its ring is looked at */
  struct process *next_awake;
  uint64_t last_command_ns;
  uint32_t queued; /* commands in its streams */
  char program[32];
  struct sim_ring *ring;
  struct sim_completions *completions;
  uint64_t taken;                        /* commands taken from the ring */
  uint64_t disbanded[SIM_DISBANDED_MAX]; /* groups of meetings that it has left: the last ones */
  uint32_t disbanded_count;
  struct stream *streams[SIM_STREAMS_MAX];
  struct context *contexts[SIM_CONTEXTS_MAX];
  uint64_t used_bytes[SIM_DEVICES_MAX];
  struct managed_range *managed;         /* its allocations of managed memory */
  uint64_t managed_bytes;                /* of them, also what is on the host */
  uint64_t paged_bytes[SIM_DEVICES_MAX]; /* of used_bytes: of them */
  enum checkpoint checkpoint;
  struct memory_limit *limit;             /* the innermost one that it is under; NULL: none, or not looked up */
  uint64_t limits_generation;             /* of the limits, when it was looked up */
  struct process *locker;                 /* is about to lock it, once its work is done; else NULL */
  uint64_t parked_bytes[SIM_DEVICES_MAX]; /* used_bytes before it was saved, and again when it is restored */
  struct transfer moves[SIM_DEVICES_MAX]; /* of its memory to the host or back */
  struct link_user move_users[SIM_DEVICES_MAX];
  uint64_t host_bytes; /* of host memory it was granted */
  uint64_t busy_ns[SIM_DEVICES_MAX];
  uint32_t context_count[SIM_DEVICES_MAX];
  struct sim_page_process *shown[SIM_DEVICES_MAX]; /* its entry in the state page; NULL: it has none */
};

struct server {
  struct config config;
  struct sim_page *page;
  struct device devices[SIM_DEVICES_MAX];
  struct process *processes;
  struct process *awake;                         /* of them: a few of maybe a thousand; rounds look at no others */
  bool died;                                     /* some are to be removed */
  uint32_t silent;                               /* of them: those that have sent nothing yet */
  void (*process_died)(struct process *process); /* client_died(), for the files that client.c builds on */
  int epoll;
  int tickets; /* epoll of share.c, within the other one */
  int kick;    /* eventfd */
  int page_fd_readonly;
  int directory;
  uint64_t host_bytes; /* of all processes */
  uint64_t last_command_ns;
};
extern struct server server;

/* client.c */
int client_accept(int socket);
void client_request(struct process *process);
void client_died(struct process *process); /* work and memory go at once; the structure at client_reap() */
void client_reap(void);

/* host_memory.c */
int host_memory_set(struct process *process, uint64_t bytes); /* its grant from now on; -ENOMEM: beyond the budget */
uint64_t host_memory_default(void); /* half of what the host, or the cgroup that this runs in, has available */

/* memory_limits.c: 0 or -errno */
int memory_limits_request(struct process *process, const struct sim_request *request, int fd,
                          struct sim_wire_limits *ret_limits);
bool memory_limits_allow(struct process *process, const struct device *device, uint64_t bytes);

/* fault.c: 0 or -errno */
int fault_context(struct process *process, uint32_t id, uint64_t code); /* code: the CUresult of a kernel's fault */
int fault_tell(const struct device *device, uint64_t xid);
int mode_tell(const struct device *device, uint64_t mode);
int time_slice_tell(const struct process *process, struct device *device, uint64_t length);

/* checkpoint.c: 0 or -errno */
int checkpoint_request(struct process *caller, const struct sim_request *request, uint64_t *ret_bytes);
void checkpoint_process_died(const struct process *caller);

/* managed.c: 0 or -errno. The device's account is client.c's where memory is allocated and freed. */
uint64_t managed_room(const struct device *device, uint64_t bytes); /* how much of it fits, in whole blocks */
int managed_add(struct process *process, struct device *device, uint64_t base, uint64_t bytes, uint64_t resident_bytes);
int managed_remove(struct process *process, const struct device *device, uint64_t base, uint64_t *ret_resident_bytes);
void managed_make_room(struct device *device, uint64_t bytes); /* blocks go to the host, as far as there are any */
uint64_t managed_use(struct process *process, uint64_t base);  /* the SM time that a kernel waits for it */
void managed_process_died(struct process *process);

/* share.c: 0 (share_close: 1 for the last hold) or -errno; descriptors stay share.c's, but for a ticket's */
int share_arena(struct process *process, int fd);
int share_make(struct process *process, struct device *device, const struct sim_request *request, uint64_t *ret_key);
int share_open(struct process *process, const struct sim_request *request, struct sim_reply *ret_reply, int *ret_fd);
int share_close(struct process *process, uint64_t key);
int share_ticket(struct process *process, uint64_t key, int *ret_fd);
bool share_is_party(const struct process *process); /* it holds or has made something of several processes */
void share_tickets_look(void);
void share_process_died(struct process *process); /* before its memory is given back */

/* queue.c */
bool queue_take(struct process *process); /* all new commands of its ring; false: there were none */
bool queue_take_all(uint64_t now_ns);     /* of those that are awake; one that has been idle for long dozes off */
void queue_wake(struct process *process);
bool queue_doze_all(void);                                    /* false: a process has new commands */
void queue_complete(struct stream *stream, uint64_t done_ns); /* decides the head; may hand further heads to engines */
void queue_drop(struct stream *stream);                       /* everything that is queued, without completing it */
void queue_fault_context(struct context *context);            /* its kernels and copies take no time any more */
void queue_close_context(struct context *context, uint64_t now_ns);
void queue_bells(void); /* wakes the threads that wait for something that was decided */

/* ready.c */
void engine_add_sm(struct stream *stream);
void engine_leave_sm(struct stream *stream);
void engine_add_event(struct stream *stream);
void engine_leave_event(struct stream *stream);
void engine_add_copy(struct stream *stream);
void engine_leave_copy(struct stream *stream); /* of copies on the device: its engine has done it */
void engine_remove(struct stream *stream);     /* from wherever its head is */
void engine_remove_context(struct context *context);

/* meeting.c */
void meet_join(struct stream *stream);             /* its head, which has reached the SMs */
void meet_leave(struct stream *stream);            /* it is done, or dropped */
bool meet_is_awaited(const struct stream *stream); /* its head waits for kernels that have not reached the SMs */
void meet_disband(struct process *process, uint64_t group); /* its kernels in there wait for none, from now on */

/* sm.c */
extern uint64_t engine_decisions; /* counts, so that a round knows whether anything moved */
void engine_advance(struct device *device, uint64_t until_ns); /* the running context has the SMs up to then */
void engine_complete(struct stream *stream); /* the kernel that runs is done at the device's decided time */

/* links.c */
void link_add(struct link *link, struct transfer *transfer);
void link_remove(struct transfer *transfer, uint64_t now_ns); /* before it is done; nothing if it is with no link */
/* Decides what is done, up to now: takes it out, or returns NULL. */
struct transfer *link_run(struct link *link, uint64_t now_ns, uint64_t *ret_end_ns);

/* link_log.c */
void link_log_use(struct link *link, struct transfer *transfer, uint64_t end_ns, double used_ns); /* from decided_ns */
void link_log_round(struct link *link, uint64_t now_ns, bool everything);

/* log.c */
int log_open(int directory, const char *kind, uint32_t device, struct log *ret_log);
void log_add(struct log *log, const void *record, size_t bytes);
void log_write(struct log *log);
void log_write_due(struct log *log, uint64_t now_ns, bool everything);

/* meet.c */
void meet_run(void);             /* meetings of which all kernels run */
void meet_spin(uint64_t now_ns); /* nothing else can be decided: those of which some do not run hold their SMs */

/* engine.c */
void engine_round(uint64_t now_ns); /* takes commands, decides, rings bells */
uint64_t engine_next_ns(void);      /* the earliest time at which a device has something to decide, or NEVER */

/* report.c */
static inline void report_crowd(struct device *device) { /* its processes, or what one of them has, have changed */
  device->changed = device->crowd_changed = true;
}
int report_open(int directory);
void report_work(struct device *device, const struct sim_command *command); /* a kernel or a copy was submitted */
void report_busy(struct device *device, const struct context *context, uint64_t begin_ns, uint64_t end_ns);
void report_round(uint64_t now_ns, bool everything); /* writes what is due */
void report_page(void);                              /* state page, where something changed */

#endif
