/*
 * dlopen_x86_64.S - dlopen and dlmopen as the program sees them. vg_dlopen_route() and vg_dlmopen_route()
 * (dlopen.c) say which name to open and where the real function is; then a jump, not a call: the real one reads
 * its return address to apply the caller's RUNPATH.
 */
  .text
  .globl dlopen
  .type dlopen, @function
  .balign 16
dlopen:
  .cfi_startproc
  endbr64
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  movq 8(%rsp), %rdx
  call vg_dlopen_route
  popq %rsi
  .cfi_adjust_cfa_offset -8
  movq %rax, %rdi
  jmp *%rdx
  .cfi_endproc
  .size dlopen, . - dlopen

  .globl dlmopen
  .type dlmopen, @function
  .balign 16
dlmopen:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %rsi, %rdi
  movq 24(%rsp), %rsi
  call vg_dlmopen_route
  movq %rdx, %r11
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  movq %rax, %rsi
  jmp *%r11
  .cfi_endproc
  .size dlmopen, . - dlmopen

  .section .note.GNU-stack,"",@progbits
