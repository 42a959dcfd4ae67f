#include "runtime/data/preferences.h"

#include "runtime/data/mix.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>

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

/* The last `kept` tokens of the prompt, and of the answer what fits. */
static void put_row(TokenBuffer *to, size_t at, const TokenBuffer *from, const Answered *document,
                    size_t kept, const PreferenceOptions *options) {
    size_t answered = least(document->end - document->answer, options->seq - kept);
    size_t first = document->answer - kept;
    for (size_t i = 0; i < options->seq; i++) {
        bool is_there = i < kept + answered;
        token_buffer_set(to, at + i, is_there ? token_buffer_at(from, first + i) : options->pad);
        bool counts = is_there && i >= kept && from->marks[first + i] & TOKEN_COUNTS;
        to->marks[at + i] = counts ? TOKEN_COUNTS : 0;
    }
    to->marks[at] |= TOKEN_BEGINS;
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
    sum->n_equal += more->n_equal;
    sum->n_prompts += more->n_prompts;
    sum->n_answers += more->n_answers;
    sum->n_prompt += more->n_prompt;
    sum->n_answer += more->n_answer;
}

/* Two answers to one question? What was cut off of both is not in them. */
static bool have_one_prompt(const TokenBuffer *buffer, const Answered pair[2]) {
    size_t n = pair[0].answer - pair[0].begin;
    bool equal = pair[1].answer - pair[1].begin == n;
    for (size_t i = 0; equal && i < n; i++) {
        equal = token_buffer_at(buffer, pair[0].begin + i) ==
                token_buffer_at(buffer, pair[1].begin + i);
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
    if (have_one_prompt(buffer, pair)) return true;
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

bool preference_check(const Dataset *dataset, const char *path, int64_t seq, int32_t *tokens,
                      int32_t *labels, uint64_t *out_hash, Diag *diag) {
    SourceLoc loc = {path, 0};
    uint64_t hash = mix_bits((uint64_t)seq);
    if (!dataset_is_masked(dataset)) {
        diag_error(diag, loc,
                   "has no mask that says which tokens are answers, and the plan learns from pairs "
                   "of answers: give lines of .jsonl and --tokenizer FILE, or what `tokenizer "
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
        for (int64_t i = 0; i < 2 * seq; i++) {
            hash = mix_bits(hash ^ ((uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)labels[i]));
        }
    }
    *out_hash = mix_bits(*out_hash ^ hash);
    return true;
}
