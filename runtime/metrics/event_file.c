#include "runtime/metrics/event_file.h"

#include "ir/base/file.h"
#include "ir/base/strbuf.h"
#include "runtime/metrics/crc32c.h"
#include "runtime/metrics/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A field's key in protobuf: its number, and in the lowest three bits how its value is written. */
enum { AS_VARINT = 0, AS_64_BITS = 1, AS_BYTES = 2, AS_32_BITS = 5 };
enum {
    EVENT_WALL_TIME = 1 << 3 | AS_64_BITS,
    EVENT_STEP = 2 << 3 | AS_VARINT,
    EVENT_FILE_VERSION = 3 << 3 | AS_BYTES,
    EVENT_SUMMARY = 5 << 3 | AS_BYTES,
    EVENT_SESSION_LOG = 7 << 3 | AS_BYTES,
    SESSION_LOG_STATUS = 1 << 3 | AS_VARINT,
    SUMMARY_VALUE = 1 << 3 | AS_BYTES,
    VALUE_TAG = 1 << 3 | AS_BYTES,
    VALUE_SIMPLE = 2 << 3 | AS_32_BITS,
};
enum { SESSION_START = 1 };

/* The log's line is longer than a step's tags and numbers. */
enum {
    HEAD_BYTES = 12, /* a record's length and its check */
    SUMMARY_BYTES = RUN_LOG_LINE_BYTES,
    RECORD_BYTES = SUMMARY_BYTES + 64
};

typedef struct Bytes {
    size_t count;
    unsigned char at[RECORD_BYTES];
} Bytes;

struct EventFile {
    int fd;
    StrBuf path;
    bool has_step;
    Bytes summary, record;
};

static void put_byte(Bytes *to, unsigned byte) {
    if (to->count == sizeof(to->at)) BUG("an event of more than %zu bytes", sizeof(to->at));
    to->at[to->count++] = (unsigned char)byte;
}

static void put_text(Bytes *to, const void *text, size_t length) {
    for (size_t i = 0; i < length; i++) put_byte(to, ((const unsigned char *)text)[i]);
}

/* Whatever this machine's order of bytes. */
static void put_bits(Bytes *to, uint64_t bits, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) put_byte(to, (unsigned)(bits >> (8 * i)) & 255);
}

static void put_varint(Bytes *to, uint64_t x) {
    for (; x >= 128; x >>= 7) put_byte(to, (unsigned)(x & 127) | 128);
    put_byte(to, (unsigned)x);
}

static void put_field(Bytes *to, unsigned key, const void *bytes, size_t length) {
    put_byte(to, key);
    put_varint(to, length);
    put_text(to, bytes, length);
}

/* --- a step's numbers --- */

/* The tag is group/name. */
static void put_value(Bytes *summary, const char *group, const char *name, double value) {
    enum { MOST_OTHER_BYTES = 32 }; /* keys, lengths, the slash and the number */
    size_t n_group = strlen(group), n_name = strlen(name), n_tag = n_group + 1 + n_name;
    float number = (float)value;
    uint32_t bits;
    if (n_tag >= SUMMARY_BYTES || summary->count + n_tag + MOST_OTHER_BYTES > SUMMARY_BYTES) return;
    memcpy(&bits, &number, sizeof bits);
    size_t n_length = 1; /* bytes of the tag's length, a varint */
    for (size_t left = n_tag; left >= 128; left >>= 7) n_length++;
    put_byte(summary, SUMMARY_VALUE);
    put_varint(summary, 1 + n_length + n_tag + 1 + sizeof bits);
    put_byte(summary, VALUE_TAG);
    put_varint(summary, n_tag);
    put_text(summary, group, n_group);
    put_byte(summary, '/');
    put_text(summary, name, n_name);
    put_byte(summary, VALUE_SIMPLE);
    put_bits(summary, bits, sizeof bits);
}

static void put_validation(Bytes *summary, const StepMetrics *metrics) {
    put_value(summary, "validation", "loss", metrics->val_loss);
    if (metrics->has_val_loss_ema) {
        put_value(summary, "validation", "loss_ema", metrics->val_loss_ema);
    }
    if (metrics->val_bits_per_byte > 0) {
        put_value(summary, "validation", "bits_per_byte", metrics->val_bits_per_byte);
    }
    for (int i = 0; i < metrics->n_sources; i++) {
        put_value(summary, "validation/loss", metrics->source_names[i], metrics->source_losses[i]);
    }
}

static void put_step(Bytes *summary, const StepMetrics *metrics) {
    put_value(summary, "train", "loss", metrics->loss);
    put_value(summary, "train", "grad_norm", metrics->grad_norm);
    put_value(summary, "train", "lr", metrics->lr);
    if (metrics->n_samples) put_value(summary, "train", "samples", (double)metrics->n_samples);
    if (metrics->has_n_labels) put_value(summary, "train", "labels", (double)metrics->n_labels);
    if (metrics->has_loss_scale) {
        put_value(summary, "train", "loss_scale", metrics->loss_scale);
        put_value(summary, "train", "skipped", metrics->skipped);
    }
    if (metrics->n_spikes) put_value(summary, "train", "spike", metrics->spike);
    put_value(summary, "speed", "tokens_per_s", metrics->tokens_per_s);
    put_value(summary, "speed", "seconds", metrics->seconds);
    if (metrics->slowest_ratio > 0) {
        put_value(summary, "speed", "slowest_rank", metrics->slowest_ratio);
    }
    if (metrics->small_batch) {
        put_value(summary, "noise", "small_grad_norm", metrics->small_grad_norm);
        if (metrics->noise_scale > 0) put_value(summary, "noise", "scale", metrics->noise_scale);
        if (metrics->noise_error > 0) put_value(summary, "noise", "error", metrics->noise_error);
    }
    if (metrics->outer_step) {
        put_value(summary, "outer", "norm", metrics->outer_norm);
        put_value(summary, "outer", "seconds", metrics->outer_seconds);
        put_value(summary, "outer", "islands", metrics->outer_islands);
        if (metrics->has_outer_hidden) {
            put_value(summary, "outer", "wait_seconds", metrics->outer_wait_seconds);
            put_value(summary, "outer", "hidden_seconds", metrics->outer_hidden_seconds);
        }
    }
    for (int i = 0; i < metrics->n_values; i++) {
        put_value(summary, "values", metrics->values[i].name, metrics->values[i].value);
    }
    if (metrics->has_val_loss) put_validation(summary, metrics);
}

/* --- records --- */

static void begin_event(Bytes *record) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    record->count = HEAD_BYTES; /* filled in when the length is known */
    put_byte(record, EVENT_WALL_TIME);
    put_bits(record, bits, sizeof bits);
}

static void put_event_step(Bytes *record, int64_t step) {
    put_byte(record, EVENT_STEP);
    put_varint(record, (uint64_t)step);
}

/* Turned and moved, as TFRecord has it: checks of texts that have their own check in them tell
 * little. */
static uint32_t masked_check(const void *bytes, size_t length) {
    uint32_t crc = crc32c(bytes, length);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

static bool write_record(EventFile *file, Diag *diag) {
    Bytes *record = &file->record;
    size_t end = record->count, n_event = end - HEAD_BYTES;
    record->count = 0;
    put_bits(record, n_event, 8);
    put_bits(record, masked_check(record->at, 8), 4);
    record->count = end;
    put_bits(record, masked_check(record->at + HEAD_BYTES, n_event), 4);
    for (size_t n_written = 0; n_written < record->count;) {
        ssize_t n = write(file->fd, record->at + n_written, record->count - n_written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            diag_error(diag, (SourceLoc){file->path.text, 0},
                       "cannot write TensorBoard's events: %s", strerror(errno));
            return false;
        }
        n_written += (size_t)n;
    }
    return true;
}

/* Empties the summary. */
static bool write_summary(EventFile *file, int64_t step, Diag *diag) {
    begin_event(&file->record);
    put_event_step(&file->record, step);
    put_field(&file->record, EVENT_SUMMARY, file->summary.at, file->summary.count);
    file->summary.count = 0;
    file->has_step = true; /* or a part of one */
    return write_record(file, diag);
}

bool event_file_write(EventFile *file, const StepMetrics *metrics, Diag *diag) {
    file->summary.count = 0;
    put_step(&file->summary, metrics);
    bool good = write_summary(file, metrics->step, diag);
    for (int i = 0; good && i < metrics->n_norms; i++) {
        const ParameterNorm *norm = &metrics->norms[i];
        put_value(&file->summary, "weight_norm", norm->name, norm->weight);
        if (!isnan(norm->gradient)) {
            put_value(&file->summary, "gradient_norm", norm->name, norm->gradient);
        }
        if (!isnan(norm->change)) {
            put_value(&file->summary, "change_norm", norm->name, norm->change);
        }
        const bool is_last = i + 1 == metrics->n_norms;
        if (is_last || file->summary.count > SUMMARY_BYTES / 2) {
            good = write_summary(file, metrics->step, diag);
        }
    }
    return good;
}

/* --- the file --- */

/* As it can stand in a file's name. */
static void get_host(char *out, size_t size) {
    static const char GOOD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    if (gethostname(out, size) != 0) out[0] = '\0';
    out[size - 1] = '\0';
    for (char *c = out; *c; c++) {
        if (!strchr(GOOD, *c)) *c = '-';
    }
    if (!out[0]) snprintf(out, size, "host");
}

/* False: errno says why. */
static bool create_in(EventFile *file, const char *folder) {
    char host[128];
    long long seconds = (long long)time(NULL);
    get_host(host, sizeof host);
    for (int i = 0; file->fd < 0 && (i == 0 || errno == EEXIST); i++) {
        strbuf_destroy(&file->path);
        file->path = strbuf_create();
        strbuf_printf(&file->path, "%s/events.out.tfevents.%lld.%s.%ld.%d", folder, seconds, host,
                      (long)getpid(), i);
        file->fd = open(file->path.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return file->fd >= 0;
}

/* What TensorBoard looks for first, and what it takes for a restart. */
static bool write_start(EventFile *file, int64_t step, Diag *diag) {
    static const char VERSION[] = "brain.Event:2";
    static const unsigned char START[] = {SESSION_LOG_STATUS, SESSION_START};
    begin_event(&file->record);
    put_field(&file->record, EVENT_FILE_VERSION, VERSION, sizeof VERSION - 1);
    if (!write_record(file, diag)) return false;
    begin_event(&file->record);
    put_event_step(&file->record, step);
    put_field(&file->record, EVENT_SESSION_LOG, START, sizeof START);
    return write_record(file, diag);
}

EventFile *event_file_open(const char *folder, int64_t step, Diag *diag) {
    EventFile *file = calloc(1, sizeof(*file));
    if (!file) BUG("out of memory");
    file->fd = -1;
    if (!file_make_folders(folder, 0777) || !create_in(file, folder)) {
        diag_error(diag, (SourceLoc){folder, 0}, "cannot write TensorBoard's events into it: %s",
                   strerror(errno));
    } else if (write_start(file, step + 1, diag)) {
        return file;
    }
    event_file_close(file);
    return NULL;
}

const char *event_file_path(const EventFile *file) {
    return file->path.text;
}

void event_file_close(EventFile *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    if (file->fd >= 0 && !file->has_step) unlink(file->path.text);
    strbuf_destroy(&file->path);
    free(file);
}
