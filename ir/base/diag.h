/* Diagnostics: the user's mistakes, each with a place, and our own bugs.
 *
 * A Diag collects errors and their notes in order; the command line prints them once.
 * Functions that can fail on outside input take a Diag*, report there, and return false (or NULL).
 *
 *     models/gpt.lua:42: matmul: axis 'model' is 768 on the left and 1024 on the right
 *       note: models/gpt.lua:17: right operand made here
 */
#ifndef IR_BASE_DIAG_H
#define IR_BASE_DIAG_H

#include <stdbool.h>
#include <stdio.h>

/* Where something came from. file NULL: nowhere in particular; line 0: the file as a whole. */
typedef struct SourceLoc {
    const char *file; /* not owned: lives as long as the arena or literal it came from */
    int line;
} SourceLoc;

#define NO_LOC ((SourceLoc){0})

typedef struct Diag Diag;

Diag *diag_create(void);
void diag_destroy(Diag *diag);

void diag_error(Diag *diag, SourceLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Belongs to the last error. */
void diag_note(Diag *diag, SourceLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* All that `from` has, behind what there is. */
void diag_append(Diag *diag, const Diag *from);

int diag_error_count(const Diag *diag);
/* All errors and notes as text, one per line; "" when there are none. Owned by the Diag. */
const char *diag_text(const Diag *diag);
void diag_print(const Diag *diag, FILE *stream);

/* A mistake of ours: says where, then aborts. */
#define BUG(...) bug_abort(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_abort(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
