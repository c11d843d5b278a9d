/* queue.c - see queue.h. */
#include "attach_server/queue.h"

bool vg_queue_has_space(const struct vg_queue *queue, uint32_t more) {
  return queue->count + more <= VG_QUEUE_MAX;
}

void vg_queue_put(struct vg_queue *queue, const struct vg_attach_server_news *news) {
  queue->news[(queue->begin + queue->count++) % VG_QUEUE_MAX] = *news;
  queue->handed += news->kind != VG_ATTACH_SERVER_ATTACHED;
}

bool vg_queue_take(struct vg_queue *queue, struct vg_attach_server_news *ret_news) {
  if (!queue->count) return false;
  *ret_news = queue->news[queue->begin];
  queue->begin = (queue->begin + 1) % VG_QUEUE_MAX;
  queue->count--;
  queue->handed -= ret_news->kind != VG_ATTACH_SERVER_ATTACHED;
  return true;
}

const struct vg_attach_server_news *vg_queue_at(const struct vg_queue *queue, uint32_t i) {
  return &queue->news[(queue->begin + i) % VG_QUEUE_MAX];
}
