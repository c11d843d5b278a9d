/*
 * rules.h - the rules as the thread keeps them: a copy of what Python loaded, counted down with every attachment. Not
 * locked: all under admission.c's mutex.
 */
#ifndef VG_ADMISSION_RULES_H
#define VG_ADMISSION_RULES_H
#include <stdbool.h>

#include "admission/admission.h"
#include "admission/peer.h"

struct vg_rules {
  uint32_t table_count, user_count, entry_count, slice_count, container_count;
  struct vg_admission_table *tables;
  struct vg_admission_user *users;
  struct vg_admission_entry *entries;
  struct vg_admission_slice *slices;
  struct vg_admission_container *containers;
};

/* A copy that is the caller's; NULL: out of memory, or an index is out of range (-EINVAL in *ret_error). */
struct vg_rules *vg_rules_copy(const struct vg_admission_rules *given, int *ret_error);
void vg_rules_free(struct vg_rules *rules);
/* The user that this process's places count for; false: only Python can say. */
bool vg_rules_account(const struct vg_rules *rules, const struct vg_peer *peer, uint64_t *ret_account);
/* NULL: no such account may attach through this listener without Python. */
const struct vg_admission_entry *vg_rules_find(const struct vg_rules *rules, uint32_t listener, uint64_t account);
const struct vg_admission_entry *vg_rules_find_slice(const struct vg_rules *rules, uint64_t slice_id, uint64_t account);
bool vg_rules_have_place(const struct vg_rules *rules, const struct vg_admission_entry *entry);
void vg_rules_take_place(struct vg_rules *rules, const struct vg_admission_entry *entry);

#endif
