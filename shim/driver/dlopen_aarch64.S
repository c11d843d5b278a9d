/*
 * dlopen_aarch64.S - dlopen and dlmopen as the program sees them. vg_dlopen_route() and vg_dlmopen_route()
 * (dlopen.c) say which name to open and where the real function is; then a jump, not a call: the real one reads
 * its return address to apply the caller's RUNPATH.
 */
  .text
  .globl dlopen
  .type dlopen, %function
  .balign 16
dlopen:
  .cfi_startproc
  hint 34 /* bti c */
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  str x1, [sp, #16]
  mov x2, x30
  bl vg_dlopen_route
  mov x16, x1
  ldr x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
  .size dlopen, . - dlopen

  .globl dlmopen
  .type dlmopen, %function
  .balign 16
dlmopen:
  .cfi_startproc
  hint 34 /* bti c */
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x2, [sp, #16]
  mov x0, x1
  mov x1, x30
  bl vg_dlmopen_route
  mov x16, x1
  mov x1, x0
  ldp x0, x2, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  br x16
  .cfi_endproc
  .size dlmopen, . - dlmopen

  .section .note.GNU-stack,"",%progbits
