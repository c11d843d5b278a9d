/*
 * lazy_x86_64.S - the slots of the real driver's functions, the thunks that fill them at the first call, and the spare
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

  .section .data.rel,"aw",@progbits
  .globl vg_real_slots
  .hidden vg_real_slots
  .type vg_real_slots, @object
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
  endbr64
  pushq $index
  jmp resolve
  .set index, index + 1
  .endr

  .balign 16
  .type resolve, @function
resolve: /* 0(%rsp) slot number, 8(%rsp) return address of the caller; the stack is aligned to 16 */
  .cfi_startproc
  .cfi_def_cfa_offset 16
  subq $176, %rsp
  .cfi_adjust_cfa_offset 176
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movups %xmm0, 48(%rsp)
  movups %xmm1, 64(%rsp)
  movups %xmm2, 80(%rsp)
  movups %xmm3, 96(%rsp)
  movups %xmm4, 112(%rsp)
  movups %xmm5, 128(%rsp)
  movups %xmm6, 144(%rsp)
  movups %xmm7, 160(%rsp)
  movl 176(%rsp), %edi
  leaq vg_real_slots(%rip), %rsi
  leaq spares_begin(%rip), %rdx
  leaq spares_end(%rip), %rcx
  call vg_resolve_slot
  movq %rax, %r11
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movups 48(%rsp), %xmm0
  movups 64(%rsp), %xmm1
  movups 80(%rsp), %xmm2
  movups 96(%rsp), %xmm3
  movups 112(%rsp), %xmm4
  movups 128(%rsp), %xmm5
  movups 144(%rsp), %xmm6
  movups 160(%rsp), %xmm7
  addq $184, %rsp
  .cfi_adjust_cfa_offset -184
  jmp *%r11
  .cfi_endproc
  .size resolve, . - resolve

#define VG_SPARE(number, name)                                    \
  .globl name; .type name, @function; .balign 16; name:;          \
  endbr64; jmp *vg_real_slots + 8 * (VG_ENTRIES + number)(%rip);  \
  .size name, . - name
  .balign 16
spares_begin:
#include VG_LAZY_SPARES
  .balign 16
spares_end:

  .section .note.GNU-stack,"",@progbits
