#include "frontend/commands/evaluate_choices.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "runtime/tokenizer/token_run.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { MOST_CHOICES = 256, VOCAB_BYTES = 256 };

/* One choice, as a sequence of its own. */
typedef struct Entry {
    int64_t question;
    int choice;
    int64_t first, count; /* of its tokens: of those scored, and of all */
    size_t n_bytes;
} Entry;

typedef struct Question {
    int answer, n_choices, n_scored;
    double *scores; /* [n_choices] of them, and then per byte */
} Question;

typedef struct Scoring {
    Engine *engine; /* NULL: nothing is computed, files are looked at */
    const Plan *plan;
    const ChoicesWay *way;
    Encoder *encoder; /* NULL: bytes */
    const char *path;
    Diag *diag;
    ChoicesResult *out;
    /* Sequences that are computed together. */
    int64_t batch;
    int n_entries;
    Entry *entries;  /* [batch] */
    int32_t *tokens; /* [batch, seq] */
    float *logits;   /* [batch, seq, vocab] */
    Question *open;  /* [n_open]: those that wait for scores, the last n_open of all */
    int64_t n_open, n_settled;
} Scoring;

/* --- tokens --- */

static bool encode_part(Scoring *s, TokenRun *run, const json_t *text, bool counts) {
    if (s->encoder) {
        return token_run_text(run, json_string_value(text), json_string_length(text), counts);
    }
    const char *bytes = json_string_value(text);
    for (size_t i = 0; i < json_string_length(text); i++) {
        token_list_add(run->tokens, (unsigned char)bytes[i]);
    }
    return true;
}

/* Prompt and choice; *out_first: of the choice's tokens. */
static bool encode(Scoring *s, const json_t *prompt, const json_t *choice, TokenList *out,
                   int64_t *out_first) {
    TokenMarks marks = {0};
    TokenRun run = {
        .encoder = s->encoder, .tokens = out, .marks = &marks, .where = s->path, .diag = s->diag};
    if (s->way->first != NO_TOKEN) token_list_add(out, s->way->first);
    if (s->encoder) token_run_begin(&run);
    if (s->way->first != NO_TOKEN) run.place = TEXT_FOLLOWS;
    bool good = encode_part(s, &run, prompt, false) && (!s->encoder || token_run_close(&run));
    *out_first = (int64_t)out->count;
    good = good && encode_part(s, &run, choice, true);
    if (s->encoder) good = token_run_end(&run, good);
    token_marks_release(&marks);
    return good;
}

/* --- scores --- */

double log_probability(const float *logits, int64_t vocab, int32_t token) {
    double most = logits[0], sum = 0;
    for (int64_t i = 1; i < vocab; i++) most = fmax(most, logits[i]);
    for (int64_t i = 0; i < vocab; i++) sum += exp(logits[i] - most);
    return logits[token] - most - log(sum);
}

static int best_of(const double *scores, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (scores[i] > scores[best]) best = i;
    }
    return best;
}

static void settle(Scoring *s, const Question *q) {
    s->out->n_questions++;
    s->out->n_choices += q->n_choices;
    s->out->by_chance += 1 / (double)q->n_choices;
    s->out->n_right += best_of(q->scores, q->n_choices) == q->answer;
    s->out->n_right_per_byte += best_of(q->scores + q->n_choices, q->n_choices) == q->answer;
}

/* Questions whose choices all have a score. */
static void settle_scored(Scoring *s) {
    int64_t n = 0;
    while (n < s->n_open && s->open[n].n_scored == s->open[n].n_choices) {
        settle(s, &s->open[n]);
        free(s->open[n++].scores);
    }
    s->n_open -= n;
    s->n_settled += n;
    memmove(s->open, s->open + n, (size_t)s->n_open * sizeof(Question));
}

static bool score_entry(Scoring *s, const Entry *entry, int64_t i) {
    const int64_t seq = s->plan->seq, vocab = s->plan->vocab;
    Question *q = &s->open[entry->question - s->n_settled];
    double score = 0;
    for (int64_t t = entry->first; s->engine && t < entry->count; t++) {
        score +=
            log_probability(s->logits + (i * seq + t - 1) * vocab, vocab, s->tokens[i * seq + t]);
    }
    q->scores[entry->choice] = score;
    q->scores[q->n_choices + entry->choice] = score / (double)entry->n_bytes;
    q->n_scored++;
    if (isfinite(score)) return true;
    diag_error(s->diag, NO_LOC, "evaluate: the model's output is not finite; wrong weights?");
    return false;
}

/* All of what waits; the sequences beyond repeat the last one. */
static bool compute(Scoring *s) {
    const int64_t seq = s->plan->seq;
    bool good = true;
    if (s->n_entries == 0) return true;
    for (int64_t i = s->n_entries; s->engine && i < s->batch; i++) {
        memcpy(s->tokens + i * seq, s->tokens + (s->n_entries - 1) * seq,
               (size_t)seq * sizeof(int32_t));
    }
    if (s->engine && !engine_logits(s->engine, s->tokens, s->logits, s->diag)) return false;
    for (int i = 0; good && i < s->n_entries; i++) good = score_entry(s, &s->entries[i], i);
    s->n_entries = 0;
    if (good) settle_scored(s);
    return good;
}

/* A window that ends with the choice; at least one token stands before what is scored. */
static bool add_entry(Scoring *s, const json_t *prompt, const json_t *choice, int number,
                      SourceLoc loc) {
    const int64_t seq = s->plan->seq;
    TokenList tokens = {0};
    int64_t first;
    bool good = encode(s, prompt, choice, &tokens, &first);
    int64_t count = (int64_t)tokens.count, cut = count > seq ? count - seq : 0;
    if (good && (first == 0 || first == count)) {
        diag_error(s->diag, loc, "the %s has no token", first == 0 ? "prompt" : "choice");
        good = false;
    } else if (good && first - cut < 1) {
        diag_error(s->diag, loc,
                   "choice %d has %" PRId64 " tokens; with one before them %" PRId64
                   " fit the plan's sequence",
                   number, count - first, seq - 1);
        good = false;
    }
    for (int64_t t = 0; good && t < seq; t++) {
        uint32_t token = t < count - cut ? tokens.items[t + cut] : 0;
        s->tokens[s->n_entries * seq + t] = (int32_t)token;
    }
    token_list_release(&tokens);
    if (!good) return false;
    s->out->n_cut += cut > 0;
    s->entries[s->n_entries++] = (Entry){.question = s->n_settled + s->n_open - 1,
                                         .choice = number,
                                         .first = first - cut,
                                         .count = count - cut,
                                         .n_bytes = json_string_length(choice)};
    return s->n_entries < s->batch || compute(s);
}

/* --- questions --- */

static const json_t *either(const json_t *object, const char *one, const char *other) {
    const json_t *found = json_object_get(object, one);
    return found ? found : json_object_get(object, other);
}

/* A number, or one spelled in a string, as some files have it; -1: neither. */
static int64_t read_answer(const json_t *value) {
    if (json_is_integer(value)) return json_integer_value(value);
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) > 4 || strspn(text, "0123456789") != strlen(text)) {
        return -1;
    }
    return atoi(text);
}

static void open_question(Scoring *s, int answer, int n_choices) {
    Question *open = realloc(s->open, (size_t)(s->n_open + 1) * sizeof(Question));
    double *scores = calloc(2 * (size_t)n_choices, sizeof(double));
    if (!open || !scores) BUG("out of memory");
    s->open = open;
    s->open[s->n_open++] = (Question){.answer = answer, .n_choices = n_choices, .scores = scores};
}

static bool score_question(Scoring *s, const json_t *object, SourceLoc loc) {
    const json_t *prompt = either(object, "prompt", "ctx");
    const json_t *choices = either(object, "choices", "endings"), *choice;
    int64_t answer = read_answer(either(object, "answer", "label"));
    size_t n = json_array_size(choices), i;
    if (!json_is_string(prompt) || n < 2 || n > MOST_CHOICES) {
        diag_error(s->diag, loc,
                   "no object with a string 'prompt' and a list 'choices' of 2 to %d (or 'ctx' and "
                   "'endings')",
                   MOST_CHOICES);
        return false;
    }
    if (answer < 0 || answer >= (int64_t)n) {
        diag_error(s->diag, loc, "'answer' (or 'label') is no number from 0 to %zu", n - 1);
        return false;
    }
    json_array_foreach(choices, i, choice) {
        if (json_is_string(choice)) continue;
        diag_error(s->diag, loc, "choice %zu is no string", i);
        return false;
    }
    open_question(s, (int)answer, (int)n);
    json_array_foreach(choices, i, choice) {
        if (!add_entry(s, prompt, choice, (int)i, loc)) return false;
    }
    return true;
}

static bool score_line(Scoring *s, const char *text, size_t length, int line) {
    char where[512];
    snprintf(where, sizeof(where), "%s:%d", s->path, line);
    json_t *object = json_parse_bytes(where, text, length, s->diag);
    bool good = object && score_question(s, object, (SourceLoc){s->path, line});
    json_decref(object);
    return good;
}

static int count_lines(const FileMap *map) {
    int n = 0;
    for (size_t i = 0; i < map->length_bytes; i++) n += map->data[i] == '\n';
    return n + (map->length_bytes > 0 && map->data[map->length_bytes - 1] != '\n');
}

/* Mapped, and with fewer lines than an int counts. An empty file has no address. */
static bool map_questions(const char *path, FileMap *out, Diag *diag) {
    if (!file_map(path, out, diag)) return false;
    if (out->length_bytes > 0 && out->length_bytes < INT_MAX) return true;
    if (out->length_bytes == 0) {
        diag_error(diag, (SourceLoc){path, 0}, "has no question");
    } else {
        diag_error(diag, (SourceLoc){path, 0}, "has %zu bytes; fewer than %d are read here",
                   out->length_bytes, INT_MAX);
    }
    file_unmap(out);
    return false;
}

static bool is_blank(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    }
    return true;
}

static bool score_file(Scoring *s, ChoicesProgress *shown, void *user) {
    FileMap map;
    if (!map_questions(s->path, &map, s->diag)) return false;
    const char *text = (const char *)map.data, *end = text + map.length_bytes;
    int n_lines = count_lines(&map);
    bool good = true;
    for (int line = 1; good && text < end; line++) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((next ? next : end) - text);
        if (!is_blank(text, length)) good = score_line(s, text, length, line);
        if (shown && good) shown(user, line, n_lines, s->path);
        text += length + 1;
    }
    file_unmap(&map);
    good = good && compute(s);
    if (good && s->out->n_questions == 0) {
        diag_error(s->diag, (SourceLoc){s->path, 0}, "has no question");
        good = false;
    }
    return good;
}

static bool score(Scoring *s, ChoicesProgress *shown, void *user) {
    size_t n_tokens = (size_t)(s->batch * s->plan->seq);
    bool computes = s->engine != NULL;
    *s->out = (ChoicesResult){0};
    s->encoder = s->way->tokenizer ? encoder_create(s->way->tokenizer) : NULL;
    s->entries = calloc((size_t)s->batch, sizeof(Entry));
    s->tokens = calloc(n_tokens, sizeof(int32_t));
    s->logits = computes ? malloc(n_tokens * (size_t)s->plan->vocab * sizeof(float)) : NULL;
    bool good = s->entries && s->tokens && (s->logits || !computes);
    if (!good) {
        diag_error(s->diag, NO_LOC,
                   "evaluate: no memory for the logits of %" PRId64 " x %" PRId64 " tokens",
                   s->batch, s->plan->seq);
    }
    good = good && score_file(s, shown, user);
    for (int64_t i = 0; i < s->n_open; i++) free(s->open[i].scores);
    free(s->open);
    free(s->logits);
    free(s->tokens);
    free(s->entries);
    if (s->encoder) encoder_destroy(s->encoder);
    return good;
}

bool evaluate_choices_check(const Plan *plan, const ChoicesWay *way, const char *path, Diag *diag) {
    ChoicesResult nothing;
    Scoring s = {.plan = plan, .way = way, .path = path, .diag = diag, .out = &nothing, .batch = 1};
    if (way->tokenizer || plan->vocab >= VOCAB_BYTES) return score(&s, NULL, NULL);
    diag_error(diag, NO_LOC,
               "evaluate: text needs a vocabulary of 256 bytes; the model's is %" PRId64,
               plan->vocab);
    return false;
}

bool evaluate_choices(Engine *engine, const Plan *plan, const ChoicesWay *way, const char *path,
                      ChoicesProgress *shown, void *user, ChoicesResult *out, Diag *diag) {
    Scoring s = {.engine = engine,
                 .plan = plan,
                 .way = way,
                 .path = path,
                 .diag = diag,
                 .out = out,
                 .batch = engine_forward_batch(engine)};
    return score(&s, shown, user);
}
