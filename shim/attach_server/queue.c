/* queue.c - see queue.h. */
#include "attach_server/queue.h"

bool vg_queue_has_space(const struct vg_queue *queue, uint32_t more) {
  return queue->count + more <= VG_QUEUE_MAX;
}

bool vg_queue_has_share(const struct vg_queue *queue, uint64_t account) {
  uint32_t own = 0;
  for (uint32_t i = 0; i < queue->handed; i++) own += queue->handed_accounts[i] == account;
  return queue->handed < VG_QUEUE_HANDED_MAX && own < VG_QUEUE_SHARE_MAX;
}

void vg_queue_put(struct vg_queue *queue, const struct vg_attach_server_news *news) {
  queue->news[(queue->begin + queue->count++) % VG_QUEUE_MAX] = *news;
  if (news->kind == VG_ATTACH_SERVER_HANDED) queue->handed_accounts[queue->handed++] = news->account;
}

static void forget_handed(struct vg_queue *queue, uint64_t account) {
  uint32_t i = 0;
  while (queue->handed_accounts[i] != account) i++;
  queue->handed_accounts[i] = queue->handed_accounts[--queue->handed];
}

bool vg_queue_take(struct vg_queue *queue, struct vg_attach_server_news *ret_news) {
  if (!queue->count) return false;
  *ret_news = queue->news[queue->begin];
  queue->begin = (queue->begin + 1) % VG_QUEUE_MAX;
  queue->count--;
  if (ret_news->kind == VG_ATTACH_SERVER_HANDED) forget_handed(queue, ret_news->account);
  return true;
}

const struct vg_attach_server_news *vg_queue_at(const struct vg_queue *queue, uint32_t i) {
  return &queue->news[(queue->begin + i) % VG_QUEUE_MAX];
}
