/* TensorBoard's files, read by a decoder of this test's own: framing, checks, tags, numbers, and
 * the start of a session. Catches: a file that TensorBoard takes for damaged, a number under
 * another step or tag, a run that goes on beside what it takes back, a file that is written over.
 */
#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "runtime/metrics/crc32c.h"
#include "runtime/metrics/event_file.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_EVENTS = 16, MOST_VALUES = 160 };

typedef struct Value {
    char tag[8192];
    float number;
} Value;

typedef struct Event {
    double wall_time;
    int64_t step;
    char version[32];
    int session_status; /* 0: no session_log */
    int n_values;
    Value values[MOST_VALUES];
} Event;

/* What is left of a message. */
typedef struct Reader {
    const unsigned char *at, *end;
    bool good;
} Reader;

static char folder[64];
static Arena *arena;
static Event events[MOST_EVENTS];

/* What stands in the way of a file's name. */
int gethostname(char *name, size_t size) {
    snprintf(name, size, "odd host/../%%n_\xc3\xa9.example-1");
    return 0;
}

/* --- the decoder --- */

static uint64_t read_bits(Reader *r, int n_bytes) {
    uint64_t x = 0;
    if (r->end - r->at < n_bytes) r->good = false;
    for (int i = 0; r->good && i < n_bytes; i++) x |= (uint64_t)r->at[i] << (8 * i);
    r->at += r->good ? n_bytes : 0;
    return x;
}

static uint64_t read_varint(Reader *r) {
    uint64_t x = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint64_t byte = read_bits(r, 1);
        x |= (byte & 127) << (shift < 64 ? shift : 63);
        if (byte < 128) return x;
    }
    r->good = false;
    return 0;
}

static Reader read_message(Reader *r) {
    uint64_t length = read_varint(r);
    if (!r->good || length > (uint64_t)(r->end - r->at)) return (Reader){0};
    r->at += length;
    return (Reader){r->at - length, r->at, true};
}

static double read_double(Reader *r) {
    uint64_t bits = read_bits(r, 8);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float read_float(Reader *r) {
    uint32_t bits = (uint32_t)read_bits(r, 4);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool read_text(Reader *r, char *out, size_t size) {
    Reader text = read_message(r);
    size_t length = (size_t)(text.end - text.at);
    if (!text.good || length >= size) return false;
    memcpy(out, text.at, length);
    out[length] = '\0';
    return true;
}

static bool read_value(Reader r, Value *out) {
    int n_numbers = 0;
    while (r.good && r.at < r.end) {
        uint64_t key = read_varint(&r);
        if (key == (1 << 3 | 2)) {
            r.good = r.good && read_text(&r, out->tag, sizeof out->tag);
        } else if (key == (2 << 3 | 5)) {
            out->number = read_float(&r);
            n_numbers++;
        } else {
            r.good = false;
        }
    }
    return r.good && n_numbers == 1 && out->tag[0];
}

static bool read_summary(Reader r, Event *out) {
    while (r.good && r.at < r.end) {
        if (read_varint(&r) != (1 << 3 | 2) || out->n_values == MOST_VALUES) return false;
        if (!read_value(read_message(&r), &out->values[out->n_values++])) return false;
    }
    return r.good;
}

static bool read_event(Reader r, Event *out) {
    memset(out, 0, sizeof *out);
    while (r.good && r.at < r.end) {
        uint64_t key = read_varint(&r);
        if (key == (1 << 3 | 1)) {
            out->wall_time = read_double(&r);
        } else if (key == (2 << 3 | 0)) {
            out->step = (int64_t)read_varint(&r);
        } else if (key == (3 << 3 | 2)) {
            r.good = r.good && read_text(&r, out->version, sizeof out->version);
        } else if (key == (5 << 3 | 2)) {
            r.good = read_summary(read_message(&r), out) && r.good;
        } else if (key == (7 << 3 | 2)) {
            Reader session = read_message(&r);
            if (read_varint(&session) != (1 << 3 | 0)) return false;
            out->session_status = (int)read_varint(&session);
            r.good = r.good && session.good && session.at == session.end;
        } else {
            r.good = false;
        }
    }
    return r.good;
}

/* Bit by bit: it shares nothing with crc32c.c. */
static uint32_t masked(const unsigned char *bytes, size_t length) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int b = 0; b < 8; b++) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

/* Into `events`; their number, -1 where the file is not what TensorBoard reads. */
static int read_events(const char *path) {
    Diag *diag = diag_create();
    size_t length = 0;
    const unsigned char *bytes = (unsigned char *)file_read(arena, path, 1 << 20, &length, diag);
    Reader r = {bytes, bytes + length, bytes != NULL};
    int n = 0;
    while (r.good && r.at < r.end && n < MOST_EVENTS) {
        const unsigned char *head = r.at;
        uint64_t n_event = read_bits(&r, 8);
        uint64_t check = read_bits(&r, 4);
        const unsigned char *event = r.at;
        if (!r.good || check != masked(head, 8) || n_event > (uint64_t)(r.end - r.at)) break;
        r.at += n_event;
        if (read_bits(&r, 4) != masked(event, n_event)) break;
        if (!read_event((Reader){event, event + n_event, true}, &events[n++])) break;
    }
    diag_destroy(diag);
    return r.good && r.at == r.end ? n : -1;
}

/* NULL: the event has no such tag, or has it twice. */
static const float *find_value(const Event *event, const char *tag) {
    const float *found = NULL;
    for (int i = 0; i < event->n_values; i++) {
        if (strcmp(event->values[i].tag, tag) != 0) continue;
        if (found) return NULL;
        found = &event->values[i].number;
    }
    return found;
}

static bool has(const Event *event, const char *tag, double number) {
    const float *value = find_value(event, tag);
    return value && (isnan(number) ? isnan(*value) : *value == (float)number);
}

static int count_files(const char *in) {
    int n = 0;
    DIR *dir = opendir(in);
    for (struct dirent *entry; dir && (entry = readdir(dir));) n += entry->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

/* --- cases --- */

static void test_check(void) {
    check_begin("crc32c: the check value, and RFC 3720's");
    unsigned char zeros[32] = {0}, counted[32];
    for (int i = 0; i < 32; i++) counted[i] = (unsigned char)i;
    CHECK(crc32c("123456789", 9) == 0xe3069283, "%x", crc32c("123456789", 9));
    CHECK(crc32c(zeros, 32) == 0x8a9136aa, "%x", crc32c(zeros, 32));
    CHECK(crc32c(counted, 32) == 0x46dd794e, "%x", crc32c(counted, 32));
    CHECK(crc32c("", 0) == 0, "%x", crc32c("", 0));
}

static const StepMetrics PLAIN = {.step = 1,
                                  .n_samples = 8,
                                  .loss = 5.5,
                                  .grad_norm = 2.25,
                                  .lr = 6e-6,
                                  .tokens_per_s = 48211,
                                  .seconds = 0.02};

static void test_run(void) {
    static const char *const NAMES[] = {"a.bin", "texts of mine#2"};
    static const double LOSSES[] = {1.5, NAN};
    static const StepValue VALUES[] = {{"dropped", 0.125}, {"last.rms", INFINITY}};
    const StepMetrics last = {.step = INT64_MAX,
                              .loss = NAN,
                              .grad_norm = INFINITY,
                              .lr = -1.7976931348623157e308, /* an f32's infinity */
                              .tokens_per_s = -INFINITY,
                              .seconds = 5e-324,
                              .has_val_loss = true,
                              .val_loss = 4.5,
                              .val_bits_per_byte = 1.25,
                              .has_loss_scale = true,
                              .loss_scale = 32768,
                              .skipped = true,
                              .has_n_labels = true,
                              .n_labels = 7,
                              .n_sources = 2,
                              .source_names = NAMES,
                              .source_losses = LOSSES,
                              .n_values = 2,
                              .values = VALUES,
                              .slowest_ratio = 1.25};
    Diag *diag = diag_create();
    const char *in = arena_printf(arena, "%s/new/deep", folder);
    check_begin("event file: folders are made, and each step is there when written");
    double before = (double)time(NULL);
    EventFile *file = event_file_open(in, 0, diag);
    CHECK(file != NULL, "%s", diag_text(diag));
    if (!file) return;
    const char *path = arena_printf(arena, "%s", event_file_path(file));
    CHECK(read_events(path) == 2, "not a version and a start");
    CHECK(strcmp(events[0].version, "brain.Event:2") == 0, "version '%s'", events[0].version);
    CHECK(events[0].wall_time >= before && events[0].wall_time <= before + 60, "%f is no time",
          events[0].wall_time);
    CHECK(events[1].session_status == 1 && events[1].step == 1, "status %d, step %lld",
          events[1].session_status, (long long)events[1].step);
    CHECK(event_file_write(file, &PLAIN, diag), "%s", diag_text(diag));
    CHECK(read_events(path) == 3 && events[2].step == 1, "the first step is not there");

    check_begin("event file: a step has what it has, and no more");
    const Event *event = &events[2];
    CHECK(has(event, "train/loss", 5.5) && has(event, "train/grad_norm", 2.25) &&
              has(event, "train/lr", 6e-6) && has(event, "train/samples", 8) &&
              has(event, "speed/tokens_per_s", 48211) && has(event, "speed/seconds", 0.02) &&
              event->n_values == 6,
          "%d values", event->n_values);
    CHECK(event->wall_time >= events[0].wall_time, "%f", event->wall_time);
    CHECK(event_file_write(file, &last, diag), "%s", diag_text(diag));
    event_file_close(file);
    CHECK(read_events(path) == 4 && events[3].step == INT64_MAX, "the last step is not there");
    event = &events[3];
    CHECK(has(event, "train/loss", NAN) && has(event, "train/grad_norm", INFINITY) &&
              has(event, "train/lr", -INFINITY) && has(event, "speed/tokens_per_s", -INFINITY) &&
              has(event, "speed/seconds", 0),
          "numbers that are not finite");
    CHECK(has(event, "train/loss_scale", 32768) && has(event, "train/skipped", 1) &&
              has(event, "train/labels", 7),
          "the loss scale, labels");
    CHECK(has(event, "validation/loss", 4.5) && has(event, "validation/bits_per_byte", 1.25) &&
              has(event, "validation/loss/a.bin", 1.5) &&
              has(event, "validation/loss/texts of mine#2", NAN),
          "validation");
    CHECK(has(event, "values/dropped", 0.125) && has(event, "values/last.rms", INFINITY) &&
              has(event, "speed/slowest_rank", 1.25) && event->n_values == 15,
          "%d values", event->n_values);
    diag_destroy(diag);
}

/* More than an event has room for. */
static void test_norms(void) {
    enum { N = 120, BLOCKS = 40 };
    static ParameterNorm norms[N];
    Diag *diag = diag_create();
    check_begin("event file: norms of all parameters");
    for (int i = 0; i < N; i++) {
        const char *name = arena_printf(arena, "blocks.%d.weight.%d", i / BLOCKS, i);
        norms[i] = (ParameterNorm){name, i + 0.5, i == 7 ? NAN : i + 0.25, i == 9 ? NAN : i};
    }
    StepMetrics metrics = PLAIN;
    metrics.n_norms = N;
    metrics.norms = norms;
    metrics.small_batch = 4;
    metrics.small_grad_norm = 3.5;
    metrics.noise_scale = 310.25; /* its error is not known */
    EventFile *file = event_file_open(arena_printf(arena, "%s/norms", folder), 0, diag);
    CHECK(file && event_file_write(file, &metrics, diag), "%s", diag_text(diag));
    if (!file) return;
    const int n = read_events(event_file_path(file));
    for (int i = 0; i < N; i++) {
        int found = 0;
        for (int e = 3; e < n; e++) {
            const char *name = norms[i].name;
            found += has(&events[e], arena_printf(arena, "weight_norm/%s", name), norms[i].weight);
            found +=
                has(&events[e], arena_printf(arena, "gradient_norm/%s", name), norms[i].gradient);
            found += has(&events[e], arena_printf(arena, "change_norm/%s", name), norms[i].change);
        }
        CHECK(found == (i == 7 || i == 9 ? 2 : 3), "%s: %d of its numbers", norms[i].name, found);
    }
    for (int e = 2; e < n; e++) CHECK(events[e].step == 1, "step %lld", (long long)events[e].step);
    CHECK(n > 4 && events[2].n_values == 8, "%d events", n);
    CHECK(has(&events[2], "noise/small_grad_norm", 3.5) && has(&events[2], "noise/scale", 310.25),
          "the noise scale");
    event_file_close(file);
    diag_destroy(diag);
}

static void test_going_on(void) {
    Diag *diag = diag_create();
    const char *in = arena_printf(arena, "%s/on", folder);
    check_begin("event file: a run that goes on says from where; no file is written over");
    EventFile *first = event_file_open(in, 0, diag), *second = event_file_open(in, 40, diag);
    CHECK(first && second, "%s", diag_text(diag));
    if (!first || !second) return;
    StepMetrics metrics = PLAIN;
    CHECK(event_file_write(first, &metrics, diag), "%s", diag_text(diag));
    metrics.step = 41;
    CHECK(event_file_write(second, &metrics, diag), "%s", diag_text(diag));
    CHECK(read_events(event_file_path(second)) == 3 && events[1].session_status == 1 &&
              events[1].step == 41 && events[2].step == 41,
          "status %d, step %lld", events[1].session_status, (long long)events[1].step);
    CHECK(read_events(event_file_path(first)) == 3 && events[2].step == 1,
          "the first is not whole");
    CHECK(count_files(in) == 2, "%d files", count_files(in));

    check_begin("event file: its name has the host's, which may be odd");
    const char *name = strrchr(event_file_path(first), '/') + 1;
    CHECK(strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") ==
                  strlen(name) &&
              strncmp(name, "events.out.tfevents.", 20) == 0 &&
              strstr(name, ".odd-host-..--n---.example-1."),
          "%s", name);
    event_file_close(first);
    event_file_close(second);

    check_begin("event file: one without a step goes");
    event_file_close(event_file_open(in, 41, diag));
    CHECK(count_files(in) == 2, "%d files", count_files(in));
    diag_destroy(diag);
}

/* More and longer names than any run has: as many as there is room for, each whole. */
static void test_names(void) {
    enum { N = 40 };
    Diag *diag = diag_create();
    char *long_name = arena_alloc(arena, 8000);
    const char *names[N];
    double losses[N];
    memset(long_name, 'x', 7999);
    long_name[7999] = '\0';
    for (int i = 0; i < N; i++) {
        names[i] = arena_printf(arena, "%d/%.*s", i, i == 3 ? 7900 : 10 * i, long_name);
        losses[i] = i;
    }
    StepMetrics metrics = PLAIN;
    metrics.has_val_loss = true;
    metrics.source_names = names;
    metrics.source_losses = losses;
    metrics.n_sources = N;
    check_begin("event file: names of any length, and as many as fit");
    EventFile *file = event_file_open(folder, 0, diag);
    CHECK(file && event_file_write(file, &metrics, diag), "%s", diag_text(diag));
    CHECK(file && read_events(event_file_path(file)) == 3, "the file is damaged");
    int n = events[2].n_values - 7;
    CHECK(n >= 25 && n < N, "%d of the sources", n);
    for (int i = 0; i < 25; i++) {
        bool is_there = has(&events[2], arena_printf(arena, "validation/loss/%s", names[i]), i);
        CHECK(is_there == (i != 3), "source %d", i);
    }
    event_file_close(file);
    diag_destroy(diag);
}

static bool is_refused(const char *in, const char *why) {
    Diag *diag = diag_create();
    EventFile *file = event_file_open(in, 0, diag);
    bool refused = !file && strstr(diag_text(diag), "cannot write TensorBoard's events") &&
                   strstr(diag_text(diag), why);
    if (!refused) printf("%s: %s\n", in, diag_text(diag));
    event_file_close(file);
    diag_destroy(diag);
    return refused;
}

/* Less than the second record has, then less than a step has. */
static void test_full_disk(void) {
    Diag *diag = diag_create();
    const char *in = arena_printf(arena, "%s/full", folder);
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    check_begin("event file: a full disk is reported");
    limit.rlim_cur = 50;
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(is_refused(in, "File too large"), "accepted");
    CHECK(count_files(in) == 0, "the file is left");
    limit.rlim_cur = 200;
    setrlimit(RLIMIT_FSIZE, &limit);
    EventFile *file = event_file_open(in, 0, diag);
    bool written = file && event_file_write(file, &PLAIN, diag);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(file && !written && strstr(diag_text(diag), "events: File too large"), "%s",
          diag_text(diag));
    event_file_close(file);
    CHECK(count_files(in) == 1, "%d files", count_files(in));
    diag_destroy(diag);
}

static void test_bad_folders(void) {
    Diag *diag = diag_create();
    const char *plain = arena_printf(arena, "%s/plain", folder);
    char *endless = arena_alloc(arena, 6000);
    memset(endless, 'x', 5999);
    endless[5999] = '\0';
    check_begin("event file: what is no folder is refused");
    CHECK(file_write(plain, "mine", 4, diag), "%s", diag_text(diag));
    CHECK(is_refused(plain, "Not a directory"), "a file");
    CHECK(is_refused(arena_printf(arena, "%s/below", plain), "Not a directory"), "below a file");
    CHECK(is_refused("/dev/null", "Not a directory"), "a device");
    CHECK(is_refused("/proc/none/x", ""), "below what takes no folders");
    CHECK(is_refused("", "No such file"), "no name");
    CHECK(is_refused(endless, "name too long"), "a name without an end");
    diag_destroy(diag);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/test_event_file-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    arena = arena_create();
    test_check();
    test_run();
    test_norms();
    test_going_on();
    test_names();
    test_bad_folders();
    test_full_disk();
    int status = check_report();
    status |= system(arena_printf(arena, "rm -rf '%s'", folder)) != 0;
    arena_destroy(arena);
    return status;
}
