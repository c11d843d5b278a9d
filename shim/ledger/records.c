/* records.c - see records.h. A hash table in shards, each under its own lock; no lock is held across a call.
 */
#include "ledger/records.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

#define SHARDS_LOG2 7 /* so many that threads hardly ever meet in one */
#define SHARDS (1 << SHARDS_LOG2)
#define BUCKETS_FIRST 16
#define SPARE_MOST 8 /* an allocation needs two, at most */

static struct vg_record *first_buckets[SHARDS][BUCKETS_FIRST]; /* so that a put cannot fail */

static struct shard {
  struct vg_lock lock;
  struct vg_record **buckets;
  uint32_t bucket_count; /* a power of two; 0: none yet */
  uint32_t records;
} __attribute__((aligned(64))) shards[SHARDS];

static uint64_t hash(enum vg_record_kind kind, uint64_t key) {
  uint64_t mixed = (key ^ ((uint64_t)kind << 60)) * 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */
  return mixed ^ mixed >> 29;
}

static struct shard *lock_shard(uint64_t hashed) {
  struct shard *shard = &shards[hashed >> (64 - SHARDS_LOG2)];
  vg_lock(&shard->lock);
  return shard;
}

/* ---- records that this thread has freed: a program that allocates and frees needs no others ---- */

static __thread struct {
  struct vg_record *first;
  uint32_t count;
  bool kept;  /* freed at the end of the thread */
  bool ended; /* they were: destructors of the program may free memory yet */
} spare __attribute__((tls_model("initial-exec")));
static pthread_key_t spare_key;
static pthread_once_t spare_once = PTHREAD_ONCE_INIT;
static bool has_spare_key;

static void free_spare(void *unused) {
  (void)unused;
  spare.ended = true;
  while (spare.first) {
    struct vg_record *record = spare.first;
    spare.first = record->next;
    free(record);
  }
  spare.count = 0;
}

static void make_spare_key(void) {
  has_spare_key = pthread_key_create(&spare_key, free_spare) == 0;
}

static bool keeps_spare(void) {
  if (VG_LIKELY(spare.kept)) return !spare.ended;
  pthread_once(&spare_once, make_spare_key);
  spare.kept = has_spare_key && pthread_setspecific(spare_key, &spare) == 0;
  return spare.kept;
}

struct vg_record *vg_record_new(enum vg_record_kind kind, struct vg_device *device, CUcontext context) {
  struct vg_record *record = spare.first;
  if (VG_LIKELY(record != NULL)) {
    spare.first = record->next;
    spare.count--;
  } else {
    record = malloc(sizeof *record); /* which is several times as fast as calloc for something small */
  }
  if (record) *record = (struct vg_record){.kind = kind, .device = device, .context = context, .count = 1};
  return record;
}

void vg_record_free(struct vg_record *record) {
  if (!record) return;
  if (spare.count >= SPARE_MOST || !keeps_spare()) {
    free(record);
    return;
  }
  record->next = spare.first;
  spare.first = record;
  spare.count++;
}

/* ---- the table ---- */

/* Without memory for more buckets the chains get longer: slower, never wrong. */
static void grow(struct shard *shard) {
  if (!shard->bucket_count) {
    shard->buckets = first_buckets[shard - shards];
    shard->bucket_count = BUCKETS_FIRST;
    return;
  }
  uint32_t count = shard->bucket_count * 2;
  struct vg_record **buckets = calloc(count, sizeof *buckets);
  if (!buckets) return;
  for (uint32_t i = 0; i < shard->bucket_count; i++) {
    for (struct vg_record *record = shard->buckets[i], *next; record; record = next) {
      next = record->next;
      struct vg_record **bucket = &buckets[hash(record->kind, record->key) & (count - 1)];
      record->next = *bucket;
      *bucket = record;
    }
  }
  if (shard->buckets != first_buckets[shard - shards]) free(shard->buckets);
  shard->buckets = buckets;
  shard->bucket_count = count;
}

static void put_locked(struct shard *shard, uint64_t hashed, struct vg_record *record) {
  if (shard->records >= shard->bucket_count) grow(shard);
  struct vg_record **bucket = &shard->buckets[hashed & (shard->bucket_count - 1)];
  record->next = *bucket;
  *bucket = record;
  shard->records++;
}

/* The link that points at the record; NULL when it is not there. */
static struct vg_record **find_locked(struct shard *shard, uint64_t hashed, enum vg_record_kind kind, uint64_t key) {
  if (!shard->bucket_count) return NULL;
  struct vg_record **link = &shard->buckets[hashed & (shard->bucket_count - 1)];
  for (; *link; link = &(*link)->next)
    if ((*link)->key == key && (*link)->kind == kind) return link;
  return NULL;
}

static struct vg_record *unlink_locked(struct shard *shard, struct vg_record **link) {
  struct vg_record *record = *link;
  *link = record->next;
  record->next = NULL;
  shard->records--;
  return record;
}

void vg_table_put(struct vg_record *record, uint64_t key) {
  record->key = key;
  uint64_t hashed = hash(record->kind, key);
  struct shard *shard = lock_shard(hashed);
  put_locked(shard, hashed, record);
  vg_unlock(&shard->lock);
}

struct vg_record *vg_table_take(enum vg_record_kind kind, uint64_t key) {
  uint64_t hashed = hash(kind, key);
  struct shard *shard = lock_shard(hashed);
  struct vg_record **link = find_locked(shard, hashed, kind, key);
  struct vg_record *record = link ? unlink_locked(shard, link) : NULL;
  vg_unlock(&shard->lock);
  return record;
}

struct vg_record *vg_table_take_context(CUcontext context) {
  struct vg_record *taken = NULL;
  for (int s = 0; s < SHARDS; s++) {
    struct shard *shard = &shards[s];
    vg_lock(&shard->lock);
    for (uint32_t i = 0; i < shard->bucket_count; i++) {
      struct vg_record **link = &shard->buckets[i];
      while (*link) {
        if ((*link)->context != context) {
          link = &(*link)->next;
          continue;
        }
        struct vg_record *record = unlink_locked(shard, link);
        record->next = taken;
        taken = record;
      }
    }
    vg_unlock(&shard->lock);
  }
  return taken;
}

uint32_t vg_table_add(enum vg_record_kind kind, uint64_t key, int delta, struct vg_record **ret_record) {
  uint64_t hashed = hash(kind, key);
  struct shard *shard = lock_shard(hashed);
  struct vg_record **link = find_locked(shard, hashed, kind, key);
  uint32_t count = link ? (*link)->count += (uint32_t)delta : 0;
  *ret_record = link && count == 0 ? unlink_locked(shard, link) : NULL;
  vg_unlock(&shard->lock);
  return count;
}

uint32_t vg_table_add_or_put(struct vg_record *fresh, uint64_t key) {
  uint64_t hashed = hash(fresh->kind, key);
  struct shard *shard = lock_shard(hashed);
  struct vg_record **link = find_locked(shard, hashed, fresh->kind, key);
  uint32_t count = link ? ++(*link)->count : 1;
  if (!link) {
    fresh->key = key;
    put_locked(shard, hashed, fresh);
  }
  vg_unlock(&shard->lock);
  return count;
}

bool vg_table_look(enum vg_record_kind kind, uint64_t key, struct vg_record *ret_copy) {
  uint64_t hashed = hash(kind, key);
  struct shard *shard = lock_shard(hashed);
  struct vg_record **link = find_locked(shard, hashed, kind, key);
  if (link) *ret_copy = **link;
  vg_unlock(&shard->lock);
  return link != NULL;
}

void vg_table_each(enum vg_record_kind kind, void (*visit)(const struct vg_record *record, void *argument),
                   void *argument) {
  for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
    vg_lock(&shard->lock);
    for (uint32_t i = 0; i < shard->bucket_count; i++)
      for (const struct vg_record *record = shard->buckets[i]; record; record = record->next)
        if (record->kind == kind) visit(record, argument);
    vg_unlock(&shard->lock);
  }
}

void vg_table_forked_child(void) {
  /* The parent's records are left behind: their locks may be held by threads that do not exist here. */
  for (int s = 0; s < SHARDS; s++) shards[s] = (struct shard){0};
  memset(first_buckets, 0, sizeof first_buckets);
}
