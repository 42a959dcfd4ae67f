#include "frontend/commands/evaluate_choices_tell.h"

#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static double share_of(int64_t n_right, int64_t n) {
    return (double)n_right / (double)n;
}

/* For n > 1. */
static double share_error(int64_t n_right, int64_t n) {
    const double p = share_of(n_right, n);
    return sqrt(p * (1 - p) / (double)(n - 1));
}

/* Of the mean logarithm of answers' probabilities, for n > 1; sums may leave less than nothing. */
static double answers_error(const ChoicesResult *r) {
    const double n = (double)r->all.n_questions, mean = r->answers / n;
    return sqrt(fmax(0, r->answers_square / n - mean * mean) / (n - 1));
}

/* exp(-mean), whose error is that of the mean times its slope. */
double evaluate_choices_perplexity(const ChoicesResult *r) {
    return exp(-r->answers / (double)r->all.n_questions);
}

static void put_share(StrBuf *out, int64_t n_right, int64_t n) {
    strbuf_printf(out, "%.2f", 100 * share_of(n_right, n));
    if (n > 1) strbuf_printf(out, " +- %.2f", 100 * share_error(n_right, n));
}

static void put_questions(StrBuf *out, const char *path, const ChoicesWay *way,
                          const ChoicesResult *r, const char *chat) {
    const int64_t n = r->all.n_questions;
    strbuf_printf(out, "; %s: %" PRId64 " question%s", path, n, n == 1 ? "" : "s");
    if (strcmp(r->task, BENCHMARK_OWN) != 0) strbuf_printf(out, " of %s", r->task);
    if (way->n_shots > 0) {
        strbuf_printf(out, ", %d example%s before each", way->n_shots,
                      way->n_shots == 1 ? "" : "s");
    }
    if (*chat) strbuf_printf(out, ", answered in a chat as %s", chat);
    strbuf_put(out, "\n");
}

void evaluate_choices_put(StrBuf *out, const char *path, const ChoicesWay *way,
                          const ChoicesResult *r, const char *chat) {
    const ChoicesCount *all = &r->all;
    const int64_t n = all->n_questions;
    strbuf_put(out, "choices ");
    put_share(out, all->n_right, n);
    strbuf_put(out, " % right");
    if (r->is_greedy) {
        strbuf_printf(out, ", perplexity %.6g", evaluate_choices_perplexity(r));
        if (n > 1)
            strbuf_printf(out, " +- %.3g", evaluate_choices_perplexity(r) * answers_error(r));
    } else {
        if (r->is_normed) {
            strbuf_put(out, ", ");
            put_share(out, all->n_right_per_character, n);
            strbuf_put(out, " % per character");
        }
        strbuf_printf(out, "; by chance %.2f %%", 100 * r->by_chance / (double)n);
    }
    put_questions(out, path, way, r, chat);
    for (int i = 0; i < r->n_groups; i++) {
        const ChoicesGroup *group = &r->groups[i];
        strbuf_put(out, "        ");
        put_share(out, group->count.n_right, group->count.n_questions);
        strbuf_printf(out, " %% right of %" PRId64 " of %.80s\n", group->count.n_questions,
                      group->name);
    }
    if (r->n_cut == 0) return;
    strbuf_printf(out,
                  "        the beginning of %" PRId64 " of %" PRId64
                  " prompts did not fit the sequence\n",
                  r->n_cut, r->n_choices);
}

/* "right" and the like with their errors behind them, but for those of a single question. */
static void put_json_share(StrBuf *out, const char *name, int64_t n_right, int64_t n) {
    strbuf_printf(out, ", \"%s\": %.9g", name, share_of(n_right, n));
    if (n > 1) strbuf_printf(out, ", \"%s_stderr\": %.9g", name, share_error(n_right, n));
}

static void put_json_count(StrBuf *out, const ChoicesCount *count, bool is_greedy) {
    const int64_t n = count->n_questions;
    strbuf_printf(out, "\"questions\": %" PRId64, n);
    put_json_share(out, "right", count->n_right, n);
    if (is_greedy) return;
    put_json_share(out, "right_per_byte", count->n_right_per_byte, n);
    put_json_share(out, "right_per_character", count->n_right_per_character, n);
}

void evaluate_choices_put_json(StrBuf *out, const char *path, const ChoicesWay *way,
                               const ChoicesResult *r, const char *chat) {
    const int64_t n = r->all.n_questions;
    strbuf_put(out, "{\"path\": ");
    json_put_text(out, path);
    strbuf_printf(out, ", \"task\": \"%s\", \"shots\": %d, ", r->task, way->n_shots);
    put_json_count(out, &r->all, r->is_greedy);
    if (r->is_greedy) {
        strbuf_printf(out, ", \"perplexity\": %.9g", evaluate_choices_perplexity(r));
        if (n > 1) {
            strbuf_printf(out, ", \"perplexity_stderr\": %.9g",
                          evaluate_choices_perplexity(r) * answers_error(r));
        }
    } else {
        strbuf_printf(out, ", \"by_chance\": %.9g", r->by_chance / (double)n);
    }
    strbuf_printf(out, ", \"cut_prompts\": %" PRId64 ", \"answers_log_probability\": %.9g",
                  r->n_cut, r->answers / (double)n);
    for (int i = 0; i < r->n_groups; i++) {
        strbuf_put(out, i ? ", {\"name\": " : ", \"groups\": [{\"name\": ");
        json_put_text(out, r->groups[i].name);
        strbuf_put(out, ", ");
        put_json_count(out, &r->groups[i].count, r->is_greedy);
        strbuf_put(out, "}");
    }
    if (r->n_groups > 0) strbuf_put(out, "]");
    if (*chat) {
        strbuf_put(out, ", \"chat_template\": ");
        json_put_text(out, chat);
    }
    strbuf_put(out, "}");
}
