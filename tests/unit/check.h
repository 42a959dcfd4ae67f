/* The unit tests' tiny frame: one line per case, exit status 1 when any failed.
 *
 *     check_begin("split keeps all tokens");
 *     CHECK(n == 7, "n is %d", n);
 *     return check_report();
 *
 * A case fails at its first false CHECK, whose message is printed; the rest of the case still runs.
 */
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Of many variants of one kind, and of many layouts of one variant, how many to go on: sanitizers
 * are slow, and what one of them does not see in some it would not see in all. */
#ifdef __SANITIZE_ADDRESS__
enum { VARIANT_STEP = 3, LAYOUT_STEP = 5 };
#else
enum { VARIANT_STEP = 1, LAYOUT_STEP = 1 };
#endif

/* Where several models have the same layouts: each has its third of them, or all with TEST_LONG. */
static inline int check_shared_step(void) {
    return LAYOUT_STEP > 1 ? LAYOUT_STEP : getenv("TEST_LONG") ? 1 : 3;
}

static char check_case_name[1024]; /* a copy: names are often made on the stack; "": no case */
static bool check_case_failed;
static int check_n_failed;

static inline void check_end(void) {
    if (check_case_name[0] && !check_case_failed) printf("ok %s\n", check_case_name);
    check_case_name[0] = '\0';
    fflush(stdout);
}

/* Ends the case before, starts the next. */
static inline void check_begin(const char *name) {
    check_end();
    snprintf(check_case_name, sizeof(check_case_name), "%s", name);
    check_case_failed = false;
}

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond) && !check_case_failed) {                                                       \
            check_case_failed = true;                                                              \
            check_n_failed++;                                                                      \
            printf("FAIL %s: ", check_case_name);                                                  \
            printf(__VA_ARGS__);                                                                   \
            printf(" [%s:%d: %s]\n", __FILE__, __LINE__, #cond);                                   \
        }                                                                                          \
    } while (0)

/* Ends the last case; main returns this. */
static inline int check_report(void) {
    check_end();
    return check_n_failed ? 1 : 0;
}

#endif
