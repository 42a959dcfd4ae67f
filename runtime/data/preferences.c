#include "runtime/data/preferences.h"

#include "runtime/data/mix.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of a document in the buffer: its prompt, its answer, and where the next one begins. */
typedef struct Answered {
    size_t begin, answer, end, next;
} Answered;

static Answered find_answered(const TokenBuffer *buffer, size_t begin) {
    Answered found = {.begin = begin, .next = begin + 1};
    while (found.next < buffer->n_tokens && !(buffer->marks[found.next] & TOKEN_BEGINS)) {
        found.next++;
    }
    found.end = found.next;
    found.answer = begin;
    while (found.end > begin && !(buffer->marks[found.end - 1] & TOKEN_COUNTS)) found.end--;
    while (found.answer < found.end && !(buffer->marks[found.answer] & TOKEN_COUNTS)) {
        found.answer++;
    }
    return found;
}

static bool are_equal(const TokenBuffer *buffer, const Answered *a, const Answered *b) {
    size_t n = a->end - a->answer;
    bool equal = b->end - b->answer == n;
    for (size_t i = 0; equal && i < n; i++) {
        equal = token_buffer_at(buffer, a->answer + i) == token_buffer_at(buffer, b->answer + i);
    }
    return equal;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The last `kept` tokens of one document's prompt, and of the other's answer what fits. */
static void put_mixed_row(TokenBuffer *to, size_t at, const TokenBuffer *from,
                          const Answered *asked, const Answered *answer, size_t kept,
                          const PreferenceOptions *options) {
    size_t answered = least(answer->end - answer->answer, options->seq - kept);
    for (size_t i = 0; i < options->seq; i++) {
        bool is_there = i < kept + answered;
        size_t source = i < kept ? asked->answer - kept + i : answer->answer + (i - kept);
        token_buffer_set(to, at + i, is_there ? token_buffer_at(from, source) : options->pad);
        bool counts = is_there && i >= kept && from->marks[source] & TOKEN_COUNTS;
        to->marks[at + i] = counts ? TOKEN_COUNTS : 0;
    }
    to->marks[at] |= TOKEN_BEGINS;
}

static void put_row(TokenBuffer *to, size_t at, const TokenBuffer *from, const Answered *document,
                    size_t kept, const PreferenceOptions *options) {
    put_mixed_row(to, at, from, document, document, kept, options);
}

static void put_pair(TokenBuffer *to, size_t at, const TokenBuffer *from, const Answered pair[2],
                     const PreferenceOptions *options, PreferenceTotals *totals) {
    size_t asked = pair[0].answer - pair[0].begin, longest = 0;
    for (int i = 0; i < 2; i++) {
        size_t answered = pair[i].end - pair[i].answer;
        asked = least(asked, pair[i].answer - pair[i].begin);
        if (answered > longest) longest = answered;
    }
    size_t room = longest + 1 < options->seq ? options->seq - longest : 1;
    size_t kept = least(asked, room);
    for (int i = 0; i < 2; i++) {
        put_row(to, at + (size_t)i * options->seq, from, &pair[i], kept, options);
        totals->n_answer += (int64_t)(pair[i].end - pair[i].answer);
    }
    totals->n_prompt += (int64_t)asked;
    totals->n_prompts += kept < asked;
    totals->n_answers += longest > options->seq - kept;
}

void preference_add_totals(PreferenceTotals *sum, const PreferenceTotals *more) {
    sum->n_pairs += more->n_pairs;
    sum->n_wanted += more->n_wanted;
    sum->n_equal += more->n_equal;
    sum->n_prompts += more->n_prompts;
    sum->n_answers += more->n_answers;
    sum->n_prompt += more->n_prompt;
    sum->n_answer += more->n_answer;
}

/* Two answers to one question? What was cut off of both is not in them. */
static bool have_one_prompt(const TokenBuffer *buffer, const Answered *a, const Answered *b) {
    size_t n = a->answer - a->begin;
    bool equal = b->answer - b->begin == n;
    for (size_t i = 0; equal && i < n; i++) {
        equal = token_buffer_at(buffer, a->begin + i) == token_buffer_at(buffer, b->begin + i);
    }
    return equal;
}

/* Gives where the next pair begins. False: an answer without a prompt, or no answer; reported. */
static bool find_pair(const TokenBuffer *buffer, size_t *at, int64_t number, Answered pair[2],
                      Diag *diag) {
    for (int i = 0; i < 2; i++) {
        if (*at >= buffer->n_tokens) BUG("a chosen answer without a rejected one");
        pair[i] = find_answered(buffer, *at);
        *at = pair[i].next;
        bool good = pair[i].begin < pair[i].answer && pair[i].answer < pair[i].end;
        if (good) continue;
        diag_error(diag, NO_LOC, "pair %" PRId64 ": the %s answer has no %s", number,
                   i ? "rejected" : "chosen",
                   pair[i].answer < pair[i].end ? "prompt before it" : "token that counts");
        return false;
    }
    if (have_one_prompt(buffer, &pair[0], &pair[1])) return true;
    diag_error(diag, NO_LOC,
               "pair %" PRId64 ": the answers are to different prompts: what differs must begin "
               "with the assistant's",
               number);
    return false;
}

bool preference_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                     Diag *diag) {
    TokenBuffer windows = {0};
    Answered pair[2];
    *out = (PreferenceTotals){0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        if (!find_pair(buffer, &at, out->n_pairs + out->n_equal + 1, pair, diag)) return false;
        bool equal = are_equal(buffer, &pair[0], &pair[1]);
        out->n_equal += equal;
        out->n_pairs += !equal;
    }
    if (out->n_pairs == 0) {
        diag_error(diag, NO_LOC,
                   "no pair of answers to learn from: %" PRId64 " are twice the same answer",
                   out->n_equal);
        return false;
    }
    if (!token_buffer_create(&windows, buffer->token_bytes, (size_t)out->n_pairs * 2 * options->seq,
                             diag)) {
        return false;
    }
    size_t to = 0;
    for (size_t at = 0; at < buffer->n_tokens;) {
        if (!find_pair(buffer, &at, 0, pair, diag)) BUG("a pair was one before");
        if (are_equal(buffer, &pair[0], &pair[1])) continue;
        put_pair(&windows, to, buffer, pair, options, out);
        to += 2 * options->seq;
    }
    token_buffer_release(buffer);
    *buffer = windows;
    return true;
}

bool answer_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                 Diag *diag) {
    TokenBuffer rows = {0};
    size_t n = 0;
    *out = (PreferenceTotals){0};
    for (size_t i = 0; i < buffer->n_tokens; i++) n += (buffer->marks[i] & TOKEN_BEGINS) != 0;
    if (n == 0) {
        diag_error(diag, NO_LOC, "there is no answer");
        return false;
    }
    if (!token_buffer_create(&rows, buffer->token_bytes, n * options->seq, diag)) return false;
    for (size_t at = 0; at < buffer->n_tokens;) {
        Answered answer = find_answered(buffer, at);
        size_t asked = answer.answer - answer.begin, answered = answer.end - answer.answer;
        size_t least_kept = asked > 0, row = (size_t)out->n_pairs * options->seq;
        size_t room = answered + least_kept < options->seq ? options->seq - answered : least_kept;
        size_t kept = least(asked, room);
        out->n_pairs++;
        if (answered == 0) {
            diag_error(diag, NO_LOC, "text %" PRId64 " has no token that counts: no answer",
                       out->n_pairs);
            token_buffer_release(&rows);
            return false;
        }
        put_row(&rows, row, buffer, &answer, kept, options);
        /* Of an answer without a prompt: it would be a label of the row before. */
        rows.marks[row] = (unsigned char)(rows.marks[row] & ~TOKEN_COUNTS);
        out->n_prompt += (int64_t)asked;
        out->n_answer += (int64_t)answered;
        out->n_prompts += kept < asked;
        out->n_answers += answered > options->seq - kept;
        at = answer.next;
    }
    token_buffer_release(buffer);
    *buffer = rows;
    return true;
}

/* --- answers by themselves --- */

/* NULL: reported. */
static Answered *list_answered(const TokenBuffer *buffer, size_t *out_count, Diag *diag) {
    size_t n = 0;
    for (size_t i = 0; i < buffer->n_tokens; i++) n += (buffer->marks[i] & TOKEN_BEGINS) != 0;
    *out_count = n;
    if (n == 0) {
        diag_error(diag, NO_LOC, "there is no answer");
        return NULL;
    }
    Answered *all = malloc(n * sizeof(*all));
    if (!all) BUG("out of memory");
    size_t at = 0;
    for (size_t i = 0; i < n; i++, at = all[i - 1].next) {
        all[i] = find_answered(buffer, at);
        if (all[i].begin < all[i].answer && all[i].answer < all[i].end) continue;
        diag_error(diag, NO_LOC, "answer %zu has no %s", i + 1,
                   all[i].answer < all[i].end ? "prompt before it" : "token that counts");
        free(all);
        return NULL;
    }
    return all;
}

/* Whose answer stands behind each prompt instead of its own: [n]; n: nobody's, as all prompts are
 * the same. In the second round the first ones know what the last ones have found. */
static size_t *find_others(const TokenBuffer *buffer, const Answered *all, size_t n) {
    size_t *others = malloc(n * sizeof(*others));
    if (!others) BUG("out of memory");
    for (size_t i = 0; i < n; i++) others[i] = n;
    for (size_t i = 0; i < 2 * n; i++) {
        size_t own = i % n, before = (i + n - 1) % n;
        bool same = have_one_prompt(buffer, &all[own], &all[before]);
        others[own] = same ? others[before] : before;
    }
    return others;
}

/* How much of a prompt is before an answer. */
static size_t room_for_prompt(const Answered *asked, const Answered *answer, size_t seq) {
    size_t answered = answer->end - answer->answer;
    return least(asked->answer - asked->begin, answered + 1 < seq ? seq - answered : 1);
}

static void put_unpaired(TokenBuffer *to, size_t at, const TokenBuffer *from, const Answered *own,
                         const Answered *other, const PreferenceOptions *options,
                         PreferenceTotals *totals) {
    bool wanted = (from->marks[own->begin] & TOKEN_WANTED) != 0;
    size_t kept = room_for_prompt(own, own, options->seq), second = at + options->seq;
    put_row(to, at, from, own, kept, options);
    put_mixed_row(to, second, from, own, other, room_for_prompt(own, other, options->seq), options);
    if (!wanted) to->marks[second] |= TOKEN_COUNTS;
    totals->n_pairs++;
    totals->n_wanted += wanted;
    totals->n_prompt += (int64_t)(own->answer - own->begin);
    totals->n_answer += (int64_t)(own->end - own->answer);
    totals->n_prompts += kept < own->answer - own->begin;
    totals->n_answers += own->end - own->answer > options->seq - kept;
}

bool unpaired_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                   Diag *diag) {
    TokenBuffer windows = {0};
    size_t n;
    *out = (PreferenceTotals){0};
    Answered *all = list_answered(buffer, &n, diag);
    if (!all) return false;
    size_t *others = find_others(buffer, all, n);
    bool good = others[0] < n || !options->needs_others;
    if (!good) {
        diag_error(diag, NO_LOC,
                   "all answers are to the same prompt; kto needs those to others, to know how far "
                   "the model is from its reference (apo_zero_unpaired does not)");
    }
    good = good && token_buffer_create(&windows, buffer->token_bytes, n * 2 * options->seq, diag);
    for (size_t i = 0; good && i < n; i++) {
        put_unpaired(&windows, i * 2 * options->seq, buffer, &all[i],
                     &all[others[i] < n ? others[i] : i], options, out);
    }
    free(all);
    free(others);
    if (!good) return false;
    token_buffer_release(buffer);
    *buffer = windows;
    return true;
}

bool unpaired_take_kind(int32_t *labels, int64_t seq) {
    bool wanted = labels[seq - 1] == DATASET_NO_LABEL;
    labels[seq - 1] = DATASET_NO_LABEL;
    return wanted;
}

bool unpaired_documents(const Dataset *pairs, int64_t seq, int32_t *tokens, int32_t *labels,
                        TokenBuffer *out, Diag *diag) {
    const int64_t n = dataset_count_windows(pairs);
    if (!token_buffer_create(out, 4, (size_t)(n * 2 * seq), diag)) return false;
    for (int64_t w = 0; w < n; w++) {
        const size_t at = (size_t)(w * 2 * seq);
        if (!dataset_window(pairs, w, tokens, labels, diag)) return false;
        for (size_t i = 0; i < (size_t)(2 * seq); i++) {
            bool counts = i > 0 && labels[i - 1] != DATASET_NO_LABEL;
            token_buffer_set(out, at + i, (uint32_t)tokens[i]);
            out->marks[at + i] = counts ? TOKEN_COUNTS : 0;
        }
        out->marks[at] |= TOKEN_BEGINS | TOKEN_WANTED;
        out->marks[at + (size_t)seq] |= TOKEN_BEGINS;
    }
    return true;
}

/* --- what other files hold --- */

/* Where the answer's first token is; seq: there is none. */
static int64_t find_answer(const int32_t *labels, int64_t seq) {
    int64_t at = 1;
    while (at < seq && labels[at - 1] == DATASET_NO_LABEL) at++;
    return at;
}

/* NULL: a pair. */
static const char *why_no_pair(const int32_t *tokens, const int32_t *labels, int64_t seq) {
    int64_t a = find_answer(labels, seq), b = find_answer(labels + seq, seq);
    if (a == seq || b == seq) return "a row without an answer";
    if (labels[seq - 1] != DATASET_NO_LABEL) return "a row that begins with an answer";
    if (a != b) return "rows with prompts of different lengths";
    for (int64_t i = 0; i < a; i++) {
        if (tokens[i] != tokens[seq + i]) return "rows with different prompts";
    }
    return NULL;
}

static uint64_t hash_window(uint64_t hash, const int32_t *tokens, const int32_t *labels,
                            int64_t seq) {
    for (int64_t i = 0; i < 2 * seq; i++) {
        hash = mix_bits(hash ^ ((uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)labels[i]));
    }
    return hash;
}

bool preference_check(const Dataset *dataset, const char *path, int64_t seq, int32_t *tokens,
                      int32_t *labels, uint64_t *out_hash, Diag *diag) {
    SourceLoc loc = {path, 0};
    uint64_t hash = mix_bits((uint64_t)seq);
    if (!dataset_is_masked(dataset)) {
        diag_error(diag, loc,
                   "has no mask that says which tokens are answers, and the plan learns from "
                   "answers that are preferred: give lines of .jsonl and --tokenizer FILE, or what "
                   "`tokenizer "
                   "encode --preferences %" PRId64 "` writes",
                   seq);
        return false;
    }
    for (int64_t w = 0; w < dataset_count_windows(dataset); w++) {
        if (!dataset_window(dataset, w, tokens, labels, diag)) return false;
        const char *why = why_no_pair(tokens, labels, seq);
        if (why) {
            diag_error(diag, loc,
                       "tokens %" PRId64 " to %" PRId64 " are no chosen and rejected answer of "
                       "%" PRId64 " tokens each (%s): was it made by `tokenizer encode "
                       "--preferences %" PRId64 "`?",
                       w * 2 * seq, (w + 1) * 2 * seq - 1, seq, why, seq);
            return false;
        }
        hash = hash_window(hash, tokens, labels, seq);
    }
    *out_hash = mix_bits(*out_hash ^ hash);
    return true;
}

bool preference_hash(const Dataset *dataset, int64_t seq, int32_t *tokens, int32_t *labels,
                     uint64_t *out_hash, Diag *diag) {
    uint64_t hash = mix_bits((uint64_t)seq);
    for (int64_t w = 0; w < dataset_count_windows(dataset); w++) {
        if (!dataset_window(dataset, w, tokens, labels, diag)) return false;
        hash = hash_window(hash, tokens, labels, seq);
    }
    *out_hash = mix_bits(*out_hash ^ hash);
    return true;
}
