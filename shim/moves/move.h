/*
 * move.h - moves the process's large allocations (movable.h) to the host and back, when the daemon asks for it by
 * move_word in the control page. By the helper thread, a step at a time: between two steps it serves the gate and looks
 * after the daemon as ever.
 */
#ifndef VG_MOVE_H
#define VG_MOVE_H
#include <stdint.h>

/* Returns when it is to be called again; UINT64_MAX: when the control page has changed. */
uint64_t vg_move_service(uint64_t now_ns);
void vg_move_forked_child(void);

#endif
