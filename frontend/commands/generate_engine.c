#include "frontend/commands/generate_engine.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

void generate_engine_note_windows(const GenerateEngine *e) {
    const DecodeObstacle *obstacle = &e->obstacle;
    if (e->plan->context || e->diffuses) return;
    fprintf(stderr, "note: every token computes its whole context again: ");
    if (obstacle->loc.file) fprintf(stderr, "%s:%d: ", obstacle->loc.file, obstacle->loc.line);
    fprintf(stderr, "%s\n", obstacle->what);
}

bool generate_engine_create(GenerateEngine *e, Arena *arena, Diag *diag) {
    e->engine = engine_create(e->plan, &e->options, diag);
    if (!e->engine) return false;
    int64_t n_tokens = e->n_texts;
    if (e->plan->context) {
        e->decoder = decoder_create(e->engine, e->plan, arena);
        e->firsts = ARENA_ARRAY(arena, size_t, e->n_texts);
        e->waits = ARENA_ARRAY(arena, bool, e->n_texts);
        e->begins = ARENA_ARRAY(arena, bool, e->n_texts);
        e->reads = ARENA_ARRAY(arena, DecoderRead, e->n_texts);
        e->held = ARENA_ARRAY(arena, HeldTokens, e->n_texts);
        e->seen = ARENA_ARRAY(arena, const TextImages *, e->n_texts);
        e->pixels = ARENA_ARRAY(arena, int32_t, e->decoder->pixels + 1);
        for (int i = 0; i < e->n_texts; i++) {
            e->held[i].tokens = ARENA_ARRAY(arena, int32_t, e->context);
        }
        e->prompt = (ReadPrompt){.tokens = ARENA_ARRAY(arena, uint32_t, e->context),
                                 .logits = ARENA_ARRAY(arena, float, e->plan->vocab),
                                 .holds = ARENA_ARRAY(arena, bool, e->n_texts)};
    } else {
        int64_t rows = engine_forward_batch(e->engine);
        n_tokens = rows * plan_row(e->plan);
        e->windows = ARENA_ARRAY(arena, float, rows * e->plan->seq * e->plan->vocab);
    }
    e->tokens = ARENA_ARRAY(arena, int32_t, n_tokens);
    return true;
}

bool generate_engine_start(GenerateEngine *e, const CliArgs *args, Diag *diag) {
    if (generate_engine_create(e, args->arena, diag)) {
        return engine_args_load(args, e->engine, NULL, diag);
    }
    if (e->plan->context && e->options.device == DEVICE_CUDA) {
        diag_note(diag, NO_LOC, "--no-cache writes without caches, by other kernels");
    }
    return false;
}

bool generate_engine_release(GenerateEngine *e, bool good) {
    engine_destroy(e->engine);
    e->engine = NULL;
    return engine_args_release(&e->options, good);
}

bool generate_engine_check_prompt(const GenerateEngine *e, const GenerateText *text,
                                  const char *where, Diag *diag) {
    if (e->diffuses && (int64_t)text->tokens.count >= e->context) {
        diag_error(diag, NO_LOC,
                   "%s: %zu tokens; the model has %" PRId64
                   " positions, and needs one of them for an answer: --set seq=",
                   where, text->tokens.count, e->context);
        return false;
    }
    if (!e->source || (int64_t)text->n_prompt_tokens < e->source) return true;
    diag_error(diag, NO_LOC,
               "%s: %zu tokens; the encoder reads %" PRId64 " at most, and one that ends them",
               where, text->n_prompt_tokens, e->source - 1);
    return false;
}

/* The prompt to the encoder, what was written since to the decoder. Returns whose logits follow. */
static size_t fill_pair(GenerateEngine *e, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    size_t n_prompt = text->n_prompt_tokens, n = tokens->count - n_prompt;
    int32_t *decoder = e->tokens + e->source;
    for (int64_t i = 0; i < e->source; i++) {
        size_t at = (size_t)i;
        e->tokens[i] = at < n_prompt    ? (int32_t)tokens->items[at]
                       : at == n_prompt ? e->eos
                                        : e->pad;
    }
    for (size_t i = 0; i <= n; i++) {
        decoder[i] = i ? (int32_t)tokens->items[n_prompt + i - 1] : e->start;
    }
    return n;
}

/* The causal mask makes what follows the last token irrelevant, so a short context lies at the
 * beginning of the window. */
static size_t fill_window(GenerateEngine *e, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    size_t seq = (size_t)e->context, length = tokens->count < seq ? tokens->count : seq;
    const uint32_t *context = tokens->items + tokens->count - length;
    for (size_t i = 0; i < length; i++) e->tokens[i] = (int32_t)context[i];
    return length - 1;
}

bool generate_engine_windows(GenerateEngine *e, Diag *diag) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!engine_logits(e->engine, e->tokens, e->windows, diag)) return false;
    clock_gettime(CLOCK_MONOTONIC, &end);
    e->seconds +=
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    e->n_windows++;
    return true;
}

/* False, reported: what no longer fits is forgotten, and would tear images from the text. */
static bool fits(const GenerateEngine *e, const GenerateText *text, size_t first, Diag *diag) {
    if (!text->images || text->tokens.count - first <= (size_t)e->context) return true;
    diag_error(diag, NO_LOC,
               "a text with images is longer than the context, %" PRId64
               " tokens with those of its images: --context, or a smaller --length",
               e->context);
    return false;
}

static bool compute_window(GenerateEngine *e, const GenerateText *text, float *out_logits,
                           Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    if (!fits(e, text, 0, diag)) return false;
    if (e->images && !text_images_equal(e->in_tokens, text->images)) {
        int32_t *pixels = e->tokens + plan_row_tokens(e->plan);
        if (!text_images_read(text->images, plan_pixels(e->plan), pixels, diag)) return false;
        e->in_tokens = text->images;
    }
    size_t last = e->source ? fill_pair(e, text) : fill_window(e, text);
    if (!generate_engine_windows(e, diag)) return false;
    memcpy(out_logits, e->windows + last * vocab, vocab * sizeof(float));
    return true;
}

static bool is_read(const ReadPrompt *prompt, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    return prompt->count > 0 && prompt->count == tokens->count &&
           text_images_equal(prompt->images, text->images) &&
           memcmp(prompt->tokens, tokens->items, tokens->count * sizeof(*tokens->items)) == 0;
}

/* The caches of text i have its first `count` tokens as reading many at once makes them. */
static void hold_beginning(GenerateEngine *e, int i, const GenerateText *text, int64_t count) {
    e->held[i].count = count;
    e->seen[i] = text->images;
    memcpy(e->held[i].tokens, text->tokens.items, (size_t)count * sizeof(uint32_t));
}

/* Text i begins as others do, of which the caches have all. */
static bool share_prompt(GenerateEngine *e, int i, const GenerateText *text, float *out_logits) {
    ReadPrompt *prompt = &e->prompt;
    if (!is_read(prompt, text)) return false;
    for (int k = 0; k < e->n_texts; k++) {
        if (k == i || !prompt->holds[k] ||
            !decoder_copy_first(e->decoder, k, i, (int64_t)prompt->count, prompt->start)) {
            continue;
        }
        memcpy(out_logits, prompt->logits, (size_t)e->plan->vocab * sizeof(float));
        prompt->holds[i] = true;
        const int64_t n = (int64_t)prompt->count;
        hold_beginning(e, i, text, n - decoder_count_few(e->decoder, n));
        return true;
    }
    return false;
}

/* Text i was read from its beginning on. */
static void keep_prompt(GenerateEngine *e, int i, const GenerateText *text, const float *logits) {
    ReadPrompt *prompt = &e->prompt;
    prompt->count = text->tokens.count;
    prompt->images = text->images;
    prompt->start = e->decoder->starts[i];
    memcpy(prompt->tokens, text->tokens.items, prompt->count * sizeof(*prompt->tokens));
    memcpy(prompt->logits, logits, (size_t)e->plan->vocab * sizeof(float));
    memset(prompt->holds, 0, (size_t)e->n_texts * sizeof(*prompt->holds));
    prompt->holds[i] = true;
}

/* How much of the text, which is read from its beginning, may have been read with another: what is
 * read many at once, but for its last token, whose logits are asked for. */
static int64_t shareable(const GenerateEngine *e, const GenerateText *text) {
    const int64_t n = (int64_t)text->tokens.count, few = decoder_count_few(e->decoder, n);
    return few ? n - few : n - 1;
}

/* Text i begins as another one does, or did: with examples, or what a chat's system says. What it
 * has of it then has the bits that reading it would give. */
static void take_beginning(GenerateEngine *e, int i, const GenerateText *text) {
    const int64_t most = shareable(e, text);
    int64_t count = 0;
    int from = i;
    for (int k = 0; k < e->n_texts; k++) {
        if (!text_images_equal(e->seen[k], text->images)) continue;
        const int64_t common =
            held_tokens_common(&e->held[k], (const int32_t *)text->tokens.items, most);
        if (common > count || (common == count && k == i)) from = k, count = common;
    }
    if (count == 0 || e->decoder->states) return;
    decoder_copy_first(e->decoder, from, i, count,
                       decoder_find_start(e->decoder, (const int32_t *)text->tokens.items, count));
    hold_beginning(e, i, text, count);
}

/* Is most of the text about to be read, as the beginning of one of these? Then it waits. */
static bool awaits(const GenerateEngine *e, const GenerateText *texts, int i, int n_reads) {
    const GenerateText *text = &texts[i];
    for (int r = 0; r < n_reads; r++) {
        const TokenList *other = &texts[e->reads[r].sequence].tokens;
        if (!text_images_equal(texts[e->reads[r].sequence].images, text->images)) continue;
        const HeldTokens all = {(int32_t *)other->items, (int64_t)other->count};
        const int64_t n = (int64_t)text->tokens.count;
        const int64_t common = held_tokens_common(&all, (const int32_t *)text->tokens.items, n);
        const bool same = common == n && n == all.count;
        if (e->begins[e->reads[r].sequence] &&
            (same || (common >= e->decoder->chunk && !e->decoder->states))) {
            return true;
        }
    }
    return false;
}

/* Where text i no longer fits, the end of it is read anew, half a context. False, reported: that
 * would tear its images from it. */
static bool restart_full(GenerateEngine *e, int i, const GenerateText *text, Diag *diag) {
    const size_t context = (size_t)e->context, count = text->tokens.count;
    if (!fits(e, text, e->firsts[i], diag)) return false;
    if (count - e->firsts[i] <= context) return true;
    e->firsts[i] = count - (context > 1 ? context / 2 : 1);
    e->n_restarts++;
    e->prompt.holds[i] = false;
    e->held[i].count = 0;
    decoder_clear(e->decoder, i);
    return true;
}

/* What the caches do not have of text i, whose images are looked at where it is read from its
 * beginning. False: reported. */
static bool read_of(GenerateEngine *e, int i, const GenerateText *text, float *out_logits,
                    DecoderRead *out, Diag *diag) {
    const size_t count = text->tokens.count;
    int64_t few = -1;
    if (e->begins[i]) {
        few = decoder_count_few(e->decoder, (int64_t)count);
        take_beginning(e, i, text);
    }
    if (text->images && e->decoder->lengths[i] == 0) {
        if (!text_images_read(text->images, e->decoder->pixels, e->pixels, diag) ||
            !decoder_look(e->decoder, i, e->pixels, diag)) {
            return false;
        }
        e->seen[i] = text->images;
        e->held[i].count = 0; /* which was read with others */
    }
    const size_t begin = e->firsts[i] + (size_t)e->decoder->lengths[i];
    const int64_t n = (int64_t)(count - begin);
    *out = (DecoderRead){i, (const int32_t *)text->tokens.items + begin, n,
                         few < 0 ? decoder_count_few(e->decoder, n) : few, out_logits};
    return true;
}

/* What was read from its beginning is there for others: those that wait for all of it have it. */
static void share_read(GenerateEngine *e, const GenerateText *texts, const DecoderRead *read,
                       float *out_logits) {
    const int i = (int)read->sequence;
    const int64_t n = (int64_t)texts[i].tokens.count;
    keep_prompt(e, i, &texts[i], read->logits);
    hold_beginning(e, i, &texts[i], n - read->few);
    for (int k = 0; k < e->n_texts; k++) {
        float *logits = out_logits + (size_t)k * (size_t)e->plan->vocab;
        if (e->waits[k] && e->begins[k] && share_prompt(e, k, &texts[k], logits)) {
            e->waits[k] = false;
        }
    }
}

/* Reads texts that wait, those together that have little in common. */
static bool read_round(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                       Diag *diag) {
    const size_t vocab = (size_t)e->plan->vocab;
    int n = 0;
    for (int i = 0; i < e->n_texts; i++) {
        float *logits = out_logits + (size_t)i * vocab;
        if (!e->waits[i]) continue;
        const bool done = e->begins[i] && share_prompt(e, i, &texts[i], logits);
        if (!done && e->begins[i] && awaits(e, texts, i, n)) continue;
        if (!done && !read_of(e, i, &texts[i], logits, &e->reads[n++], diag)) return false;
        e->waits[i] = false;
    }
    if (n > 0 && !decoder_read_all(e->decoder, e->reads, n, diag)) return false;
    for (int r = 0; r < n; r++) {
        if (e->begins[e->reads[r].sequence]) share_read(e, texts, &e->reads[r], out_logits);
    }
    return true;
}

/* What the caches do not have of the texts that wait. */
static bool read_texts(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                       Diag *diag) {
    for (int i = 0; i < e->n_texts; i++) {
        if (!e->waits[i]) continue;
        if (!restart_full(e, i, &texts[i], diag)) return false;
        const bool begins = e->firsts[i] == 0 && e->decoder->lengths[i] == 0;
        e->begins[i] = e->apart && e->n_texts > 1 && begins;
    }
    for (int i = 0; i < e->n_texts; i++) { /* the first that waits is read in any round */
        if (e->waits[i] && !read_round(e, texts, out_logits, diag)) return false;
        if (e->waits[i]) i--;
    }
    return true;
}

/* All texts are alike: the first is read, and is the others' too. */
static bool read_prompt(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                        Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    e->waits[0] = true;
    if (!read_texts(e, texts, out_logits, diag)) return false;
    for (int i = 1; i < e->n_texts; i++) {
        decoder_copy(e->decoder, 0, i);
        e->firsts[i] = e->firsts[0];
        memcpy(out_logits + (size_t)i * vocab, out_logits, vocab * sizeof(float));
    }
    return true;
}

static bool decode(GenerateEngine *e, const GenerateText *texts, const bool *live,
                   float *out_logits, Diag *diag) {
    bool any = false;
    if (!e->apart && e->decoder->lengths[0] == 0) return read_prompt(e, texts, out_logits, diag);
    for (int i = 0; i < e->n_texts; i++) {
        const TokenList *tokens = &texts[i].tokens;
        size_t length = (size_t)e->decoder->lengths[i]; /* 0: a prompt, which is read */
        bool next = length > 0 && e->firsts[i] + length + 1 == tokens->count;
        bool writes = live[i] && next && !decoder_is_full(e->decoder, i);
        e->tokens[i] = writes ? (int32_t)tokens->items[tokens->count - 1] : -1;
        any |= writes;
    }
    if (any && !decoder_write(e->decoder, e->tokens, out_logits, diag)) return false;
    for (int i = 0; i < e->n_texts; i++) e->waits[i] = live[i] && e->tokens[i] < 0;
    return read_texts(e, texts, out_logits, diag); /* after: writing leaves their rows alone */
}

void generate_engine_turn(GenerateEngine *e, size_t kept) {
    if (!e->decoder) return;
    size_t first = e->firsts[0];
    if (kept <= first || decoder_cut(e->decoder, 0, (int64_t)(kept - first)) == 0) {
        decoder_clear(e->decoder, 0);
        e->firsts[0] = 0;
    }
}

void generate_engine_forget(GenerateEngine *e) {
    e->prompt.count = 0;
    for (int i = 0; e->decoder && i < e->n_texts; i++) e->held[i].count = 0;
}

void generate_engine_begin(GenerateEngine *e, int i) {
    e->apart = true;
    if (!e->decoder) return;
    decoder_clear(e->decoder, i);
    e->prompt.holds[i] = false;
    e->firsts[i] = 0;
}

bool generate_engine_logits(GenerateEngine *e, const GenerateText *texts, const bool *live,
                            float *out_logits, Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    if (e->decoder) return decode(e, texts, live, out_logits, diag);
    for (int i = 0; i < e->n_texts; i++) {
        float *logits = out_logits + (size_t)i * vocab;
        if (live[i] && !compute_window(e, &texts[i], logits, diag)) return false;
    }
    return true;
}
