/*
 * prim.h - the only part of the shim that makes raw system calls: clock, futex, membarrier, eventfd, descriptors,
 * memory. Used by the shim, the arbiter and the simulated device alike. Nothing here allocates, logs or fails loudly;
 * calls that can fail return 0 or a negative errno. errno is preserved.
 */
#ifndef VG_PRIM_H
#define VG_PRIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define VG_LIKELY(x) __builtin_expect(!!(x), 1)
#define VG_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VG_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define VG_LOAD_RELAXED(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#ifndef VG_STORE_AS /* tests/faults/failpoints.h defines it: a process is killed before or after a store */
#define VG_STORE_AS(p, v, order) __atomic_store_n((p), (v), (order))
#endif
#define VG_STORE(p, v) VG_STORE_AS(p, v, __ATOMIC_RELEASE)
#define VG_STORE_RELAXED(p, v) VG_STORE_AS(p, v, __ATOMIC_RELAXED)

#define VG_NS_PER_US 1000ull
#define VG_NS_PER_MS 1000000ull
#define VG_NS_PER_S 1000000000ull

uint64_t vg_prim_now_ns(void); /* CLOCK_MONOTONIC */
void vg_prim_sleep_until_ns(uint64_t deadline_ns);
/* Waits while *word == expected, until deadline_ns (CLOCK_MONOTONIC, 0 = none); works on read-only shared maps. Returns
 * 0 when woken or the value differs, -ETIMEDOUT, or -EINTR. */
int vg_prim_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns);
int vg_prim_futex_wake(const uint32_t *word, int count); /* returns how many were woken */
int vg_prim_membarrier_register(void);                   /* PRIVATE_EXPEDITED; again in a forked child */
void vg_prim_membarrier(void); /* every running thread of this process passes a full barrier */
/* The system call is refused, by seccomp for example: vg_prim_membarrier() is a fence of the caller alone, and the
 * other threads need fences of their own. Known from a failed vg_prim_membarrier_register() or vg_prim_membarrier()
 * on. */
extern bool vg_prim_membarrier_refused __attribute__((visibility("hidden")));
int vg_prim_eventfd(void); /* a descriptor or -errno; close-on-exec, non-blocking */
void vg_prim_eventfd_ring(int fd);
bool vg_prim_eventfd_is(int fd); /* false: certainly not one, but a file, a pipe, a socket or nothing */
void vg_prim_eventfd_drain(int fd);
/* The same for one that an untrusted process holds, too: it may have made it blocking and emptied it; never waits.
 */
void vg_prim_eventfd_drain_shared(int fd);
/* stat(), fstat() and memfd_create(), which a glibc of 2.17 does not export. */
int vg_prim_stat(const char *path, struct stat *ret_status);           /* 0 or -errno */
int vg_prim_read_file(const char *path, char *ret_text, size_t bytes); /* its beginning, which a 0 ends */
int vg_prim_fstat(int fd, struct stat *ret_status);                    /* 0 or -errno */
/* Whether something is mounted at the path itself; unknown (before Linux 5.8, a filter) means yes. */
bool vg_prim_may_be_mount_point(const char *path);
int vg_prim_memfd(const char *name, bool sealable); /* a close-on-exec descriptor or -errno */
int vg_prim_pidfd(int pid);                         /* a close-on-exec descriptor or -errno */
void vg_prim_close(int fd);
/* The kernel notes this process's user with an open file, for whoever holds a descriptor of it (F_SETOWN). */
void vg_prim_set_owner(int fd);
/* Whether another user has done so last. A kernel that does not say it (F_GETOWNER_UIDS) means no. */
bool vg_prim_is_foreign(int fd);
/* Whether all of the memory that a program's pointer names can be read, at one system call for each page: for pointers
 * that the driver has not looked at yet, since it may answer something before it does. */
bool vg_prim_readable(const void *from, size_t bytes);
bool vg_prim_peek(void *ret_copy, const void *from, size_t bytes); /* copies it then; false: nothing is copied */
void vg_prim_timer_slack_ns(uint64_t slack_ns);                    /* of the calling thread */
void vg_prim_thread_name(const char *name);                        /* of the calling thread, 15 characters */

#endif
