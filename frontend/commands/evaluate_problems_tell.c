#include "frontend/commands/evaluate_problems_tell.h"

#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

double problem_pass_at(int n, int n_right, int k) {
    double none = 1;
    if (n - n_right < k) return 1;
    for (int i = n - n_right + 1; i <= n; i++) none *= 1 - (double)k / i;
    return 1 - none;
}

/* A mean over problems, and its standard error, which needs two of them. */
typedef struct Share {
    double mean, error;
    bool has_error;
} Share;

/* Of pass@k by that filter; k = 1: the share of right answers. */
static Share find_share(const ProblemFile *file, int filter, int k) {
    const int n = file->prompts.n_lines, n_samples = file->prompts.n_samples;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += problem_pass_at(n_samples, file->problems[i].n_right[filter], k);
    }
    const double mean = sum / n;
    for (int i = 0; i < n; i++) {
        const double off = problem_pass_at(n_samples, file->problems[i].n_right[filter], k) - mean;
        squares += off * off;
    }
    return (Share){mean, n > 1 ? sqrt(squares / (n - 1) / n) : 0, n > 1};
}

static void put_share(StrBuf *out, Share share) {
    strbuf_printf(out, "%.2f", 100 * share.mean);
    if (share.has_error) strbuf_printf(out, " +- %.2f", 100 * share.error);
}

/* 2, 4, 8, ..., and all of n; 0: there is no more. */
static int next_k(int k, int n) {
    return k == n ? 0 : 2 * k < n ? 2 * k : n;
}

static void put_passes(StrBuf *out, const ProblemFile *file) {
    const int n = file->prompts.n_samples;
    for (int f = 0; f < file->n_filters && n > 1; f++) {
        strbuf_put(out, "        pass@k");
        for (int k = next_k(1, n); k > 0; k = next_k(k, n)) {
            strbuf_printf(out, "%s k=%d ", k > 2 ? "," : "", k);
            put_share(out, find_share(file, f, k));
            strbuf_put(out, " %");
        }
        strbuf_printf(out, " %s\n", answer_filter_name(file->filters[f]));
    }
}

void evaluate_problems_put(StrBuf *out, const ProblemFile *file, int n_shots, int64_t length,
                           const char *chat) {
    const int n = file->prompts.n_lines, n_samples = file->prompts.n_samples;
    const int64_t n_answers = (int64_t)n * n_samples;
    strbuf_put(out, "answers ");
    for (int f = 0; f < file->n_filters; f++) {
        if (f > 0) strbuf_put(out, ", ");
        put_share(out, find_share(file, f, 1));
        strbuf_printf(out, " %% %s", answer_filter_name(file->filters[f]));
    }
    strbuf_printf(out, "; %s: %d problem%s", file->path, n, n == 1 ? "" : "s");
    if (strcmp(file->task, BENCHMARK_OWN) != 0) strbuf_printf(out, " of %s", file->task);
    if (n_samples > 1) strbuf_printf(out, ", %d answers to each", n_samples);
    if (n_shots > 0) {
        strbuf_printf(out, ", %d example%s before each", n_shots, n_shots == 1 ? "" : "s");
    }
    if (*chat) strbuf_printf(out, ", answered in a chat as %s", chat);
    strbuf_put(out, "\n");
    put_passes(out, file);
    if (file->n_unended > 0) {
        strbuf_printf(
            out, "        %" PRId64 " of %" PRId64 " answers did not end in %" PRId64 " tokens\n",
            file->n_unended, n_answers, length);
    }
    if (file->n_cut > 0) {
        strbuf_printf(
            out, "        the beginning of %" PRId64 " of %d prompts did not fit the context\n",
            file->n_cut, n);
    }
    strbuf_printf(out, "speed   %" PRId64 " tokens written in %.1f s, %.0f tokens/s\n",
                  file->n_tokens, file->seconds, (double)file->n_tokens / file->seconds);
}

static void put_json_filter(StrBuf *out, const ProblemFile *file, int f) {
    const int n = file->prompts.n_samples;
    const Share share = find_share(file, f, 1);
    strbuf_printf(out, "{\"name\": \"%s\", \"right\": %.9g", answer_filter_name(file->filters[f]),
                  share.mean);
    if (share.has_error) strbuf_printf(out, ", \"right_stderr\": %.9g", share.error);
    for (int k = next_k(1, n); n > 1 && k > 0; k = next_k(k, n)) {
        const Share pass = find_share(file, f, k);
        strbuf_printf(out, ", \"pass_at_%d\": %.9g", k, pass.mean);
        if (pass.has_error) strbuf_printf(out, ", \"pass_at_%d_stderr\": %.9g", k, pass.error);
    }
    strbuf_put(out, "}");
}

void evaluate_problems_put_json(StrBuf *out, const ProblemFile *file, int n_shots,
                                const char *chat) {
    strbuf_put(out, "{\"path\": ");
    json_put_text(out, file->path);
    strbuf_printf(out, ", \"task\": \"%s\", \"shots\": %d, \"problems\": %d, \"samples\": %d",
                  file->task, n_shots, file->prompts.n_lines, file->prompts.n_samples);
    for (int f = 0; f < file->n_filters; f++) {
        strbuf_put(out, f ? ", " : ", \"filters\": [");
        put_json_filter(out, file, f);
    }
    strbuf_printf(out,
                  "], \"unended\": %" PRId64 ", \"cut_prompts\": %" PRId64
                  ", \"written_tokens\": %" PRId64 ", \"seconds\": %.6g",
                  file->n_unended, file->n_cut, file->n_tokens, file->seconds);
    if (*chat) {
        strbuf_put(out, ", \"chat_template\": ");
        json_put_text(out, chat);
    }
    strbuf_put(out, "}");
}
