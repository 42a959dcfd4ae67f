/* Fibers: stacks that one host thread switches between. */
#ifndef TESTS_EMULATE_FIBER_H
#define TESTS_EMULATE_FIBER_H

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

typedef struct Fiber {
    char *stack; /* NULL: none yet */
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
} Fiber;

/* `main` never returns. A fiber that has a stack begins anew on it. `number`: which of the fibers
 * that take turns it is. Below each stack is a page that faults. */
void fiber_create(Fiber *fiber, int number, void (*main)(void));
void fiber_switch(Fiber *from, Fiber *to);

#endif
