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

/* What travels of an answer: its tokens follow. */
typedef struct AnswerHead {
    int32_t n_tokens, ended;
    float reward;
} AnswerHead;

/* All that these answers are, one after the other. */
static size_t pack(const RolloutAnswer *answers, CrewShare own, unsigned char *out) {
    size_t at = 0;
    for (int64_t i = 0; i < own.count; i++) {
        const RolloutAnswer *answer = &answers[rank_crew_at(own, i)];
        const AnswerHead head = {answer->n_tokens, answer->ended, answer->reward};
        const size_t bytes = (size_t)answer->n_tokens * sizeof(uint32_t);
        memcpy(out + at, &head, sizeof(head));
        memcpy(out + at + sizeof(head), answer->tokens, bytes);
        at += sizeof(head) + bytes;
    }
    return at;
}

/* False: that is no such thing. */
static bool unpack(RolloutAnswer *answers, CrewShare own, int64_t seq, const unsigned char *from,
                   size_t n_bytes) {
    size_t at = 0;
    for (int64_t i = 0; i < own.count; i++) {
        RolloutAnswer *answer = &answers[rank_crew_at(own, i)];
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

bool rollout_share(const RankCrew *crew, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag) {
    Control *control = crew->control;
    if (!control) return true;
    const char *why = "a rank's answers are not what they should be";
    const int64_t world = control_world(control);
    const size_t each = sizeof(AnswerHead) + (size_t)seq * sizeof(uint32_t);
    const CrewShare mine = rank_crew_own(crew, count);
    unsigned char *own = malloc((size_t)mine.count * each + 1), *all;
    uint64_t *lengths = calloc((size_t)world, sizeof(*lengths));
    size_t n_all;
    if (!own || !lengths) BUG("out of memory for %zu bytes", (size_t)mine.count * each);
    bool good = rank_crew_gather(control, own, pack(answers, mine, own), (size_t)count * each,
                                 lengths, &all, &n_all);
    const unsigned char *at = all;
    for (int r = 0; r < world && good; at += lengths[r++]) {
        good = unpack(answers, rank_crew_own_of(crew, r, count), seq, at, (size_t)lengths[r]);
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
