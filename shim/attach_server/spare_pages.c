/* spare_pages.c - see spare_pages.h. */
#include "attach_server/spare_pages.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/prim.h"

#define DESCRIPTORS_PART 16 /* of the daemon's descriptors that they may take: a daemon may be given few */

static uint32_t most(uint32_t device_count) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return 0;
  rlim_t sets = limit.rlim_cur / DESCRIPTORS_PART / (2 + device_count); /* two files, and doorbells */
  return sets < VG_SPARE_PAGES_MAX ? (uint32_t)sets : VG_SPARE_PAGES_MAX;
}

static bool wants_more(const struct vg_spare_pages *spare) {
  return spare->device_count && !spare->exhausted && spare->count < most(spare->device_count);
}

/* Made without the mutex, which a process that attaches would wait for. */
static void make_one(struct vg_spare_pages *spare) {
  struct vg_tenant_pages made;
  uint32_t device_count = spare->device_count;
  pthread_mutex_unlock(&spare->mutex);
  int result = vg_tenant_pages_make(&made, device_count, 0);
  pthread_mutex_lock(&spare->mutex);
  if (result) {
    spare->exhausted = true;
  } else if (wants_more(spare) && spare->device_count == device_count) {
    spare->pages[spare->count++] = made;
  } else {
    vg_tenant_pages_free(&made);
  }
}

static void *run(void *argument) {
  struct vg_spare_pages *spare = argument;
  vg_prim_thread_name("vgpu-pages");
  pthread_mutex_lock(&spare->mutex);
  while (!spare->stop) {
    if (wants_more(spare))
      make_one(spare);
    else
      pthread_cond_wait(&spare->wanted, &spare->mutex);
  }
  pthread_mutex_unlock(&spare->mutex);
  return NULL;
}

int vg_spare_pages_start(struct vg_spare_pages *spare) {
  sigset_t all, before;
  pthread_mutex_init(&spare->mutex, NULL);
  pthread_cond_init(&spare->wanted, NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the interpreter handles signals */
  int error = pthread_create(&spare->thread, NULL, run, spare);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  spare->running = error == 0;
  return error;
}

void vg_spare_pages_stop(struct vg_spare_pages *spare) {
  if (!spare->running) return;
  pthread_mutex_lock(&spare->mutex);
  spare->stop = true;
  pthread_cond_signal(&spare->wanted);
  pthread_mutex_unlock(&spare->mutex);
  pthread_join(spare->thread, NULL);
  spare->running = false;
  vg_spare_pages_free(spare);
}

static bool free_all(struct vg_spare_pages *spare) {
  bool any = spare->count > 0;
  while (spare->count) vg_tenant_pages_free(&spare->pages[--spare->count]);
  return any;
}

bool vg_spare_pages_take(struct vg_spare_pages *spare, uint32_t device_count, struct vg_tenant_pages *ret_pages) {
  pthread_mutex_lock(&spare->mutex);
  bool found = spare->count && spare->device_count == device_count;
  if (found) *ret_pages = spare->pages[--spare->count];
  /* Not at each one: the thread that answers would wake this one each time. */
  if (found && spare->count == most(device_count) * 3 / 4) pthread_cond_signal(&spare->wanted);
  pthread_mutex_unlock(&spare->mutex);
  return found;
}

void vg_spare_pages_refill(struct vg_spare_pages *spare, uint32_t device_count) {
  pthread_mutex_lock(&spare->mutex);
  if (spare->device_count != device_count) free_all(spare);
  spare->device_count = device_count;
  spare->exhausted = false;
  if (wants_more(spare)) pthread_cond_signal(&spare->wanted);
  pthread_mutex_unlock(&spare->mutex);
}

bool vg_spare_pages_free(struct vg_spare_pages *spare) {
  pthread_mutex_lock(&spare->mutex);
  bool any = free_all(spare);
  spare->exhausted = true;
  pthread_mutex_unlock(&spare->mutex);
  return any;
}
