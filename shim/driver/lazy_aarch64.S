/*
 * lazy_aarch64.S - the slots of the real driver's functions, the thunks that fill them at the first call, and the spare
 * entries that vgpud/libraries/fit.py names after functions which only the driver at hand has. A thunk knows no
 * prototype, so it saves every register that can hold an argument, asks vg_resolve_slot() and jumps there. It passes
 * the addresses of the slots and of the spare entries, so that vg_resolve_slot() needs no symbol of this file.
 */
#ifndef VG_LAZY_COUNTS /* shim/nvml/lazy_*.S names other files for libvgpu-ml.so */
#define VG_LAZY_COUNTS "gen/abi/counts.h"
#define VG_LAZY_SPARES "gen/hooks/spares.inc"
#endif
#include VG_LAZY_COUNTS
#define THUNK_BYTES 16

  .section .data.rel,"aw",%progbits
  .globl vg_real_slots
  .hidden vg_real_slots
  .type vg_real_slots, %object
  .balign 8
vg_real_slots:
  .set index, 0
  .rept VG_ENTRIES + VG_SPARES
  .quad thunks + THUNK_BYTES * index
  .set index, index + 1
  .endr
  .size vg_real_slots, . - vg_real_slots

  .text
  .balign THUNK_BYTES
thunks:
  .set index, 0
  .rept VG_ENTRIES + VG_SPARES
  .balign THUNK_BYTES
  hint 36 /* bti j and c */
  mov w16, #index
  b resolve
  .set index, index + 1
  .endr

  .balign 16
  .type resolve, %function
resolve: /* w16: slot number, x30: return address of the caller */
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_adjust_cfa_offset 224
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w16
  adrp x1, vg_real_slots
  add x1, x1, :lo12:vg_real_slots
  adrp x2, spares_begin
  add x2, x2, :lo12:spares_begin
  adrp x3, spares_end
  add x3, x3, :lo12:spares_end
  bl vg_resolve_slot
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_adjust_cfa_offset -224
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
  .size resolve, . - resolve

#define VG_SPARE(number, name)                                    \
  .globl name; .type name, %function; .balign 32; name:;          \
  hint 34;                                                        \
  adrp x16, vg_real_slots + 8 * (VG_ENTRIES + number);            \
  add x16, x16, :lo12:vg_real_slots + 8 * (VG_ENTRIES + number);  \
  ldr x16, [x16]; br x16;                                         \
  .size name, . - name
  .balign 32
spares_begin:
#include VG_LAZY_SPARES
  .balign 32
spares_end:

  .section .note.GNU-stack,"",%progbits
