/*
 * vg_abi.h - everything that the shim (in the tenant's process) and the daemon share: the messages of the attach
 * socket and the two pages of shared memory. The only header that C and Python both read: build_shim.py hands it to
 * cffi, so it holds plain fixed-width structures and integer macros and nothing else (no inline code, no _Atomic).
 *
 * Rules: one writer per word. The control page is written by the daemon alone (sealed before it is sent), the report
 * page by the tenant alone; the daemon copies and validates what it reads there. Words that change are read and
 * written with __atomic builtins. Units are in the names. Layout is frozen per VG_ABI_VERSION: tests/shim/test_abi.py.
 */
#ifndef VG_ABI_H
#define VG_ABI_H
#include <stdint.h>

#define VG_ABI_MAGIC 0x55504756
#define VG_ABI_VERSION 4
/* A program's library may be older than the daemon, down to this version: since then fields have only been added, at
 * the ends of the pages' structures. It is answered in its own version. */
#define VG_ABI_VERSION_OLDEST 3
#define VG_DEVICES_MAX 16
#define VG_PAGE_BYTES 4096
#define VG_UUID_BYTES 16
#define VG_NAME_BYTES 64
#define VG_TEXT_BYTES 256
#define VG_COAST_SLOTS_MAX 8
#define VG_WAIT_BUCKETS 16
#define VG_RUNS_SHOWN 64
#define VG_COPY_DIRECTIONS 2 /* between host and device: to the device, from it */

/* What a device is, which its 16 bytes of UUID do not say: how CUDA_VISIBLE_DEVICES and NVML name it. */
#define VG_DEVICE_GPU 0 /* GPU-... */
#define VG_DEVICE_MIG 1 /* MIG-..., an instance of a GPU; of these a process sees one */

/* The gate word: state in the two low bits, lease epoch above. */
#define VG_GATE_CLOSED 0
#define VG_GATE_COUNT 1
#define VG_GATE_SOLO 2
#define VG_GATE_STATE_MASK 3
#define VG_GATE_EPOCH_SHIFT 2

/* Does another slice wait for the holder of a lease? Then the holder gives it up as soon as it has nothing to run. */
#define VG_NO_NEIGHBOUR_WAITS 0
#define VG_NEIGHBOUR_WAITS 1

/* What the shim is to report to the arbiter, a set of bits: when the last piece of work has completed, even if the
 * program never waits (for usage); by the doorbell at once, when work begins or ends; launches of collectives (the
 * slice is a gang); calls of the driver (the slice's memory may leave the device). MOVES: the process is to move that
 * memory itself, since the driver does not (shim/moves/). */
#define VG_WATCH_USAGE 1
#define VG_WATCH_EDGES 2
#define VG_WATCH_GANG 4
#define VG_WATCH_CALLS 8
#define VG_WATCH_MOVES 16

/* Where a process that moves its memory itself is to have it: the two low bits of move_word, a number above. STAY:
 * where it is. */
#define VG_MOVE_STAY 0
#define VG_MOVE_OUT 1
#define VG_MOVE_IN 2
#define VG_MOVE_MASK 3
#define VG_MOVE_SHIFT 2

/* Where it has it. UNKNOWN: its library is from before these. */
#define VG_MOVED_UNKNOWN 0
#define VG_MOVED_HERE 1
#define VG_MOVED_AWAY 2

/* Why a move was not made; the memory is where it was. */
#define VG_STAYS_NOT 0     /* it was */
#define VG_STAYS_CALLS 1   /* threads are in the driver, or not all work is known to have completed */
#define VG_STAYS_MANAGED 2 /* it has managed memory, */
#define VG_STAYS_POOL 3    /* memory of pools, */
#define VG_STAYS_ARRAY 4   /* arrays, */
#define VG_STAYS_HANDLE 5  /* memory of cuMemCreate, its own or another process's */
#define VG_STAYS_SHARED 6  /* it has given memory to others: by IPC, a handle, a descriptor, to RDMA */
#define VG_STAYS_HOST 7    /* no memory of the host, */
#define VG_STAYS_DEVICE 8  /* or of the device */
#define VG_STAYS_COPY 9    /* a copy failed */
#define VG_STAYS_DRIVER 10 /* the driver refused something else */

/* The behaviour of a tenant when no daemon answers (site configuration, DESIGN D9). */
#define VG_MODE_COAST 0
#define VG_MODE_OPEN 1
#define VG_MODE_CLOSED 2

/* The purpose of an attach message (resume). QUERY: the limits only, no descriptors, no tenant, the socket is closed.
 * HOLD: keeps the slice alive as long as the socket is open, no descriptors (`vgpu run` while its command lives). */
#define VG_ATTACH_FRESH 0
#define VG_ATTACH_RESUME 1
#define VG_ATTACH_QUERY 2
#define VG_ATTACH_HOLD 3

/* Attach answers. All but VG_ATTACH_OK have a one-line reason in text. */
#define VG_ATTACH_OK 0
#define VG_ATTACH_BAD_MESSAGE 1
#define VG_ATTACH_BAD_VERSION 2
#define VG_ATTACH_DENIED 3
#define VG_ATTACH_FULL 4
#define VG_ATTACH_NO_SLICE 5

/* ---- attach socket (SEQPACKET): one request, one reply, then the socket only shows whether both ends live ---- */

struct vg_attach_device {
  uint8_t uuid[VG_UUID_BYTES];
  uint64_t held_bytes; /* credit still held from the last daemon (re-attach), else 0 */
};

struct vg_attach_request {
  uint32_t magic;
  uint32_t abi_version;
  uint32_t bytes;        /* sizeof this structure */
  uint32_t resume;       /* VG_ATTACH_FRESH ..; RESUME: this process was attached before */
  uint32_t library_copy; /* the copy of the shim that asks: dlmopen makes several, each attached by itself */
  uint32_t device_count; /* entries of devices[] that are filled: at re-attach the devices in use; otherwise those that
                          * CUDA_VISIBLE_DEVICES names by UUID, to which a pending slice is bound */
  char program[VG_NAME_BYTES];
  struct vg_attach_device devices[VG_DEVICES_MAX];
};

struct vg_slice_device {
  uint8_t uuid[VG_UUID_BYTES]; /* the driver's own UUID, what CUDA_VISIBLE_DEVICES=GPU-... names */
  uint32_t min_milli;
  uint16_t max_milli; /* 1000 at most */
  uint16_t kind;      /* VG_DEVICE_* */
  uint64_t mem_min_bytes;
  uint64_t mem_max_bytes;
  uint64_t context_bytes; /* what one context of one process costs on this device */
  uint64_t granule_bytes;
};

struct vg_attach_reply {
  uint32_t magic;
  uint32_t abi_version;
  uint32_t bytes;
  uint32_t status; /* VG_ATTACH_* */
  uint32_t mode;   /* VG_MODE_* */
  uint32_t device_count;
  uint64_t process_id; /* the daemon's name for this process */
  char slice[VG_NAME_BYTES];
  char node[VG_NAME_BYTES];
  char text[VG_TEXT_BYTES]; /* the reason of a refusal */
  struct vg_slice_device devices[VG_DEVICES_MAX];
};

/* Follows the reply to a QUERY as a second message: the slice's present usage, for the NVML shim. */
#define VG_USAGE_PROCESSES_MAX 512
struct vg_usage_process { /* an attached process on a device where it has a context */
  int32_t host_pid;       /* as the daemon sees it */
  int32_t pid;            /* in the asking process's PID namespace; processes not in it are left out */
  uint32_t device;        /* which of the reply's devices[] */
  uint32_t copies;        /* of the shim, each attached by itself: their sum is here */
  uint64_t used_bytes;    /* charged to it */
  uint64_t ledger_bytes;  /* of it: as its own ledger has reported */
};

struct vg_attach_usage {
  uint32_t magic;
  uint32_t bytes;                      /* sizeof this structure */
  uint32_t device_count;               /* entries of used_bytes[], in the order of the reply's devices[] */
  uint32_t process_count;              /* entries of processes[] */
  uint64_t used_bytes[VG_DEVICES_MAX]; /* by all processes of the slice */
  uint32_t busy_milli[VG_DEVICES_MAX]; /* device time of the slice in the last second */
  struct vg_usage_process processes[VG_USAGE_PROCESSES_MAX];
};
/*
 * File descriptors that come with an accepted reply (SCM_RIGHTS), in this order: control memfd
 * (1 + device_count pages, mapped read-only), report memfd (1 + device_count pages, mapped read-write), one eventfd
 * per device (the doorbell of that device's arbiter). Page 0 is the header, page 1 + i belongs to device i of reply.
 */

/* ---- control page: written by the daemon, read-only in the tenant ---- */

struct vg_control_header {
  uint32_t magic;
  uint32_t abi_version;
  uint32_t device_count;
  uint32_t mode;        /* VG_MODE_* */
  uint32_t helper_wake; /* futex: incremented whenever a device page changed in a way that the helper must see */
};

struct vg_coast_slot {
  uint32_t begin_us;
  uint32_t end_us;
};

struct vg_control_device {
  uint32_t gate;            /* futex of launching threads: epoch << 2 | VG_GATE_* */
  uint32_t neighbour_waits; /* VG_NO_NEIGHBOUR_WAITS or VG_NEIGHBOUR_WAITS */
  uint64_t heartbeat_ns;    /* CLOCK_MONOTONIC of the arbiter's last round; 100 ms old and not unread = it is gone */
  uint64_t bound_ns;        /* bound on outstanding work */
  uint32_t min_milli;
  uint32_t max_milli;
  /* memory: credit held by this process = granted - returned (report page); it may use no more than that */
  uint64_t granted_bytes;    /* monotone */
  uint64_t limit_bytes;      /* the slice's maximum on this device: what cuDeviceTotalMem shows */
  uint64_t slice_used_bytes; /* used by the slice's other processes on this device, for cuMemGetInfo */
  uint32_t want_answered;    /* the want_seq that has been decided */
  uint32_t memory_pressure;  /* 1: give unused credit back at once */
  uint64_t coast_bytes;      /* credit this process may count on while there is no daemon */
  /* static timetable for coasting: slots in a period, phase = CLOCK_MONOTONIC mod period; seqlock: odd = changing */
  uint32_t coast_seq;
  uint32_t coast_period_us;
  uint32_t coast_slot_count;
  uint32_t watch; /* VG_WATCH_* */
  struct vg_coast_slot coast_slots[VG_COAST_SLOTS_MAX];
  uint32_t pass_collectives; /* of a gang: a process whose count is below this passes the closed gate; 0 = none does */
  /* not 0: the report page is not read and no heartbeat is written before the doorbell rings, which it must when the
   * page changes; another number each time */
  uint32_t unread;
  /* of a gang: a process whose passed_serial is smaller passes the closed gate, once, and then until so much work is
   * outstanding */
  uint32_t pass_serial;
  uint64_t pass_work_ns;
  /* time in which other processes had work outstanding on the device: their sum and 1 ns, 0 = not known, up to
   * others_since_ns, from which on some have (0: none has) */
  uint64_t others_busy_ns;
  uint64_t others_since_ns;
  /* futex of threads whose calls need the device: not 0 while the slice's memory is not there, or leaves it; another
   * number each time */
  uint32_t residence;
  /* what this process may copy over the device's link, by direction; 0 = copies are not paced */
  uint64_t copy_bytes_per_ms[VG_COPY_DIRECTIONS];
  /* what the programs of this slice together are asked to give back; 0: nothing. The serial grows when a request begins
   * or asks for more, and is written last */
  uint32_t reclaim_serial;
  uint64_t reclaim_bytes;
  uint64_t reclaim_deadline_ns;
  uint64_t want_deadline_ns; /* the present want waits for memory that other slices are asked to give back; 0: not */
  uint32_t move_word;        /* number << VG_MOVE_SHIFT | VG_MOVE_*; 0: nothing was asked yet */
  uint64_t pinned_limit;     /* host memory that this process may pin in contexts of this device, and 1; 0: no limit */
};

/* ---- report page: written by the tenant, never trusted ---- */

struct vg_report_header {
  uint32_t magic;
  uint32_t abi_version;
};

struct vg_run_shown { /* CLOCK_MONOTONIC: a time that is in busy_ns */
  uint64_t begin_ns, end_ns;
};

struct vg_report_device {
  uint32_t waiting;       /* launching threads that wait at the closed gate */
  uint32_t outstanding;   /* 1: work is outstanding on the device */
  uint32_t given_up_word; /* the open gate word that this process gave up since it has nothing to run */
  uint32_t drained_word;  /* the closed gate word under which all outstanding work has completed */
  uint64_t drained_ns;    /* when it had */
  uint64_t busy_ns;       /* time with work outstanding, up to busy_since_ns or the last drain */
  uint64_t busy_since_ns; /* not 0: work has been outstanding since then */
  uint64_t launches;
  uint64_t waited_ns; /* time threads spent at the closed gate */
  uint64_t used_bytes;
  uint64_t peak_bytes;
  uint64_t returned_bytes; /* monotone */
  uint64_t want_bytes;     /* further credit asked for by want_seq */
  uint32_t want_seq;
  uint32_t contexts;
  uint64_t denied;            /* allocations refused by the ledger */
  uint32_t noticed_word;      /* the closed gate word that the helper has seen; a stopped process does not see it */
  uint32_t collectives;       /* of a gang: launches so far of kernels that wait for kernels on other devices */
  uint64_t drain_expected_ns; /* under a closed word: when it will have drained, by the estimates; 0 = unknown */
  uint64_t done_ns;           /* device time of all work that has completed, by calibrated estimates; monotone */
  uint64_t active_ns;         /* time with work outstanding or a thread at the gate, up to active_since_ns or its end */
  uint64_t active_since_ns;   /* not 0: active since then */
  /* how long threads waited at the closed gate: bucket i counts waits below 2^i * 16 us, the last one all others */
  uint32_t wait_counts[VG_WAIT_BUCKETS];
  uint64_t overdue_ns;    /* of a gang, under a closed word: when its work was last seen without progress, though by the
                           * estimates it should have; 0 = it does */
  uint32_t passed_serial; /* the last pass_serial with which a launch passed the closed gate */
  uint64_t run_count;     /* so many runs have been shown; a process that shows none leaves it 0 */
  struct vg_run_shown
      runs[VG_RUNS_SHOWN]; /* the last ones: number i is at i % VG_RUNS_SHOWN, each later than the one before */
  uint32_t waiting_calls;  /* threads that wait for residence; those at the gate are in waiting */
  uint32_t left_word;      /* the residence under which no thread of the process is in the driver, nor will be */
  uint64_t calls;          /* with VG_WATCH_CALLS: changes when the program calls the driver */
  uint64_t copy_bytes[VG_COPY_DIRECTIONS];     /* copied between host and device */
  uint32_t copies_delayed[VG_COPY_DIRECTIONS]; /* how often a thread has waited, up to 10 ms each */
  uint64_t pinned_bytes;                       /* host memory pinned in contexts of this device */
  uint64_t want_least_bytes; /* of want_bytes: what the allocation needs, without credit for later ones; 0: all of it */
  uint32_t watchers;         /* parts of the program that wait for requests to give memory back (reclaim_bytes) */
  uint32_t moved_word;       /* the last move_word that was carried out or refused; written last */
  uint32_t moved_state;      /* VG_MOVED_* */
  uint32_t stays_reason;     /* VG_STAYS_* */
  uint64_t movable_bytes;    /* of used_bytes: what it moves, whether it is there or away */
  uint32_t pinned_denied;    /* how often host memory was not pinned, for pinned_limit */
};

#endif
