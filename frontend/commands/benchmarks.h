/* Rows of published benchmarks, as they are on Hugging Face's Hub -> what is asked, and which
 * answers there are, word for word as EleutherAI's lm-evaluation-harness 0.4.13 has them. Answers
 * are chosen (evaluate_choices.h), or written (evaluate_problems.h): such have one "choice", that
 * examples show, and filters that take an answer out of what was written.
 *
 * A benchmark is a row of one table (benchmarks.c): the fields that its rows have, and templates in
 * Jinja, the harness' own where it has such, of a prompt and choices. A file has rows of one
 * benchmark: the first one says which, unless the caller knows.
 */
#ifndef FRONTEND_COMMANDS_BENCHMARKS_H
#define FRONTEND_COMMANDS_BENCHMARKS_H

#include "frontend/judge/answer_match.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <jansson.h>

enum { BENCHMARK_MOST_CHOICES = 256 };
/* Rows of a file's own: a prompt and choices as they are (evaluate_choices.h). */
#define BENCHMARK_OWN "own"

typedef struct Benchmark Benchmark;

const char *benchmark_name(const Benchmark *benchmark);
/* The table's first of that name; NULL: there is none. */
const Benchmark *benchmark_by_name(const char *name);
/* "own, hellaswag, ..." in `arena`; with their fields where `fields`. */
const char *benchmark_names(Arena *arena, bool fields);
/* Is one text scored, right where each of its tokens is the likeliest? (LAMBADA) */
bool benchmark_is_greedy(const Benchmark *benchmark);
/* Does the harness tell of its choices per character, too? */
bool benchmark_is_normed(const Benchmark *benchmark);
/* How answers are taken out of what was written: the first of the list's N_ANSWER_FILTERS ends it.
 * NULL: answers are chosen. */
const AnswerFilter *benchmark_filters(const Benchmark *benchmark);
/* Texts that end what is written, as the list's NULL does it. */
const char *const *benchmark_stops(const Benchmark *benchmark);
/* Are examples of a question's group the first of it, as they stand? (MMLU) Else any, by chance. */
bool benchmark_takes_first(const Benchmark *benchmark);

/* Which benchmark a row is of, of those by `name` where it is not NULL. *out NULL: the row is one
 * of a file's own. False: of none, reported. */
bool benchmark_find(const json_t *row, const char *name, SourceLoc loc, const Benchmark **out,
                    Diag *diag);

/* Its templates, read once; in `arena`. */
typedef struct BenchmarkReader BenchmarkReader;
const BenchmarkReader *benchmark_open(Arena *arena, const Benchmark *benchmark);

typedef struct BenchmarkItem {
    json_t *prompts; /* texts: one, or one for each choice (WinoGrande) */
    json_t *choices; /* texts: as many as there are to choose from, or one behind each prompt */
    int n_choices, answer;
    const char *group;     /* of the row, borrowed; NULL: none */
    const char *delimiter; /* between prompt and choice: mostly a space */
    const char *parting;   /* the same in examples, where the harness has a space anyway */
    StrBuf intro;          /* goes before everything; "" mostly */
} BenchmarkItem;

/* False: reported at loc. Released either way. */
bool benchmark_read(const BenchmarkReader *reader, const json_t *row, SourceLoc loc,
                    BenchmarkItem *out, Diag *diag);
void benchmark_release(BenchmarkItem *item);
const json_t *benchmark_prompt(const BenchmarkItem *item, int choice);
const json_t *benchmark_choice(const BenchmarkItem *item, int choice);
/* Appends the question with its answer, as examples have it, and what parts them from what
 * follows. */
void benchmark_put_example(const BenchmarkItem *item, StrBuf *out);

#endif
