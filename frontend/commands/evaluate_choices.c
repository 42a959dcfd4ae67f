#include "frontend/commands/evaluate_choices.h"

#include "frontend/commands/benchmark_shots.h"
#include "frontend/json_lines.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/encoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_BYTES = 256 };

/* One choice, in a row of tokens, which it may share with others that only end differently. */
typedef struct Entry {
    int64_t question, row;
    int choice;
    int64_t first;   /* position whose logits tell of the first label */
    int32_t *labels; /* [n_labels] */
    int64_t n_labels;
    int32_t *tokens; /* [first + n_labels], where caches score it; else NULL */
    size_t n_bytes, n_characters;
} Entry;

typedef struct Question {
    int answer, n_choices, n_scored;
    bool greedy;    /* each token of the choice is the likeliest */
    double *scores; /* [3, n_choices]: of choices, per byte, per character */
    int group;      /* -1: none */
    json_t *told;   /* of predictions; NULL: not asked for */
} Question;

typedef struct Scoring {
    ChoicesModel model; /* neither engine nor caches: nothing is computed, files are looked at */
    int64_t seq, vocab;
    const ChoicesWay *way;
    Encoder *encoder; /* NULL: bytes */
    const char *path;
    Arena *arena;
    Diag *diag;
    ChoicesResult *out;
    ChoicesProgress *shown; /* NULL: nobody asks */
    void *shown_to;
    uint64_t *digest; /* of all texts; NULL: nobody asks */
    /* What the first row says of the others. */
    bool begun;
    const Benchmark *benchmark; /* NULL: the file's own */
    const BenchmarkReader *reader;
    BenchmarkShots shots;
    int64_t n_read;
    /* Sequences that are computed together. */
    int64_t batch, n_rows, row_length; /* row_length: tokens of the last row */
    int32_t *tokens;                   /* [batch, seq] */
    float *logits;                     /* [batch, seq, vocab] */
    ScoredText *texts;                 /* [n_together] */
    Entry *entries;                    /* [n_entries] */
    int64_t n_entries, n_entries_room;
    /* Of several groups of processes: choices that others score, and what was scored here. */
    Entry *awaited; /* [n_awaited] */
    ChoiceScore *scored;
    int n_awaited, awaited_capacity, n_scored, scored_capacity;
    Question *open; /* [n_open]: those that wait for scores, the last n_open of all */
    int64_t n_open, n_settled;
} Scoring;

static bool computes(const Scoring *s) {
    return s->model.engine || s->model.caches;
}

/* --- scores --- */

static int best_of(const double *scores, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (scores[i] > scores[best]) best = i;
    }
    return best;
}

static void put_json(json_t *object, const char *name, json_t *value) {
    if (json_object_set_new(object, name, value) != 0) BUG("out of memory");
}

/* What was asked is there already. */
static void put_prediction(StrBuf *out, const Question *q, bool is_greedy) {
    json_t *scores = json_array();
    for (int i = 0; i < q->n_choices; i++) {
        if (json_array_append_new(scores, json_real(q->scores[i])) != 0) BUG("out of memory");
    }
    put_json(q->told, "log_probabilities", scores);
    if (is_greedy) {
        put_json(q->told, "is_greedy", json_boolean(q->greedy));
    } else {
        put_json(q->told, "chosen", json_integer(best_of(q->scores, q->n_choices)));
        put_json(q->told, "chosen_per_byte",
                 json_integer(best_of(q->scores + q->n_choices, q->n_choices)));
        put_json(q->told, "chosen_per_character",
                 json_integer(best_of(q->scores + 2 * q->n_choices, q->n_choices)));
    }
    char *text = json_dumps(q->told, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) BUG("out of memory");
    strbuf_put(out, text);
    strbuf_put(out, "\n");
    free(text);
}

static void count_question(ChoicesCount *to, const Question *q, bool is_greedy) {
    const double *scores = q->scores;
    to->n_questions++;
    to->n_right += is_greedy ? q->greedy : best_of(scores, q->n_choices) == q->answer;
    to->n_right_per_byte +=
        is_greedy ? q->greedy : best_of(scores + q->n_choices, q->n_choices) == q->answer;
    to->n_right_per_character +=
        is_greedy ? q->greedy : best_of(scores + 2 * q->n_choices, q->n_choices) == q->answer;
}

static void settle(Scoring *s, const Question *q) {
    ChoicesResult *out = s->out;
    const double answer = q->scores[q->answer];
    count_question(&out->all, q, out->is_greedy);
    if (q->group >= 0) count_question(&out->groups[q->group].count, q, out->is_greedy);
    out->n_choices += q->n_choices;
    out->by_chance += out->is_greedy ? 0 : 1 / (double)q->n_choices;
    out->answers += answer;
    out->answers_square += answer * answer;
    if (q->told && computes(s)) put_prediction(&out->predictions, q, out->is_greedy);
}

static void release_question(Question *q) {
    json_decref(q->told);
    free(q->scores);
}

/* Questions whose choices all have a score. */
static void settle_scored(Scoring *s) {
    int64_t n = 0;
    while (n < s->n_open && s->open[n].n_scored == s->open[n].n_choices) {
        settle(s, &s->open[n]);
        release_question(&s->open[n++]);
    }
    s->n_open -= n;
    s->n_settled += n;
    memmove(s->open, s->open + n, (size_t)s->n_open * sizeof(Question));
}

static bool score_entry(Scoring *s, const Entry *entry, double score, bool greedy) {
    Question *q = &s->open[entry->question - s->n_settled];
    q->greedy = s->out->is_greedy && greedy;
    q->scores[entry->choice] = score;
    q->scores[q->n_choices + entry->choice] = score / (double)entry->n_bytes;
    q->scores[2 * q->n_choices + entry->choice] = score / (double)entry->n_characters;
    q->n_scored++;
    if (isfinite(score)) return true;
    diag_error(s->diag, NO_LOC, "%s: the model's output is not finite; wrong weights?",
               s->way->who);
    return false;
}

/* By the logits of its row. */
static bool score_row(Scoring *s, const Entry *entry) {
    double score = 0;
    bool greedy = true;
    for (int64_t t = 0; s->model.engine && t < entry->n_labels; t++) {
        const float *logits = s->logits + (entry->row * s->seq + entry->first + t) * s->vocab;
        score += log_probability(logits, s->vocab, entry->labels[t]);
        greedy = greedy && is_likeliest(logits, s->vocab, entry->labels[t]);
    }
    return score_entry(s, entry, score, greedy);
}

static int n_groups(const Scoring *s) {
    const RankCrew *crew = &s->model.crew;
    return s->model.caches && crew->control ? control_world(crew->control) / crew->together : 1;
}

static bool is_own(const Scoring *s, int64_t question) {
    const RankCrew *crew = &s->model.crew;
    return n_groups(s) == 1 || question % n_groups(s) == crew->rank / crew->together;
}

static bool score_cached(Scoring *s) {
    const int64_t most = s->model.n_together;
    for (int64_t first = 0; first < s->n_entries; first += most) {
        const int n = (int)(s->n_entries - first < most ? s->n_entries - first : most);
        for (int i = 0; i < n; i++) {
            const Entry *e = &s->entries[first + i];
            s->texts[i] =
                (ScoredText){e->tokens, e->first + e->n_labels, e->first, e->labels, 0, false};
        }
        if (!choice_caches_score(s->model.caches, s->texts, n, s->diag)) return false;
        for (int i = 0; i < n; i++) {
            const ScoredText *text = &s->texts[i];
            const Entry *e = &s->entries[first + i];
            const ChoiceScore score = {e->question, e->choice, text->greedy, text->score};
            if (n_groups(s) > 1) {
                ARENA_PUSH(s->arena, s->scored, s->n_scored, s->scored_capacity, score);
            }
            if (!score_entry(s, e, text->score, text->greedy)) return false;
        }
    }
    return true;
}

static bool score_rows(Scoring *s) {
    for (int64_t i = s->n_rows; s->model.engine && i < s->batch; i++) {
        memcpy(s->tokens + i * s->seq, s->tokens + (s->n_rows - 1) * s->seq,
               (size_t)s->seq * sizeof(int32_t));
    }
    if (s->model.engine && !engine_logits(s->model.engine, s->tokens, s->logits, s->diag)) {
        return false;
    }
    for (int64_t i = 0; i < s->n_entries; i++) {
        if (!score_row(s, &s->entries[i])) return false;
    }
    return true;
}

static void drop_entries(Scoring *s) {
    for (int64_t i = 0; i < s->n_entries; i++) {
        free(s->entries[i].labels);
        free(s->entries[i].tokens);
    }
    s->n_entries = s->n_rows = 0;
}

/* All of what waits; of rows the sequences beyond repeat the last one. */
static bool compute(Scoring *s) {
    if (s->n_entries == 0) return true;
    const bool good = s->model.caches ? score_cached(s) : score_rows(s);
    drop_entries(s);
    if (good) settle_scored(s);
    return good;
}

/* What other groups have scored. */
static bool take_awaited(Scoring *s) {
    int64_t n, at = 0;
    if (n_groups(s) == 1) return true;
    ChoiceScore *all = choice_scores_gather(&s->model.crew, s->scored, s->n_scored, &n, s->diag);
    bool good = all != NULL;
    for (int i = 0; i < s->n_awaited && good; i++) {
        const Entry *e = &s->awaited[i];
        while (at < n && (all[at].question != e->question || all[at].choice != e->choice)) at++;
        good = at < n && score_entry(s, e, all[at].score, all[at].greedy != 0);
        if (at == n) diag_error(s->diag, NO_LOC, "%s: a rank lacks scores", s->way->who);
    }
    free(all);
    if (good) settle_scored(s);
    return good;
}

/* --- rows of tokens --- */

/* The row of these tokens: the last one, where one of both begins with the other, as what follows
 * changes nothing before it. False: reported. */
static bool find_row(Scoring *s, const uint32_t *tokens, int64_t n) {
    const int64_t seq = s->seq, common = n < s->row_length ? n : s->row_length;
    bool shares = s->n_rows > 0;
    int32_t *row = s->tokens + (shares ? s->n_rows - 1 : 0) * seq;
    for (int64_t t = 0; shares && t < common; t++) shares = row[t] == (int32_t)tokens[t];
    if (!shares) {
        if (s->n_rows == s->batch && !compute(s)) return false;
        row = s->tokens + s->n_rows++ * seq;
        memset(row, 0, (size_t)seq * sizeof(int32_t));
        s->row_length = 0;
    }
    for (int64_t t = s->row_length; t < n; t++) row[t] = (int32_t)tokens[t];
    s->row_length = n > s->row_length ? n : s->row_length;
    return true;
}

/* Tokens as ids of the model. */
static int32_t *copy_tokens(const uint32_t *tokens, int64_t n) {
    int32_t *copy = memory_alloc((size_t)n * sizeof(int32_t));
    for (int64_t t = 0; t < n; t++) copy[t] = (int32_t)tokens[t];
    return copy;
}

/* Of a text of these tokens: its labels are the last ones. */
static void push_entry(Scoring *s, Entry entry, const uint32_t *tokens) {
    if (s->n_entries == s->n_entries_room) {
        s->n_entries_room = 2 * s->n_entries_room + 64;
        s->entries = memory_grow(s->entries, (size_t)s->n_entries_room * sizeof(Entry));
    }
    entry.labels = copy_tokens(tokens + entry.first + 1, entry.n_labels);
    if (s->model.caches) entry.tokens = copy_tokens(tokens, entry.first + entry.n_labels);
    s->entries[s->n_entries++] = entry;
}

static size_t count_characters(const char *text, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* False: the choice cannot be scored; reported. */
static bool check_tokens(const Scoring *s, const Choice *choice, int64_t first, int64_t count) {
    const int64_t most = s->seq;
    if (first == 0 || first == count) {
        diag_error(s->diag, choice->loc, "the %s has no token", first == 0 ? "prompt" : "choice");
    } else if (count - first > most) {
        diag_error(s->diag, choice->loc,
                   "choice %d has %" PRId64 " tokens; with one before them %" PRId64
                   " fit the plan's sequence",
                   choice->number, count - first, most);
    } else {
        return true;
    }
    return false;
}

/* A window that ends before the choice's last token; at least one stands before what is scored. */
static bool add_entry(Scoring *s, const Choice *choice) {
    const int64_t most = s->seq + 1;
    TokenList tokens = {0};
    int64_t first = 0;
    size_t n_bytes;
    const char *text = choice_text(&s->way->texts, choice->text, &n_bytes);
    bool good = choice_encode(&s->way->texts, s->encoder, choice, &tokens, &first, s->diag);
    const int64_t count = (int64_t)tokens.count, cut = count > most ? count - most : 0;
    if (good && s->digest) *s->digest = token_list_digest(*s->digest, &tokens);
    good = good && check_tokens(s, choice, first, count) &&
           (s->model.caches || find_row(s, tokens.items + cut, count - 1 - cut));
    if (good) {
        const Entry entry = {.question = s->n_settled + s->n_open - 1,
                             .row = s->n_rows - 1,
                             .choice = choice->number,
                             .first = first - 1 - cut,
                             .n_labels = count - first,
                             .n_bytes = n_bytes,
                             .n_characters = count_characters(text, n_bytes)};
        s->out->n_cut += cut > 0;
        if (is_own(s, entry.question)) {
            push_entry(s, entry, tokens.items + cut);
        } else {
            ARENA_PUSH(s->arena, s->awaited, s->n_awaited, s->awaited_capacity, entry);
        }
    }
    token_list_release(&tokens);
    return good;
}

/* --- rows of a file's own --- */

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

/* Messages, of which an answer may be the next. */
static bool is_asked(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(either(last, "role", "from"));
    return role && strcmp(role, "assistant") != 0 && strcmp(role, "gpt") != 0;
}

/* A text; of a chat also messages. NULL: there is none, reported. */
static const json_t *find_prompt(const Scoring *s, const json_t *object, SourceLoc loc) {
    const json_t *prompt = either(object, "prompt", "ctx");
    const bool chat = s->way->texts.chat;
    if (!prompt) prompt = json_object_get(object, "messages");
    if (chat && json_is_array(prompt)) {
        if (is_asked(prompt) && s->way->n_shots == 0) return prompt;
        diag_error(s->diag, loc,
                   s->way->n_shots ? "messages take no examples before them: without --shots"
                                   : "messages: the last one is not the user's");
        return NULL;
    }
    if (json_is_string(prompt)) return prompt;
    diag_error(s->diag, loc,
               "no object with a string 'prompt' (or 'ctx')%s and a list 'choices' (or 'endings')",
               chat                    ? " or a list 'messages',"
               : json_is_array(prompt) ? ", as messages need --chat,"
                                       : "");
    return NULL;
}

static json_t *borrow(const json_t *value) {
    return json_incref((json_t *)(uintptr_t)value);
}

/* As benchmark_read. */
static bool read_own(const Scoring *s, const json_t *object, SourceLoc loc, BenchmarkItem *out) {
    const json_t *choices = either(object, "choices", "endings"), *choice;
    int64_t answer = read_answer(either(object, "answer", "label"));
    size_t n = json_array_size(choices), i;
    *out = (BenchmarkItem){.delimiter = "", .parting = "", .intro = strbuf_create()};
    const json_t *prompt = find_prompt(s, object, loc);
    if (!prompt) return false;
    if (n < 2 || n > BENCHMARK_MOST_CHOICES) {
        diag_error(s->diag, loc,
                   "no object with a string 'prompt' (or 'ctx') and a list 'choices' of 2 to %d "
                   "(or 'endings')",
                   BENCHMARK_MOST_CHOICES);
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
    out->prompts = json_pack("[o]", borrow(prompt));
    if (!out->prompts) BUG("out of memory");
    out->choices = borrow(choices);
    out->n_choices = (int)n;
    out->answer = (int)answer;
    return true;
}

/* --- questions --- */

static int find_group(ChoicesResult *out, const char *name) {
    if (!name) return -1;
    for (int i = 0; i < out->n_groups; i++) {
        if (strcmp(out->groups[i].name, name) == 0) return i;
    }
    out->groups = memory_grow(out->groups, (size_t)(out->n_groups + 1) * sizeof(ChoicesGroup));
    out->groups[out->n_groups] = (ChoicesGroup){.name = memory_strndup(name, strlen(name))};
    return out->n_groups++;
}

static json_t *text_json(const char *text, size_t length) {
    json_t *json = json_stringn(text, length);
    if (!json) BUG("out of memory, or text that is not UTF-8");
    return json;
}

static json_t *tell_question(const Scoring *s, const BenchmarkItem *item, const json_t *prompts,
                             SourceLoc loc) {
    json_t *told = json_object();
    put_json(told, "path", text_json(s->path, strlen(s->path)));
    put_json(told, "line", json_integer(loc.line));
    put_json(told, "task", json_string(s->out->task));
    if (item->group) put_json(told, "group", json_string(item->group));
    const bool several = json_array_size(prompts) > 1;
    put_json(told, several ? "prompts" : "prompt",
             borrow(several ? prompts : json_array_get(prompts, 0)));
    put_json(told, "choices", json_deep_copy(item->choices));
    if (!s->out->is_greedy) put_json(told, "answer", json_integer(item->answer));
    return told;
}

static void open_question(Scoring *s, const BenchmarkItem *item, json_t *told) {
    s->open = memory_grow(s->open, (size_t)(s->n_open + 1) * sizeof(Question));
    s->open[s->n_open++] =
        (Question){.answer = item->answer,
                   .n_choices = item->n_choices,
                   .scores = memory_zeroed(3 * (size_t)item->n_choices, sizeof(double)),
                   .group = find_group(s->out, item->group),
                   .told = told};
}

/* The prompts as they are asked, with what is before them. NULL: reported. */
static json_t *make_prompts(const Scoring *s, const BenchmarkItem *item, int64_t number,
                            SourceLoc loc) {
    StrBuf text = strbuf_create();
    strbuf_put_bytes(&text, item->intro.text, item->intro.length);
    bool good =
        s->way->n_shots == 0 || benchmark_shots_put(&s->shots, item, number, loc, &text, s->diag);
    const size_t before = text.length;
    json_t *prompts = NULL;
    if (good && before == 0) {
        prompts = borrow(item->prompts);
    } else if (good) {
        size_t i;
        const json_t *prompt;
        prompts = json_array();
        json_array_foreach(item->prompts, i, prompt) {
            text.length = before;
            strbuf_put_bytes(&text, json_string_value(prompt), json_string_length(prompt));
            if (json_array_append_new(prompts, text_json(text.text, text.length)) != 0) {
                BUG("out of memory");
            }
        }
    }
    strbuf_destroy(&text);
    return prompts;
}

static bool score_item(Scoring *s, const json_t *object, const BenchmarkItem *item, SourceLoc loc) {
    json_t *prompts = make_prompts(s, item, s->n_read, loc);
    if (!prompts) return false;
    const bool several = json_array_size(prompts) > 1;
    bool good = true;
    open_question(s, item, s->way->predicts ? tell_question(s, item, prompts, loc) : NULL);
    for (int i = 0; good && i < item->n_choices; i++) {
        good = add_entry(s, &(Choice){.object = s->benchmark ? NULL : object,
                                      .prompt = json_array_get(prompts, several ? (size_t)i : 0),
                                      .text = benchmark_choice(item, i),
                                      .delimiter = item->delimiter,
                                      .moves_space = s->benchmark,
                                      .number = i,
                                      .loc = loc});
    }
    json_decref(prompts);
    return good && (!s->model.caches || s->n_entries < s->model.n_together || compute(s));
}

static bool read_item(const Scoring *s, const json_t *object, SourceLoc loc, BenchmarkItem *out) {
    return s->benchmark ? benchmark_read(s->reader, object, loc, out, s->diag)
                        : read_own(s, object, loc, out);
}

static bool add_shot(void *user, json_t *object, SourceLoc loc, int n_lines) {
    Scoring *s = user;
    BenchmarkItem item;
    (void)n_lines;
    bool good = read_item(s, object, loc, &item);
    if (good) benchmark_shots_add(&s->shots, &item);
    benchmark_release(&item);
    return good;
}

/* By the first row. */
static bool begin(Scoring *s, const json_t *object, SourceLoc loc) {
    const ChoicesWay *way = s->way;
    s->begun = true;
    if (!benchmark_find(object, way->task, loc, &s->benchmark, s->diag)) return false;
    if (s->benchmark && benchmark_filters(s->benchmark)) {
        diag_error(s->diag, loc, "%s: its answers are written%s", benchmark_name(s->benchmark),
                   strcmp(way->who, "evaluate") == 0 ? ": give the file as --problems" : "");
        return false;
    }
    s->reader = s->benchmark ? benchmark_open(s->arena, s->benchmark) : NULL;
    s->out->task = s->benchmark ? benchmark_name(s->benchmark) : BENCHMARK_OWN;
    s->out->is_greedy = s->benchmark && benchmark_is_greedy(s->benchmark);
    s->out->is_normed = !s->benchmark || benchmark_is_normed(s->benchmark);
    if (s->out->is_greedy && way->texts.chat) {
        diag_error(s->diag, loc, "%s: is how a text goes on: without --chat", s->out->task);
        return false;
    }
    if (way->n_shots == 0) return true;
    s->shots = (BenchmarkShots){.path = way->shots_path ? way->shots_path : s->path,
                                .n_wanted = way->n_shots,
                                .seed = way->seed,
                                .takes_first = s->benchmark && benchmark_takes_first(s->benchmark),
                                .arena = s->arena};
    return json_lines_each(s->shots.path, add_shot, s, s->diag);
}

static bool score_line(void *user, json_t *object, SourceLoc loc, int n_lines) {
    Scoring *s = user;
    BenchmarkItem item;
    if (s->way->limit > 0 && s->n_read == s->way->limit) return true;
    if (!s->begun && !begin(s, object, loc)) return false;
    bool good = read_item(s, object, loc, &item) && score_item(s, object, &item, loc);
    benchmark_release(&item);
    s->n_read++;
    if (good && s->shown) {
        const bool limited = s->way->limit > 0 && s->way->limit < n_lines;
        s->shown(s->shown_to, limited ? (int)s->n_read : loc.line,
                 limited ? (int)s->way->limit : n_lines, s->path);
    }
    return good;
}

static bool score_file(Scoring *s) {
    if (!json_lines_each(s->path, score_line, s, s->diag) || !compute(s) || !take_awaited(s)) {
        return false;
    }
    if (s->out->all.n_questions > 0) return true;
    diag_error(s->diag, (SourceLoc){s->path, 0}, "has no question");
    return false;
}

static bool score(Scoring *s) {
    const size_t n_tokens = (size_t)(s->batch * s->seq);
    const Tokenizer *tokenizer = s->way->texts.tokenizer;
    const bool by_rows = s->model.engine != NULL;
    *s->out = (ChoicesResult){.task = "", .predictions = strbuf_create()};
    s->arena = arena_create();
    s->encoder = tokenizer ? encoder_create(tokenizer) : NULL;
    s->tokens = calloc(n_tokens + 1, sizeof(int32_t));
    s->logits = by_rows ? malloc(n_tokens * (size_t)s->vocab * sizeof(float)) : NULL;
    s->texts = ARENA_ARRAY(s->arena, ScoredText, s->model.n_together + 1);
    bool good = s->tokens && (s->logits || !by_rows);
    if (!good) {
        diag_error(s->diag, NO_LOC,
                   "%s: no memory for the logits of %" PRId64 " x %" PRId64 " tokens", s->way->who,
                   s->batch, s->seq);
    }
    good = good && score_file(s);
    for (int64_t i = 0; i < s->n_open; i++) release_question(&s->open[i]);
    drop_entries(s);
    free(s->open);
    free(s->logits);
    free(s->tokens);
    free(s->entries);
    if (s->encoder) encoder_destroy(s->encoder);
    arena_destroy(s->arena);
    return good;
}

static int64_t longest(const Plan *plan) {
    return plan->context ? plan->context : plan->seq;
}

bool evaluate_choices_check(const Plan *plan, const ChoicesWay *way, const char *path,
                            uint64_t *digest, Diag *diag) {
    ChoicesResult nothing = {0};
    Scoring s = {.seq = longest(plan),
                 .vocab = plan->vocab,
                 .way = way,
                 .path = path,
                 .diag = diag,
                 .out = &nothing,
                 .digest = digest,
                 .batch = 1};
    if (way->texts.tokenizer || plan->vocab >= VOCAB_BYTES) {
        const bool good = score(&s);
        evaluate_choices_release(&nothing);
        return good;
    }
    diag_error(diag, NO_LOC, "%s: text needs a vocabulary of 256 bytes; the model's is %" PRId64,
               way->who, plan->vocab);
    return false;
}

bool evaluate_choices(const ChoicesModel *model, const ChoicesWay *way, const char *path,
                      ChoicesProgress *shown, void *user, ChoicesResult *out, Diag *diag) {
    Scoring s = {.model = *model,
                 .seq = longest(model->plan),
                 .vocab = model->plan->vocab,
                 .way = way,
                 .path = path,
                 .diag = diag,
                 .out = out,
                 .shown = shown,
                 .shown_to = user,
                 .batch = model->engine ? engine_forward_batch(model->engine) : 0};
    return score(&s);
}

void evaluate_choices_release(ChoicesResult *result) {
    for (int i = 0; i < result->n_groups; i++) free(result->groups[i].name);
    free(result->groups);
    strbuf_destroy(&result->predictions);
    *result = (ChoicesResult){0};
}
