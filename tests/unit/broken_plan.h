/* A sound plan that something is done to must be refused, with this message. */
#ifndef TESTS_UNIT_BROKEN_PLAN_H
#define TESTS_UNIT_BROKEN_PLAN_H

#include "tests/unit/check.h"
#include "tests/unit/small_plan.h"

typedef struct Broken {
    const char *name;
    void (*break_it)(Plan *plan);
    const char *message; /* part of it */
} Broken;

static inline void check_broken(const Broken *broken, const SmallPlan *sound) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Plan *plan = small_plan(arena, *sound, diag);
    check_begin(broken->name);
    CHECK(plan && verify_plan(plan, diag), "%s", diag_text(diag));
    if (plan) {
        broken->break_it(plan);
        CHECK(!verify_plan(plan, diag), "passes");
        CHECK(strstr(diag_text(diag), broken->message), "says: %s", diag_text(diag));
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

#endif
