/*
 * rules.h - the rules as the thread keeps them: a copy of what Python loaded, counted down with every attachment. Not
 * locked: all under attach_server.c's mutex.
 */
#ifndef VG_ATTACH_SERVER_RULES_H
#define VG_ATTACH_SERVER_RULES_H
#include <stdbool.h>

#include "attach_server/attach_server.h"
#include "attach_server/peer.h"

struct vg_rules {
  uint32_t table_count, user_count, entry_count, slice_count, container_count;
  struct vg_attach_server_table *tables;
  struct vg_attach_server_user *users;
  struct vg_attach_server_entry *entries;
  struct vg_attach_server_slice *slices;
  struct vg_attach_server_container *containers;
};

/* A copy that is the caller's; NULL: out of memory, or an index is out of range (-EINVAL in *ret_error). */
struct vg_rules *vg_rules_copy(const struct vg_attach_server_rules *given, int *ret_error);
void vg_rules_free(struct vg_rules *rules);
/* The user that this process's places count for; false: only Python can say. */
bool vg_rules_account(const struct vg_rules *rules, const struct vg_peer *peer, uint64_t *ret_account);
/* NULL: no such account may attach through this listener without Python. */
const struct vg_attach_server_entry *vg_rules_find(const struct vg_rules *rules, uint32_t listener, uint64_t account);
const struct vg_attach_server_entry *vg_rules_find_slice(const struct vg_rules *rules, uint64_t slice_id,
                                                         uint64_t account);
bool vg_rules_have_place(const struct vg_rules *rules, const struct vg_attach_server_entry *entry);
void vg_rules_take_place(struct vg_rules *rules, const struct vg_attach_server_entry *entry);

#endif
