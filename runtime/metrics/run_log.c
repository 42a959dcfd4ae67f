#include "runtime/metrics/run_log.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct RunLog {
    int fd;
    bool has_begun; /* it has lines */
    char *path;
};

/* Cut to `keep_bytes` only once it is known to be a regular file. */
static RunLog *open_at(const char *path, off_t keep_bytes, Diag *diag) {
    /* O_NONBLOCK: a pipe is refused instead of waited for. */
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat st;
    int fd = open(path, flags, 0666);
    if (fd < 0) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot write the run log: %s", strerror(errno));
        return NULL;
    }
    const char *why = NULL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        why = "not a regular file";
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        why = "another run is writing it";
    } else if (ftruncate(fd, keep_bytes) != 0 || lseek(fd, keep_bytes, SEEK_SET) < 0) {
        why = strerror(errno);
    }
    if (why) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be the run log: %s", why);
        close(fd);
        return NULL;
    }
    RunLog *log = calloc(1, sizeof(*log));
    if (!log || !(log->path = strdup(path))) BUG("out of memory");
    log->fd = fd;
    log->has_begun = keep_bytes > 0;
    return log;
}

RunLog *run_log_open(const char *path, Diag *diag) {
    return open_at(path, 0, diag);
}

static const char LINE_BEGIN[] = "{\"step\":";
enum { BEGIN_BYTES = sizeof(LINE_BEGIN) - 1 };

/* The step that a line is about, 0 < step; 0: none. `length` without the line's end. */
static int64_t step_of_line(const char *line, size_t length) {
    int64_t step = 0;
    if (length <= BEGIN_BYTES || memcmp(line, LINE_BEGIN, BEGIN_BYTES) != 0) return 0;
    if (line[length - 1] != '}') return 0;
    for (size_t i = BEGIN_BYTES; i < length && line[i] >= '0' && line[i] <= '9'; i++) {
        if (step > INT64_MAX / 10 - 1) return 0;
        step = step * 10 + (line[i] - '0');
    }
    return step;
}

static bool begins_as_log(const FileMap *map) {
    size_t length = map->length_bytes < BEGIN_BYTES ? map->length_bytes : BEGIN_BYTES;
    return length == 0 || memcmp(map->data, LINE_BEGIN, length) == 0;
}

RunLog *run_log_continue(const char *path, int64_t step, Diag *diag) {
    FileMap map;
    struct stat st;
    size_t keep = 0;
    if (lstat(path, &st) != 0 && errno == ENOENT) return run_log_open(path, diag);
    if (!file_map(path, &map, diag)) return NULL;
    bool is_log = begins_as_log(&map);
    const char *text = (const char *)map.data;
    while (is_log && keep < map.length_bytes) {
        const char *end = memchr(text + keep, '\n', map.length_bytes - keep);
        size_t length = end ? (size_t)(end - text) - keep : 0; /* the last may have been cut off */
        int64_t of = step_of_line(text + keep, length);
        if (of == 0 || of > step) break;
        keep += length + 1;
    }
    file_unmap(&map);
    if (is_log) return open_at(path, (off_t)keep, diag);
    diag_error(diag, (SourceLoc){path, 0}, "is not the log of a run: left as it is");
    return NULL;
}

/* 9 significant digits give any float back; the times need no more. */
static void put_number(char *text, size_t size, double x) {
    if (isfinite(x))
        snprintf(text, size, "%.9g", x);
    else
        snprintf(text, size, "null");
}

/* ,"val_losses":{"a.bin":1.9,"b":2.1} or nothing. */
static void put_sources(char *text, size_t size, const StepMetrics *metrics) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < metrics->n_sources && n + 1 < size; i++) {
        char number[32];
        put_number(number, sizeof number, metrics->source_losses[i]);
        n += (size_t)snprintf(text + n, size - n, "%s\"%s\":%s%s", i ? "," : ",\"val_losses\":{",
                              metrics->source_names[i], number,
                              i + 1 == metrics->n_sources ? "}" : "");
    }
}

/* ,"values":{"dropped":0.01} or nothing. */
static void put_values(char *text, size_t size, const StepMetrics *metrics) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < metrics->n_values && n + 1 < size; i++) {
        char number[32];
        put_number(number, sizeof number, metrics->values[i].value);
        n += (size_t)snprintf(text + n, size - n, "%s\"%s\":%s%s", i ? "," : ",\"values\":{",
                              metrics->values[i].name, number,
                              i + 1 == metrics->n_values ? "}" : "");
    }
}

/* ,"parameters":124439808,"row_tokens":1024 or nothing. */
static void put_head(char *text, size_t size, const StepMetrics *metrics) {
    char active[64] = "";
    text[0] = '\0';
    if (metrics->n_parameters == 0) return;
    if (metrics->n_active != metrics->n_parameters) {
        snprintf(active, sizeof active, ",\"active_parameters\":%lld",
                 (long long)metrics->n_active);
    }
    snprintf(text, size, ",\"parameters\":%lld%s,\"row_tokens\":%lld",
             (long long)metrics->n_parameters, active, (long long)metrics->row_tokens);
}

int run_log_format(char *text, size_t size, const StepMetrics *metrics) {
    enum { N_NUMBERS = 9, NUMBER_BYTES = 32 };
    const double values[N_NUMBERS] = {
        metrics->loss,         metrics->grad_norm,         metrics->lr,
        metrics->tokens_per_s, metrics->seconds,           metrics->val_loss,
        metrics->loss_scale,   metrics->val_bits_per_byte, metrics->val_loss_ema};
    char numbers[N_NUMBERS][NUMBER_BYTES], val_loss[2 * NUMBER_BYTES + 32] = "";
    char bits[NUMBER_BYTES + 32] = "";
    char scale[NUMBER_BYTES + 48] = "", labels[NUMBER_BYTES] = "", samples[NUMBER_BYTES + 8] = "";
    char head[160], sources[RUN_LOG_SOURCES_BYTES], named[RUN_LOG_VALUES_BYTES];
    for (int i = 0; i < N_NUMBERS; i++) put_number(numbers[i], NUMBER_BYTES, values[i]);
    if (metrics->has_val_loss) snprintf(val_loss, sizeof val_loss, ",\"val_loss\":%s", numbers[5]);
    if (metrics->has_val_loss && metrics->has_val_loss_ema) {
        size_t n = strlen(val_loss);
        snprintf(val_loss + n, sizeof val_loss - n, ",\"val_loss_ema\":%s", numbers[8]);
    }
    if (metrics->has_val_loss && metrics->val_bits_per_byte > 0) {
        snprintf(bits, sizeof bits, ",\"val_bits_per_byte\":%s", numbers[7]);
    }
    if (metrics->has_loss_scale) {
        snprintf(scale, sizeof scale, ",\"loss_scale\":%s%s", numbers[6],
                 metrics->skipped ? ",\"skipped\":true" : "");
    }
    if (metrics->has_n_labels) {
        snprintf(labels, sizeof labels, ",\"labels\":%lld", (long long)metrics->n_labels);
    }
    if (metrics->n_samples) {
        snprintf(samples, sizeof samples, ",\"samples\":%lld", (long long)metrics->n_samples);
    }
    put_head(head, sizeof head, metrics);
    put_sources(sources, sizeof sources, metrics);
    put_values(named, sizeof named, metrics);
    int n = snprintf(text, size,
                     "{\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens_per_s\":%s,"
                     "\"seconds\":%s%s%s%s%s%s%s%s%s%s}\n",
                     (long long)metrics->step, numbers[0], numbers[1], numbers[2], numbers[3],
                     numbers[4], samples, head, labels, scale,
                     metrics->spike ? ",\"spike\":true" : "", named, val_loss, bits, sources);
    return n < (int)size ? n : (int)size - 1;
}

/* Objects and numbers that few lines have, before the line's end. */
static void put_rare(StrBuf *line, const StepMetrics *metrics) {
    if (metrics->outer_step) {
        char seconds[32], norm[32];
        put_number(seconds, sizeof seconds, metrics->outer_seconds);
        put_number(norm, sizeof norm, metrics->outer_norm);
        strbuf_printf(line,
                      ",\"outer_step\":%lld,\"outer_seconds\":%s,\"outer_norm\":%s,"
                      "\"outer_islands\":%d,\"outer_bytes\":%lld",
                      (long long)metrics->outer_step, seconds, norm, metrics->outer_islands,
                      (long long)metrics->outer_bytes);
        if (metrics->outer_part) strbuf_printf(line, ",\"outer_part\":%d", metrics->outer_part);
    }
    if (metrics->outer_step && metrics->has_outer_hidden) {
        char waited[32], hidden[32];
        put_number(waited, sizeof waited, metrics->outer_wait_seconds);
        put_number(hidden, sizeof hidden, metrics->outer_hidden_seconds);
        strbuf_printf(line, ",\"outer_wait_seconds\":%s,\"outer_hidden_seconds\":%s", waited,
                      hidden);
    }
    if (metrics->small_batch) {
        char norm[32], scale[32] = "null", error[32] = "null";
        put_number(norm, sizeof norm, metrics->small_grad_norm);
        if (metrics->noise_scale > 0) put_number(scale, sizeof scale, metrics->noise_scale);
        if (metrics->noise_error > 0) put_number(error, sizeof error, metrics->noise_error);
        strbuf_printf(line,
                      ",\"small_batch\":%d,\"small_grad_norm\":%s,\"noise_scale\":%s,"
                      "\"noise_error\":%s",
                      metrics->small_batch, norm, scale, error);
    }
    if (metrics->stragglers) strbuf_printf(line, ",\"stragglers\":%s", metrics->stragglers);
    for (int i = 0; i < metrics->n_norms; i++) {
        const ParameterNorm *norm = &metrics->norms[i];
        const double of[] = {norm->weight, norm->gradient, norm->change};
        strbuf_put(line, i ? "," : ",\"norms\":{");
        json_put_text(line, norm->name);
        for (int k = 0; k < 3; k++) {
            char number[32];
            if (isfinite(of[k])) {
                snprintf(number, sizeof number, "%.6g", of[k]);
            } else {
                snprintf(number, sizeof number, "null");
            }
            strbuf_printf(line, "%s%s", k ? "," : ":[", number);
        }
        strbuf_put(line, i + 1 == metrics->n_norms ? "]}" : "]");
    }
}

bool run_log_write(RunLog *log, const StepMetrics *metrics, Diag *diag) {
    char text[RUN_LOG_LINE_BYTES];
    StepMetrics told = *metrics;
    if (log->has_begun) told.n_parameters = 0;
    log->has_begun = true;
    size_t length = (size_t)run_log_format(text, sizeof text, &told);
    if (!metrics->stragglers && !metrics->outer_step && !metrics->n_norms && !metrics->small_batch)
        return run_log_write_text(log, text, length, diag);
    StrBuf line = strbuf_create();
    strbuf_put_bytes(&line, text, length - 2); /* without "}\n" */
    put_rare(&line, metrics);
    strbuf_put(&line, "}\n");
    bool good = run_log_write_text(log, line.text, line.length, diag);
    strbuf_destroy(&line);
    return good;
}

bool run_log_write_text(RunLog *log, const char *text, size_t length, Diag *diag) {
    for (size_t n_written = 0; n_written < length;) {
        ssize_t n = write(log->fd, text + n_written, length - n_written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            diag_error(diag, (SourceLoc){log->path, 0}, "cannot write the run log: %s",
                       strerror(errno));
            return false;
        }
        n_written += (size_t)n;
    }
    return true;
}

void run_log_close(RunLog *log) {
    if (!log) return;
    close(log->fd);
    free(log->path);
    free(log);
}
