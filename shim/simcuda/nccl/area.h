/*
 * area.h - the memory that all ranks of a communicator share: a memfd that rank 0 makes (rendezvous.c). Who the ranks
 * are, what each has posted, and the bytes of it. No rank ever holds a lock in there: each word has one writer, and
 * whoever writes one rings the bell that all who wait sleep on.
 *
 * A rank that is there holds a lock of its byte of the file (fcntl): the system gives it up with the process, so the
 * others see that it is gone, in whatever namespace it was.
 */
#ifndef SC_NCCL_AREA_H
#define SC_NCCL_AREA_H
#include "simcuda/nccl/nccl_abi.h"

#define SC_NCCL_RANKS_MAX 16 /* devices of a simulated node: two ranks on one device are refused */
#define SC_NCCL_DEPTH 64u    /* messages of a channel that not all readers are done with */
#define SC_NCCL_AREA_MAGIC 0x4c434e56u

enum sc_rank_state { SC_RANK_ABSENT, SC_RANK_PRESENT, SC_RANK_DESTROYED, SC_RANK_ABORTED };

struct sc_rank {
  uint32_t state;   /* enum sc_rank_state */
  uint32_t pci;     /* its device as NCCL writes it: domain, bus, device, function in hexadecimal digits */
  uint64_t process; /* a number of its process, by chance */
  uint64_t done;    /* collectives that it needs nothing of any more */
  uint8_t uuid[16]; /* of its device */
};

/* What a rank gives to one operation. */
struct sc_message {
  uint32_t kind; /* enum sc_operation_kind */
  uint32_t type;
  uint32_t redop;
  int32_t root;
  uint64_t count;
  uint64_t bytes; /* that follow; 0: none, or more than are moved */
  uint64_t begin; /* place of the first in the channel: grows for ever, without the wrap */
};

/* One writer; readers say elsewhere how far they are. */
struct sc_channel {
  uint64_t posted; /* messages so far */
  uint64_t taken;  /* of a channel with one reader */
  struct sc_message messages[SC_NCCL_DEPTH];
};

struct sc_area {
  uint32_t magic;
  uint32_t rank_count;
  uint32_t bell; /* futex */
  uint32_t reserved;
  uint64_t group;         /* of its meetings on the devices; by chance, as the unique id is seen by all users */
  uint8_t secret[16];     /* what communicators that are made of this one are named by; known to its ranks alone */
  uint64_t bytes;         /* of the whole file */
  uint64_t channel_bytes; /* of the data of one channel */
  uint64_t compute_bytes; /* of more a rank gives to an operation nothing is moved: rank 0's setting, for all alike */
  struct sc_rank ranks[SC_NCCL_RANKS_MAX];
  struct sc_channel collective[SC_NCCL_RANKS_MAX];               /* by writer: all others read */
  struct sc_channel pairs[SC_NCCL_RANKS_MAX][SC_NCCL_RANKS_MAX]; /* from a rank to another */
  /* Sends that are over on the sender's device: the receiver's stream waits for these (cuStreamWaitValue64). On pages
   * of their own, which are registered with the driver. */
  _Alignas(4096) uint64_t sends[SC_NCCL_RANKS_MAX][SC_NCCL_RANKS_MAX];
  _Alignas(4096) uint8_t data[]; /* of the collective channels, then of the pairs */
};

/* Bytes of the file for so many ranks, each channel with so many bytes of data. */
uint64_t sc_area_bytes(uint32_t rank_count, uint64_t channel_bytes);
/* Where a channel's data are: of the collective one of a writer, or of a pair. */
uint8_t *sc_area_collective_data(struct sc_area *area, uint32_t writer);
uint8_t *sc_area_pair_data(struct sc_area *area, uint32_t writer, uint32_t reader);

/* Maps the file and holds the byte of the rank. fd is taken over, also on failure. 0 or -errno. */
int sc_area_map(int fd, uint32_t rank, struct sc_area **ret_area);
/* Gives up mapping, lock and file. */
void sc_area_unmap(struct sc_area *area, int fd);
/* Whether a rank that was there has gone without a word. Ranks of this process are there. */
bool sc_area_is_lost(const struct sc_area *area, int fd, uint32_t rank);
uint64_t sc_area_process(void);                    /* the number of this process */
int sc_area_random(void *ret_bytes, size_t bytes); /* 0 or -errno */

/* After each change that others wait for. */
void sc_area_ring(struct sc_area *area);
/* Sleeps until the bell is not `heard` any more, for at most so long. */
void sc_area_sleep(struct sc_area *area, uint32_t heard, uint64_t most_ns);

#endif
