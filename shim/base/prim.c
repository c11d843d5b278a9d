/* prim.c - see prim.h. Every function keeps errno as it was: hooks may not be seen through errno. */
#define _GNU_SOURCE
#include "base/prim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17 /* headers of the C library have no name for it */
#endif
#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000 /* headers before Linux 5.8 have no name for it */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* the same on every machine; headers before Linux 5.3 have no name for it */
#endif

static struct timespec to_timespec(uint64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / VG_NS_PER_S), .tv_nsec = (long)(ns % VG_NS_PER_S)};
}

uint64_t vg_prim_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * VG_NS_PER_S + (uint64_t)now.tv_nsec;
}

void vg_prim_sleep_until_ns(uint64_t deadline_ns) {
  struct timespec deadline = to_timespec(deadline_ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR) {
  }
}

int vg_prim_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns) {
  int saved = errno;
  struct timespec deadline = to_timespec(deadline_ns);
  /* FUTEX_WAIT_BITSET: its timeout is absolute and on CLOCK_MONOTONIC. */
  long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, deadline_ns ? &deadline : NULL, NULL,
                    FUTEX_BITSET_MATCH_ANY);
  int result = rc == 0 || errno == EAGAIN ? 0 : -errno;
  errno = saved;
  return result;
}

int vg_prim_futex_wake(const uint32_t *word, int count) {
  int saved = errno;
  long woken = syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
  errno = saved;
  return woken > 0 ? (int)woken : 0;
}

bool vg_prim_membarrier_refused;

int vg_prim_membarrier_register(void) {
  int saved = errno;
  long rc = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  int result = rc < 0 ? -errno : 0;
  errno = saved;
  if (result < 0) vg_prim_membarrier(); /* does it work at all? */
  return result;
}

void vg_prim_membarrier(void) {
  int saved = errno;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) < 0 &&
      syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) < 0) { /* not registered or an old kernel: slow but right */
    VG_STORE_RELAXED(&vg_prim_membarrier_refused, true);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
  errno = saved;
}

int vg_prim_eventfd(void) {
  int saved = errno;
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int result = fd < 0 ? -errno : fd;
  errno = saved;
  return result;
}

bool vg_prim_eventfd_is(int fd) {
  struct stat status;
  return vg_prim_fstat(fd, &status) == 0 && !(status.st_mode & S_IFMT); /* an anonymous inode has no type */
}

void vg_prim_eventfd_ring(int fd) {
  int saved = errno;
  uint64_t one = 1;
  ssize_t written = write(fd, &one, sizeof one);
  (void)written; /* EAGAIN means that it rings already */
  errno = saved;
}

void vg_prim_eventfd_drain(int fd) {
  int saved = errno;
  uint64_t count;
  ssize_t got = read(fd, &count, sizeof count);
  (void)got;
  errno = saved;
}

void vg_prim_eventfd_drain_shared(int fd) {
  int saved = errno;
  uint64_t count;
  struct iovec piece = {.iov_base = &count, .iov_len = sizeof count};
  /* preadv2() at the current position (-1 in two halves). Before Linux 5.8: refused, and it rings a few times more. */
  long got = syscall(SYS_preadv2, fd, &piece, 1L, -1L, -1L, RWF_NOWAIT);
  (void)got;
  errno = saved;
}

int vg_prim_read_file(const char *path, char *ret_text, size_t bytes) {
  int saved = errno;
  long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), got = -1;
  if (fd >= 0) got = syscall(SYS_read, fd, ret_text, bytes - 1);
  int result = got < 0 ? -errno : 0;
  ret_text[got < 0 ? 0 : got] = 0;
  if (fd >= 0) syscall(SYS_close, fd);
  errno = saved;
  return result;
}

int vg_prim_fstat(int fd, struct stat *ret_status) {
  int saved = errno;
  long rc = syscall(SYS_fstat, fd, ret_status); /* on 64-bit machines the kernel's structure is glibc's */
  int result = rc < 0 ? -errno : 0;
  errno = saved;
  return result;
}

int vg_prim_stat(const char *path, struct stat *ret_status) {
  int saved = errno;
  long rc = syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, 0);
  int result = rc < 0 ? -errno : 0;
  errno = saved;
  return result;
}

bool vg_prim_may_be_mount_point(const char *path) {
  int saved = errno;
  struct statx status = {0};
  long rc = syscall(SYS_statx, AT_FDCWD, path, AT_NO_AUTOMOUNT, 0u, &status);
  bool is_known = rc == 0 && (status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
  errno = saved;
  return !is_known || (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

int vg_prim_memfd(const char *name, bool sealable) {
  int saved = errno;
  long fd = syscall(SYS_memfd_create, name, MFD_CLOEXEC | (sealable ? MFD_ALLOW_SEALING : 0u));
  int result = fd < 0 ? -errno : (int)fd;
  errno = saved;
  return result;
}

int vg_prim_pidfd(int pid) {
  int saved = errno;
  long fd = syscall(SYS_pidfd_open, pid, 0);
  int result = fd < 0 ? -errno : (int)fd;
  errno = saved;
  return result;
}

void vg_prim_set_owner(int fd) {
  int saved = errno;
  fcntl(fd, F_SETOWN, getpid());
  errno = saved;
}

bool vg_prim_is_foreign(int fd) {
  int saved = errno;
  uint32_t uids[2]; /* real and effective; 0 for a file without an owner */
  bool says = fcntl(fd, F_GETOWNER_UIDS, uids) == 0;
  bool noted = says && (uids[0] != 0 || fcntl(fd, F_GETOWN) != 0);
  bool foreign = noted && uids[0] != getuid();
  errno = saved;
  return foreign;
}

void vg_prim_close(int fd) {
  int saved = errno;
  if (fd >= 0) close(fd);
  errno = saved;
}

/* rt_sigprocmask() copies the mask (8 bytes) before it refuses the operation -1, so it changes nothing and answers
 * EFAULT or EINVAL. Unlike process_vm_readv() it is allowed by every seccomp profile. */
static bool can_read_word(uintptr_t address) {
  return syscall(SYS_rt_sigprocmask, -1, address & ~(uintptr_t)7, NULL, (size_t)8) == 0 || errno != EFAULT;
}

bool vg_prim_readable(const void *from, size_t bytes) {
  int saved = errno;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)from, end = begin + bytes;
  bool readable = begin != 0 && end >= begin;
  for (uintptr_t at = begin; readable && at < end; at = (at & -page) + page) readable = can_read_word(at);
  errno = saved;
  return readable;
}

bool vg_prim_peek(void *ret_copy, const void *from, size_t bytes) {
  if (!vg_prim_readable(from, bytes)) return false;
  memcpy(ret_copy, from, bytes);
  return true;
}

void vg_prim_timer_slack_ns(uint64_t slack_ns) {
  int saved = errno;
  prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0);
  errno = saved;
}

void vg_prim_thread_name(const char *name) {
  int saved = errno;
  prctl(PR_SET_NAME, name, 0, 0, 0);
  errno = saved;
}
