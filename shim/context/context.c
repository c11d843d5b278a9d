/*
 * context.c - see context.h. `list_lock` guards the list and is never held across a driver call that may wait;
 * `life[device].lock` is held across the creation or destruction of a context and nothing else, so no launch or
 * allocation ever waits for it.
 */
#include "context/context.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/prim.h"
#include "gen/abi/real.h"
#include "ledger/credit.h"

#define ORDINALS_MAX 64

struct entry {
  CUcontext context;
  struct vg_device *device;
  int references;
  bool primary;
  bool green;   /* a handle to the primary one, with streams of its own; not counted, owns no memory */
  bool retired; /* about to be destroyed: not listed */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static int entry_count, entry_capacity;
static uint32_t green_count; /* on the list; programs without any skip the search */
static struct vg_device *by_ordinal[ORDINALS_MAX];

static struct {
  pthread_mutex_t lock;
  int contexts; /* without green ones */
  uint64_t charged_bytes;
} life[VG_DEVICES_MAX] = {[0 ... VG_DEVICES_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

uint32_t vg_context_generation = 1;
/* A definition does not take the model from the header. */
__thread struct vg_context_here vg_context_here __attribute__((tls_model("initial-exec")));

static size_t index_of(const struct vg_device *device) {
  return (size_t)(device - vg_session.devices);
}

/* ---- the calling thread's device ---- */

void vg_context_map(CUdevice ordinal, struct vg_device *device) {
  if (ordinal >= 0 && ordinal < ORDINALS_MAX) VG_STORE(&by_ordinal[ordinal], device);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
}

struct vg_device *vg_context_ordinal(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < ORDINALS_MAX ? VG_LOAD(&by_ordinal[ordinal]) : NULL;
}

CUdevice vg_context_handle(const struct vg_device *device) {
  for (int i = 0; i < ORDINALS_MAX; i++)
    if (VG_LOAD_RELAXED(&by_ordinal[i]) == device) return i;
  return -1;
}

void vg_context_switched(void) {
  vg_context_here.generation = vg_context_here.work_generation = 0;
}

struct vg_device *vg_context_device_of(CUcontext context) {
  struct vg_device *device = NULL;
  pthread_mutex_lock(&list_lock);
  for (int i = 0; i < entry_count && !device; i++)
    if (entries[i].context == context) device = entries[i].device;
  pthread_mutex_unlock(&list_lock);
  return device;
}

static struct vg_device *current_device(CUcontext context) {
  struct vg_device *device = vg_context_device_of(context);
  CUdevice ordinal;
  /* Not on the list: a context that no hook has seen (green contexts, interop). */
  if (!device && REAL(cuCtxGetDevice)(&ordinal) == CUDA_SUCCESS) device = vg_context_ordinal(ordinal);
  return device;
}

static struct vg_device *current(CUcontext *ret_context) {
  *ret_context = NULL;
  if (!VG_LOAD(&vg_session.ledger)) return NULL;
  /* Memory allocated in an unknown context is charged to no device: a failure is retried once. */
  if (REAL(cuCtxGetCurrent)(ret_context) != CUDA_SUCCESS && REAL(cuCtxGetCurrent)(ret_context) != CUDA_SUCCESS)
    return NULL;
  if (!*ret_context) return NULL;
  return vg_session.device_count == 1 ? &vg_session.devices[0] : current_device(*ret_context);
}

static struct entry *find_locked(CUcontext context) {
  for (int i = 0; i < entry_count; i++)
    if (entries[i].context == context) return &entries[i];
  return NULL;
}

/* Memory allocated in a green context belongs to the primary one and stays when the green one ends. */
static CUcontext owner_of(CUcontext context) {
  CUcontext owner = context;
  pthread_mutex_lock(&list_lock);
  struct entry *green = find_locked(context);
  for (int i = 0; green && green->green && i < entry_count; i++)
    if (entries[i].device == green->device && entries[i].primary) owner = entries[i].context;
  pthread_mutex_unlock(&list_lock);
  return owner;
}

struct vg_device *vg_context_current(CUcontext *ret_context) {
  struct vg_device *device = current(ret_context);
  if (device && VG_LOAD_RELAXED(&green_count)) *ret_context = owner_of(*ret_context);
  return device;
}

static void recall(void) {
  uint32_t now = VG_LOAD(&vg_context_generation);
  if (VG_LIKELY(vg_context_here.generation == now)) return;
  vg_context_here.work_generation = 0;
  vg_context_here.device = current(&vg_context_here.context);
  vg_context_here.generation = vg_context_here.context ? now : 0;
}

CUcontext vg_context_remembered(void) {
  recall();
  return vg_context_here.context;
}

static struct vg_device *recall_device(void) {
  recall();
  return vg_context_here.device;
}

struct vg_device *vg_context_device(void) {
  if (!VG_LOAD(&vg_session.attached)) return NULL;
  struct vg_device *device = vg_session.device_count == 1 ? &vg_session.devices[0] : recall_device();
  return device && VG_LOAD(&device->gate_word) ? device : NULL; /* no gate word: no pages for it yet */
}

/* ---- the list ---- */

void vg_context_lock(void) {
  pthread_mutex_lock(&list_lock);
}

void vg_context_unlock(void) {
  pthread_mutex_unlock(&list_lock);
}

int vg_context_list(const struct vg_device *device, CUcontext *ret_contexts, int capacity) {
  int count = 0;
  for (int i = 0; i < entry_count; i++) {
    if (entries[i].device != device || entries[i].retired) continue;
    if (count < capacity) ret_contexts[count] = entries[i].context;
    count++;
  }
  return count;
}

CUcontext vg_context_primary(const struct vg_device *device) {
  CUcontext found = NULL;
  pthread_mutex_lock(&list_lock);
  for (int i = 0; i < entry_count; i++)
    if (entries[i].device == device && entries[i].primary) found = entries[i].context;
  pthread_mutex_unlock(&list_lock);
  return found;
}

/* True when the context was not on the list before. Without memory for the list it works and is not accounted. */
static bool add(struct vg_device *device, CUcontext context, enum vg_context_kind kind) {
  pthread_mutex_lock(&list_lock);
  struct entry *known = find_locked(context);
  if (known) known->references++;
  bool fresh = !known;
  if (fresh && entry_count == entry_capacity) {
    int capacity = entry_capacity ? entry_capacity * 2 : 16;
    struct entry *grown = realloc(entries, (size_t)capacity * sizeof *grown);
    if (grown) entries = grown, entry_capacity = capacity;
  }
  fresh = fresh && entry_count < entry_capacity;
  if (fresh)
    entries[entry_count++] = (struct entry){.context = context,
                                            .device = device,
                                            .references = 1,
                                            .primary = kind == VG_CONTEXT_PRIMARY,
                                            .green = kind == VG_CONTEXT_GREEN};
  if (fresh && kind == VG_CONTEXT_GREEN) VG_STORE(&green_count, green_count + 1);
  pthread_mutex_unlock(&list_lock);
  return fresh;
}

/* ---- life and cost of contexts ---- */

/* The cost of the existing contexts and this many more. */
static uint64_t cost_bytes(const struct vg_device *device, int more) {
  return (uint64_t)(life[index_of(device)].contexts + more) * device->resolved.context_bytes;
}

static void settle_locked(struct vg_device *device) {
  size_t i = index_of(device);
  vg_memory_contexts(device, (uint32_t)life[i].contexts);
  uint64_t bytes = cost_bytes(device, 0);
  if (life[i].charged_bytes <= bytes) return;
  vg_memory_release(device, life[i].charged_bytes - bytes);
  life[i].charged_bytes = bytes;
}

/* Does another context of this kind cost memory? */
static bool costs(const struct vg_device *device, enum vg_context_kind kind) {
  return kind != VG_CONTEXT_PRIMARY || !vg_context_primary(device);
}

int vg_context_begin(struct vg_device *device, enum vg_context_kind kind) {
  size_t i = index_of(device);
  pthread_mutex_lock(&life[i].lock);
  uint64_t bytes = cost_bytes(device, costs(device, kind));
  if (bytes <= life[i].charged_bytes) return 0;
  if (vg_memory_reserve(device, bytes - life[i].charged_bytes)) {
    pthread_mutex_unlock(&life[i].lock);
    return -ENOMEM;
  }
  life[i].charged_bytes = bytes;
  return 0;
}

void vg_context_end(struct vg_device *device, CUcontext created, enum vg_context_kind kind) {
  size_t i = index_of(device);
  if (created && add(device, created, kind)) life[i].contexts++;
  settle_locked(device);
  pthread_mutex_unlock(&life[i].lock);
}

void vg_context_attached(CUcontext context) {
  pthread_mutex_lock(&list_lock);
  struct entry *entry = find_locked(context);
  if (entry) entry->references++;
  pthread_mutex_unlock(&list_lock);
}

bool vg_context_retire(CUcontext context, bool all, struct vg_device **ret_device) {
  pthread_mutex_lock(&list_lock);
  struct entry *entry = find_locked(context);
  *ret_device = entry ? entry->device : NULL;
  bool last = entry && (all || entry->references == 1);
  if (last)
    entry->retired = true;
  else if (entry)
    entry->references--;
  pthread_mutex_unlock(&list_lock);
  if (last) pthread_mutex_lock(&life[index_of(*ret_device)].lock);
  return last;
}

/* A primary context may have been retained again while its release waited: then that reference was one of several.
 * Counting too few is harmless, since the driver reports when the last one is gone. */
static void revive(CUcontext context) {
  pthread_mutex_lock(&list_lock);
  struct entry *entry = find_locked(context);
  if (entry) entry->retired = false;
  if (entry && entry->primary && entry->references > 1) entry->references--;
  pthread_mutex_unlock(&list_lock);
}

static void drop_locked(struct entry *entry) {
  if (entry->green) VG_STORE(&green_count, green_count - 1);
  *entry = entries[--entry_count];
}

/* Green contexts end with the primary one. False: another thread has seen its end before. */
static bool drop(CUcontext context) {
  pthread_mutex_lock(&list_lock);
  struct entry *entry = find_locked(context);
  struct vg_device *orphaned = entry && entry->primary ? entry->device : NULL;
  if (entry) drop_locked(entry);
  for (int i = entry_count - 1; orphaned && i >= 0; i--)
    if (entries[i].device == orphaned && entries[i].green) drop_locked(&entries[i]);
  pthread_mutex_unlock(&list_lock);
  return entry != NULL;
}

void vg_context_green(struct vg_device *device, CUcontext green) {
  add(device, green, VG_CONTEXT_GREEN);
}

void vg_context_green_gone(CUcontext green) {
  drop(green);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
}

void vg_context_retired(struct vg_device *device, CUcontext context, bool gone) {
  size_t i = index_of(device);
  if (gone) {
    /* Two concurrent releases may both find that the driver has ended it: the one that counted last, and the one that
     * called last. It ends once. */
    if (drop(context)) life[i].contexts--;
    __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
  } else {
    revive(context);
  }
  settle_locked(device);
  pthread_mutex_unlock(&life[i].lock);
}

void vg_context_charge_late(struct vg_device *device) {
  size_t i = index_of(device);
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
  /* The lock may be held across a long destruction: the helper thread takes it only when there is something to do. */
  if (!VG_LOAD_RELAXED(&life[i].contexts) || VG_LOAD_RELAXED(&life[i].charged_bytes)) return;
  pthread_mutex_lock(&life[i].lock);
  if (life[i].contexts && !life[i].charged_bytes) {
    life[i].charged_bytes = cost_bytes(device, 0);
    vg_memory_force(device, life[i].charged_bytes);
  }
  pthread_mutex_unlock(&life[i].lock);
}

void vg_context_forked_child(void) {
  pthread_mutex_init(&list_lock, NULL);
  for (int i = 0; i < VG_DEVICES_MAX; i++) {
    pthread_mutex_init(&life[i].lock, NULL);
    life[i].contexts = 0;
    life[i].charged_bytes = 0;
  }
  entry_count = 0;
  green_count = 0;
  memset(by_ordinal, 0, sizeof by_ordinal);
  vg_context_here.generation = 0;
  __atomic_add_fetch(&vg_context_generation, 1, __ATOMIC_RELEASE);
}
