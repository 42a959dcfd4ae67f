#include "runtime/launch/control.h"

#include "ir/base/clock.h"
#include "ir/base/version.h"
#include "runtime/launch/control_internal.h"
#include "runtime/launch/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Before the first line about waiting, and between lines. */
static const double first_line_s = 2, next_line_s = 10;
/* How long a rank that ends tries to pass on what it has to say. */
static const double farewell_s = 1, report_s = 2;
/* For the others to hear why the job does not begin: ranks of a job start at about the same time.
 */
static const double late_s = 10;
/* A port may be taken for a moment: by a job that is just ending, or as another connection's own
 * end where the system hands out ports from the same range. */
static const double listen_s = 5, listen_pause_s = 0.1;

enum { OTHER_DESCRIPTORS = 512 + MAX_GUESTS }; /* files, devices and other libraries' sockets */

ControlOptions control_default_options(const LaunchEnvironment *launch, uint64_t fingerprint) {
    return (ControlOptions){.rank = launch->rank,
                            .world = launch->world,
                            .master_host = launch->master_host,
                            .port = launch->port,
                            .host = launch->host,
                            .job = launch->job,
                            .version = PERILUNE_VERSION,
                            .fingerprint = fingerprint,
                            .connect_s = 300,
                            .operation_s = 300,
                            .heartbeat_s = 5,
                            .lost_s = 60,
                            .stuck_s = 3600,
                            .stream = stderr};
}

/* --- what all files use --- */

bool control_is_hub(const Control *control) {
    return control->options.rank == 0;
}

void control_wake(Control *control) {
    uint64_t one = 1;
    ssize_t n = write(control->wake_fd, &one, sizeof one); /* fails only when it is set already */
    (void)n;
}

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t control_token(const Control *control, uint32_t world, uint64_t fingerprint,
                       const char *purpose) {
    unsigned char numbers[12];
    for (int i = 0; i < 4; i++) numbers[i] = (unsigned char)(world >> (8 * i));
    for (int i = 0; i < 8; i++) numbers[4 + i] = (unsigned char)(fingerprint >> (8 * i));
    uint64_t hash =
        hash_bytes(UINT64_C(0xcbf29ce484222325), control->job, strlen(control->job) + 1);
    hash = hash_bytes(hash, numbers, sizeof numbers);
    return hash_bytes(hash, purpose, strlen(purpose));
}

void control_fail(Control *control, const char *format, ...) {
    va_list args;
    if (atomic_load(&control->failed)) return;
    va_start(args, format);
    vsnprintf(control->reason, sizeof control->reason, format, args);
    va_end(args);
    atomic_store(&control->failed, true);
    for (int i = 1; i < control->n_members; i++) { /* only rank 0 has these */
        Link *link = control->members[i].link;
        if (!link || link->fd < 0) continue;
        size_t start = message_begin(&link->out, MESSAGE_FAIL);
        message_put_text(&link->out, control->reason);
        message_end(&link->out, start);
    }
    pthread_cond_broadcast(&control->changed);
    control_wake(control);
}

bool control_failed(const Control *control, const char **out_reason) {
    bool failed = atomic_load(&control->failed);
    if (out_reason) *out_reason = failed ? control->reason : "";
    return failed;
}

/* Waits for `changed` until a time of clock_now's clock; false: it has passed. */
static bool wait_changed(Control *control, double until) {
    struct timespec t = {.tv_sec = (time_t)until};
    t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(&control->changed, &control->lock, &t) != ETIMEDOUT;
}

/* --- connecting --- */

static Control *create(const ControlOptions *options) {
    Control *control = calloc(1, sizeof *control);
    if (!control) BUG("out of memory");
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&control->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&control->lock, NULL);
    control->options = *options;
    if (options->stuck_s > 0) { /* only heartbeats tell */
        control->options.heartbeat_s = fmin(options->heartbeat_s, options->stuck_s / 4);
    }
    snprintf(control->master_host, sizeof control->master_host, "%s", options->master_host);
    snprintf(control->host, sizeof control->host, "%s", options->host);
    snprintf(control->job, sizeof control->job, "%s", options->job);
    snprintf(control->version, sizeof control->version, "%s",
             options->version ? options->version : "");
    control->wake_fd = control->listener = -1;
    control->result = strbuf_create();
    control->n_members = options->rank == 0 ? options->world : 1;
    control->members = calloc((size_t)control->n_members, sizeof *control->members);
    if (!control->members) BUG("out of memory");
    for (int i = 0; i < control->n_members; i++) control->members[i].progress.step = -1;
    control->told.step = -1;
    mailbox_init(&control->mailbox, clock_now());
    atomic_init(&control->failed, false);
    return control;
}

static bool start_thread(Control *control, Diag *diag) {
    sigset_t all, before;
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&control->thread, NULL, control_serve, control);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    control->has_thread = error == 0;
    if (error) {
        diag_error(diag, NO_LOC, "control plane: a thread cannot be started: %s", strerror(error));
    }
    return error == 0;
}

typedef struct WaitLines {
    double next; /* when the next line about waiting is due */
} WaitLines;

static bool line_is_due(WaitLines *lines, const Control *control) {
    double now = clock_now();
    if (!control->options.stream || now < lines->next) return false;
    lines->next = now + next_line_s;
    return true;
}

static void put_missing(const Control *control, StrBuf *out) {
    bool *missing = calloc((size_t)control->n_members, sizeof *missing);
    if (!missing) BUG("out of memory");
    for (int i = 0; i < control->n_members; i++) missing[i] = !control->members[i].joined;
    strbuf_put(out, control->options.world - control->n_joined == 1 ? "rank " : "ranks ");
    control_put_ranks(out, missing, control->n_members);
    free(missing);
}

static void pause_for(double seconds) {
    struct timespec t = {.tv_nsec = (long)(fmin(fmax(seconds, 0), 0.99) * 1e9)};
    nanosleep(&t, NULL);
}

static bool open_hub(Control *control, Diag *diag) {
    const ControlOptions *options = &control->options;
    char why[SOCKET_WHY_BYTES];
    size_t limit;
    control->members[0].joined = control->members[0].came = true;
    control->n_joined = control->n_came = 1;
    control->started = options->world == 1;
    if (options->world == 1) return true;
    /* For the others to be told so, some are enough. */
    if (!atomic_load(&control->failed) &&
        !socket_reserve_descriptors((size_t)options->world + OTHER_DESCRIPTORS, &limit)) {
        control_fail(control,
                     "rank 0 needs %d open files for %d ranks, the system allows %zu (ulimit -Hn)",
                     options->world + OTHER_DESCRIPTORS, options->world, limit);
    }
    double deadline = clock_now() + fmin(listen_s, options->connect_s);
    for (;;) {
        control->listener = socket_listen(control->master_host, options->port, why);
        if (control->listener >= 0 || clock_now() > deadline) break;
        pause_for(listen_pause_s);
    }
    if (control->listener < 0) {
        diag_error(diag, NO_LOC,
                   "rank 0 cannot listen on port %d: %s; set MASTER_PORT to a free port on all "
                   "ranks",
                   options->port, why);
        return false;
    }
    return true;
}

/* Rank 0's wait for the others, and theirs for START. */
static bool await_start(Control *control, double deadline, WaitLines *lines, Diag *diag) {
    pthread_mutex_lock(&control->lock);
    while (!control->started && !atomic_load(&control->failed)) {
        double now = clock_now();
        bool hub = control_is_hub(control);
        if (hub && line_is_due(lines, control)) {
            StrBuf text = strbuf_create();
            put_missing(control, &text);
            fprintf(control->options.stream, "perilune: rank 0 waits for %s (%d of %d are there)\n",
                    text.text, control->n_joined, control->options.world);
            strbuf_destroy(&text);
        }
        if (now > deadline && hub) {
            StrBuf text = strbuf_create();
            put_missing(control, &text);
            if (control->refusal[0]) strbuf_printf(&text, "; %s", control->refusal);
            control_fail(control, "not all ranks came within %.3g s: without %s",
                         control->options.connect_s, text.text);
            strbuf_destroy(&text);
        } else if (now > deadline + farewell_s) { /* rank 0 says who is missing */
            control_fail(control, "rank 0 (%s) did not start the job within %.3g s",
                         control->members[0].host, control->options.connect_s);
        } else {
            wait_changed(control, fmin(now + 0.25, deadline + farewell_s + 0.01));
        }
    }
    bool failed = atomic_load(&control->failed);
    pthread_mutex_unlock(&control->lock);
    if (failed) diag_error(diag, NO_LOC, "%s", control->reason);
    return !failed;
}

/* Rank 0's, after a failure: the others come, are told and go, as long as that may take. */
static void await_late(Control *control, double deadline) {
    WaitLines lines = {clock_now() + first_line_s};
    pthread_mutex_lock(&control->lock);
    while (control->n_came < control->options.world && clock_now() < deadline) {
        wait_changed(control, fmin(deadline, clock_now() + 0.25));
        if (control->n_came == control->options.world || !line_is_due(&lines, control)) continue;
        fprintf(control->options.stream,
                "perilune: rank 0 stays up to %.3g s, for %d other ranks to hear why it ends\n",
                deadline - clock_now(), control->options.world - control->n_came);
    }
    pthread_mutex_unlock(&control->lock);
}

typedef enum Answer { ANSWER_WELCOME, ANSWER_REFUSED, ANSWER_FAILED, ANSWER_NONE } Answer;

enum { WHY_BYTES = 512 }; /* of a refusal, or of the job's failure */

/* `declines`: why this rank cannot take part; NULL: it can. */
static void put_hello(const Control *control, const char *declines, StrBuf *out) {
    const ControlOptions *options = &control->options;
    uint32_t world = (uint32_t)options->world;
    size_t start = message_begin(out, declines ? MESSAGE_DECLINE : MESSAGE_HELLO);
    message_put_u32(out, CONTROL_VERSION);
    message_put_u32(out, world);
    message_put_u32(out, (uint32_t)options->rank);
    message_put_u64(out, options->fingerprint);
    message_put_u64(out, control_token(control, world, options->fingerprint, "hello"));
    message_put_text(out, control->host);
    message_put_text(out, control->version);
    if (declines) message_put_text(out, declines);
    message_end(out, start);
}

/* The first message back; ANSWER_NONE: nothing that rank 0 of this job would say. */
static Answer read_answer(Control *control, const Message *message, char why[WHY_BYTES]) {
    Cursor cursor = cursor_create(message);
    const bool failed = message->kind == MESSAGE_FAIL;
    if (failed || message->kind == MESSAGE_REFUSED) {
        cursor_text(&cursor, why, WHY_BYTES);
        if (!cursor_end(&cursor)) return ANSWER_NONE;
        return failed ? ANSWER_FAILED : ANSWER_REFUSED;
    }
    uint64_t token = cursor_u64(&cursor), fingerprint = control->options.fingerprint;
    cursor_text(&cursor, control->members[0].host, CONTROL_HOST_BYTES);
    bool right =
        message->kind == MESSAGE_WELCOME && cursor_end(&cursor) &&
        token == control_token(control, (uint32_t)control->options.world, fingerprint, "welcome");
    return right ? ANSWER_WELCOME : ANSWER_NONE;
}

/* Says hello over a new connection and waits for the answer. */
static Answer say_hello(Control *control, Link *link, const char *declines, double deadline,
                        char why[WHY_BYTES]) {
    unsigned char bytes[1024];
    snprintf(why, SOCKET_WHY_BYTES, "it is not rank 0 of this job that answers there");
    put_hello(control, declines, &link->out);
    for (;;) {
        size_t n = 0;
        Message message;
        bool sends = link->sent < link->out.length;
        if (!socket_wait(link->fd, sends, deadline - clock_now())) {
            snprintf(why, SOCKET_WHY_BYTES, "connected, but nothing answers");
            return ANSWER_NONE;
        }
        SocketResult result = sends ? socket_send(link->fd, link->out.text + link->sent,
                                                  link->out.length - link->sent, &n)
                                    : socket_receive(link->fd, bytes, sizeof bytes, &n);
        if (result == SOCKET_CLOSED) {
            snprintf(why, SOCKET_WHY_BYTES, "the connection was closed");
            return ANSWER_NONE;
        }
        if (sends) {
            link->sent += n;
            continue;
        }
        if (n > 0) message_reader_feed(&link->reader, bytes, n);
        MessageStatus status = message_reader_next(&link->reader, &message);
        if (status == MESSAGE_BAD) return ANSWER_NONE;
        if (status == MESSAGE_COMPLETE) return read_answer(control, &message, why);
    }
}

/* Comes back when this rank is a member: rank 0 may be late, or its host's name not known yet. */
static bool join_hub(Control *control, double deadline, WaitLines *lines, Diag *diag) {
    const ControlOptions *options = &control->options;
    size_t max_bytes = CONTROL_MAX_RESULT_BYTES + 8 * (size_t)options->world;
    char why[WHY_BYTES] = "";
    for (double pause = 0.05;; pause = fmin(pause * 1.5, 1)) {
        double left = deadline - clock_now();
        int fd = socket_connect(control->master_host, options->port, fmin(fmax(left, 0), 5), why);
        if (fd >= 0) {
            Link *link = link_create(fd, 0, max_bytes);
            Answer answer = say_hello(control, link, NULL, deadline, why);
            link->sent = link->out.length = 0;
            link->heard = clock_now();
            if (answer == ANSWER_WELCOME) {
                control->members[0].link = link;
                control->members[0].joined = true;
                return true;
            }
            link_destroy(link);
            if (answer == ANSWER_REFUSED) {
                diag_error(diag, NO_LOC, "rank %d was refused by rank 0 at %s:%d: %s",
                           options->rank, launch_show_host(control->master_host).text,
                           options->port, why);
                return false;
            }
            if (answer == ANSWER_FAILED) {
                diag_error(diag, NO_LOC, "%s", why);
                return false;
            }
        }
        if (line_is_due(lines, control)) {
            fprintf(options->stream, "perilune: rank %d waits for rank 0 at %s:%d: %s\n",
                    options->rank, launch_show_host(control->master_host).text, options->port, why);
        }
        left = deadline - clock_now();
        if (left <= 0) {
            diag_error(diag, NO_LOC, "rank %d found no rank 0 at %s:%d within %.3g s: %s",
                       options->rank, launch_show_host(control->master_host).text, options->port,
                       options->connect_s, why);
            return false;
        }
        pause_for(fmin(pause, left));
    }
}

Control *control_connect(const ControlOptions *options, Diag *diag) {
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world) {
        BUG("rank %d of %d", options->rank, options->world);
    }
    double deadline = clock_now() + options->connect_s;
    WaitLines lines = {clock_now() + first_line_s};
    Control *control = create(options);
    control->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bool ok = control->wake_fd >= 0;
    if (!ok) diag_error(diag, NO_LOC, "control plane: eventfd: %s", strerror(errno));
    ok = ok && (control_is_hub(control) ? open_hub(control, diag)
                                        : join_hub(control, deadline, &lines, diag));
    ok = ok && start_thread(control, diag) && await_start(control, deadline, &lines, diag);
    if (ok) return control;
    if (control_is_hub(control) && control->has_thread) {
        await_late(control, fmin(clock_now() + late_s, deadline));
    }
    control_destroy(control);
    return NULL;
}

/* Rank 0 hears it, or cannot be reached. */
static void tell_hub(Control *control, const char *text, double deadline) {
    char why[WHY_BYTES];
    Answer answer = ANSWER_NONE;
    WaitLines lines = {clock_now() + first_line_s};
    for (double pause = 0.05;; pause = fmin(pause * 1.5, 1)) {
        double left = deadline - clock_now();
        int fd = socket_connect(control->master_host, control->options.port, fmin(fmax(left, 0), 5),
                                why);
        if (fd >= 0) {
            Link *link = link_create(fd, 0, CONTROL_MAX_BYTES);
            answer = say_hello(control, link, text, deadline, why);
            link_destroy(link);
        }
        left = deadline - clock_now();
        if (answer != ANSWER_NONE || left <= 0) return;
        if (line_is_due(&lines, control)) {
            fprintf(control->options.stream,
                    "perilune: rank %d tries up to %.3g s to tell rank 0 at %s:%d\n",
                    control->options.rank, left, launch_show_host(control->master_host).text,
                    control->options.port);
        }
        pause_for(fmin(pause, left));
    }
}

void control_decline(const ControlOptions *options, const char *text) {
    if (options->world < 2) return;
    Control *control = create(options);
    Diag *unseen = diag_create(); /* the caller has said what counts */
    char line[CONTROL_TEXT_BYTES];
    const double deadline = clock_now() + fmin(late_s, options->connect_s);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    control->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (control->wake_fd >= 0 && !control_is_hub(control)) tell_hub(control, line, deadline);
    if (control->wake_fd >= 0 && control_is_hub(control)) {
        control_fail(control, "rank 0 (%s) cannot take part: %s", control->host, line);
        if (open_hub(control, unseen) && start_thread(control, unseen)) {
            await_late(control, deadline);
        }
    }
    diag_destroy(unseen);
    control_destroy(control);
}

void control_destroy(Control *control) {
    if (!control) return;
    if (control->has_thread) {
        pthread_mutex_lock(&control->lock);
        bool says_farewell = control->closed || atomic_load(&control->failed);
        control->stopping = true;
        control->stop_at = clock_now() + (says_farewell ? farewell_s : 0);
        pthread_mutex_unlock(&control->lock);
        control_wake(control);
        pthread_join(control->thread, NULL);
    }
    for (int i = 0; i < control->n_members; i++) {
        link_destroy(control->members[i].link);
        request_destroy(&control->members[i].request);
    }
    for (int i = 0; i < control->n_guests; i++) link_destroy(control->guests[i]);
    if (control->listener >= 0) close(control->listener);
    if (control->wake_fd >= 0) close(control->wake_fd);
    strbuf_destroy(&control->result);
    free(control->members);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    free(control);
}

/* --- operations --- */

static void put_request(StrBuf *out, const Request *request) {
    size_t start = message_begin(out, MESSAGE_REQUEST);
    message_put_u32(out, request->kind);
    message_put_u32(out, request->root);
    message_put_u32(out, request->bytes);
    message_put_text(out, request->key);
    message_put_u32(out, request->n_ranks);
    for (uint32_t i = 0; i < request->n_ranks; i++) message_put_u32(out, request->ranks[i]);
    message_put_bytes(out, request->data.text, request->data.length);
    message_end(out, start);
}

/* Submits this rank's part and waits for the result, which is then in control->result. Takes over
 * the request's memory. */
static bool operate(Control *control, Request *request) {
    const bool is_limited = request->kind != REQUEST_AWAIT;
    pthread_mutex_lock(&control->lock);
    control->has_result = false;
    if (!atomic_load(&control->failed) && !control->closed) {
        if (control_is_hub(control))
            hub_submit(control, 0, request);
        else if (control->members[0].link)
            put_request(&control->members[0].link->out, request);
        control_wake(control);
    }
    request_destroy(request);
    /* Rank 0 minds the time of operations; should it not, this rank does, later. */
    double deadline = clock_now() + control->options.operation_s + control->options.lost_s;
    while (!control->has_result && !atomic_load(&control->failed)) {
        if (control->closed) BUG("an operation after control_close");
        if (wait_changed(control, deadline)) continue;
        deadline = clock_now() + control->options.lost_s;
        if (is_limited) {
            control_fail(control, "rank %d (%s) had no answer from rank 0 within %.3g s",
                         control->options.rank, control->host, control->options.operation_s);
        }
    }
    bool done = control->has_result;
    pthread_mutex_unlock(&control->lock);
    return done;
}

static bool fail_result(Control *control) {
    pthread_mutex_lock(&control->lock);
    control_fail(control, "rank 0 (%s) sent a result of another size", control->members[0].host);
    pthread_mutex_unlock(&control->lock);
    return false;
}

static bool take_bytes(Control *control, void *bytes, size_t n_bytes) {
    if (control->result.length != n_bytes) return fail_result(control);
    if (n_bytes > 0) memcpy(bytes, control->result.text, n_bytes);
    return true;
}

/* `bytes` may be NULL when there are none. */
static void put_data(Request *request, const void *bytes, size_t n_bytes) {
    if (n_bytes > 0) strbuf_put_bytes(&request->data, bytes, n_bytes);
}

static void check_size(size_t n_bytes) {
    if (n_bytes > CONTROL_MAX_BYTES) BUG("%zu bytes in one control operation", n_bytes);
}

bool control_close(Control *control) {
    Request request = {.kind = REQUEST_CLOSE, .data = strbuf_create()};
    control_update_progress(control, -1, 0, 0, true, "the end of the job");
    pthread_mutex_lock(&control->lock);
    control->closing = true;
    pthread_mutex_unlock(&control->lock);
    return operate(control, &request);
}

int control_world(const Control *control) {
    return control->options.world;
}

bool control_barrier(Control *control) {
    Request request = {.kind = REQUEST_BARRIER, .data = strbuf_create()};
    return operate(control, &request);
}

bool control_await(Control *control) {
    Request request = {.kind = REQUEST_AWAIT, .data = strbuf_create()};
    return operate(control, &request);
}

bool control_broadcast(Control *control, int root, void *bytes, size_t n_bytes) {
    check_size(n_bytes);
    if (root < 0 || root >= control->options.world) BUG("root %d", root);
    Request request = {.kind = REQUEST_BROADCAST,
                       .root = (uint32_t)root,
                       .bytes = (uint32_t)n_bytes,
                       .data = strbuf_create()};
    if (root == control->options.rank) put_data(&request, bytes, n_bytes);
    return operate(control, &request) && take_bytes(control, bytes, n_bytes);
}

bool control_share(Control *control, int root, void *all, size_t n_bytes) {
    unsigned char *bytes = all;
    for (size_t at = 0; at < n_bytes; at += CONTROL_MAX_BYTES) {
        const size_t left = n_bytes - at,
                     part = left < CONTROL_MAX_BYTES ? left : CONTROL_MAX_BYTES;
        if (!control_broadcast(control, root, bytes + at, part)) return false;
    }
    return true;
}

bool control_exchange(Control *control, const char *key, const int *ranks, int n_ranks, void *bytes,
                      size_t n_bytes) {
    check_size(n_bytes);
    bool is_member = false;
    Request request = {.kind = REQUEST_EXCHANGE,
                       .bytes = (uint32_t)n_bytes,
                       .n_ranks = (uint32_t)n_ranks,
                       .data = strbuf_create()};
    if (n_ranks < 1) BUG("exchange '%s' among nobody", key);
    snprintf(request.key, sizeof request.key, "%s", key);
    request.root = (uint32_t)ranks[0];
    request.ranks = calloc((size_t)n_ranks, sizeof *request.ranks);
    if (!request.ranks) BUG("out of memory");
    for (int i = 0; i < n_ranks; i++) {
        request.ranks[i] = (uint32_t)ranks[i];
        is_member = is_member || ranks[i] == control->options.rank;
        if (ranks[i] < 0 || ranks[i] >= control->options.world || (i && ranks[i] <= ranks[i - 1]))
            BUG("exchange '%s': rank %d", key, ranks[i]);
    }
    if (!is_member) BUG("exchange '%s' without the caller", key);
    if (ranks[0] == control->options.rank) put_data(&request, bytes, n_bytes);
    return operate(control, &request) && take_bytes(control, bytes, n_bytes);
}

static bool gather(Control *control, RequestKind kind, const void *bytes, size_t n_bytes,
                   size_t slot_bytes, void *out, size_t *out_bytes) {
    size_t world = (size_t)control->options.world;
    check_size(slot_bytes);
    if (n_bytes > slot_bytes || slot_bytes * world > CONTROL_MAX_RESULT_BYTES) {
        BUG("gather of %zu bytes, slots of %zu, from %zu ranks", n_bytes, slot_bytes, world);
    }
    Request request = {.kind = kind, .bytes = (uint32_t)slot_bytes, .data = strbuf_create()};
    put_data(&request, bytes, n_bytes);
    if (!operate(control, &request)) return false;
    if (kind == REQUEST_GATHER && !control_is_hub(control)) return true;
    Message result = {.payload = (const unsigned char *)control->result.text,
                      .length = control->result.length};
    Cursor cursor = cursor_create(&result);
    for (size_t i = 0; i < world; i++) {
        size_t length;
        unsigned char *slot = (unsigned char *)out + i * slot_bytes;
        const unsigned char *part = cursor_bytes(&cursor, &length);
        if (!part || length > slot_bytes) return fail_result(control);
        memcpy(slot, part, length);
        memset(slot + length, 0, slot_bytes - length);
        if (out_bytes) out_bytes[i] = length;
    }
    return cursor_end(&cursor) || fail_result(control);
}

bool control_gather(Control *control, const void *bytes, size_t n_bytes, size_t slot_bytes,
                    void *out, size_t *out_bytes) {
    return gather(control, REQUEST_GATHER, bytes, n_bytes, slot_bytes, out, out_bytes);
}

bool control_all_gather(Control *control, const void *bytes, size_t n_bytes, size_t slot_bytes,
                        void *out, size_t *out_bytes) {
    return gather(control, REQUEST_ALL_GATHER, bytes, n_bytes, slot_bytes, out, out_bytes);
}

void control_own_address(Control *control, char *out, size_t size) {
    const int first = control_is_hub(control); /* on rank 0: any other's */
    out[0] = '\0';
    pthread_mutex_lock(&control->lock);
    for (int i = first; i < control->n_members && !out[0]; i++) {
        const Link *link = control->members[i].link;
        if (link && link->fd >= 0) socket_own_address(link->fd, out, size);
    }
    pthread_mutex_unlock(&control->lock);
}

/* --- watching --- */

void control_update_progress(Control *control, int64_t step, int task, int call, bool waits,
                             const char *text) {
    ProgressRecord record = {.step = step < 0 ? -1 : step,
                             .task = (uint32_t)task,
                             .call = (uint32_t)call,
                             .waits = waits,
                             .since = clock_now()};
    size_t length = strnlen(text, sizeof record.text - 1);
    memcpy(record.text, text, length);
    ProgressRecord *told = &control->told;
    if (told->step == record.step && told->task == record.task && told->call == record.call &&
        told->waits == record.waits && strcmp(told->text, record.text) == 0) {
        return; /* nothing has moved: `since` stays */
    }
    *told = record;
    mailbox_write(&control->mailbox, &record);
}

/* Tells rank 0, with the latest progress: its last heartbeat is older. */
static void send_report(Control *control, bool is_abort, const char *text) {
    if (control_is_hub(control)) {
        control->members[0].progress = *mailbox_read(&control->mailbox);
        hub_fail_report(control, 0, is_abort, text);
    } else if (control->members[0].link) {
        StrBuf *out = &control->members[0].link->out;
        size_t start = message_begin(out, MESSAGE_HEARTBEAT);
        control_put_progress(out, mailbox_read(&control->mailbox), clock_now());
        message_end(out, start);
        start = message_begin(out, MESSAGE_REPORT);
        message_put_u32(out, is_abort);
        message_put_text(out, text);
        message_end(out, start);
    }
    control_wake(control);
}

void control_report(Control *control, const char *text) {
    pthread_mutex_lock(&control->lock);
    if (!atomic_load(&control->failed) && !control->closed) {
        double deadline = clock_now() + report_s;
        send_report(control, false, text);
        while (!atomic_load(&control->failed) && wait_changed(control, deadline)) {
        }
        control_fail(control, "rank %d (%s) failed: %s", control->options.rank, control->host,
                     text);
    }
    pthread_mutex_unlock(&control->lock);
}

void control_abort(Control *control, const char *text) {
    pthread_mutex_lock(&control->lock);
    if (!atomic_load(&control->failed) && !control->closed) send_report(control, true, text);
    pthread_mutex_unlock(&control->lock);
}
