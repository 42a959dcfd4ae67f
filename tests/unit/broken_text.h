/* Of a sound plan's text a few words are changed: no proof may hold. What is changed is `from`,
 * where it is first behind the first `after`; `says` is part of the message, "" any. Within a case
 * of check.h; the run's plan stays as it is. */
#ifndef TESTS_UNIT_BROKEN_TEXT_H
#define TESTS_UNIT_BROKEN_TEXT_H

#include "planner/plan/plan.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

typedef struct BrokenText {
    const char *after, *from, *to, *says;
} BrokenText;

/* Of a plan that was damaged as it is. */
static inline void check_broken_plan(const Plan *plan, const char *says) {
    Diag *diag = diag_create();
    bool sound = verify_plan(plan, diag);
    CHECK(!sound && strstr(diag_text(diag), says), "not said: %s; but: %s", says, diag_text(diag));
    diag_destroy(diag);
}

static inline void check_broken_text(const Run *run, const BrokenText *change) {
    StrBuf text = strbuf_create(), broken = strbuf_create();
    plan_print(&text, run->plan);
    const char *at = strstr(text.text, change->after);
    at = at ? strstr(at, change->from) : NULL;
    CHECK(at, "there is no '%s' behind '%s'", change->from, change->after);
    if (at) {
        strbuf_printf(&broken, "%.*s%s%s", (int)(at - text.text), text.text, change->to,
                      at + strlen(change->from));
        Plan *read = plan_parse(run->arena, "plan", broken.text, run->diag);
        if (read) read->fingerprint = plan_fingerprint(read);
        CHECK(!read || !verify_plan(read, run->diag), "taken for sound");
        CHECK(strstr(diag_text(run->diag), change->says), "says: %s", diag_text(run->diag));
    }
    strbuf_destroy(&text);
    strbuf_destroy(&broken);
}

#endif
