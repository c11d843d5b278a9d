/*
 * coredump.c - settings of a crash dump: kept and answered, of the process and of each context. The simulated device
 * writes none. A context's own settings are those of the process until they are set. Called by programs.
 */
#define _GNU_SOURCE
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 1024
#define FLAGS_KNOWN ((unsigned)CU_COREDUMP_LIGHTWEIGHT_FLAGS | (unsigned)CU_COREDUMP_SKIP_ABORT)

struct settings { /* of the process, or of a context */
  struct settings *next;
  uint64_t context; /* its id, which is no other's afterwards */
  bool on_exception, trigger_host, user_trigger;
  unsigned flags;
  char file[TEXT_BYTES], pipe[TEXT_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings process;
static struct settings *of_contexts;

static struct settings *global(void) { /* under lock */
  char host[256] = "";
  if (process.file[0]) return &process;
  gethostname(host, sizeof host - 1);
  process.trigger_host = true;
  snprintf(process.file, sizeof process.file, "core.cuda.%s.%d", host, (int)getpid());
  snprintf(process.pipe, sizeof process.pipe, "corepipe.cuda.%s.%d", host, (int)getpid());
  return &process;
}

/* The settings that hold for the current context; to be changed they are made its own. Under lock. */
static CUresult local(bool change, struct settings **ret_settings) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  struct settings *own = of_contexts;
  while (own && own->context != context->id) own = own->next;
  if (!own && change) {
    own = malloc(sizeof *own);
    if (!own) return CUDA_ERROR_OUT_OF_MEMORY;
    *own = *global();
    own->context = context->id;
    own->next = of_contexts;
    of_contexts = own;
  }
  *ret_settings = own ? own : global();
  return CUDA_SUCCESS;
}

static size_t size_of(CUcoredumpSettings which) {
  bool text = which == CU_COREDUMP_FILE || which == CU_COREDUMP_PIPE;
  return text ? TEXT_BYTES : which == CU_COREDUMP_GENERATION_FLAGS ? sizeof(unsigned) : sizeof(bool);
}

static CUresult read_one(struct settings *from, CUcoredumpSettings which, void *ret_value) {
  bool lightweight = (from->flags & CU_COREDUMP_LIGHTWEIGHT_FLAGS) == CU_COREDUMP_LIGHTWEIGHT_FLAGS;
  const void *values[CU_COREDUMP_MAX] = {NULL,         &from->on_exception, &from->trigger_host,
                                         &lightweight, &from->user_trigger, from->file,
                                         from->pipe,   &from->flags};
  memcpy(ret_value, values[which], size_of(which));
  return CUDA_SUCCESS;
}

static CUresult write_one(struct settings *to, CUcoredumpSettings which, const void *value, size_t size) {
  bool on = size_of(which) == sizeof(bool) && *(const bool *)value;
  unsigned flags = 0;
  switch ((int)which) {
  case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    to->on_exception = on;
    return CUDA_SUCCESS;
  case CU_COREDUMP_TRIGGER_HOST:
    to->trigger_host = on;
    return CUDA_SUCCESS;
  case CU_COREDUMP_LIGHTWEIGHT:
    to->flags = on ? to->flags | CU_COREDUMP_LIGHTWEIGHT_FLAGS : to->flags & ~(unsigned)CU_COREDUMP_LIGHTWEIGHT_FLAGS;
    return CUDA_SUCCESS;
  case CU_COREDUMP_ENABLE_USER_TRIGGER:
    to->user_trigger = on;
    return CUDA_SUCCESS;
  case CU_COREDUMP_GENERATION_FLAGS:
    memcpy(&flags, value, sizeof flags);
    if (flags & ~FLAGS_KNOWN) return CUDA_ERROR_INVALID_VALUE;
    to->flags = flags;
    return CUDA_SUCCESS;
  default:
    if (size == 0 || strnlen(value, size) >= TEXT_BYTES) return CUDA_ERROR_INVALID_VALUE;
    snprintf(which == CU_COREDUMP_FILE ? to->file : to->pipe, TEXT_BYTES, "%.*s", (int)size, (const char *)value);
    return CUDA_SUCCESS;
  }
}

/* Without a value the size that it has is asked for. */
static CUresult setting(CUcoredumpSettings which, void *value, size_t *size, bool of_context, bool change) {
  struct settings *settings = NULL;
  if ((int)which < CU_COREDUMP_ENABLE_ON_EXCEPTION || which >= CU_COREDUMP_MAX || !size)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = of_context ? sim_ready() : CUDA_SUCCESS; /* those of the process need no cuInit */
  if (result != CUDA_SUCCESS) return result;
  bool of_process = which == CU_COREDUMP_ENABLE_USER_TRIGGER || which == CU_COREDUMP_PIPE;
  if (change && of_context && of_process) return CUDA_ERROR_NOT_PERMITTED;
  bool text = size_of(which) == TEXT_BYTES;
  if (value && *size < size_of(which) && !(change && text)) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  if (of_context && !of_process)
    result = local(change && value, &settings);
  else
    settings = global();
  if (!value)
    *size = size_of(which);
  else if (result == CUDA_SUCCESS)
    result = change ? write_one(settings, which, value, *size) : read_one(settings, which, value);
  pthread_mutex_unlock(&lock);
  return result;
}

SIM_PUBLIC CUresult cuCoredumpGetAttribute(CUcoredumpSettings which, void *ret_value, size_t *size) {
  return setting(which, ret_value, size, true, false);
}

SIM_PUBLIC CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings which, void *ret_value, size_t *size) {
  return setting(which, ret_value, size, false, false);
}

SIM_PUBLIC CUresult cuCoredumpSetAttribute(CUcoredumpSettings which, void *value, size_t *size) {
  return setting(which, value, size, true, true);
}

SIM_PUBLIC CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings which, void *value, size_t *size) {
  return setting(which, value, size, false, true);
}
