/* What the plan's printer and parser share: the table of header fields, and a reader of untrusted
 * text that reports `file:line: ...` once and then fails quietly.
 */
#ifndef PLANNER_PLAN_PLAN_TEXT_H
#define PLANNER_PLAN_PLAN_TEXT_H

#include "planner/plan/plan.h"

#define MAX_PLAN_BYTES ((size_t)64 << 20) /* of text: far above any real plan */
#define MAX_SIZE_BYTES (INT64_C(1) << 50) /* of any region or buffer: sums cannot overflow */

enum { MAX_COMMS = 1024, MAX_TASKS = 50000000 }; /* tasks: of all stages together */

typedef enum FieldKind {
    FIELD_INT,
    FIELD_INT64,
    FIELD_UINT64,
    FIELD_DOUBLE,
    FIELD_BOOL,
    FIELD_PRECISION, /* f32, bf16 or f16 */
    FIELD_RECOMPUTE, /* none, selective or full */
    FIELD_PATH,      /* line, loop or v */
    FIELD_TEXT
} FieldKind;

/* A header line `name=value` and where in the Plan the value lives. */
typedef struct PlanField {
    const char *name;
    FieldKind kind;
    size_t offset;
    int64_t most; /* whole numbers lie in 0..most */
} PlanField;
extern const PlanField PLAN_FIELDS[];
extern const int N_PLAN_FIELDS;

typedef struct PlanReader {
    const char *at, *file;
    int line;
    Arena *arena;
    Diag *diag;
    bool failed;
    int n_tasks; /* read so far */
} PlanReader;

/* Reports, unless something was reported before; false. */
bool plan_reader_fail(PlanReader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes `text` if it is next. */
bool plan_reader_accept(PlanReader *reader, const char *text);
bool plan_reader_expect(PlanReader *reader, const char *text);
bool plan_reader_int(PlanReader *reader, int64_t least, int64_t most, int64_t *out);
bool plan_reader_int32(PlanReader *reader, int least, int most, int *out);
bool plan_reader_uint64(PlanReader *reader, uint64_t *out);
bool plan_reader_double(PlanReader *reader, double *out); /* finite and not negative */
const char *plan_reader_quoted(PlanReader *reader);       /* NULL: reported */
/* Blanks and line ends. False when reading has failed. */
bool plan_reader_skip_space(PlanReader *reader);
/* The end of the line, and blank space up to the next text. */
bool plan_reader_end_line(PlanReader *reader);

/* The device section (plan_device.c), which may be missing. */
void plan_put_device(StrBuf *out, const PlanDevice *device);
bool plan_reader_device(PlanReader *reader, PlanDevice *out);

void plan_put_quoted(StrBuf *out, const char *text);
void plan_put_double(StrBuf *out, double value);

/* Tasks (plan_tasks.c): words and runs, the inverse of each other.
 *   rf0.3 F0.3 sf0.3                 chunk.micro-batch
 *   449x(rf0.64 F0.64 rb0.0 B0.0)+1  each repetition 1 micro-batch further
 */
void plan_put_tasks(StrBuf *out, const Task *tasks, int n_tasks);
/* Reads until '}', which it leaves. No stage has more tasks than its micro-batches and chunks
 * allow, nor the plan more than MAX_TASKS, so that a short text cannot ask for much memory. */
bool plan_reader_tasks(PlanReader *reader, int n_micro, int n_chunks, Task **out, int *out_n);

#endif
