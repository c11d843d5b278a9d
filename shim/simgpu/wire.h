/*
 * wire.h - what vgpu-simd shares with the processes on the simulated device: messages of its SEQPACKET socket, the
 * command ring (written by the process alone), the completion area (written by the server alone) and the state page of
 * the directory (written by the server alone, read by the client library and by the simulated NVML).
 *
 * Nothing here can be locked by any process. All times are CLOCK_MONOTONIC in ns.
 */
#ifndef VG_SIM_WIRE_H
#define VG_SIM_WIRE_H
#include <stdint.h>

#define SIM_WIRE_MAGIC 0x4d495356u
#define SIM_WIRE_VERSION 8u
#define SIM_SOCKET_NAME "sock" /* in the server's directory */
#define SIM_PAGE_NAME "state"
#define SIM_DEFAULT_DIR "/run/vgpu-sim" /* when VGPU_SIM_DIR is not set */

#define SIM_DEVICES_MAX 16
#define SIM_PROCESSES_MAX 256
#define SIM_CONTEXTS_MAX 64       /* of one process */
#define SIM_STREAMS_MAX 4096      /* of one process */
#define SIM_EVENTS_MAX (1u << 18) /* of one process */
#define SIM_RING_COMMANDS (1u << 15)
#define SIM_COPY_DIRECTIONS 3
#define SIM_LINKS 2            /* between host and device: one for each direction, the first two of sim_engine */
#define SIM_STREAM_TIMES 4096u /* completion times kept per stream; a process has fewer outstanding */

enum sim_engine { SIM_ENGINE_TO_DEVICE, SIM_ENGINE_FROM_DEVICE, SIM_ENGINE_ON_DEVICE };

/* ---- the command ring: struct sim_ring in a memfd ---- */

enum sim_op {
  SIM_OP_OPEN = 1, /* bind stream slot to context `target` with `priority`; takes no place in the stream */
  SIM_OP_MARKER,   /* done when everything before it is */
  SIM_OP_KERNEL,   /* cost_ns of SM time; with meet: while all of its meeting run, see server/meet.c */
  SIM_OP_COPY,     /* cost_ns of copy engine `engine`: what it takes alone */
  SIM_OP_RECORD,   /* writes its time into event slot `target`, generation `value` */
  SIM_OP_WAIT,     /* until stream slot `target` has completed sequence number `value` */
  SIM_OP_HOLD,     /* until a RELEASE for this stream arrives: the process does something in between */
  SIM_OP_RELEASE,  /* ends the oldest HOLD of the stream at time `value`; takes no place in the stream */
  SIM_OP_DISBAND,  /* kernels of the process wait for no others in meetings of group `value`; takes no place either */
  SIM_OP_USE,      /* the next kernel of the stream uses the managed memory at `value` */
};

struct sim_command {
  uint64_t submit_ns; /* never smaller than that of the command before */
  uint64_t cost_ns;
  uint64_t value;
  uint64_t group;  /* of a kernel that meets: then `target` is its number in the group; 0 = its process group's */
  uint64_t amount; /* of a copy: bytes; of a kernel: operations (FLOPs), where they are known */
  uint32_t stream;
  uint32_t target;
  int32_t priority;
  uint16_t op;
  uint16_t engine;
  uint16_t meet;       /* of a kernel: how many kernels of different devices meet; 0 = it runs by itself */
  uint8_t pageable;    /* of a copy: 1 = its host memory is not pinned */
  uint8_t reserved[5]; /* one command = one cache line */
};

struct sim_ring {
  uint64_t head;    /* commands ever written */
  uint32_t waiters; /* threads that wait for the bell */
  uint32_t managed; /* allocations of managed memory: with these a process is not checkpointed */
  uint8_t reserved[4096 - 16];
  struct sim_command commands[SIM_RING_COMMANDS];
};

/* ---- the completion area: struct sim_completions in a memfd, read-only in the process ---- */

struct sim_event_state {
  uint64_t time_ns;
  uint64_t generation; /* of the record that time_ns belongs to */
};

/* decided_seq grows; times[seq % SIM_STREAM_TIMES] is final (and may lie in the future) for seq <= decided_seq. */
struct sim_stream_state {
  uint64_t decided_seq;
  uint8_t reserved[56];
  uint64_t times[SIM_STREAM_TIMES];
};

struct sim_completions {
  uint64_t tail;   /* commands ever taken from the ring */
  uint32_t bell;   /* futex: bumped whenever something of this process was decided */
  uint32_t asleep; /* odd: the server does not look at the ring until it gets SIM_REQUEST_WAKE; grows */
  uint32_t locked; /* futex: not 0 while calls of the process are to block (cuCheckpointProcessLock) */
  uint8_t reserved[4096 - 20];
  struct sim_event_state events[SIM_EVENTS_MAX];
  struct sim_stream_state streams[SIM_STREAMS_MAX];
};

/* ---- the state page: struct sim_page in the file D/state ---- */

struct sim_page_process {
  int32_t pid;       /* as the server sees it; 0 = free entry */
  uint32_t contexts; /* how many it has on this device */
  uint64_t used_bytes;
  uint64_t busy_ns; /* SM time it has used */
  char program[32];
};

struct sim_page_device {
  uint32_t sequence; /* odd while the server writes: read again when odd or changed */
  uint32_t sm_count;
  char name[64];
  uint8_t uuid[16];
  uint32_t pci_bus;       /* domain 0, device 0 */
  uint32_t process_count; /* entries of processes[] in use */
  uint64_t memory_bytes;
  uint64_t context_bytes; /* what one context costs */
  uint64_t used_bytes;
  uint64_t busy_ns;                         /* SM time since the server started */
  uint64_t copy_busy_ns;                    /* copy engines' time */
  uint64_t decided_ns;                      /* the above hold up to this time (it may lie a slice ahead of now) */
  uint64_t most_bytes;                      /* used_bytes at its highest so far */
  uint64_t most_launches;                   /* launches before it was first so high */
  uint64_t launches;                        /* kernels and fills that were ever submitted */
  uint64_t launch_ns;                       /* the time that they take at speed 1 */
  uint64_t copy_ns;                         /* the same of copies */
  uint64_t copy_bytes[SIM_COPY_DIRECTIONS]; /* ever submitted: to the device, from it, on it */
  double flops;                             /* operations of the kernels that say theirs, ever submitted */
  uint32_t parent;        /* 1 + index of the GPU that it is a MIG instance of; 0: it is a GPU. GPUs come first */
  uint32_t number;        /* of an instance, on its GPU */
  uint32_t slices;        /* of an instance: how many of its GPU's SIM_MIG_SLICES */
  uint32_t nvlink_group;  /* NVLink joins GPUs with the same one; 0: it joins none with this one */
  uint32_t compute_major; /* its compute capability */
  uint32_t compute_minor;
  uint32_t time_slice; /* enum sim_time_slice */
  struct sim_page_process processes[SIM_PROCESSES_MAX];
};

/* The driver's reports of faults, as NVML hands them on. */
struct sim_page_fault {
  uint32_t device;
  uint32_t xid;
};
#define SIM_FAULTS_MAX 64u

/* The length of its time slices, as `nvidia-smi compute-policy --set-timeslice` counts them. */
enum sim_time_slice { SIM_TIME_SLICE_DEFAULT, SIM_TIME_SLICE_SHORT, SIM_TIME_SLICE_MEDIUM, SIM_TIME_SLICE_LONG };

/* What NVML says has a whole device; programs on it do not notice. */
enum sim_mode { SIM_MODE_SHARED, SIM_MODE_EXCLUSIVE, SIM_MODE_MIG, SIM_MODE_MPS };

struct sim_page {
  uint32_t magic;
  uint32_t version;
  int32_t server_pid; /* alive = it accepts on the socket */
  uint32_t device_count;
  uint32_t fault_count; /* ever; a futex */
  uint32_t modes;       /* two bits for each device: enum sim_mode */
  uint32_t limit_count; /* cgroups with limits on device memory: while there are none, no process asks for its own */
  uint64_t started_ns;
  uint64_t launch_cost_ns;
  uint64_t slice_ns;
  uint64_t switch_ns;
  uint64_t link_bytes_per_us;                   /* of each link between host and device */
  char model[256];                              /* path of the kernel model file, or empty */
  struct sim_page_fault faults[SIM_FAULTS_MAX]; /* the n-th is at n modulo their number */
  struct sim_page_device devices[SIM_DEVICES_MAX];
};

/* ---- the busy log: D/busy-<index>.log is a row of these ---- */

struct sim_busy {
  uint64_t begin_ns;
  uint64_t end_ns; /* work that is less than 1 ms apart may be pushed together: end - begin is always exact */
  int32_t pid;
  uint32_t context;
};

/* ---- the log of links: D/links-<index>.log is a row of these ---- */

struct sim_link_use {
  uint64_t begin_ns;
  uint64_t end_ns;
  double link_ns; /* how long the whole link would have taken for it: at most end - begin */
  uint64_t bytes;
  int32_t pid;
  uint32_t direction; /* enum sim_engine */
};

/* ---- the socket: one request, one reply (but for WAKE); its end is the end of the process ---- */

enum sim_request_kind {
  SIM_REQUEST_HELLO = 1, /* reply carries descriptors: ring, completions, eventfd of the server, state page */
  SIM_REQUEST_ALLOC,     /* bytes on device */
  SIM_REQUEST_FREE,
  SIM_REQUEST_CONTEXT_CREATE,  /* context on device: charged context_bytes */
  SIM_REQUEST_CONTEXT_DESTROY, /* what it still has queued is dropped */
  SIM_REQUEST_WAKE,            /* the ring has commands and the server did not look; without a reply */
  SIM_REQUEST_ARENA,           /* carries the file that this process's device memory is made of; once */
  SIM_REQUEST_SHARE_MAKE,      /* share of the arena that others may hold; the reply says its key */
  SIM_REQUEST_SHARE_OPEN,      /* holds key; the reply describes it and carries its maker's arena */
  SIM_REQUEST_SHARE_CLOSE,     /* one hold of key less; status 1: it was the last one */
  SIM_REQUEST_SHARE_TICKET,    /* the reply carries a descriptor that holds key until all copies of it are closed */
  SIM_REQUEST_FAULT, /* a kernel of context has faulted with CUresult `bytes`: its work is dropped, an XID shown */
  SIM_REQUEST_XID,   /* tells XID `bytes` of device; needs no HELLO */
  SIM_REQUEST_CHECKPOINT_STATE, /* of process `context`, a pid, as in the next four; the reply's bytes say it */
  SIM_REQUEST_CHECKPOINT_LOCK,  /* -EAGAIN: it has work, ask again; its calls block from the first time on */
  SIM_REQUEST_CHECKPOINT_SAVE,  /* its device memory is free; the reply's bytes say how much it was */
  SIM_REQUEST_CHECKPOINT_RESTORE,
  SIM_REQUEST_CHECKPOINT_UNLOCK, /* also ends one's own LOCK that does not complete */
  SIM_REQUEST_MODE,              /* device is in sim_mode `bytes` from now on; needs no HELLO */
  SIM_REQUEST_HOST_MEMORY,       /* this process may back its device memory with `bytes` in all; -ENOMEM: it may not */
  SIM_REQUEST_LIMITS_SET, /* carries a cgroup's directory; its limits on device, of root's alone. This and the next
                             three need no HELLO; -EOPNOTSUPP: a device, or a driver, without such limits */
  SIM_REQUEST_LIMITS_GET, /* carries one as well; -ENOENT: neither it nor one above it has limits */
  SIM_REQUEST_LIMITS_OWN, /* the same for the cgroup that the process is in */
  SIM_REQUEST_TIME_SLICE, /* time slices of device are of enum sim_time_slice `bytes`; of root's alone */
  SIM_REQUEST_CHECKPOINT_MOVED, /* -EAGAIN: its memory is on the way; the reply's bytes: for so many ns at least */
  SIM_REQUEST_MANAGED_ALLOC, /* bytes of device at address share.tag, which need not all be there: server/managed.c */
  SIM_REQUEST_MANAGED_FREE,  /* what is at share.tag */
};

enum sim_share_kind { SIM_SHARE_MEMORY = 1, SIM_SHARE_PHYSICAL, SIM_SHARE_EVENT, SIM_SHARE_POOL, SIM_SHARE_MULTICAST };

struct sim_wire_share {
  uint64_t key;
  uint64_t offset;
  uint64_t tag; /* whatever the processes want to know of it */
  uint32_t kind;
  uint32_t charged;
};

/* Of a cgroup on a device, in bytes. SIM_NO_LIMIT: it may have all of the device. */
struct sim_wire_limits {
  uint64_t soft;
  uint64_t hard;
  uint64_t used;
};
#define SIM_NO_LIMIT UINT64_MAX

/* Waits in a ticket, and stays there: a holder of the descriptor looks at it with MSG_PEEK. */
struct sim_ticket {
  uint64_t magic;
  uint64_t key;
};
#define SIM_TICKET_MAGIC 0x54454b4349544d49ull

struct sim_request {
  uint32_t magic;
  uint32_t version;
  uint32_t kind;
  uint32_t device;
  uint32_t context;
  uint32_t reserved;
  uint64_t bytes;
  union {
    char program[32]; /* of HELLO */
    struct sim_wire_share share;
    struct sim_wire_limits limits;
  };
};

struct sim_reply {
  uint32_t magic;
  int32_t status;      /* 0 or -errno: -ENOMEM, -EINVAL, -ENOSPC (too many contexts), -EPROTO (other version) */
  uint64_t free_bytes; /* of the device, after the request */
  uint64_t bytes;      /* of what is shared */
  uint32_t device;
  uint32_t reserved;
  union {
    struct sim_wire_share share;
    struct sim_wire_limits limits;
  };
};

#endif
