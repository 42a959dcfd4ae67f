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

static RolloutOwn every(int64_t first, int64_t step, int64_t count) {
    return (RolloutOwn){(count - first + step - 1) / step, first, step};
}

RolloutOwn rollout_written(const RolloutCrew *crew, int64_t count) {
    if (!crew->control) return every(0, 1, count);
    return every(crew->rank / crew->together, control_world(crew->control) / crew->together, count);
}

/* Of what a group writes its members have one after the other. */
static RolloutOwn own_of(const RolloutCrew *crew, int rank, int64_t count) {
    const int world = crew->control ? control_world(crew->control) : 1;
    const int n_groups = world / crew->together;
    return every(rank / crew->together + rank % crew->together * n_groups, world, count);
}

RolloutOwn rollout_own(const RolloutCrew *crew, int64_t count) {
    return crew->control ? own_of(crew, crew->rank, count) : every(0, 1, count);
}

/* What travels of an answer: its tokens follow. */
typedef struct AnswerHead {
    int32_t n_tokens, ended;
    float reward;
} AnswerHead;

/* All that these answers are, one after the other. */
static size_t pack(const RolloutAnswer *answers, RolloutOwn own, unsigned char *out) {
    size_t at = 0;
    for (int64_t i = 0; i < own.count; i++) {
        const RolloutAnswer *answer = &answers[rollout_own_at(own, i)];
        const AnswerHead head = {answer->n_tokens, answer->ended, answer->reward};
        const size_t bytes = (size_t)answer->n_tokens * sizeof(uint32_t);
        memcpy(out + at, &head, sizeof(head));
        memcpy(out + at + sizeof(head), answer->tokens, bytes);
        at += sizeof(head) + bytes;
    }
    return at;
}

/* False: that is no such thing. */
static bool unpack(RolloutAnswer *answers, RolloutOwn own, int64_t seq, const unsigned char *from,
                   size_t n_bytes) {
    size_t at = 0;
    for (int64_t i = 0; i < own.count; i++) {
        RolloutAnswer *answer = &answers[rollout_own_at(own, i)];
        AnswerHead head;
        if (n_bytes - at < sizeof(head)) return false;
        memcpy(&head, from + at, sizeof(head));
        at += sizeof(head);
        if (head.n_tokens < 0 || head.n_tokens > seq) return false;
        const size_t bytes = (size_t)head.n_tokens * sizeof(uint32_t);
        if (n_bytes - at < bytes) return false;
        memcpy(answer->tokens, from + at, bytes);
        at += bytes;
        answer->n_tokens = head.n_tokens;
        answer->ended = head.ended != 0;
        answer->reward = head.reward;
    }
    return at == n_bytes;
}

/* bytes[n_bytes] of this rank and of all others, lengths[world] of them, -> one after the other: in
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
        for (size_t r = 0, first = 0; good && r < world; first += lengths[r++]) {
            if (at >= lengths[r]) continue;
            size_t n = lengths[r] - at < piece ? (size_t)lengths[r] - at : piece;
            memcpy(out + first + at, slots + r * piece, n);
        }
    }
    free(slots);
    return good;
}

/* How many bytes each rank has, the most of them, and all together. */
static bool gather_lengths(Control *control, size_t own, uint64_t *lengths, size_t *out_most,
                           size_t *out_all) {
    const uint64_t length = own;
    *out_most = *out_all = 0;
    if (!control_await(control) || /* one may write for longer than others */
        !control_all_gather(control, &length, sizeof(length), sizeof(length), lengths, NULL)) {
        return false;
    }
    for (int r = 0; r < control_world(control); r++) {
        if (lengths[r] > *out_most) *out_most = (size_t)lengths[r];
        *out_all += (size_t)lengths[r];
    }
    return true;
}

static bool gather_all(Control *control, const void *bytes, size_t n_bytes, uint64_t *lengths,
                       unsigned char **out, size_t *out_n) {
    size_t most;
    *out = NULL;
    if (!gather_lengths(control, n_bytes, lengths, &most, out_n)) return false;
    *out = malloc(*out_n + 1);
    if (!*out) BUG("out of memory for %zu bytes", *out_n);
    return gather(control, bytes ? bytes : "", n_bytes, lengths, most, *out);
}

bool rollout_gather(Control *control, const void *bytes, size_t n_bytes, unsigned char **out,
                    size_t *out_n) {
    uint64_t *lengths = calloc((size_t)control_world(control), sizeof(*lengths));
    if (!lengths) BUG("out of memory");
    const bool good = gather_all(control, bytes, n_bytes, lengths, out, out_n);
    if (!good) free(*out);
    free(lengths);
    return good;
}

bool rollout_share(const RolloutCrew *crew, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag) {
    Control *control = crew->control;
    if (!control) return true;
    const char *why = "a rank's answers are not what they should be";
    const int64_t world = control_world(control);
    const RolloutOwn mine = rollout_own(crew, count);
    const size_t most = (size_t)mine.count * (sizeof(AnswerHead) + (size_t)seq * sizeof(uint32_t));
    unsigned char *own = malloc(most + 1), *all;
    uint64_t *lengths = calloc((size_t)world, sizeof(*lengths));
    size_t n_all;
    if (!own || !lengths) BUG("out of memory for %zu bytes", most);
    bool good = gather_all(control, own, pack(answers, mine, own), lengths, &all, &n_all);
    const unsigned char *at = all;
    for (int r = 0; r < world && good; at += lengths[r++]) {
        good = unpack(answers, own_of(crew, r, count), seq, at, (size_t)lengths[r]);
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
