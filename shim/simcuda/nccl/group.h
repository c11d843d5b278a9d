/*
 * group.h - calls between ncclGroupStart and ncclGroupEnd (group.c). A call outside is a group of its own.
 */
#ifndef SC_NCCL_GROUP_H
#define SC_NCCL_GROUP_H
#include "simcuda/nccl/operation.h"

void sc_group_begin(void);
ncclResult_t sc_group_end(void);
void sc_group_cancel(void); /* what is queued is not done */
ncclResult_t
sc_group_fail(ncclResult_t result); /* of a call that queues nothing: the end of the group answers it, too */
/* Copies the operation, and does it at the end of the group. */
ncclResult_t sc_group_add(const struct sc_operation *operation);
/* Something else that waits for other ranks, those of this group among them; the argument is copied. */
ncclResult_t sc_group_add_job(ncclResult_t (*run)(void *argument), const void *argument, size_t bytes);

#endif
