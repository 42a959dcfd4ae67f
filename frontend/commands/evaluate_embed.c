#include "frontend/commands/evaluate_embed.h"

#include "frontend/commands/embed_scores.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_text.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"
#include "runtime/data/dataset.h"
#include "runtime/data/token_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- texts --- */

static bool keep_tokens(void *user, const uint32_t *tokens, const unsigned char *marks,
                        size_t count, Diag *diag) {
    return token_buffer_put(user, tokens, marks, count, diag);
}

static bool open_source(EmbedEvaluation *e, const Tokenizer *tokenizer, const char *path,
                        Diag *diag) {
    EmbedSource *source = &e->sources[e->n_sources++];
    CorpusOptions options;
    CorpusTotals totals;
    *source = (EmbedSource){.path = path, .buffer = {.token_bytes = 4}};
    if (!corpus_options_from_args(e->args, tokenizer, &options, diag)) return false;
    train_embed_options(&e->embed, e->args, true, &options);
    options.paths = &path;
    options.n_paths = 1;
    if (!corpus_encode(tokenizer, &options, keep_tokens, &source->buffer, &totals, diag)) {
        return false;
    }
    source->texts = embed_find_texts(&source->buffer, &e->embed.how, &source->n_texts, diag);
    if (source->texts) return true;
    diag_note(diag, (SourceLoc){path, 0}, "of these");
    return false;
}

bool evaluate_embed_open(const CliArgs *args, const Plan *plan, const Tokenizer *tokenizer,
                         EmbedEvaluation *out, Diag *diag) {
    const CliValue *data = &args->values[OPT_DATA];
    out->args = args;
    out->plan = plan;
    for (int i = 0; i < data->n_list; i++) {
        const bool plain = !tokenizer || train_text_is_tokens(args, data->list[i]);
        if (!train_embed_check_options(&out->embed, args, data->list[i], plain, diag) ||
            !open_source(out, tokenizer, data->list[i], diag)) {
            return false;
        }
    }
    return true;
}

void evaluate_embed_release(EmbedEvaluation *e) {
    for (int i = 0; i < e->n_sources; i++) {
        token_buffer_release(&e->sources[i].buffer);
        free(e->sources[i].texts);
        free(e->sources[i].vectors);
    }
    e->n_sources = 0;
}

/* --- vectors --- */

/* Rows that are computed together, and whose texts lie in them. */
typedef struct Rows {
    const EmbedEvaluation *e;
    EmbedSource *source;
    Engine *engine;
    int64_t n_rows, seq, texts; /* computed together; tokens of each; texts that each can have */
    int32_t *tokens, *labels;   /* [n_rows, seq] */
    int64_t *which;             /* [n_rows, texts]: of the source; -1: none */
    float *vectors;             /* [n_rows, texts, width] */
    uint32_t *text;             /* [seq] */
    int64_t row, at, in_row;    /* where the next text will be */
} Rows;

static void clear(Rows *rows) {
    const int64_t n = rows->n_rows * rows->seq;
    for (int64_t i = 0; i < n; i++) {
        rows->tokens[i] = (int32_t)rows->e->embed.how.pad;
        rows->labels[i] = DATASET_NO_LABEL;
    }
    for (int64_t i = 0; i < rows->n_rows * rows->texts; i++) rows->which[i] = -1;
    rows->row = rows->at = rows->in_row = 0;
}

static bool compute(Rows *rows, Diag *diag) {
    const int64_t width = rows->e->width;
    if (!engine_vectors(rows->engine, rows->tokens, rows->labels, rows->vectors, diag)) {
        return false;
    }
    for (int64_t i = 0; i < rows->n_rows * rows->texts; i++) {
        if (rows->which[i] < 0) continue;
        float *to = rows->source->vectors + rows->which[i] * width;
        memcpy(to, rows->vectors + i * width, (size_t)width * sizeof(float));
        for (int64_t k = 0; k < width; k++) {
            if (isfinite(to[k])) continue;
            diag_error(diag, NO_LOC, "evaluate: vectors are not finite; wrong weights?");
            return false;
        }
    }
    clear(rows);
    return true;
}

static bool add_text(Rows *rows, int64_t i, Diag *diag) {
    const TrainEmbed *embed = &rows->e->embed;
    EmbedSource *source = rows->source;
    const int64_t n =
        (int64_t)embed_take_text(&source->buffer, &source->texts[i], embed->how.length, rows->text);
    if (n >= rows->seq) { /* all of it is around a text */
        diag_error(diag, NO_LOC, "rows of %" PRId64 " tokens have no room for what is around texts",
                   rows->seq);
        return false;
    }
    if (rows->in_row == rows->texts || rows->at + n + 1 > rows->seq) {
        rows->row++;
        rows->at = rows->in_row = 0;
    }
    if (rows->row == rows->n_rows && !compute(rows, diag)) return false;
    const int64_t begin = rows->row * rows->seq + rows->at;
    for (int64_t k = 0; k < n; k++) rows->tokens[begin + k] = (int32_t)rows->text[k];
    rows->labels[begin + (embed->first ? 0 : n - 1)] = (int32_t)rows->in_row;
    rows->which[rows->row * rows->texts + rows->in_row++] = i;
    rows->at += n + 1;
    source->n_vectors++;
    source->n_tokens += (int64_t)source->texts[i].length;
    source->n_cut += n < (int64_t)source->texts[i].length;
    return true;
}

static bool embed_source(EmbedEvaluation *e, Engine *engine, EmbedSource *source,
                         ProgressLine *line, Diag *diag) {
    enum { SHOWN_EACH = 256 };
    Arena *arena = arena_create();
    int64_t texts, width;
    engine_vectors_shape(engine, &texts, &width);
    Rows rows = {.e = e,
                 .source = source,
                 .engine = engine,
                 .n_rows = engine_forward_batch(engine),
                 .seq = e->plan->seq,
                 .texts = texts};
    rows.tokens = ARENA_ARRAY(arena, int32_t, rows.n_rows * rows.seq);
    rows.labels = ARENA_ARRAY(arena, int32_t, rows.n_rows * rows.seq);
    rows.which = ARENA_ARRAY(arena, int64_t, rows.n_rows * texts);
    rows.vectors = ARENA_ARRAY(arena, float, rows.n_rows *texts *width);
    rows.text = ARENA_ARRAY(arena, uint32_t, source->buffer.n_tokens);
    source->vectors = memory_zeroed((size_t)(source->n_texts * width), sizeof(float));
    clear(&rows);
    bool good = true;
    for (int64_t i = 0; good && i < source->n_texts; i++) {
        if (source->texts[i].role == CORPUS_LIKENESS) continue;
        good = add_text(&rows, i, diag);
        if (!line || i % SHOWN_EACH) continue;
        progress_line_show(line, (int)i, (int)source->n_texts, source->path);
    }
    good = good && (source->n_vectors == 0 || compute(&rows, diag));
    arena_destroy(arena);
    return good;
}

bool evaluate_embed(EmbedEvaluation *e, Engine *engine, ProgressLine *line, Diag *diag) {
    int64_t texts;
    engine_vectors_shape(engine, &texts, &e->width);
    if (e->width == 0) {
        diag_error(diag, NO_LOC,
                   "evaluate: the plan never has all vectors, as with --lanes; one without has");
        return false;
    }
    for (int i = 0; i < e->n_sources; i++) {
        EmbedSource *source = &e->sources[i];
        if (!embed_source(e, engine, source, line, diag)) return false;
        embed_scores_retrieval(source, e->width);
        embed_scores_likeness(source, e->width);
        if (source->n_queries || source->n_pairs || cli_given(e->args, OPT_VECTORS)) continue;
        diag_error(diag, (SourceLoc){source->path, 0},
                   "has no queries and no scored pairs to tell vectors by; --vectors FILE writes "
                   "them");
        return false;
    }
    return true;
}

/* --- what is told --- */

static void put_correlation(StrBuf *out, const char *name, double value) {
    strbuf_put(out, name);
    if (isnan(value)) {
        strbuf_put(out, " none");
    } else {
        strbuf_printf(out, " %.4f", value);
    }
}

void evaluate_embed_put(const EmbedEvaluation *e, StrBuf *out) {
    for (int i = 0; i < e->n_sources; i++) {
        const EmbedSource *s = &e->sources[i];
        if (s->n_queries > 0) {
            strbuf_printf(
                out,
                "queries %.2f %% are nearest to an answer of theirs (accuracy@1); %s: %" PRId64
                " queries, %" PRId64 " answers\n"
                "        recall@10 %.4f, MRR@10 %.4f, nDCG@10 %.4f\n",
                100 * s->first_right, s->path, s->n_queries, s->n_answers, s->recall,
                s->reciprocal_rank, s->gain);
        }
        if (s->n_pairs > 0) {
            put_correlation(out, "scores  Spearman", s->spearman);
            put_correlation(out, ", Pearson", s->pearson);
            strbuf_printf(out, " with cosines; %s: %" PRId64 " pairs\n", s->path, s->n_pairs);
        }
        strbuf_printf(out,
                      "vectors %" PRId64 " of %" PRId64 " numbers, of texts of %.1f tokens in the "
                      "mean; %s\n",
                      s->n_vectors, e->width, (double)s->n_tokens / (double)s->n_vectors, s->path);
        if (s->n_cut > 0) {
            strbuf_printf(out,
                          "        %" PRId64 " are longer than %zu tokens and lose their end\n",
                          s->n_cut, e->embed.how.length);
        }
    }
    if (cli_given(e->args, OPT_VECTORS)) {
        strbuf_printf(out, "wrote   %s\n", cli_text(e->args, OPT_VECTORS, ""));
    }
}

static void put_number(StrBuf *out, double value) {
    if (isnan(value)) {
        strbuf_put(out, "null");
    } else {
        strbuf_printf(out, "%.9g", value);
    }
}

void evaluate_embed_put_json(const EmbedEvaluation *e, StrBuf *out) {
    strbuf_printf(out, "\"width\": %" PRId64 ", \"sources\": [", e->width);
    for (int i = 0; i < e->n_sources; i++) {
        const EmbedSource *s = &e->sources[i];
        strbuf_put(out, i ? ", {\"path\": " : "{\"path\": ");
        json_put_text(out, s->path);
        strbuf_printf(out, ", \"texts\": %" PRId64 ", \"tokens\": %" PRId64 ", \"cut\": %" PRId64,
                      s->n_vectors, s->n_tokens, s->n_cut);
        if (s->n_queries > 0) {
            strbuf_printf(out,
                          ", \"queries\": %" PRId64 ", \"answers\": %" PRId64
                          ", \"accuracy_at_1\": %.9g, \"recall_at_10\": %.9g, \"mrr_at_10\": %.9g, "
                          "\"ndcg_at_10\": %.9g",
                          s->n_queries, s->n_answers, s->first_right, s->recall, s->reciprocal_rank,
                          s->gain);
        }
        if (s->n_pairs > 0) {
            strbuf_printf(out, ", \"pairs\": %" PRId64 ", \"spearman\": ", s->n_pairs);
            put_number(out, s->spearman);
            strbuf_put(out, ", \"pearson\": ");
            put_number(out, s->pearson);
        }
        strbuf_put(out, "}");
    }
    strbuf_put(out, "]");
}

static const char *role_name(uint32_t role) {
    switch (role) {
    case 0: return "query";
    case 1: return "positive";
    case CORPUS_TEXT: return "text";
    case CORPUS_FIRST: return "sentence1";
    case CORPUS_SECOND: return "sentence2";
    default: return "negative";
    }
}

static void put_lines(const EmbedEvaluation *e, const EmbedSource *s, StrBuf *out) {
    for (int64_t i = 0; i < s->n_texts; i++) {
        if (s->texts[i].role == CORPUS_LIKENESS) continue;
        strbuf_printf(out, "{\"text\": \"%s\", \"vector\": [", role_name(s->texts[i].role));
        for (int64_t k = 0; k < e->width; k++) {
            strbuf_printf(out, "%s%.9g", k ? ", " : "", (double)s->vectors[i * e->width + k]);
        }
        strbuf_put(out, "]");
        if (e->n_sources > 1) {
            strbuf_put(out, ", \"path\": ");
            json_put_text(out, s->path);
        }
        strbuf_put(out, "}\n");
    }
}

bool evaluate_embed_write(const EmbedEvaluation *e, Diag *diag) {
    const char *path = cli_text(e->args, OPT_VECTORS, NULL);
    const size_t length = path ? strlen(path) : 0;
    if (!path) return true;
    const bool npy = length > 4 && strcmp(path + length - 4, ".npy") == 0;
    StrBuf out = strbuf_create();
    int64_t n = 0;
    for (int i = 0; i < e->n_sources; i++) n += e->sources[i].n_vectors;
    if (npy) {
        unsigned char header[NPY_HEADER_BYTES];
        strbuf_put_bytes(&out, header, npy_make_header("<f4", n, e->width, header));
    }
    for (int i = 0; i < e->n_sources; i++) {
        const EmbedSource *s = &e->sources[i];
        if (!npy) put_lines(e, s, &out);
        for (int64_t k = 0; npy && k < s->n_texts; k++) {
            if (s->texts[k].role == CORPUS_LIKENESS) continue;
            strbuf_put_bytes(&out, s->vectors + k * e->width, (size_t)e->width * sizeof(float));
        }
    }
    bool written = cli_write(path, &out, diag);
    strbuf_destroy(&out);
    return written;
}
