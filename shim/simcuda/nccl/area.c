/*
 * area.c - see area.h. Locks of fcntl belong to the process and go when it closes any descriptor of the file, so the
 * descriptors of a file that several communicators of a process share are closed together with the last of them.
 */
#include "simcuda/nccl/area.h"
#include "base/prim.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file that this process has open, once for each of its ranks. */
struct file {
  struct file *next;
  ino_t inode;
  uint32_t users;
  uint32_t fd_count;
  int fds[SC_NCCL_RANKS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;

uint64_t sc_area_bytes(uint32_t rank_count, uint64_t channel_bytes) {
  return sizeof(struct sc_area) + ((uint64_t)rank_count * rank_count + rank_count) * channel_bytes;
}

uint8_t *sc_area_collective_data(struct sc_area *area, uint32_t writer) {
  return area->data + writer * area->channel_bytes;
}

uint8_t *sc_area_pair_data(struct sc_area *area, uint32_t writer, uint32_t reader) {
  return area->data + ((uint64_t)area->rank_count * (writer + 1) + reader) * area->channel_bytes;
}

static uint64_t process_number;

int sc_area_random(void *ret_bytes, size_t bytes) {
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  ssize_t count = read(fd, ret_bytes, bytes);
  close(fd);
  return count == (ssize_t)bytes ? 0 : -EIO;
}

static void choose_number(void) {
  if (sc_area_random(&process_number, sizeof process_number) != 0)
    process_number = (uint64_t)getpid() << 32 | (uint32_t)(uintptr_t)&process_number;
}

uint64_t sc_area_process(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, choose_number);
  return process_number;
}

static struct file **find_file(ino_t inode) {
  struct file **link = &files;
  while (*link != NULL && (*link)->inode != inode) link = &(*link)->next;
  return link;
}

static int keep_file(int fd) {
  struct stat state;
  if (vg_prim_fstat(fd, &state) != 0) return -EBADF;
  pthread_mutex_lock(&lock);
  struct file **link = find_file(state.st_ino), *file = *link;
  if (file == NULL) {
    file = calloc(1, sizeof *file);
    if (file != NULL) file->inode = state.st_ino;
    *link = file;
  }
  int rc = file == NULL ? -ENOMEM : file->fd_count == SC_NCCL_RANKS_MAX ? -EMFILE : 0;
  if (rc == 0) {
    file->fds[file->fd_count++] = fd;
    file->users++;
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

static void leave_file(int fd) {
  struct stat state;
  if (vg_prim_fstat(fd, &state) != 0) return;
  pthread_mutex_lock(&lock);
  struct file **link = find_file(state.st_ino), *file = *link;
  if (file != NULL && --file->users == 0) {
    for (uint32_t i = 0; i < file->fd_count; i++) close(file->fds[i]);
    *link = file->next;
    free(file);
  }
  pthread_mutex_unlock(&lock);
}

static struct flock lock_of(uint32_t rank) {
  return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

int sc_area_map(int fd, uint32_t rank, struct sc_area **ret_area) {
  struct stat state;
  struct flock byte = lock_of(rank);
  int rc = vg_prim_fstat(fd, &state) != 0                   ? -EBADF
           : (size_t)state.st_size < sizeof(struct sc_area) ? -EPROTO
                                                            : keep_file(fd);
  if (rc != 0) {
    close(fd);
    return rc;
  }
  void *mapped = mmap(NULL, (size_t)state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (mapped == MAP_FAILED || fcntl(fd, F_SETLK, &byte) != 0) {
    rc = -errno;
    if (mapped != MAP_FAILED) munmap(mapped, (size_t)state.st_size);
    leave_file(fd);
    return rc;
  }
  *ret_area = mapped;
  return 0;
}

void sc_area_unmap(struct sc_area *area, int fd) {
  munmap(area, area->bytes);
  leave_file(fd);
}

bool sc_area_is_lost(const struct sc_area *area, int fd, uint32_t rank) {
  const struct sc_rank *one = &area->ranks[rank];
  struct flock byte = lock_of(rank);
  if (__atomic_load_n(&one->state, __ATOMIC_ACQUIRE) != SC_RANK_PRESENT || one->process == sc_area_process())
    return false;
  return fcntl(fd, F_GETLK, &byte) == 0 && byte.l_type == F_UNLCK &&
         __atomic_load_n(&one->state, __ATOMIC_ACQUIRE) == SC_RANK_PRESENT;
}

void sc_area_ring(struct sc_area *area) {
  __atomic_fetch_add(&area->bell, 1, __ATOMIC_SEQ_CST);
  vg_prim_futex_wake(&area->bell, INT_MAX);
}

void sc_area_sleep(struct sc_area *area, uint32_t heard, uint64_t most_ns) {
  vg_prim_futex_wait(&area->bell, heard, vg_prim_now_ns() + most_ns);
}
