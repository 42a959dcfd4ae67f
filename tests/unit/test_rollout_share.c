/* Answers that processes wrote apart come to all (rollout_share): forked processes on the loopback
 * address, and bytes that are no answers.
 *
 * Would catch: an answer at another's place, one that is cut, numbers of another rank's length, a
 * piece of several that is missing or twice, and bytes of a rank that is not like this one taken
 * for answers.
 */
#include "frontend/commands/rollout_share.c"
#include "tests/unit/control_job.h"

static int64_t n_answers, n_seq; /* of jobs made from now on */
static int n_together = 1;

/* Of answer i: from none to all of n_seq, and other numbers in each. */
static int32_t length_of(int64_t i) {
    return (int32_t)(i % 5 == 3 ? 0 : i % 7 == 1 ? n_seq : (4801 * i + 5) % (n_seq + 1));
}

static int32_t token_of(int64_t i, int32_t k) {
    return (int32_t)(i * 1000003 + k * 31 + 7);
}

static void write_answer(RolloutAnswer *answer, int64_t i) {
    answer->n_tokens = length_of(i);
    answer->ended = i % 3 == 0;
    answer->reward = 0.25f * (float)i - 2;
    for (int32_t k = 0; k < answer->n_tokens; k++) answer->tokens[k] = (uint32_t)token_of(i, k);
}

static bool is_right(const RolloutAnswer *answer, int64_t i) {
    bool right = answer->n_tokens == length_of(i) && answer->ended == (i % 3 == 0) &&
                 answer->reward == 0.25f * (float)i - 2;
    for (int32_t k = 0; right && k < answer->n_tokens; k++) {
        right = answer->tokens[k] == (uint32_t)token_of(i, k);
    }
    return right;
}

static bool sharing_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return false;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    RolloutAnswer *answers = rollout_answers_create(n_answers, n_seq, arena);
    const RankCrew crew = {control, rank, n_together};
    const CrewShare written = rank_crew_written(&crew, n_answers);
    int64_t n_right = 0;
    for (int64_t i = 0; i < written.count; i++) {
        const int64_t at = rank_crew_at(written, i);
        write_answer(&answers[at], at);
        answers[at].reward = 0; /* until its judge says it */
    }
    const CrewShare own = rank_crew_own(&crew, n_answers);
    for (int64_t i = 0; i < own.count; i++) {
        const int64_t at = rank_crew_at(own, i);
        bool wrote = answers[at].n_tokens == length_of(at) && at % written.step == written.first;
        if (wrote) write_answer(&answers[at], at);
    }
    bool shared = rollout_share(&crew, answers, n_answers, n_seq, diag);
    for (int64_t i = 0; i < n_answers; i++) n_right += is_right(&answers[i], i);
    if (!shared || n_right < n_answers) {
        snprintf(said, SAID_BYTES, "%d of %d are right; %s", (int)n_right, (int)n_answers,
                 diag_text(diag));
    }
    /* More than there may be is refused, by all alike, before memory is taken for it. */
    unsigned char *all;
    size_t n_all;
    bool bounded =
        !rank_crew_gather(control, "answers", 7, 7 * (size_t)job->world - 1, NULL, &all, &n_all) &&
        rank_crew_gather(control, "answers", 7, 7 * (size_t)job->world, NULL, &all, &n_all) &&
        n_all == 7 * (size_t)job->world && memcmp(all, "answers", 7) == 0;
    if (!bounded) snprintf(said, SAID_BYTES, "bytes of all are not bounded");
    free(all);
    bool well = shared && bounded && n_right == n_answers && control_close(control);
    rollout_answers_release(answers, n_answers);
    diag_destroy(diag);
    arena_destroy(arena);
    control_destroy(control);
    return well;
}

static void test_sharing(int world, int64_t count, int64_t seq, const char *what) {
    char name[128];
    snprintf(name, sizeof(name), "rollout: %s of %d ranks, %d together, come to all", what, world,
             n_together);
    check_begin(name);
    n_answers = count;
    n_seq = seq;
    Job job = job_create(world, sharing_rank);
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    check_end();
}

/* --- bytes that are no answers --- */

enum { COUNT = 5, SEQ = 8 };

static const CrewShare OWN = {2, 1, 2}; /* the second of two ranks has answers 1 and 3 */

static bool take(const unsigned char *bytes, size_t n) {
    Arena *arena = arena_create();
    RolloutAnswer *answers = rollout_answers_create(COUNT, SEQ, arena);
    unsigned char *own = malloc(n + 1); /* that sanitizers see where it ends */
    memcpy(own, bytes, n);
    bool fine = unpack(answers, OWN, SEQ, own, n);
    for (int64_t i = 1; fine && i < COUNT; i += 2) fine = is_right(&answers[i], i);
    free(own);
    rollout_answers_release(answers, COUNT);
    arena_destroy(arena);
    return fine;
}

static void test_damaged(void) {
    check_begin("rollout: bytes that are no answers are refused");
    unsigned char bytes[512];
    Arena *arena = arena_create();
    n_seq = SEQ;
    RolloutAnswer *answers = rollout_answers_create(COUNT, SEQ, arena);
    for (int64_t i = 0; i < COUNT; i++) write_answer(&answers[i], i);
    const size_t n = pack(answers, OWN, bytes);
    CHECK(take(bytes, n), "what was packed is refused");
    for (size_t less = 0; less < n; less++) CHECK(!take(bytes, less), "%zu of %zu bytes", less, n);
    bytes[n] = 0;
    CHECK(!take(bytes, n + 1), "a byte too many");
    for (int32_t length = -1; length <= SEQ + 1; length += SEQ + 2) {
        memcpy(bytes, &length, sizeof(length));
        CHECK(!take(bytes, n), "an answer of %d tokens", (int)length);
    }
    rollout_answers_release(answers, COUNT);
    arena_destroy(arena);
    check_end();
}

int main(void) {
    test_sharing(1, 4, 8, "answers");
    test_sharing(2, 7, 16, "answers");
    test_sharing(5, 12, 8, "answers");
    test_sharing(5, 3, 8, "fewer answers");
    test_sharing(2, 160, 8192, "answers in several pieces"); /* of CONTROL_MAX_BYTES */
    n_together = 2;
    test_sharing(4, 13, 8, "answers");
    test_sharing(4, 3, 8, "fewer answers");
    n_together = 3;
    test_sharing(3, 7, 16, "answers");
    test_damaged();
    return check_report();
}
