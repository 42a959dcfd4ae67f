#include "tests/emulate/fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Register arrays of kernels are local arrays here, in code that may not be optimised. Pages are
 * only used when touched. */
enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10 };

static char *new_stack(void) {
    void *stack = mmap(nullptr, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE)) {
        fprintf(stderr, "emulate: no memory for a stack\n");
        exit(2);
    }
    return static_cast<char *>(stack) + GUARD_BYTES;
}

/* Stacks begin equally far apart, which would put all fibers' frames into the same few sets of the
 * first-level cache: each begins a little lower than the one before. */
static size_t stack_bytes(int number) {
    enum { STAGGER = 576, STAGGERED = 64 };
    return STACK_BYTES - (size_t)(number % STAGGERED * STAGGER);
}

#if defined(__x86_64__)
/* Saves what the System V ABI says a call keeps; floating-point modes are never changed. Leaves by a
 * jump: processors expect returns where calls came from, not from other stacks. */
extern "C" void emulate_switch_stacks(void **from, void *to);
__asm__(".text\n"
        ".globl emulate_switch_stacks\n"
        ".type emulate_switch_stacks, @function\n"
        "emulate_switch_stacks:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    popq %rcx\n"
        "    jmp *%rcx\n"
        ".size emulate_switch_stacks, .-emulate_switch_stacks\n");

void fiber_create(Fiber *fiber, int number, void (*main)(void)) {
    if (!fiber->stack) fiber->stack = new_stack();
    void **top = reinterpret_cast<void **>(fiber->stack + stack_bytes(number));
    *--top = nullptr; /* where main would return to; leaves the stack as after a call */
    *--top = reinterpret_cast<void *>(main);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber->stack_pointer = top;
}

void fiber_switch(Fiber *from, Fiber *to) {
    emulate_switch_stacks(&from->stack_pointer, to->stack_pointer);
}
#else
void fiber_create(Fiber *fiber, int number, void (*main)(void)) {
    if (!fiber->stack) fiber->stack = new_stack();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = stack_bytes(number);
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, main, 0);
}

void fiber_switch(Fiber *from, Fiber *to) {
    swapcontext(&from->context, &to->context);
}
#endif
