/* DiLoCo: islands that meet over TCP, and engines as islands against the same by hand.
 *
 * Would catch: islands whose weights differ by a bit, one that is late or lost and holds up the
 * others, weights at another place of the whole, strangers that can disturb, a part
 * that is merged at another step or with another share, or that is sent as it is later.
 */
#include "ir/base/clock.h"
#include "runtime/engine_islands.h"
#include "runtime/islands/islands.h"
#include "runtime/islands/islands_internal.h"
#include "tests/unit/control_job.h"
#include "tests/unit/message_noise.h"
#include "tests/unit/train_compare.h"

#include <pthread.h>
#include <stdatomic.h>

enum { N = 9001 };

/* Uniform in (-1, 1). */
static float next_float(uint32_t *random) {
    return (float)next_random(random) / (float)(1 << 23) - 1;
}

/* --- meeting over TCP --- */

/* One island's thread: what it does, and what became of it. */
typedef struct Fellow {
    IslandsOptions options;
    int n_meetings;
    double late_s; /* before meeting late_at */
    int late_at;
    int leaves_after;   /* meetings; 0: stays */
    int spoils_at;      /* meeting; 0: none */
    float spoiled;      /* what it offers there as one of its weights */
    double comes_after; /* seconds */
    double joined_s;    /* how long joining took */
    float weights[N], momentum[N], residual[N], own[N];
    IslandsPlace place, taken;
    IslandsResult results[8];
    IslandsReport reports[8];
    Diag *diag;
    pthread_t thread;
} Fellow;

static IslandsOptions fellow_options(int n_islands, int island, int port, DType dtype) {
    return (IslandsOptions){.n_islands = n_islands,
                            .island = island,
                            .host = "127.0.0.1",
                            .port = port,
                            .token = "token",
                            .version = "1",
                            .recipe = "one way\nanother\n",
                            .model = 77,
                            .n_values = N,
                            .dtype = dtype,
                            .rule = {0.7, 0.9},
                            .timeout_s = 20};
}

/* All that streams has is told apart: what it trains, and parts' turns. */
static void be_giver(const Fellow *f, Islands *islands) {
    IslandsPlace place = f->place;
    place.at_step = place.step;
    place.at_samples = place.samples;
    for (int p = 0; p < f->options.n_parts; p++) place.turns[p] = (PartTurn){p + 1, p + 3};
    islands_admit(islands, &place, f->options.streams ? f->own : NULL, NULL);
}

static void *be_fellow(void *user) {
    Fellow *f = user;
    uint32_t random = 100 + (uint32_t)f->options.island;
    sleep_s(f->comes_after);
    Islands *islands =
        islands_create(&f->options, f->weights, f->options.island ? NULL : f->momentum,
                       f->options.island ? NULL : f->residual);
    const double came = clock_now();
    f->results[0] = islands_start(islands, &f->place, false, f->diag);
    f->joined_s = clock_now() - came;
    bool good = f->results[0] == ISLANDS_MET || f->results[0] == ISLANDS_TAKEN, wants;
    if (f->results[0] == ISLANDS_TAKEN && islands_taken_own(islands)) {
        memcpy(f->own, islands_taken_own(islands), sizeof f->own);
        f->taken = f->place;
    }
    if (good && islands_count_waiting(islands, &wants) > 0) be_giver(f, islands);
    for (int m = 1; good && f->place.step < f->n_meetings && m < 8; m++) {
        if (f->leaves_after && m > f->leaves_after) break;
        for (int i = 0; i < N; i++) f->own[i] = f->weights[i] + 0.1f * next_float(&random);
        if (m == f->late_at) sleep_s(f->late_s);
        if (m == f->spoils_at) f->own[N - 1] = f->spoiled;
        f->place.step++;
        f->place.samples += 8;
        const int n_parts = f->options.n_parts, part = n_parts ? (int)f->place.step % n_parts : 0;
        f->results[m] = islands_meet(islands, part, f->own + f->options.part_at[part], &f->place,
                                     &f->reports[m], f->diag);
        good = f->results[m] == ISLANDS_MET || f->results[m] == ISLANDS_TAKEN;
        if (good && islands_count_waiting(islands, &wants) > 0) be_giver(f, islands);
    }
    islands_destroy(islands, NULL);
    return NULL;
}

/* In parts of a third, none and two thirds. */
static void divide_fellow(IslandsOptions *options) {
    options->n_parts = 3;
    options->streams = true;
    options->part_at[1] = options->part_at[2] = N / 3;
    options->part_at[3] = N;
}

static Fellow *fellows_create(int n, int port, int n_meetings, DType dtype) {
    Fellow *all = calloc((size_t)n, sizeof(Fellow));
    for (int i = 0; i < n; i++) {
        uint32_t random = 3;
        all[i].options = fellow_options(n, i, port, dtype);
        all[i].n_meetings = n_meetings;
        all[i].late_at = 2;
        all[i].diag = diag_create();
        for (int k = 0; k < N; k++) all[i].weights[k] = next_float(&random);
    }
    return all;
}

static void fellows_run(Fellow *all, int n) {
    for (int i = 0; i < n; i++) pthread_create(&all[i].thread, NULL, be_fellow, &all[i]);
    for (int i = 0; i < n; i++) pthread_join(all[i].thread, NULL);
}

static void fellows_free(Fellow *all, int n) {
    for (int i = 0; i < n; i++) diag_destroy(all[i].diag);
    free(all);
}

static void check_alike(const Fellow *all, int n) {
    for (int i = 1; i < n; i++) {
        CHECK(memcmp(all[i].weights, all[0].weights, sizeof all[0].weights) == 0,
              "island %d has other weights than island 0; %s", i, diag_text(all[i].diag));
        CHECK(all[i].place.step == all[0].place.step &&
                  all[i].place.samples == all[0].place.samples,
              "island %d is at step %d, island 0 at %d", i, (int)all[i].place.step,
              (int)all[0].place.step);
    }
}

/* Three that come in any order have what the step makes of them in their order. */
static void check_meetings(const char *name, DType dtype, bool in_parts) {
    enum { ISLANDS = 3, MEETINGS = 3 };
    check_begin(name);
    static float first[N];
    for (int run = 0; run < 2; run++) {
        Fellow *all = fellows_create(ISLANDS, find_free_port("127.0.0.1"), MEETINGS, dtype);
        all[run].comes_after = 0.1;
        all[1 + run].late_s = 0.05;
        for (int i = 0; i < ISLANDS && in_parts; i++) divide_fellow(&all[i].options);
        fellows_run(all, ISLANDS);
        check_alike(all, ISLANDS);
        CHECK(all[0].place.step == MEETINGS && all[0].place.n_meetings == MEETINGS,
              "%d meetings: %s", (int)all[0].place.n_meetings, diag_text(all[0].diag));
        CHECK(all[2].reports[1].n_present == 3 && all[2].reports[1].norm == all[0].reports[1].norm,
              "island 2 is told of %d islands, norm %g", all[2].reports[1].n_present,
              all[2].reports[1].norm);
        const int64_t bytes = all[2].reports[in_parts ? 3 : 1].bytes; /* part 0, of a third */
        const int64_t least = 2 * (int64_t)outer_bytes(dtype, in_parts ? N / 3 : N);
        CHECK(bytes > least && bytes < least + 1000, "%d bytes", (int)bytes);
        if (run == 0) memcpy(first, all[0].weights, sizeof first);
        CHECK(memcmp(first, all[0].weights, sizeof first) == 0, "another order, other bits");
        fellows_free(all, ISLANDS);
    }
}

/* All train at the same time: who is there first waits, and waits for island 0 from then on. */
static void check_beginning(void) {
    check_begin("islands begin together");
    Fellow *all = fellows_create(2, find_free_port("127.0.0.1"), 1, DTYPE_F32);
    all[0].late_at = 1;
    all[0].late_s = 0.5;
    fellows_run(all, 2);
    CHECK(all[1].reports[1].wait_seconds > 0.3, "island 1 waited %g s, and island 0 trained 0.5",
          all[1].reports[1].wait_seconds);
    check_alike(all, 2);
    fellows_free(all, 2);
}

/* One is late, and left out of a meeting; at the next it takes what the others have. */
static void check_late(void) {
    enum { ISLANDS = 3 };
    check_begin("one is late: left out, and back");
    Fellow *all = fellows_create(ISLANDS, find_free_port("127.0.0.1"), 5, DTYPE_F32);
    all[0].options.timeout_s = 1.2; /* a busy machine keeps nobody waiting for so long */
    all[2].late_s = 2.4;
    all[0].late_at = 3; /* by then the late one has come again */
    all[0].late_s = 2.6;
    fellows_run(all, ISLANDS);
    CHECK(all[0].reports[2].n_present == 2 && all[0].reports[2].missing[2],
          "%d were at the second meeting", all[0].reports[2].n_present);
    CHECK(all[2].results[2] == ISLANDS_TAKEN, "the late one: result %d, %s", all[2].results[2],
          diag_text(all[2].diag));
    CHECK(all[0].reports[4].n_present == 3, "%d were at the fourth", all[0].reports[4].n_present);
    check_alike(all, ISLANDS);
    fellows_free(all, ISLANDS);
}

/* One goes after its first meeting; another run of it comes with other weights. */
static void check_lost(bool in_parts) {
    enum { ISLANDS = 2 };
    check_begin(in_parts ? "one goes, and comes again with nothing: all parts"
                         : "one goes, and comes again with nothing");
    const int port = find_free_port("127.0.0.1");
    Fellow *all = fellows_create(ISLANDS + 1, port, 6, DTYPE_F32);
    all[2].options = fellow_options(ISLANDS, 1, port, DTYPE_F32);
    all[0].options.n_islands = all[1].options.n_islands = ISLANDS;
    all[1].leaves_after = 1;
    all[0].late_s = 1.2; /* time for the other to come */
    all[2].comes_after = 0.3;
    memset(all[2].weights, 0, sizeof all[2].weights);
    for (int i = 0; i <= ISLANDS && in_parts; i++) divide_fellow(&all[i].options);
    fellows_run(all, ISLANDS + 1);
    const IslandsPlace *taken = &all[2].taken;
    for (int p = 0; p < 3 && in_parts; p++) {
        CHECK(taken->turns[p].met == p + 1 && taken->turns[p].merge == p + 3,
              "turns of part %d: %d, %d", p, (int)taken->turns[p].met, (int)taken->turns[p].merge);
    }
    CHECK(!in_parts || (taken->at_step == 2 && taken->at_samples == 16), "it goes on after %d",
          (int)taken->at_step);
    CHECK(all[1].results[1] == ISLANDS_MET, "the first: %s", diag_text(all[1].diag));
    CHECK(all[0].reports[2].n_present == 1, "%d at the second", all[0].reports[2].n_present);
    CHECK(all[0].reports[2].bytes >= 0, "%d bytes", (int)all[0].reports[2].bytes);
    CHECK(all[2].results[0] == ISLANDS_TAKEN, "it takes no weights: %s", diag_text(all[2].diag));
    CHECK(all[0].reports[3].n_present == 2, "%d at the third", all[0].reports[3].n_present);
    CHECK(memcmp(all[2].weights, all[0].weights, sizeof all[0].weights) == 0, "other weights");
    fellows_free(all, ISLANDS + 1);
}

/* Of three one offers what is not finite: the others go on as if it were not there, and it ends. */
static void check_not_finite(const char *name, DType dtype, float spoiled, bool in_parts) {
    enum { ISLANDS = 3 };
    check_begin(name);
    Fellow *all = fellows_create(ISLANDS, find_free_port("127.0.0.1"), 4, dtype);
    FILE *said = tmpfile();
    char line[200] = "";
    all[0].options.stream = said;
    all[1].spoils_at = 2;
    all[1].spoiled = spoiled;
    for (int i = 0; i < ISLANDS && in_parts; i++) divide_fellow(&all[i].options);
    fellows_run(all, ISLANDS);
    CHECK(all[1].results[2] == ISLANDS_FAILED &&
              strstr(diag_text(all[1].diag), "island 1: its weights after step 2 are not finite"),
          "result %d: %s", all[1].results[2], diag_text(all[1].diag));
    CHECK(all[0].reports[2].n_present == 2 && all[0].reports[2].missing[1],
          "%d were at the second meeting", all[0].reports[2].n_present);
    diag_destroy(all[1].diag);
    all[1] = all[2]; /* the two that go on */
    check_alike(all, 2);
    CHECK(all[0].place.step == 4, "after step %d", (int)all[0].place.step);
    for (int i = 0; i < N; i++)
        CHECK(isfinite(all[0].weights[i]), "weight %d is %g", i, (double)all[0].weights[i]);
    rewind(said);
    while (fgets(line, sizeof line, said) && !strstr(line, "not finite")) continue;
    CHECK(strstr(line, "is lost after step 1: its weights are not finite, and are left out"),
          "island 0 says '%s'", line);
    fclose(said);
    all[1].diag = diag_create();
    fellows_free(all, ISLANDS);
}

static void check_own_not_finite(void) {
    check_begin("island 0's own weights that are not finite end it");
    Fellow *all = fellows_create(1, 1, 4, DTYPE_F32);
    all[0].spoils_at = 3;
    all[0].spoiled = -INFINITY;
    fellows_run(all, 1);
    CHECK(all[0].results[3] == ISLANDS_FAILED &&
              strstr(diag_text(all[0].diag), "island 0: its weights after step 3 are not finite"),
          "result %d: %s", all[0].results[3], diag_text(all[0].diag));
    fellows_free(all, 1);
}

/* --- strangers --- */

typedef struct Stranger {
    int port;
    atomic_bool ends;
    pthread_t thread;
} Stranger;

/* Connects again and again, and sends what is nearly a message; true hellos with other options,
 * too. */
static void *be_stranger(void *user) {
    Stranger *stranger = user;
    uint32_t random = 11;
    while (!stranger->ends) {
        char why[SOCKET_WHY_BYTES];
        StrBuf out = strbuf_create();
        int fd = socket_connect("127.0.0.1", stranger->port, 1, why);
        for (int i = 0; i < 3; i++) put_noise(&out, &random);
        size_t start = message_begin(&out, MESSAGE_ISLAND_HELLO);
        for (uint32_t i = next_random(&random) % 40; i > 0; i--) message_put_u32(&out, i);
        message_end(&out, start);
        if (fd >= 0) {
            size_t n;
            socket_send(fd, out.text, out.length, &n);
            sleep_s(0.002);
            close(fd);
        } else {
            sleep_s(0.01);
        }
        strbuf_destroy(&out);
    }
    return NULL;
}

/* More connections than island 0 has room for, which say nothing. */
static void *be_silent(void *user) {
    Stranger *stranger = user;
    int fds[ISLANDS_MOST_GUESTS + 6], n = 0;
    while (!stranger->ends) {
        char why[SOCKET_WHY_BYTES];
        int fd =
            n < ISLANDS_MOST_GUESTS + 6 ? socket_connect("127.0.0.1", stranger->port, 1, why) : -1;
        if (fd >= 0) fds[n++] = fd;
        if (fd < 0) sleep_s(0.005);
    }
    while (n > 0) close(fds[--n]);
    return NULL;
}

static void check_silent(void) {
    enum { ISLANDS = 2 };
    check_begin("strangers that say nothing keep nobody out");
    const int port = find_free_port("127.0.0.1");
    Stranger stranger = {.port = port};
    Fellow *all = fellows_create(ISLANDS, port, 1, DTYPE_F32);
    all[1].comes_after = 0.3;
    pthread_create(&stranger.thread, NULL, be_silent, &stranger);
    fellows_run(all, ISLANDS);
    stranger.ends = true;
    pthread_join(stranger.thread, NULL);
    CHECK(all[0].reports[1].n_present == 2, "%s", diag_text(all[0].diag));
    CHECK(all[1].joined_s < 6, "it took %.1f s to join", all[1].joined_s); /* they stay for 10 */
    fellows_free(all, ISLANDS);
}

/* Of another run, again and again. */
static void *be_refused(void *user) {
    const Stranger *stranger = user;
    float weights[N] = {0};
    IslandsOptions options = fellow_options(2, 1, stranger->port, DTYPE_F32);
    options.token = "another";
    for (int i = 0; i < 40; i++) {
        IslandsPlace place = {0};
        Diag *diag = diag_create();
        Islands *islands = islands_create(&options, weights, NULL, NULL);
        CHECK(islands_start(islands, &place, false, diag) == ISLANDS_FAILED &&
                  strstr(diag_text(diag), "PERILUNE_JOB_TOKEN is not the one of island 0"),
              "%s", diag_text(diag));
        islands_destroy(islands, NULL);
        diag_destroy(diag);
    }
    return NULL;
}

static void check_refusals(void) {
    enum { ISLANDS = 2 };
    check_begin("refusals do not fill what island 0 says");
    const int port = find_free_port("127.0.0.1");
    Stranger stranger = {.port = port};
    Fellow *all = fellows_create(ISLANDS, port, 1, DTYPE_F32);
    FILE *said = tmpfile();
    int n_lines = 0;
    all[0].options.stream = said;
    pthread_create(&all[0].thread, NULL, be_fellow, &all[0]);
    be_refused(&stranger);
    pthread_create(&all[1].thread, NULL, be_fellow, &all[1]);
    for (int i = 0; i < ISLANDS; i++) pthread_join(all[i].thread, NULL);
    rewind(said);
    for (int c; (c = fgetc(said)) != EOF;) n_lines += c == '\n';
    CHECK(n_lines >= 20 && n_lines < 30, "%d lines", n_lines);
    CHECK(all[0].reports[1].n_present == 2, "%s", diag_text(all[0].diag));
    fclose(said);
    fellows_free(all, ISLANDS);
}

/* Something else at the address, such as a server of ssh, which says who it is. */
static void *be_server(void *user) {
    static const char BANNER[] = "SSH-2.0-other\r\n";
    Stranger *stranger = user;
    char why[SOCKET_WHY_BYTES];
    bool exhausted;
    int listener = socket_listen("127.0.0.1", stranger->port, why);
    while (!stranger->ends) {
        int fd = socket_wait(listener, false, 0.05) ? socket_accept(listener, &exhausted) : -1;
        size_t n;
        if (fd < 0) continue;
        socket_send(fd, BANNER, strlen(BANNER), &n);
        close(fd);
    }
    close(listener);
    return NULL;
}

static void check_other_server(void) {
    check_begin("something else at island 0's address is not waited for");
    const int port = find_free_port("127.0.0.1");
    Stranger stranger = {.port = port};
    Fellow *all = fellows_create(2, port, 1, DTYPE_F32);
    all[1].options.timeout_s = 0.5;
    pthread_create(&stranger.thread, NULL, be_server, &stranger);
    be_fellow(&all[1]);
    stranger.ends = true;
    pthread_join(stranger.thread, NULL);
    CHECK(all[1].results[0] == ISLANDS_FAILED &&
              strstr(diag_text(all[1].diag), "cannot be reached for 0.5 s"),
          "%s", diag_text(all[1].diag));
    fellows_free(all, 2);
}

static void check_strangers(void) {
    enum { ISLANDS = 2 };
    check_begin("strangers change nothing");
    const int port = find_free_port("127.0.0.1");
    Stranger stranger = {.port = port};
    Fellow *all = fellows_create(ISLANDS, port, 4, DTYPE_F32);
    all[1].comes_after = 0.2;
    all[1].late_s = 0.2;
    pthread_create(&stranger.thread, NULL, be_stranger, &stranger);
    fellows_run(all, ISLANDS);
    stranger.ends = true;
    pthread_join(stranger.thread, NULL);
    check_alike(all, ISLANDS);
    CHECK(all[0].place.n_meetings == 4 && all[0].reports[4].n_present == 2, "%s",
          diag_text(all[0].diag));
    fellows_free(all, ISLANDS);
}

/* --- engines --- */

enum { STEPS = 6, BATCH = 4 };
/* All at once; and two parts, both on their way after step 4. */
static const OuterTurns AT_ONCE = {.every = 2, .n_steps = STEPS, .n_parts = 1};
static const OuterTurns STREAMING = {
    .every = 3, .n_steps = STEPS, .n_parts = 2, .overlap = 2, .mix = 0.4};
static const double RATE = 5e-3;
static const OuterRule RULE = {0.7, 0.9};

static bool start(Run *run, const Layout *layout) {
    static const ModelSetting SETTINGS[] = {{"layers", "2"}, {"model", "32"}, {"heads", "4"},
                                            {"seq", "16"},   {"vocab", "61"}, {"ffn", "64"}};
    bool good =
        run_plan(run, "models/gpt.lua", SETTINGS, 6, layout, BATCH, false) && run_start(run);
    CHECK(good, "%s", diag_text(run->diag));
    return good;
}

/* An island's own samples. */
static bool train(Run *run, int island, int step) {
    int32_t tokens[BATCH * 16], labels[BATCH * 16];
    StepResult result;
    fill_batch(run->plan, 10 * step + island, tokens, labels);
    return engine_step(run->engine, step, tokens, labels, RATE, &result, run->diag);
}

typedef struct Worker {
    Run run;
    IslandsOptions options;
    const OuterTurns *turns;
    TrainingPlace place;
    int spoils_at; /* step; 0: none */
    bool good;
    pthread_t thread;
} Worker;

/* Of each parameter the first number is none any more. */
static void spoil(Run *run) {
    for (int i = 0; i < run->n_params; i++) {
        float *weights = run_weight(run, i);
        weights[0] = NAN;
        engine_write_parameter(run->engine, run->names[i], weights);
    }
}

static void *be_worker(void *user) {
    Worker *w = user;
    MeetingReport report;
    EngineIslands *islands =
        engine_islands_create(w->run.engine, &w->options, w->turns, w->run.diag);
    w->good = islands && engine_islands_start(islands, NULL, &w->place, w->run.diag) == ISLANDS_MET;
    for (int step = 1; w->good && step <= STEPS; step++) {
        w->good = train(&w->run, w->options.island, step);
        w->place.step = step;
        if (w->good && step == w->spoils_at) spoil(&w->run);
        if (!w->good || !engine_islands_are_due(islands, &w->place)) continue;
        w->good = engine_islands_meet(islands, &w->place, &report, w->run.diag) == ISLANDS_MET;
    }
    engine_islands_destroy(islands, NULL);
    return NULL;
}

/* Which part a run's parameters belong to, in the order of their names as islands have them. */
static void divide_run(const Run *run, int n_parts, int *out_parts) {
    enum { MOST = 64 };
    OuterItem items[MOST];
    int order[MOST], parts[MOST];
    CHECK(run->n_params <= MOST, "%d parameters", run->n_params);
    for (int i = 0; i < run->n_params; i++) {
        int at = i;
        for (; at > 0 && strcmp(run->names[order[at - 1]], run->names[i]) > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < run->n_params; i++) {
        const char *name = run->names[order[i]];
        const bool in_block = strncmp(name, "blocks.", 7) == 0;
        items[i] = (OuterItem){in_block ? atoi(name + 7) : OUTER_NO_BLOCK,
                               type_elements(&run->types[order[i]])};
    }
    outer_parts_divide(items, run->n_params, n_parts, parts);
    for (int i = 0; i < run->n_params; i++) out_parts[order[i]] = parts[i];
}

/* Of one parameter, by hand: what all know of it and its momentum, in f64. */
typedef struct ByHand {
    double *w, *v;
    int part;
} ByHand;

/* Two engines' parameter i: merged with what all know, or sent, which in f64 has come at once. */
static void exchange_by_hand(Run runs[2], int i, ByHand *hand, bool sends, double mix) {
    const int64_t n = type_elements(&runs[0].types[i]);
    float *own[2] = {run_weight(&runs[0], i), run_weight(&runs[1], i)};
    for (int64_t j = 0; j < n && sends; j++) {
        const double g = hand->w[j] - ((double)own[0][j] + (double)own[1][j]) / 2;
        hand->v[j] = RULE.momentum * hand->v[j] + g;
        hand->w[j] -= RULE.lr * (g + RULE.momentum * hand->v[j]);
    }
    for (int k = 0; k < 2 && !sends; k++) {
        for (int64_t j = 0; j < n; j++)
            own[k][j] = (float)(mix * (double)own[k][j] + (1 - mix) * hand->w[j]);
        engine_write_parameter(runs[k].engine, runs[0].names[i], own[k]);
    }
}

/* Two engines that take turns, and between their steps what islands do by its definition: a part is
 * sent after (p + 1) every / n_parts steps and so on, merged `overlap` later; at the end what is
 * left is merged, then all meet. */
static void train_by_hand(Run runs[2], const OuterTurns *turns) {
    enum { MOST = 64 };
    ByHand hands[MOST];
    int parts[MOST], sent_at[OUTER_MOST_PARTS] = {0};
    divide_run(&runs[0], turns->n_parts, parts);
    for (int i = 0; i < runs[0].n_params; i++) {
        const int64_t n = type_elements(&runs[0].types[i]);
        hands[i].w = calloc((size_t)n, sizeof(double));
        hands[i].v = calloc((size_t)n, sizeof(double));
        const float *own = run_weight(&runs[0], i);
        for (int64_t j = 0; j < n; j++) hands[i].w[j] = (double)own[j];
    }
    for (int step = 1; step <= STEPS; step++) {
        const bool last = step == STEPS;
        for (int k = 0; k < 2; k++) CHECK(train(&runs[k], k, step), "step %d", step);
        for (int p = 0; p < turns->n_parts; p++) {
            const bool sent = sent_at[p] && (last || step == sent_at[p] + turns->overlap);
            for (int i = 0; i < runs[0].n_params && sent; i++)
                if (parts[i] == p) exchange_by_hand(runs, i, &hands[i], false, turns->mix);
            if (sent) sent_at[p] = 0;
        }
        for (int p = 0; p < turns->n_parts; p++) {
            const int offset = (p + 1) * (int)turns->every / turns->n_parts % (int)turns->every;
            if (!last && step % (int)turns->every != offset) continue;
            const bool waits = last || turns->overlap == 0;
            for (int i = 0; i < runs[0].n_params; i++) {
                if (parts[i] != p) continue;
                exchange_by_hand(runs, i, &hands[i], true, 0);
                if (waits) exchange_by_hand(runs, i, &hands[i], false, 0);
            }
            sent_at[p] = waits ? 0 : step;
        }
    }
    for (int i = 0; i < runs[0].n_params; i++) {
        free(hands[i].w);
        free(hands[i].v);
    }
}

/* Largest difference of two runs' weights; but for key biases, whose gradients are rounding alone,
 * or of all. */
static double distance(Run *a, Run *b, bool all) {
    double worst = 0;
    for (int i = 0; i < a->n_params; i++) {
        if (!all && is_key_bias(a, a->names[i])) continue;
        const int64_t n = type_elements(&a->types[i]);
        const float *x = run_weight(a, i);
        float *y = ARENA_ARRAY(b->arena, float, n);
        CHECK(engine_read_parameter(b->engine, a->names[i], y), "'%s' is not there", a->names[i]);
        for (int64_t j = 0; j < n; j++) worst = fmax(worst, fabs((double)x[j] - (double)y[j]));
    }
    return worst;
}

static void check_engines(const char *name, const Layout layouts[2], const OuterTurns *turns,
                          int n_meetings, Run *by_hand, double most) {
    check_begin(name);
    const int port = find_free_port("127.0.0.1");
    Worker workers[2] = {0};
    bool good = true;
    for (int k = 0; k < 2; k++) {
        good = good && start(&workers[k].run, &layouts[k]);
        workers[k].options = fellow_options(2, k, port, DTYPE_F32);
        workers[k].options.rule = RULE;
        workers[k].turns = turns;
    }
    for (int k = 0; k < 2 && good; k++) engine_init_parameters(workers[k].run.engine);
    for (int k = 0; k < 2 && good; k++)
        pthread_create(&workers[k].thread, NULL, be_worker, &workers[k]);
    for (int k = 0; k < 2 && good; k++) pthread_join(workers[k].thread, NULL);
    for (int k = 0; k < 2 && good; k++) {
        CHECK(workers[k].good, "island %d: %s", k, diag_text(workers[k].run.diag));
        const double off = distance(by_hand, &workers[k].run, false);
        CHECK(off <= most, "island %d: weights are off by %g", k, off);
    }
    if (good) {
        const double apart = distance(&workers[0].run, &workers[1].run, true);
        CHECK(apart == 0, "the islands' weights are %g apart", apart);
        CHECK(workers[1].place.n_meetings == n_meetings, "%d meetings",
              (int)workers[1].place.n_meetings);
    }
    for (int k = 0; k < 2; k++) run_close(&workers[k].run);
}

static void check_all_engines(void) {
    static const Layout ALONE = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    static const Layout TWO[2] = {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                  {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}};
    static const Layout MIXED[2] = {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
                                    {2, 1, 2, 2, 1, "1f1b", false, NULL, 0}};
    Run runs[2];
    check_begin("by hand");
    for (int streams = 0; streams < 2; streams++) {
        const OuterTurns *turns = streams ? &STREAMING : &AT_ONCE;
        const int n_meetings = streams ? 5 : 3; /* parts after 1, 3, 4, and both at the end */
        if (start(&runs[0], &ALONE) && start(&runs[1], &ALONE)) {
            for (int k = 0; k < 2; k++) engine_init_parameters(runs[k].engine);
            train_by_hand(runs, turns);
            /* f32 rounds by 6e-8 of weights below 1; AdamW makes 1e-5 of it where gradients are
             * small. */
            check_engines(streams ? "two islands, parts behind training: as by hand"
                                  : "two islands: as by hand",
                          TWO, turns, n_meetings, &runs[0], 2e-5);
            check_engines(streams ? "parts behind training, other layouts: as by hand"
                                  : "two islands under other layouts: as by hand",
                          MIXED, turns, n_meetings, &runs[0], 2e-4);
        }
        for (int k = 0; k < 2; k++) run_close(&runs[k]);
    }
}

/* One island's weights go bad behind training: the other's stay finite, to the end. */
static void check_spoiled_engines(void) {
    static const Layout ALONE = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    check_begin("weights that are not finite, in parts behind training");
    const int port = find_free_port("127.0.0.1");
    Worker workers[2] = {{.good = false}, {.spoils_at = 3}};
    bool good = true;
    for (int k = 0; k < 2; k++) {
        good = good && start(&workers[k].run, &ALONE);
        workers[k].options = fellow_options(2, k, port, DTYPE_NF4);
        workers[k].turns = &STREAMING;
    }
    for (int k = 0; k < 2 && good; k++) engine_init_parameters(workers[k].run.engine);
    for (int k = 0; k < 2 && good; k++)
        pthread_create(&workers[k].thread, NULL, be_worker, &workers[k]);
    for (int k = 0; k < 2 && good; k++) pthread_join(workers[k].thread, NULL);
    CHECK(!workers[1].good, "island 1 goes on");
    CHECK(workers[0].good, "island 0: %s", diag_text(workers[0].run.diag));
    for (int i = 0; i < workers[0].run.n_params && good; i++) {
        const float *weights = run_weight(&workers[0].run, i);
        const int64_t n = type_elements(&workers[0].run.types[i]);
        for (int64_t j = 0; j < n; j++) good = good && isfinite(weights[j]);
    }
    CHECK(good, "island 0 has numbers that are not finite");
    for (int k = 0; k < 2; k++) run_close(&workers[k].run);
}

int main(void) {
    check_meetings("three islands: the same bits", DTYPE_F32, false);
    check_meetings("three islands in bf16: the same bits", DTYPE_BF16, false);
    check_meetings("three islands in nf4, by parts: the same bits", DTYPE_NF4, true);
    check_beginning();
    check_late();
    check_lost(false);
    check_lost(true);
    check_not_finite("NaN is left out", DTYPE_F32, NAN, false);
    check_not_finite("what is infinite, in bf16", DTYPE_BF16, INFINITY, false);
    check_not_finite("NaN in nf4, by parts", DTYPE_NF4, NAN, true);
    check_own_not_finite();
    check_strangers();
    check_silent();
    check_refusals();
    check_other_server();
    check_all_engines();
    check_spoiled_engines();
    return check_report();
}
