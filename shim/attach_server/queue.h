/*
 * queue.h - news for Python, oldest first. Not locked: all under attach_server.c's mutex.
 */
#ifndef VG_ATTACH_SERVER_QUEUE_H
#define VG_ATTACH_SERVER_QUEUE_H
#include <stdbool.h>

#include "attach_server/attach_server.h"

#define VG_QUEUE_MAX 4096
/* Connections that wait for Python: it answers one in about a millisecond, and others' wait behind them. */
#define VG_QUEUE_HANDED_MAX 32
#define VG_QUEUE_SHARE_MAX 8    /* of these, of one account */
#define VG_FOREIGN_HANDED_MAX 4 /* then messages of no protocol of ours are closed unanswered */

struct vg_queue {
  uint32_t begin, count, handed;
  uint64_t handed_accounts[VG_QUEUE_HANDED_MAX]; /* of those, the first `handed` */
  struct vg_attach_server_news news[VG_QUEUE_MAX];
};

/* Whether `more` can be put, whatever their kind. */
bool vg_queue_has_space(const struct vg_queue *queue, uint32_t more);
/* Whether one more connection of this account may be handed over. */
bool vg_queue_has_share(const struct vg_queue *queue, uint64_t account);
void vg_queue_put(struct vg_queue *queue, const struct vg_attach_server_news *news);
bool vg_queue_take(struct vg_queue *queue, struct vg_attach_server_news *ret_news);
/* The i-th in the queue, for i below count. */
const struct vg_attach_server_news *vg_queue_at(const struct vg_queue *queue, uint32_t i);

#endif
