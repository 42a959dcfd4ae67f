#include "frontend/commands/rollout_share.h"

#include <stdlib.h>
#include <string.h>

RolloutAnswer *rollout_answers_create(int64_t count, int64_t seq, Arena *arena) {
    RolloutAnswer *answers = ARENA_ARRAY(arena, RolloutAnswer, count + 1);
    for (int64_t i = 0; i < count; i++) {
        answers[i].tokens = ARENA_ARRAY(arena, uint32_t, seq);
        answers[i].text = strbuf_create();
    }
    return answers;
}

void rollout_answers_release(RolloutAnswer *answers, int64_t count) {
    for (int64_t i = 0; i < count; i++) strbuf_destroy(&answers[i].text);
}

bool rollout_answers_equal(const RolloutAnswer *a, const RolloutAnswer *b) {
    return a->n_tokens == b->n_tokens &&
           memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(*a->tokens)) == 0;
}

RolloutOwn rollout_own(Control *control, int rank, int64_t count) {
    RolloutOwn own = {.rank = control ? rank : 0, .world = control ? control_world(control) : 1};
    own.count = (count - own.rank + own.world - 1) / own.world;
    return own;
}

/* What travels of an answer: its tokens follow. */
typedef struct AnswerHead {
    int32_t n_tokens, ended;
    float reward;
} AnswerHead;

/* All that this rank's answers are, one after the other. */
static size_t pack(const RolloutAnswer *answers, int64_t count, int64_t rank, int64_t world,
                   unsigned char *out) {
    size_t at = 0;
    for (int64_t i = rank; i < count; i += world) {
        const RolloutAnswer *answer = &answers[i];
        const AnswerHead head = {answer->n_tokens, answer->ended, answer->reward};
        const size_t bytes = (size_t)answer->n_tokens * sizeof(uint32_t);
        memcpy(out + at, &head, sizeof(head));
        memcpy(out + at + sizeof(head), answer->tokens, bytes);
        at += sizeof(head) + bytes;
    }
    return at;
}

/* False: that is no such thing. */
static bool unpack(RolloutAnswer *answers, int64_t count, int64_t seq, int64_t rank, int64_t world,
                   const unsigned char *from, size_t n_bytes) {
    size_t at = 0;
    for (int64_t i = rank; i < count; i += world) {
        AnswerHead head;
        if (n_bytes - at < sizeof(head)) return false;
        memcpy(&head, from + at, sizeof(head));
        at += sizeof(head);
        if (head.n_tokens < 0 || head.n_tokens > seq) return false;
        const size_t bytes = (size_t)head.n_tokens * sizeof(uint32_t);
        if (n_bytes - at < bytes) return false;
        memcpy(answers[i].tokens, from + at, bytes);
        at += bytes;
        answers[i].n_tokens = head.n_tokens;
        answers[i].ended = head.ended != 0;
        answers[i].reward = head.reward;
    }
    return at == n_bytes;
}

/* bytes[n_bytes] of this rank and of all others, lengths[world] of them, -> out[world][most]: in
 * pieces of what an operation takes. */
static bool gather(Control *control, const unsigned char *bytes, size_t n_bytes,
                   const uint64_t *lengths, size_t most, unsigned char *out) {
    const size_t world = (size_t)control_world(control);
    size_t piece = CONTROL_MAX_RESULT_BYTES / world;
    if (piece > CONTROL_MAX_BYTES) piece = CONTROL_MAX_BYTES;
    unsigned char *slots = malloc(world * piece);
    if (!slots) BUG("out of memory for %zu bytes", world * piece);
    bool good = true;
    for (size_t at = 0; good && at < most; at += piece) {
        size_t own = at >= n_bytes ? 0 : n_bytes - at < piece ? n_bytes - at : piece;
        good = control_all_gather(control, own ? bytes + at : bytes, own, piece, slots, NULL);
        for (size_t r = 0; good && r < world; r++) {
            if (at >= lengths[r]) continue;
            size_t n = lengths[r] - at < piece ? (size_t)lengths[r] - at : piece;
            memcpy(out + r * most + at, slots + r * piece, n);
        }
    }
    free(slots);
    return good;
}

/* How many bytes each rank has, and the most of them. */
static bool gather_lengths(Control *control, size_t own, uint64_t *lengths, size_t *out_most) {
    const uint64_t length = own;
    *out_most = 1;
    if (!control_await(control) || /* one may write for longer than others */
        !control_all_gather(control, &length, sizeof(length), sizeof(length), lengths, NULL)) {
        return false;
    }
    for (int r = 0; r < control_world(control); r++) {
        if (lengths[r] > *out_most) *out_most = (size_t)lengths[r];
    }
    return true;
}

bool rollout_share(Control *control, int rank, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag) {
    if (!control) return true;
    const char *why = "a rank's answers are not what they should be";
    const int64_t world = control_world(control);
    const size_t most_own = (size_t)((count + world - 1) / world) *
                            (sizeof(AnswerHead) + (size_t)seq * sizeof(uint32_t));
    unsigned char *own = malloc(most_own + 1), *all = NULL;
    uint64_t *lengths = calloc((size_t)world, sizeof(*lengths));
    size_t most;
    if (!own || !lengths) BUG("out of memory for %zu bytes", most_own);
    const size_t n_own = pack(answers, count, rank, world, own);
    bool good = gather_lengths(control, n_own, lengths, &most) && most <= most_own + 1;
    if (good) {
        all = malloc((size_t)world * most);
        if (!all) BUG("out of memory for %zu bytes", (size_t)world * most);
        good = gather(control, own, n_own, lengths, most, all);
    }
    for (int64_t r = 0; r < world && good; r++) {
        good = unpack(answers, count, seq, r, world, all + (size_t)r * most, (size_t)lengths[r]);
    }
    free(own);
    free(all);
    free(lengths);
    if (good) return true;
    control_failed(control, &why);
    diag_error(diag, NO_LOC, "%s", why);
    return false;
}

bool rollout_share_rewards(Control *control, RolloutAnswer *answers, int64_t count, Diag *diag) {
    const int64_t most = CONTROL_MAX_BYTES / (int64_t)sizeof(float);
    const char *why = "rewards did not come from the first process";
    if (!control) return true;
    float *rewards = calloc((size_t)count + 1, sizeof(*rewards));
    if (!rewards) BUG("out of memory");
    for (int64_t i = 0; i < count; i++) rewards[i] = answers[i].reward;
    bool good = control_await(control); /* who judges may take any time */
    for (int64_t at = 0; good && at < count; at += most) {
        const int64_t n = count - at < most ? count - at : most;
        good = control_broadcast(control, 0, rewards + at, (size_t)n * sizeof(*rewards));
    }
    for (int64_t i = 0; i < count && good; i++) answers[i].reward = rewards[i];
    free(rewards);
    if (good) return true;
    control_failed(control, &why);
    diag_error(diag, NO_LOC, "%s", why);
    return false;
}
