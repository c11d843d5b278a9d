/* queue.c - see queue.h. */
#include "admission/queue.h"

bool vg_queue_has_space(const struct vg_queue *queue, uint32_t more) {
  return queue->count + more <= VG_QUEUE_MAX;
}

void vg_queue_put(struct vg_queue *queue, const struct vg_admission_news *news) {
  queue->news[(queue->begin + queue->count++) % VG_QUEUE_MAX] = *news;
  queue->handed += news->kind != VG_ADMISSION_ATTACHED;
}

bool vg_queue_take(struct vg_queue *queue, struct vg_admission_news *ret_news) {
  if (!queue->count) return false;
  *ret_news = queue->news[queue->begin];
  queue->begin = (queue->begin + 1) % VG_QUEUE_MAX;
  queue->count--;
  queue->handed -= ret_news->kind != VG_ADMISSION_ATTACHED;
  return true;
}

const struct vg_admission_news *vg_queue_at(const struct vg_queue *queue, uint32_t i) {
  return &queue->news[(queue->begin + i) % VG_QUEUE_MAX];
}
