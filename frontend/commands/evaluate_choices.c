#include "frontend/commands/evaluate_choices.h"

#include "frontend/commands/completion_tokens.h"
#include "frontend/commands/generate_chat.h"
#include "frontend/json_lines.h"
#include "runtime/tokenizer/token_run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_CHOICES = 256, VOCAB_BYTES = 256 };

/* A prompt and a choice as they are in a file. */
typedef struct Choice {
    const json_t *object, *prompt, *text;
    int number;
    SourceLoc loc;
} Choice;

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
    ChoicesProgress *shown; /* NULL: nobody asks */
    void *shown_to;
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
static bool encode_text(Scoring *s, const Choice *choice, TokenList *out, int64_t *out_first) {
    TokenMarks marks = {0};
    TokenRun run = {
        .encoder = s->encoder, .tokens = out, .marks = &marks, .where = s->path, .diag = s->diag};
    if (s->way->first != NO_TOKEN) token_list_add(out, s->way->first);
    if (s->encoder) token_run_begin(&run);
    if (s->way->first != NO_TOKEN) run.place = TEXT_FOLLOWS;
    bool good =
        encode_part(s, &run, choice->prompt, false) && (!s->encoder || token_run_close(&run));
    *out_first = (int64_t)out->count;
    good = good && encode_part(s, &run, choice->text, true);
    if (s->encoder) good = token_run_end(&run, good);
    token_marks_release(&marks);
    return good;
}

/* Without the space that parts it from a prompt. */
static const char *answer_text(const json_t *choice, size_t *out_length) {
    const char *text = json_string_value(choice);
    const size_t n = json_string_length(choice), space = n > 0 && text[0] == ' ';
    *out_length = n - space;
    return text + space;
}

/* The line as fine-tuning's data have a conversation; what else it says is the template's. */
static json_t *make_record(const Scoring *s, const Choice *choice) {
    static const char *const OTHERS[] = {"text", "messages", "conversations", "ctx"};
    const json_t *prompt = choice->prompt;
    size_t n;
    const char *said = answer_text(choice->text, &n);
    json_t *record = json_copy((json_t *)(uintptr_t)choice->object);
    json_t *asked = generate_chat_messages(s->way->system, json_is_array(prompt) ? prompt : NULL,
                                           json_string_value(prompt), json_string_length(prompt));
    json_t *answer = json_pack("[{s:s, s:s%}]", "role", "assistant", "content", said, n);
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        json_object_del(record, OTHERS[i]);
    }
    if (!answer || json_object_set_new(record, "prompt", asked) != 0 ||
        json_object_set_new(record, "completion", answer) != 0) {
        BUG("out of memory");
    }
    return record;
}

/* The choice as an answer: from the first token that counts as a label to the last. */
static bool encode_answer(Scoring *s, const Choice *choice, TokenList *out, int64_t *out_first) {
    CompletionTokens told;
    json_t *record = make_record(s, choice);
    bool good =
        completion_tokens_encode(s->way->chat, s->encoder, record, choice->loc, &told, s->diag);
    size_t first = 0, end = told.count;
    while (end > 0 && !completion_tokens_count(&told, end - 1)) end--;
    while (first < end && !completion_tokens_count(&told, first)) first++;
    for (size_t i = 0; good && i < end; i++) token_list_add(out, told.items[i]);
    *out_first = (int64_t)first;
    completion_tokens_release(&told);
    json_decref(record);
    return good;
}

static bool encode(Scoring *s, const Choice *choice, TokenList *out, int64_t *out_first) {
    size_t n = json_string_length(choice->text);
    if (!s->way->chat) return encode_text(s, choice, out, out_first);
    if (n > 0) answer_text(choice->text, &n);
    if (n > 0) return encode_answer(s, choice, out, out_first);
    diag_error(s->diag, choice->loc, "choice %d is empty", choice->number);
    return false;
}

/* --- scores --- */

double log_probability(const float *logits, int64_t vocab, int32_t token) {
    double most = logits[0], sum = 0;
    for (int64_t i = 1; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
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
    s->out->answers += q->scores[q->answer];
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
static bool add_entry(Scoring *s, const Choice *choice) {
    const int64_t seq = s->plan->seq;
    TokenList tokens = {0};
    int64_t first = 0;
    size_t n_bytes = json_string_length(choice->text);
    bool good = encode(s, choice, &tokens, &first);
    if (s->way->chat) answer_text(choice->text, &n_bytes);
    int64_t count = (int64_t)tokens.count, cut = count > seq ? count - seq : 0;
    if (good && (first == 0 || first == count)) {
        diag_error(s->diag, choice->loc, "the %s has no token", first == 0 ? "prompt" : "choice");
        good = false;
    } else if (good && first - cut < 1) {
        diag_error(s->diag, choice->loc,
                   "choice %d has %" PRId64 " tokens; with one before them %" PRId64
                   " fit the plan's sequence",
                   choice->number, count - first, seq - 1);
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
                                         .choice = choice->number,
                                         .first = first - cut,
                                         .count = count - cut,
                                         .n_bytes = n_bytes};
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

/* Messages, of which an answer may be the next. */
static bool is_asked(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(either(last, "role", "from"));
    return role && strcmp(role, "assistant") != 0 && strcmp(role, "gpt") != 0;
}

/* A text; of a chat also messages. NULL: there is none, reported. */
static const json_t *find_prompt(const Scoring *s, const json_t *object, SourceLoc loc) {
    const json_t *prompt = either(object, "prompt", "ctx");
    if (!prompt) prompt = json_object_get(object, "messages");
    if (s->way->chat && json_is_array(prompt)) {
        if (is_asked(prompt)) return prompt;
        diag_error(s->diag, loc, "messages: the last one is not the user's");
        return NULL;
    }
    if (json_is_string(prompt)) return prompt;
    diag_error(s->diag, loc,
               "no object with a string 'prompt' (or 'ctx')%s and a list 'choices' (or 'endings')",
               s->way->chat            ? " or a list 'messages',"
               : json_is_array(prompt) ? ", as messages need --chat,"
                                       : "");
    return NULL;
}

static bool score_question(Scoring *s, const json_t *object, SourceLoc loc) {
    const json_t *prompt = find_prompt(s, object, loc);
    const json_t *choices = either(object, "choices", "endings"), *choice;
    int64_t answer = read_answer(either(object, "answer", "label"));
    size_t n = json_array_size(choices), i;
    if (!prompt) return false;
    if (n < 2 || n > MOST_CHOICES) {
        diag_error(s->diag, loc,
                   "no object with a string 'prompt' (or 'ctx') and a list 'choices' of 2 to %d "
                   "(or 'endings')",
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
        if (!add_entry(s, &(Choice){object, prompt, choice, (int)i, loc})) return false;
    }
    return true;
}

static bool score_line(void *user, json_t *object, SourceLoc loc, int n_lines) {
    Scoring *s = user;
    if (!score_question(s, object, loc)) return false;
    if (s->shown) s->shown(s->shown_to, loc.line, n_lines, s->path);
    return true;
}

static bool score_file(Scoring *s) {
    if (!json_lines_each(s->path, score_line, s, s->diag) || !compute(s)) return false;
    if (s->out->n_questions > 0) return true;
    diag_error(s->diag, (SourceLoc){s->path, 0}, "has no question");
    return false;
}

static bool score(Scoring *s) {
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
    good = good && score_file(s);
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
    if (way->tokenizer || plan->vocab >= VOCAB_BYTES) return score(&s);
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
                 .shown = shown,
                 .shown_to = user,
                 .batch = engine_forward_batch(engine)};
    return score(&s);
}
