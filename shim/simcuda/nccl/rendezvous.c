/*
 * rendezvous.c - see rendezvous.h; ncclGetUniqueId. Rank 0 listens on a socket of the abstract namespace whose name is
 * the unique id, and hands the file of shared memory to the other ranks, each of which tries until rank 0 is there. So
 * the ranks are processes or threads of one network namespace of one host, and of one user: both sides look at the
 * other's credentials. No rank waits for ever (VGPU_SIM_NCCL_WAIT_SECONDS), and nothing is left of it afterwards.
 */
#define _GNU_SOURCE /* struct ucred, accept4 */
#include "simcuda/nccl/rendezvous.h"
#include "base/prim.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/failure.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_S 300ull
#define TRY_NS (5 * VG_NS_PER_MS)
#define ID_WORDS "vgpu SIMULATED NCCL"

/* What a unique id holds. */
struct id {
  char words[sizeof ID_WORDS];
  struct sc_token token;
};
_Static_assert(sizeof(struct id) <= NCCL_UNIQUE_ID_BYTES, "fits");

/* The first message on a connection. */
struct greeting {
  uint32_t magic;
  uint32_t rank;
  uint32_t rank_count;
};

/* ---- unique ids ---- */

ncclResult_t sc_token_make(struct sc_token *ret_token) {
  if (sc_area_random(ret_token, sizeof *ret_token) == 0) return ncclSuccess;
  return sc_nccl_fail(ncclSystemError, "no random bytes for a unique id: /dev/urandom cannot be read");
}

bool sc_token_read(const ncclUniqueId *id, struct sc_token *ret_token) {
  struct id content;
  memcpy(&content, id, sizeof content);
  *ret_token = content.token;
  return memcmp(content.words, ID_WORDS, sizeof content.words) == 0;
}

static uint64_t mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

struct sc_token sc_token_derive(const struct sc_token *token, uint64_t number) {
  struct sc_token made;
  uint64_t halves[2];
  memcpy(halves, token, sizeof halves);
  halves[0] = mix(halves[0] + 0x9e3779b97f4a7c15ull * (number + 1));
  halves[1] = mix(halves[1] ^ halves[0]);
  memcpy(&made, halves, sizeof made);
  return made;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
SC_PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  struct id content = {.words = ID_WORDS};
  if (id == NULL) return sc_nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: the pointer is NULL");
  ncclResult_t result = sc_token_make(&content.token);
  memset(id, 0, sizeof *id);
  if (result == ncclSuccess) memcpy(id, &content, sizeof content);
  return result;
}

/* ---- the socket ---- */

static socklen_t name_of(const struct sc_token *token, struct sockaddr_un *ret_address) {
  *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
  char *at = ret_address->sun_path + 1; /* a name that begins with 0 is of no file */
  int length = sprintf(at, "vgpu-nccl-");
  for (int i = 0; i < SC_TOKEN_BYTES; i++) length += sprintf(at + length, "%02x", token->bytes[i]);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool is_same_user(int connection) {
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

static bool is_readable(int fd, uint64_t deadline_ns) {
  struct pollfd event = {.fd = fd, .events = POLLIN};
  for (;;) {
    uint64_t now_ns = vg_prim_now_ns();
    if (now_ns >= deadline_ns) return false;
    int count = poll(&event, 1, (int)((deadline_ns - now_ns) / VG_NS_PER_MS) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

static int send_file(int connection, int fd) {
  uint32_t magic = SC_NCCL_AREA_MAGIC;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec part = {&magic, sizeof magic};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(connection, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A descriptor or -errno. */
static int receive_file(int connection) {
  uint32_t magic = 0;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part = {&magic, sizeof magic};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof magic || magic != SC_NCCL_AREA_MAGIC) return -EPROTO;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header == NULL || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) return -EPROTO;
  int fd;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

/* ---- rank 0 ---- */

#define COMPUTE_BYTES_MIN (1ull << 12) /* for which a channel has space at least */

/* A file of zeros with its header written, or -errno. */
static int make_file(uint32_t rank_count, uint64_t compute_bytes) {
  uint64_t channel_bytes = 2 * (compute_bytes > COMPUTE_BYTES_MIN ? compute_bytes : COMPUTE_BYTES_MIN);
  int fd = vg_prim_memfd("vgpu-nccl", false);
  uint64_t bytes = sc_area_bytes(rank_count, channel_bytes);
  if (fd < 0) return fd;
  void *mapped = ftruncate(fd, (off_t)bytes) == 0
                     ? mmap(NULL, sizeof(struct sc_area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    int rc = -errno;
    close(fd);
    return rc;
  }
  struct sc_area *area = mapped;
  if (sc_area_random(&area->group, sizeof area->group) != 0 || sc_area_random(area->secret, sizeof area->secret) != 0) {
    munmap(mapped, sizeof(struct sc_area));
    close(fd);
    return -EIO;
  }
  area->group |= 1; /* 0 is none */
  area->magic = SC_NCCL_AREA_MAGIC;
  area->rank_count = rank_count;
  area->bytes = bytes;
  area->channel_bytes = channel_bytes;
  area->compute_bytes = compute_bytes;
  munmap(mapped, sizeof(struct sc_area));
  return fd;
}

#define GREETING_NS (2 * VG_NS_PER_S) /* a rank sends its greeting at once: a silent connection holds up no other */

/* Serves one connection; whether a rank has the file now. */
static bool serve(int connection, int fd, uint32_t rank_count, bool *served) {
  struct greeting greeting;
  if (!is_same_user(connection) || !is_readable(connection, vg_prim_now_ns() + GREETING_NS)) return false;
  if (recv(connection, &greeting, sizeof greeting, 0) != sizeof greeting || greeting.magic != SC_NCCL_AREA_MAGIC)
    return false;
  if (greeting.rank_count != rank_count || greeting.rank == 0 || greeting.rank >= rank_count) return false;
  if (served[greeting.rank] || send_file(connection, fd) != 0) return false;
  served[greeting.rank] = true;
  return true;
}

static ncclResult_t serve_all(int listener, int fd, uint32_t rank_count, uint64_t deadline_ns) {
  bool served[SC_NCCL_RANKS_MAX] = {true};
  for (uint32_t count = 1; count < rank_count;) {
    if (!is_readable(listener, deadline_ns)) {
      uint32_t rank = 0;
      while (served[rank]) rank++;
      return sc_nccl_fail(ncclSystemError, "rank %u of %u has not come in time: %u have", rank, rank_count, count);
    }
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (connection < 0) return sc_nccl_fail(ncclSystemError, "rank 0 cannot accept a rank: %s", strerror(errno));
    count += serve(connection, fd, rank_count, served);
    close(connection);
  }
  return ncclSuccess;
}

static ncclResult_t lead(const struct sc_token *token, uint32_t rank_count, uint64_t compute_bytes,
                         uint64_t deadline_ns, int *ret_fd) {
  int fd = make_file(rank_count, compute_bytes);
  if (fd < 0) return sc_nccl_fail(ncclSystemError, "no shared memory for %u ranks: error %d", rank_count, -fd);
  *ret_fd = fd;
  if (rank_count == 1) return ncclSuccess;
  struct sockaddr_un address;
  socklen_t bytes = name_of(token, &address);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ncclResult_t result;
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, 64) != 0)
    result =
        sc_nccl_fail(errno == EADDRINUSE ? ncclInvalidUsage : ncclSystemError, "rank 0 cannot wait for the others: %s",
                     errno == EADDRINUSE ? "another rank 0 uses this unique id" : "no socket");
  else
    result = serve_all(listener, fd, rank_count, deadline_ns);
  if (listener >= 0) close(listener);
  if (result != ncclSuccess) close(fd);
  return result;
}

/* ---- the other ranks ---- */

/* A descriptor or -errno. */
static int ask(const struct sc_token *token, const struct greeting *greeting, uint64_t deadline_ns) {
  struct sockaddr_un address;
  socklen_t bytes = name_of(token, &address);
  int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return -errno;
  int fd = -EAGAIN;
  if (connect(connection, (struct sockaddr *)&address, bytes) == 0) {
    if (!is_same_user(connection))
      fd = -EPERM;
    else if (send(connection, greeting, sizeof *greeting, MSG_NOSIGNAL) == sizeof *greeting)
      fd = is_readable(connection, deadline_ns) ? receive_file(connection) : -ETIMEDOUT;
  }
  close(connection);
  return fd;
}

static ncclResult_t follow(const struct sc_token *token, uint32_t rank, uint32_t rank_count, uint64_t deadline_ns,
                           int *ret_fd) {
  struct greeting greeting = {SC_NCCL_AREA_MAGIC, rank, rank_count};
  for (;;) {
    *ret_fd = ask(token, &greeting, deadline_ns);
    if (*ret_fd >= 0) return ncclSuccess;
    if (*ret_fd == -EPROTO)
      return sc_nccl_fail(ncclInvalidUsage, "rank 0 sent rank %u of %u away: another number of ranks, or a rank twice",
                          rank, rank_count);
    if (*ret_fd == -EPERM) return sc_nccl_fail(ncclSystemError, "rank 0 is another user's process");
    if (*ret_fd != -EAGAIN || vg_prim_now_ns() >= deadline_ns)
      return sc_nccl_fail(ncclSystemError, "rank %u of %u has not found rank 0 in time", rank, rank_count);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + TRY_NS);
  }
}

static uint64_t choose_deadline(void) {
  const char *text = secure_getenv("VGPU_SIM_NCCL_WAIT_SECONDS");
  uint64_t seconds = text != NULL ? strtoull(text, NULL, 10) : 0;
  return vg_prim_now_ns() + (seconds > 0 && seconds < 1000000 ? seconds : WAIT_S) * VG_NS_PER_S;
}

ncclResult_t sc_rendezvous(const struct sc_token *token, uint32_t rank, uint32_t rank_count, uint64_t compute_bytes,
                           struct sc_area **ret_area, int *ret_fd) {
  uint64_t deadline_ns = choose_deadline();
  ncclResult_t result = rank == 0 ? lead(token, rank_count, compute_bytes, deadline_ns, ret_fd)
                                  : follow(token, rank, rank_count, deadline_ns, ret_fd);
  if (result != ncclSuccess) return result;
  int rc = sc_area_map(*ret_fd, rank, ret_area);
  if (rc != 0) return sc_nccl_fail(ncclSystemError, "cannot map the ranks' shared memory: error %d", -rc);
  if ((*ret_area)->magic == SC_NCCL_AREA_MAGIC && (*ret_area)->rank_count == rank_count) return ncclSuccess;
  sc_area_unmap(*ret_area, *ret_fd);
  return sc_nccl_fail(ncclInternalError, "what rank 0 sent is no memory of %u ranks", rank_count);
}
