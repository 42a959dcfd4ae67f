#include "runtime/metrics/progress.h"

#include "ir/base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, WIDEST_TERMINAL = 256 };

static const double terminal_interval_s = 0.1, lines_interval_s = 2;

/* Text of a known size that stops growing when full. */
typedef struct Line {
    char *text;
    size_t size, length;
} Line;

__attribute__((format(printf, 2, 3))) static void put(Line *line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line->text + line->length, line->size - line->length, format, args);
    va_end(args);
    if (n > 0) line->length += (size_t)n;
    if (line->length >= line->size) line->length = line->size - 1;
}

static void put_rate(Line *line, double rate) {
    if (!isfinite(rate)) return;
    if (rate >= 999.5e3)
        put(line, "  %.2fM tokens/s", rate * 1e-6);
    else if (rate >= 999.5)
        put(line, "  %.1fk tokens/s", rate * 1e-3);
    else
        put(line, "  %.0f tokens/s", rate);
}

static void put_time_left(Line *line, double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return;
    long long s = llround(seconds);
    if (s >= 86400)
        put(line, "  %lldd%02lldh left", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        put(line, "  %lldh%02lldm left", s / 3600, s / 60 % 60);
    else if (s >= 60)
        put(line, "  %lldm%02llds left", s / 60, s % 60);
    else
        put(line, "  %llds left", s);
}

int progress_format(char *text, size_t size, const StepMetrics *metrics, int64_t n_steps,
                    double seconds_left) {
    Line line = {text, size, 0};
    put(&line, "step %lld/%lld  loss %.4f", (long long)metrics->step, (long long)n_steps,
        metrics->loss);
    if (metrics->has_val_loss) put(&line, "  val loss %.4f", metrics->val_loss);
    if (metrics->has_val_loss_ema) put(&line, ", of averages %.4f", metrics->val_loss_ema);
    for (int i = 0; i < metrics->n_sources; i++) {
        put(&line, "%s%s %.4f%s", i ? ", " : " (", metrics->source_names[i],
            metrics->source_losses[i], i + 1 == metrics->n_sources ? ")" : "");
    }
    for (int i = 0; i < metrics->n_values; i++) {
        put(&line, "  %s %.4g", metrics->values[i].name, metrics->values[i].value);
    }
    if (metrics->skipped) {
        put(&line, "  no update (gradients not finite)");
    } else {
        put(&line, "  grad norm %.3g%s", metrics->grad_norm,
            metrics->spike ? " (a spike: no update)" : "");
    }
    put(&line, "  lr %.2e", metrics->lr);
    if (metrics->has_loss_scale) put(&line, "  scale %.10g", metrics->loss_scale);
    if (metrics->n_skipped) put(&line, "  %lld skipped", (long long)metrics->n_skipped);
    if (metrics->n_spikes) {
        put(&line, "  %lld spike%s", (long long)metrics->n_spikes,
            metrics->n_spikes == 1 ? "" : "s");
    }
    put_rate(&line, metrics->tokens_per_s);
    if (metrics->step < n_steps) put_time_left(&line, seconds_left);
    return (int)line.length;
}

Progress progress_start(FILE *stream, int64_t n_steps, ProgressMode mode) {
    if (mode == PROGRESS_AUTO) mode = isatty(fileno(stream)) ? PROGRESS_TERMINAL : PROGRESS_LINES;
    return (Progress){
        .stream = stream, .mode = mode, .n_steps = n_steps, .shown_step = -1, .first_step = -1};
}

/* By the mean of the steps after the first, which also pays for warming up. */
static double seconds_left(const Progress *progress, double now) {
    int64_t n_timed = progress->last.step - progress->first_step;
    if (n_timed <= 0) return -1;
    double per_step = (now - progress->first_s) / (double)n_timed;
    return per_step * (double)(progress->n_steps - progress->last.step);
}

/* A line that wraps cannot be rewritten. */
static size_t usable_bytes(const Progress *progress) {
    struct winsize window;
    if (progress->mode != PROGRESS_TERMINAL ||
        ioctl(fileno(progress->stream), TIOCGWINSZ, &window) != 0 || window.ws_col < 2 ||
        window.ws_col > WIDEST_TERMINAL) {
        return LINE_BYTES;
    }
    return window.ws_col; /* one less with the terminator: the last column stays free */
}

static void show(Progress *progress, double now) {
    char text[LINE_BYTES];
    progress->last.values = progress->values;
    int width = progress_format(text, usable_bytes(progress), &progress->last, progress->n_steps,
                                seconds_left(progress, now));
    if (progress->mode == PROGRESS_TERMINAL) {
        /* Spaces wipe what a longer line left; a validation loss keeps its line. */
        int n_spaces = progress->shown_width > width ? progress->shown_width - width : 0;
        bool keep = progress->last.has_val_loss || progress->last.stays;
        fprintf(progress->stream, "\r%s%*s%s", text, n_spaces, "", keep ? "\n" : "");
        progress->shown_width = keep ? 0 : width;
    } else {
        fprintf(progress->stream, "%s\n", text);
    }
    fflush(progress->stream);
    progress->shown_s = now;
    progress->shown_step = progress->last.step;
}

void progress_update(Progress *progress, const StepMetrics *metrics) {
    if (progress->mode == PROGRESS_QUIET) return;
    double now = clock_now();
    double interval = progress->mode == PROGRESS_TERMINAL ? terminal_interval_s : lines_interval_s;
    bool first = progress->first_step < 0;
    progress->last = *metrics;
    if (progress->last.n_values > PROGRESS_VALUES) progress->last.n_values = PROGRESS_VALUES;
    for (int i = 0; i < progress->last.n_values; i++) progress->values[i] = metrics->values[i];
    if (first) {
        progress->first_step = metrics->step;
        progress->first_s = now;
    }
    if (first || metrics->has_val_loss || metrics->stays || metrics->step >= progress->n_steps ||
        now - progress->shown_s >= interval) {
        show(progress, now);
    }
}

void progress_finish(Progress *progress) {
    if (progress->mode == PROGRESS_QUIET || progress->first_step < 0) return;
    if (progress->shown_step != progress->last.step) show(progress, clock_now());
    if (progress->shown_width > 0) fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->shown_width = 0;
}
