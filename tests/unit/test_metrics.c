/* Learning rates at their corners, progress lines and how often they come, run logs as valid JSON.
 */
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "runtime/metrics/lr_schedule.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/prometheus.h"
#include "runtime/metrics/run_log.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void expect_lr(const LrSchedule *schedule, int64_t step, double want) {
    double got = lr_schedule_at(schedule, step);
    CHECK(fabs(got - want) < 1e-15, "%s, step %d: %.17g, not %.17g", lr_decay_name(schedule->decay),
          (int)step, got, want);
}

static void test_lr(void) {
    LrSchedule schedule = {LR_COSINE, 1e-3, 1e-4, 10, 110, 0};
    check_begin("lr: warm-up, decay, after the end");
    expect_lr(&schedule, 0, 1e-4);
    expect_lr(&schedule, 9, 1e-3);
    expect_lr(&schedule, 10, 1e-3);
    expect_lr(&schedule, 60, 5.5e-4);
    expect_lr(&schedule, 35, 1e-4 + 9e-4 * 0.5 * (1 + sqrt(0.5)));
    expect_lr(&schedule, 110, 1e-4);
    expect_lr(&schedule, 9999, 1e-4);
    schedule.decay = LR_LINEAR;
    expect_lr(&schedule, 4, 5e-4);
    expect_lr(&schedule, 60, 5.5e-4);
    expect_lr(&schedule, 109, 1e-4 + 9e-4 * 0.01);
    expect_lr(&schedule, 110, 1e-4);
    schedule.decay = LR_CONSTANT;
    expect_lr(&schedule, 4, 5e-4);
    expect_lr(&schedule, 109, 1e-3);
    expect_lr(&schedule, 110, 1e-3);

    check_begin("lr: no warm-up, only warm-up");
    schedule = (LrSchedule){LR_COSINE, 1, 0, 0, 2, 0};
    expect_lr(&schedule, 0, 1);
    expect_lr(&schedule, 1, 0.5);
    schedule = (LrSchedule){LR_LINEAR, 1, 0, 2, 2, 0};
    expect_lr(&schedule, 0, 0.5);
    expect_lr(&schedule, 1, 1);
    expect_lr(&schedule, 2, 0);

    check_begin("lr: wsd stays, and falls at the end");
    schedule = (LrSchedule){LR_WSD, 1e-3, 1e-4, 10, 110, 25};
    expect_lr(&schedule, 4, 5e-4);
    expect_lr(&schedule, 10, 1e-3);
    expect_lr(&schedule, 84, 1e-3);
    expect_lr(&schedule, 85, 1e-3);
    expect_lr(&schedule, 94, 1e-4 + 9e-4 * (1 - 0.6));
    expect_lr(&schedule, 101, 1e-4 + 9e-4 * (1 - 0.8));
    expect_lr(&schedule, 110, 1e-4);
    schedule.decay = LR_WSD_LINEAR;
    expect_lr(&schedule, 84, 1e-3);
    expect_lr(&schedule, 95, 1e-4 + 9e-4 * 0.6);
    expect_lr(&schedule, 500, 1e-4);
    schedule.n_steps = 1000; /* another end: what was before it is as it was */
    expect_lr(&schedule, 500, 1e-3);
    expect_lr(&schedule, 985, 1e-4 + 9e-4 * 0.6);
    schedule.n_decay_steps = 5000; /* not within the warm-up */
    expect_lr(&schedule, 9, 1e-3);
    expect_lr(&schedule, 10, 1e-3);
    expect_lr(&schedule, 505, 5.5e-4);
    schedule.n_decay_steps = 0;
    expect_lr(&schedule, 999, 1e-3);

    check_begin("lr: inverse square root");
    schedule = (LrSchedule){LR_INVERSE_SQRT, 1e-3, 1e-4, 10, 90, 0};
    expect_lr(&schedule, 4, 5e-4);
    expect_lr(&schedule, 9, 1e-3);
    expect_lr(&schedule, 39, 5e-4);
    expect_lr(&schedule, 159, 2.5e-4);
    schedule.n_decay_steps = 51;
    expect_lr(&schedule, 38, 1e-3 * sqrt(10.0 / 39));
    expect_lr(&schedule, 39, 5e-4);
    expect_lr(&schedule, 90, 1e-4);
    schedule.n_warmup_steps = schedule.n_decay_steps = 0;
    expect_lr(&schedule, 0, 1e-3);
    expect_lr(&schedule, 3, 5e-4);

    check_begin("lr: what the start says");
    char text[192];
    schedule = (LrSchedule){LR_WSD, 2e-3, 2e-4, 40, 400, 80};
    lr_schedule_describe(&schedule, text, sizeof(text));
    CHECK(strcmp(text, "wsd: 0.002 after 40 steps, from step 321 down to 0.0002") == 0, "%s", text);
    schedule.decay = LR_COSINE;
    lr_schedule_describe(&schedule, text, sizeof(text));
    CHECK(strcmp(text, "cosine: 0.002 after 40 steps, down to 0.0002") == 0, "%s", text);
    schedule = (LrSchedule){LR_CONSTANT, 2e-3, 2e-4, 0, 400, 0};
    lr_schedule_describe(&schedule, text, sizeof(text));
    CHECK(strcmp(text, "constant: 0.002") == 0, "%s", text);

    check_begin("lr: names");
    LrDecay decay;
    CHECK(lr_decay_parse("linear", &decay) && decay == LR_LINEAR, "linear");
    CHECK(lr_decay_parse("cosine", &decay) && decay == LR_COSINE, "cosine");
    CHECK(lr_decay_parse("constant", &decay) && decay == LR_CONSTANT, "constant");
    CHECK(lr_decay_parse("wsd", &decay) && decay == LR_WSD, "wsd");
    CHECK(lr_decay_parse("wsd-linear", &decay) && decay == LR_WSD_LINEAR, "wsd-linear");
    CHECK(lr_decay_parse("inverse-sqrt", &decay) && decay == LR_INVERSE_SQRT, "inverse-sqrt");
    CHECK(!lr_decay_parse("cosin", &decay) && !lr_decay_parse("", &decay), "unknown names");
}

static void test_line(void) {
    StepMetrics metrics = {
        .step = 120, .loss = 3.40213, .grad_norm = 0.8712, .lr = 2.94e-4, .tokens_per_s = 48123};
    char text[256];
    check_begin("progress: the line");
    progress_format(text, sizeof text, &metrics, 2000, 192);
    CHECK(strcmp(text, "step 120/2000  loss 3.4021  grad norm 0.871  lr 2.94e-04  48.1k tokens/s  "
                       "3m12s left") == 0,
          "%s", text);
    metrics.has_val_loss = true;
    metrics.val_loss = 3.5;
    metrics.tokens_per_s = 999999;
    progress_format(text, sizeof text, &metrics, 120, 0);
    CHECK(strcmp(text, "step 120/120  loss 3.4021  val loss 3.5000  grad norm 0.871  lr 2.94e-04  "
                       "1.00M tokens/s") == 0,
          "%s", text);
    metrics = (StepMetrics){.step = 1, .loss = NAN, .grad_norm = INFINITY, .tokens_per_s = NAN};
    progress_format(text, sizeof text, &metrics, 9, 200000);
    CHECK(strcmp(text, "step 1/9  loss nan  grad norm inf  lr 0.00e+00  2d07h left") == 0, "%s",
          text);
    metrics = (StepMetrics){.step = 3,
                            .loss = 5.5,
                            .grad_norm = INFINITY,
                            .tokens_per_s = NAN,
                            .has_loss_scale = true,
                            .loss_scale = 32768,
                            .skipped = true,
                            .n_skipped = 2};
    progress_format(text, sizeof text, &metrics, 9, 200000);
    CHECK(strcmp(text,
                 "step 3/9  loss 5.5000  no update (gradients not finite)  lr 0.00e+00  scale 32768"
                 "  2 skipped  2d07h left") == 0,
          "%s", text);
    metrics = (StepMetrics){.step = 3,
                            .loss = 5.5,
                            .grad_norm = 70,
                            .tokens_per_s = NAN,
                            .has_val_loss = true,
                            .val_loss = 5.25,
                            .has_val_loss_ema = true,
                            .val_loss_ema = 5.125,
                            .spike = true,
                            .n_spikes = 2};
    progress_format(text, sizeof text, &metrics, 9, 200000);
    CHECK(strcmp(text, "step 3/9  loss 5.5000  val loss 5.2500, of averages 5.1250  grad norm 70 "
                       "(a spike: no update)  lr 0.00e+00  2 spikes  2d07h left") == 0,
          "%s", text);
    CHECK(progress_format(text, 10, &metrics, 9, 1) == 9 && strlen(text) == 9, "cut: %s", text);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* 500 quick updates; n_shown counts ends of line or returns of the carriage. A busy machine may
 * take long enough for more, one per 0.1 s. */
static void expect_updates(ProgressMode mode, int64_t n_steps, char mark, int n_shown,
                           const char *end) {
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    double begin_s = now_s();
    Progress progress = progress_start(stream, n_steps, mode);
    for (int i = 1; i <= 500; i++) {
        progress_update(&progress, &(StepMetrics){.step = i, .loss = 2, .tokens_per_s = 10});
    }
    progress_finish(&progress);
    progress_finish(&progress);
    fclose(stream);
    int n = 0, n_late = (int)((now_s() - begin_s) / 0.1);
    for (size_t i = 0; i < length; i++) n += text[i] == mark;
    size_t end_length = strlen(end);
    CHECK(n >= n_shown && n <= n_shown + n_late, "%d lines, not %d: %s", n, n_shown, text);
    CHECK(length >= end_length && strcmp(text + length - end_length, end) == 0, "ends: %s", text);
    free(text);
}

static void test_updates(void) {
    const char *last = "step 500/500  loss 2.0000  grad norm 0  lr 0.00e+00  10 tokens/s\n";
    check_begin("progress: quick steps show the first and the last only");
    expect_updates(PROGRESS_LINES, 500, '\n', 2, last);
    expect_updates(PROGRESS_QUIET, 500, '\n', 0, "");
    check_begin("progress: on a terminal one line is rewritten and ended once");
    expect_updates(PROGRESS_TERMINAL, 500, '\n', 1, "\n");
    expect_updates(PROGRESS_TERMINAL, 500, '\r', 2, "\n");
    check_begin("progress: a run that ends early shows where");
    expect_updates(PROGRESS_LINES, 900, '\n', 2, " left\n");

    check_begin("progress: every validation loss is shown");
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    Progress progress = progress_start(stream, 10, PROGRESS_LINES);
    for (int i = 1; i <= 10; i++) {
        progress_update(&progress, &(StepMetrics){.step = i, .has_val_loss = i % 2 == 0});
    }
    progress_finish(&progress);
    fclose(stream);
    int n = 0;
    for (char *at = text; (at = strstr(at, "val loss")); at++) n++;
    CHECK(n == 5, "%d: %s", n, text);
    free(text);
}

/* What an update came with may be another step's by the time that it is shown. */
static void test_values(void) {
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    Progress progress = progress_start(stream, 9, PROGRESS_LINES);
    StepValue value = {"dropped", 0.25};
    check_begin("progress: the last line has the last step's values");
    for (int i = 1; i <= 3; i++) {
        progress_update(&progress, &(StepMetrics){.step = i, .n_values = 1, .values = &value});
    }
    value.value = NAN;
    progress_finish(&progress);
    fclose(stream);
    CHECK(strstr(text, "step 3/9") && !strstr(text, "nan"), "%s", text);
    free(text);
}

static void test_log(const char *path) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    check_begin("run log: every line is JSON and there when written");
    CHECK(file_write(path, "old\n", 4, diag), "%s", diag_text(diag));
    RunLog *log = run_log_open(path, diag);
    CHECK(log != NULL, "%s", diag_text(diag));
    static const char *const NAMES[] = {"a.bin", "texts"};
    static const double LOSSES[] = {1.5, NAN};
    static const StepValue VALUES[] = {{"dropped", 0.125}, {"last.rms", INFINITY}};
    const StepMetrics steps[] = {
        {.step = 1,
         .loss = 5.5,
         .grad_norm = 2.25,
         .lr = 6e-6,
         .tokens_per_s = 48211,
         .seconds = 0.02},
        {.step = 2,
         .loss = NAN,
         .grad_norm = INFINITY,
         .lr = -1.7976931348623157e308,
         .tokens_per_s = -INFINITY,
         .seconds = 5e-324,
         .has_val_loss = true,
         .val_loss = NAN},
        {.step = INT64_MAX,
         .loss = 0.1f,
         .lr = 1,
         .tokens_per_s = 2,
         .seconds = 3,
         .has_val_loss = true,
         .val_loss = 4.5,
         .val_bits_per_byte = 1.25,
         .n_sources = 2,
         .source_names = NAMES,
         .source_losses = LOSSES},
        {.step = 4,
         .loss = 5.5,
         .grad_norm = INFINITY,
         .lr = 6e-6,
         .tokens_per_s = 48211,
         .seconds = 0.02,
         .has_val_loss = true,
         .val_loss = 5.25,
         .has_loss_scale = true,
         .loss_scale = 32768,
         .skipped = true,
         .n_skipped = 3},
        {.step = 5,
         .loss = 5.5,
         .grad_norm = 1,
         .lr = 6e-6,
         .tokens_per_s = 48211,
         .seconds = 0.02,
         .has_loss_scale = true,
         .loss_scale = INFINITY,
         .n_skipped = 3,
         .has_n_labels = true,
         .n_values = 2,
         .values = VALUES},
    };
    for (int i = 0; i < 5; i++) {
        CHECK(run_log_write(log, &steps[i], diag), "%s", diag_text(diag));
        size_t length = 0;
        char *text = file_read(arena, path, 4096, &length, diag);
        CHECK(text && length && text[length - 1] == '\n', "line %d is not there", i);
        char *line = text;
        for (int k = 0; k < i; k++) line = strchr(line, '\n') + 1;
        json_t *json = json_parse_bytes(path, line, strlen(line), diag);
        CHECK(json_is_object(json), "line %d: %s", i, line);
        CHECK(json_integer_value(json_object_get(json, "step")) == steps[i].step, "%s", line);
        json_t *loss = json_object_get(json, "loss"), *val = json_object_get(json, "val_loss");
        CHECK(i == 1 ? json_is_null(loss) : (float)json_real_value(loss) == (float)steps[i].loss,
              "%s", line);
        CHECK((val != NULL) == steps[i].has_val_loss, "%s", line);
        CHECK(i != 1 || json_is_null(json_object_get(json, "tokens_per_s")), "%s", line);
        json_decref(json);
    }
    run_log_close(log);
    char text[512];
    run_log_format(text, sizeof text, &steps[0]);
    CHECK(strcmp(text, "{\"step\":1,\"loss\":5.5,\"grad_norm\":2.25,\"lr\":6e-06,"
                       "\"tokens_per_s\":48211,\"seconds\":0.02}\n") == 0,
          "%s", text);
    run_log_format(text, sizeof text, &steps[2]);
    CHECK(strstr(text, ",\"val_loss\":4.5,\"val_bits_per_byte\":1.25,"
                       "\"val_losses\":{\"a.bin\":1.5,\"texts\":null}}\n"),
          "%s", text);
    run_log_format(text, sizeof text, &steps[4]);
    CHECK(strstr(text, ",\"labels\":0,\"loss_scale\":null,"
                       "\"values\":{\"dropped\":0.125,\"last.rms\":null}}\n"),
          "%s", text);
    run_log_format(text, sizeof text, &steps[3]);
    CHECK(strcmp(text, "{\"step\":4,\"loss\":5.5,\"grad_norm\":null,\"lr\":6e-06,"
                       "\"tokens_per_s\":48211,\"seconds\":0.02,\"loss_scale\":32768,"
                       "\"skipped\":true,\"val_loss\":5.25}\n") == 0,
          "%s", text);

    StepMetrics spike = steps[3];
    spike.has_loss_scale = spike.skipped = false;
    spike.spike = spike.has_val_loss_ema = true;
    spike.val_loss_ema = 5.125;
    run_log_format(text, sizeof text, &spike);
    CHECK(strstr(text, "\"seconds\":0.02,\"spike\":true,\"val_loss\":5.25,"
                       "\"val_loss_ema\":5.125}\n"),
          "%s", text);

    check_begin("run log: a run that goes on keeps the lines before, and no others");
    static const char LINES[] = "{\"step\":9,\"loss\":1}\n{\"step\":10,\"loss\":1}\n"
                                "{\"step\":11,\"loss\":1}\n{\"step\":1";
    const struct {
        const char *before;
        int64_t step;
        size_t kept;
    } logs[] = {{LINES, 10, 41}, {LINES, 11, 62}, {LINES, 8, 0}, {LINES, 99, 62}, {"", 3, 0}};
    for (size_t i = 0; i < sizeof(logs) / sizeof(logs[0]); i++) {
        size_t length = 0, n = strlen(logs[i].before);
        CHECK(file_write(path, logs[i].before, n, diag), "%s", diag_text(diag));
        StepMetrics headed = steps[0];
        headed.n_parameters = 90, headed.n_active = 60, headed.row_tokens = 8;
        log = run_log_continue(path, logs[i].step, diag);
        CHECK(log && run_log_write(log, &headed, diag), "%s", diag_text(diag));
        CHECK(log && run_log_write(log, &headed, diag), "%s", diag_text(diag));
        run_log_close(log);
        char *now = file_read(arena, path, 4096, &length, diag);
        const char *head = now ? strstr(now, ",\"parameters\":90,\"active_parameters\":60,"
                                             "\"row_tokens\":8}\n")
                               : NULL;
        CHECK((head != NULL) == (logs[i].kept == 0), "%zu: %s", i, now);
        CHECK(!head || !strstr(head + 1, ",\"parameters\""), "twice: %s", now);
        CHECK(now && strncmp(now, logs[i].before, logs[i].kept) == 0 &&
                  strncmp(now + logs[i].kept, "{\"step\":1,\"loss\":5.5", 20) == 0,
              "%zu: %s", i, now);
    }
    static const char OTHER[] = "notes of mine\n{\"step\":9,\"loss\":1}\n";
    CHECK(file_write(path, OTHER, strlen(OTHER), diag), "%s", diag_text(diag));
    CHECK(!run_log_continue(path, 9, diag) &&
              strstr(diag_text(diag), "is not the log of a run: left as it is"),
          "%s", diag_text(diag));
    size_t left = 0;
    CHECK(file_read(arena, path, 4096, &left, diag) && left == strlen(OTHER), "%zu left", left);

    check_begin("run log: only regular files");
    CHECK(!run_log_open("/dev/null", diag), "a device was accepted");
    CHECK(strstr(diag_text(diag), "/dev/null: cannot be the run log"), "%s", diag_text(diag));
    CHECK(!run_log_open("/tmp", diag), "a folder was accepted");
    CHECK(!run_log_open("/tmp/no/such/folder", diag), "no folder was accepted");
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0, "mkfifo");
    CHECK(!run_log_open(path, diag), "a pipe was accepted");
    CHECK(unlink(path) == 0 && symlink("/dev/null", path) == 0, "symlink");
    CHECK(!run_log_open(path, diag), "a link was accepted");
    arena_destroy(arena);
    diag_destroy(diag);
}

/* Each line a comment or a sample; a metric's HELP and TYPE come once, before its samples. */
static void check_format(const char *text) {
    char typed[64] = "";
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        char name[64], type[16], value[40], *end;
        const char *brace = strchr(line, '{'), *stop = strchr(line, '\n');
        CHECK(stop, "the last line has no end: %s", line);
        if (!stop) return;
        if (sscanf(line, "# TYPE %63s %15s", name, type) == 2) {
            CHECK(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0, "%s", type);
            size_t length = strlen(name);
            bool total = length > 6 && strcmp(name + length - 6, "_total") == 0;
            CHECK(total == (type[0] == 'c'), "%s is a %s", name, type);
            snprintf(typed, sizeof typed, "%s", name);
        } else if (*line != '#') {
            size_t length = strcspn(line, "{ ");
            CHECK(strlen(typed) == length && strncmp(typed, line, length) == 0,
                  "a sample without its type: %.60s", line);
            const char *at = brace && brace < stop ? strstr(line, "} ") + 2 : strchr(line, ' ') + 1;
            snprintf(value, sizeof value, "%.*s", (int)(stop - at), at);
            strtod(value, &end);
            CHECK(end != value && *end == '\0', "no number: %.60s", line);
        } else {
            CHECK(strncmp(line, "# HELP perilune_", 16) == 0, "%.60s", line);
        }
    }
}

static void test_prometheus(void) {
    StepMetrics last = {.step = 16777217,
                        .loss = NAN,
                        .grad_norm = INFINITY,
                        .lr = 1e-4,
                        .seconds = 0.5,
                        .tokens_per_s = 2048,
                        .noise_scale = 310.25,
                        .n_spikes = 3};
    RunStatus status = {.run = "a run",
                        .model = "a \"model\"\\",
                        .step = 16777217,
                        .n_samples = 16777219,
                        .n_steps = 20000000,
                        .val_loss = NAN,
                        .val_loss_ema = NAN,
                        .n_tokens = INT64_MAX,
                        .flops = 3e12,
                        .n_ranks = 8,
                        .checkpoint_step = -1,
                        .now_seconds = 1795967110.25};
    check_begin("prometheus: before the first step");
    StrBuf text = strbuf_create();
    prometheus_format(&text, &status);
    check_format(text.text);
    CHECK(strstr(text.text, "perilune_run_state{run=\"a run\",model=\"a "
                            "\\\"model\\\"\\\\\",state=\"running\"} 1\n"),
          "%s", text.text);
    CHECK(!strstr(text.text, "perilune_loss"), "%s", text.text);
    CHECK(strstr(text.text, "perilune_step{run=\"a run\"} 16777217\n"), "%s", text.text);
    strbuf_destroy(&text);

    check_begin("prometheus: of a run, large counts to the digit, what is no number as NaN");
    static const char *const LINES[] = {
        "perilune_step{run=\"a run\"} 16777217\n",
        "perilune_loss{run=\"a run\"} NaN\n",
        "perilune_grad_norm{run=\"a run\"} +Inf\n",
        "perilune_tokens_total{run=\"a run\"} 9223372036854775807\n",
        "perilune_samples_total{run=\"a run\"} 16777219\n",
        "perilune_model_flops_per_second{run=\"a run\"} 6e+12\n",
        "perilune_spikes_total{run=\"a run\"} 3\n",
        "perilune_gradient_noise_scale{run=\"a run\"} 310.25\n",
        "perilune_validation_loss{run=\"a run\"} 2.5\n",
        "perilune_validation_loss_ema{run=\"a run\"} 2.25\n",
        "perilune_slowest_rank_ratio{run=\"a run\"} 1.5\n",
        "perilune_outer_step{run=\"a run\"} 12\n",
        "perilune_outer_islands{run=\"a run\"} 3\n",
        "# TYPE perilune_outer_wait_seconds_total counter\n",
        "perilune_outer_wait_seconds_total{run=\"a run\"} 1.5\n",
        "perilune_checkpoint_step{run=\"a run\"} 16777210\n",
        "perilune_checkpoint_age_seconds{run=\"a run\"} 10.25\n",
        "perilune_updated_timestamp_seconds{run=\"a run\"} 1795967110.250\n",
        "state=\"failed\"} 1\n",
    };
    status.last = &last;
    status.state = RUN_FAILED;
    status.val_loss = 2.5;
    status.val_loss_ema = 2.25;
    status.slowest_ratio = 1.5;
    status.n_meetings = 12;
    status.n_islands = 3;
    status.has_outer_hidden = true;
    status.outer_wait_seconds = 1.5;
    status.checkpoint_step = 16777210;
    status.checkpoint_seconds = 1795967100;
    text = strbuf_create();
    prometheus_format(&text, &status);
    check_format(text.text);
    for (size_t i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        CHECK(strstr(text.text, LINES[i]), "no %s in %s", LINES[i], text.text);
    }
    CHECK(!strstr(text.text, "perilune_loss_scale"), "%s", text.text);
    strbuf_destroy(&text);
}

int main(void) {
    char path[] = "/tmp/test_metrics-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    test_lr();
    test_line();
    test_updates();
    test_values();
    test_log(path);
    unlink(path);
    test_prometheus();
    return check_report();
}
