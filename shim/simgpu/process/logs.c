/*
 * logs.c - the driver's log: contexts that have failed (process/sticky.c). The newest 25600 bytes are kept, as
 * documented; an iterator is the number of the next message. Called by programs.
 */
#define _GNU_SOURCE
#include "simgpu/process/process.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT_BYTES 25600u
#define LINE_BYTES 256u
#define LINES_MAX (KEPT_BYTES / LINE_BYTES)
#define CALLBACKS_MAX 16
#define TRUNCATED "[CUDA][W] older messages are lost\n"

struct CUlogsCallbackEntry_st {
  CUlogsCallback call; /* NULL: this place is free */
  void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES_MAX][LINE_BYTES];
static CUlogIterator next;
static struct CUlogsCallbackEntry_st callbacks[CALLBACKS_MAX];

void sim_log(const char *text) {
  struct CUlogsCallbackEntry_st now[CALLBACKS_MAX];
  char line[LINE_BYTES];
  uint64_t now_ms = vg_prim_now_ns() / VG_NS_PER_MS; /* since the machine began, as all times of the device */
  snprintf(line, sizeof line, "[%llu.%03llu][%d][CUDA][E] %.200s", (unsigned long long)now_ms / 1000,
           (unsigned long long)now_ms % 1000, (int)getpid(), text);
  pthread_mutex_lock(&lock);
  memcpy(lines[next++ % LINES_MAX], line, sizeof line);
  memcpy(now, callbacks, sizeof now);
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < CALLBACKS_MAX; i++)
    if (now[i].call) now[i].call(now[i].data, CU_LOG_LEVEL_ERROR, line, strlen(line));
}

SIM_PUBLIC CUresult cuLogsCurrent(CUlogIterator *ret_iterator, unsigned flags) {
  if (!ret_iterator || flags) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  *ret_iterator = next;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

/* What is kept from the iterator on, which then stands behind it: as one text, malloc'ed, that fits into most_bytes
 * with its end; the newest are what fits. NULL: there is no memory. *ret_fits: false if there are some and none fits.
 */
static char *collect(CUlogIterator *iterator, size_t most_bytes, bool *ret_fits) {
  char *text = calloc(1, KEPT_BYTES + LINES_MAX + sizeof TRUNCATED);
  pthread_mutex_lock(&lock);
  unsigned wanted = iterator ? next - *iterator : next, count = 0;
  size_t bytes = 1;
  while (count < wanted && count < LINES_MAX) {
    size_t more = strlen(lines[(next - count - 1) % LINES_MAX]) + 1;
    size_t notice = count + 1 < wanted ? sizeof TRUNCATED - 1 : 0;
    if (bytes + more + notice > most_bytes) break;
    bytes += more;
    count++;
  }
  if (text && count && count < wanted) strcpy(text, TRUNCATED);
  char *end = text ? text + strlen(text) : NULL;
  for (unsigned i = count; end && i > 0; i--) {
    end = stpcpy(end, lines[(next - i) % LINES_MAX]);
    *end++ = '\n';
  }
  *ret_fits = count > 0 || wanted == 0;
  if (iterator && *ret_fits) *iterator = next;
  pthread_mutex_unlock(&lock);
  return text;
}

SIM_PUBLIC CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned flags) {
  bool fits;
  if (!buffer || !size || *size == 0 || flags) return CUDA_ERROR_INVALID_VALUE;
  char *text = collect(iterator, *size, &fits);
  if (!text) return CUDA_ERROR_OUT_OF_MEMORY;
  *size = strlen(text);
  memcpy(buffer, text, *size + 1);
  free(text);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *path, unsigned flags) {
  bool fits;
  FILE *file = path && !flags ? fopen(path, "we") : NULL;
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  char *text = collect(iterator, SIZE_MAX, &fits);
  if (text) fputs(text, file);
  free(text);
  return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

SIM_PUBLIC CUresult cuLogsRegisterCallback(CUlogsCallback call, void *data, CUlogsCallbackHandle *ret_handle) {
  struct CUlogsCallbackEntry_st *place = NULL;
  if (!call) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < CALLBACKS_MAX && !place; i++)
    if (!callbacks[i].call) place = &callbacks[i];
  if (place) *place = (struct CUlogsCallbackEntry_st){call, data};
  pthread_mutex_unlock(&lock);
  if (place && ret_handle) *ret_handle = place;
  return place ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < CALLBACKS_MAX; i++)
    if (handle == &callbacks[i] && callbacks[i].call) {
      callbacks[i].call = NULL;
      result = CUDA_SUCCESS;
    }
  pthread_mutex_unlock(&lock);
  return result;
}
