#include "ir/base/clock.h"
#include "runtime/launch/control_internal.h"
#include "runtime/launch/socket.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GUEST_SECONDS = 10,      /* a rank says hello at once */
    MAX_OUT_BYTES = 1 << 29, /* more than any result: the other side does not read */
    READ_BYTES = 1 << 16,    /* at once */
    N_READS = 16             /* from one connection, before the others' turn */
};

/* --- connections --- */

Link *link_create(int fd, int rank, size_t max_bytes) {
    Link *link = calloc(1, sizeof *link);
    if (!link) BUG("out of memory");
    link->fd = fd;
    link->rank = rank;
    link->reader = message_reader_create(max_bytes);
    link->out = strbuf_create();
    link->opened = link->heard = clock_now();
    return link;
}

void link_destroy(Link *link) {
    if (!link) return;
    if (link->fd >= 0) close(link->fd);
    message_reader_destroy(&link->reader);
    strbuf_destroy(&link->out);
    free(link);
}

static void link_kill(Link *link) {
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
}

/* A connection has ended or cannot be understood. */
static void link_lose(Control *control, Link *link, const char *cause) {
    link_kill(link);
    if (link->rank >= 0) control_fail_lost(control, link->rank, cause);
}

static bool link_is_idle(const Link *link) {
    return link->sent == link->out.length;
}

/* Sends what the socket takes. */
static void link_flush(Control *control, Link *link) {
    while (link->fd >= 0 && !link_is_idle(link)) {
        size_t n;
        SocketResult result =
            socket_send(link->fd, link->out.text + link->sent, link->out.length - link->sent, &n);
        if (result == SOCKET_CLOSED) link_lose(control, link, "its connection closed");
        if (result != SOCKET_MOVED) break;
        link->sent += n;
    }
    if (link_is_idle(link)) {
        link->sent = link->out.length = 0;
        if (link->closes) link_kill(link);
    } else if (link->fd >= 0 && link->out.length - link->sent > MAX_OUT_BYTES) {
        link_lose(control, link, "it does not read what is sent to it");
    }
}

/* --- progress --- */

void control_put_progress(StrBuf *out, const ProgressRecord *record, double now) {
    double age_ms = fmin(fmax(now - record->since, 0) * 1e3, 4e9);
    message_put_u64(out, (uint64_t)record->step);
    message_put_u32(out, record->task);
    message_put_u32(out, record->call);
    message_put_u32(out, record->waits);
    message_put_u32(out, (uint32_t)age_ms);
    message_put_text(out, record->text);
}

bool control_get_progress(Cursor *cursor, ProgressRecord *out, double now) {
    out->step = (int64_t)cursor_u64(cursor);
    out->task = cursor_u32(cursor);
    out->call = cursor_u32(cursor);
    out->waits = cursor_u32(cursor) != 0;
    out->since = now - (double)cursor_u32(cursor) * 1e-3;
    cursor_text(cursor, out->text, sizeof out->text);
    return cursor_end(cursor);
}

static void send_heartbeats(Control *control, double now) {
    const ProgressRecord *own = mailbox_read(&control->mailbox);
    if (control_is_hub(control)) {
        control->members[0].progress = *own;
        control->members[0].told = now;
    }
    if (now < control->next_heartbeat) return;
    control->next_heartbeat = now + control->options.heartbeat_s;
    for (int i = 0; i < control->n_members; i++) {
        Link *link = control->members[i].link;
        /* Nothing new to say to one that has not read the last. */
        if (!link || link->fd < 0 || !link_is_idle(link)) continue;
        size_t start = message_begin(&link->out, MESSAGE_HEARTBEAT);
        control_put_progress(&link->out, own, now);
        message_end(&link->out, start);
    }
}

/* --- what comes in --- */

/* On other ranks than 0. */
static void member_receive(Control *control, const Message *message) {
    Cursor cursor = cursor_create(message);
    char text[CONTROL_REASON_BYTES];
    if (message->kind == MESSAGE_HEARTBEAT &&
        control_get_progress(&cursor, &control->members[0].progress, clock_now())) {
        return;
    }
    if (message->kind == MESSAGE_START && !control->started) {
        control->started = true;
    } else if (message->kind == MESSAGE_RESULT && !control->has_result) {
        control->has_result = true;
        control->closed = control->closing; /* here: the next thing may be rank 0's end */
        control->result.length = 0;
        strbuf_put_bytes(&control->result, message->payload, message->length);
    } else if (message->kind == MESSAGE_FAIL) {
        cursor_text(&cursor, text, sizeof text);
        control_fail(control, "%s", text);
    } else {
        link_lose(control, control->members[0].link, "it sent what is no message");
    }
    pthread_cond_broadcast(&control->changed);
}

static void receive(Control *control, Link *link, const Message *message) {
    if (link->closes) return;
    if (link->rank < 0)
        hub_admit(control, link, message);
    else if (atomic_load(&control->failed))
        return; /* read on, so that closing does not lose what was sent */
    else if (control_is_hub(control))
        hub_receive(control, link, message);
    else
        member_receive(control, message);
}

/* Gives the messages that have arrived to those who handle them. */
static void link_dispatch(Control *control, Link *link) {
    Message message;
    while (link->fd >= 0) {
        MessageStatus status = message_reader_next(&link->reader, &message);
        if (status == MESSAGE_BAD) link_lose(control, link, "it sent what is no message");
        if (status != MESSAGE_COMPLETE) break;
        link->heard = clock_now();
        receive(control, link, &message);
    }
}

static void link_read(Control *control, Link *link) {
    static _Thread_local unsigned char bytes[READ_BYTES];
    for (int i = 0; i < N_READS && link->fd >= 0; i++) {
        size_t n;
        SocketResult result = socket_receive(link->fd, bytes, sizeof bytes, &n);
        if (result == SOCKET_CLOSED) link_lose(control, link, "its connection closed");
        if (result != SOCKET_MOVED) break;
        message_reader_feed(&link->reader, bytes, n);
        link_dispatch(control, link);
        if (n < sizeof bytes) break;
    }
}

static void accept_guests(Control *control, double now) {
    bool exhausted = false;
    for (;;) {
        int fd = socket_accept(control->listener, &exhausted);
        if (fd < 0) break;
        if (control->n_guests == MAX_GUESTS) { /* the oldest is the likeliest stranger */
            link_destroy(control->guests[0]);
            memmove(control->guests, control->guests + 1,
                    sizeof control->guests[0] * (MAX_GUESTS - 1));
            control->n_guests--;
        }
        control->guests[control->n_guests++] = link_create(fd, -1, GUEST_MAX_BYTES);
    }
    if (exhausted) control->no_accept_until = now + 1; /* the listener stays readable */
}

/* --- a turn of the service thread --- */

typedef struct Polled {
    struct pollfd *fds;
    Link **links; /* of fds[i]; NULL: the wake-up and the listener */
    int n;
} Polled;

static void add_polled(Polled *polled, int fd, short events, Link *link) {
    polled->fds[polled->n] = (struct pollfd){.fd = fd, .events = events};
    polled->links[polled->n++] = link;
}

static void add_link(Polled *polled, Link *link) {
    if (!link || link->fd < 0) return;
    add_polled(polled, link->fd, (short)(POLLIN | (link_is_idle(link) ? 0 : POLLOUT)), link);
}

static void collect(Control *control, Polled *polled) {
    polled->n = 0;
    add_polled(polled, control->wake_fd, POLLIN, NULL);
    if (control->listener >= 0 && clock_now() >= control->no_accept_until) {
        add_polled(polled, control->listener, POLLIN, NULL);
    }
    for (int i = 0; i < control->n_members; i++) add_link(polled, control->members[i].link);
    for (int i = 0; i < control->n_guests; i++) add_link(polled, control->guests[i]);
}

static void handle(Control *control, const Polled *polled, double now) {
    for (int i = 0; i < polled->n; i++) {
        if (!polled->fds[i].revents) continue;
        if (polled->links[i]) {
            if (polled->fds[i].revents & ~POLLOUT) link_read(control, polled->links[i]);
        } else if (polled->fds[i].fd == control->wake_fd) {
            uint64_t count;
            ssize_t n = read(control->wake_fd, &count, sizeof count);
            (void)n;
        }
    }
    /* Last: a full house of guests frees one that may be among the polled. */
    for (int i = 0; i < polled->n; i++) {
        if (polled->fds[i].revents && polled->fds[i].fd == control->listener)
            accept_guests(control, now);
    }
}

/* Who has not been heard of. `now` is from before the sockets were read, so a process that was
 * itself stopped for a while reads what came meanwhile before it blames anyone. */
static void watch(Control *control, double now) {
    for (int i = 0; i < control->n_members; i++) {
        Link *link = control->members[i].link;
        if (link && link->fd >= 0 && now - link->heard > control->options.lost_s) {
            char cause[64];
            snprintf(cause, sizeof cause, "nothing heard for %.3g s", now - link->heard);
            if (!atomic_load(&control->failed) && !control->closed)
                control_fail_lost(control, i, cause);
        }
    }
    for (int i = 0; i < control->n_guests; i++) {
        if (now - control->guests[i]->opened > GUEST_SECONDS) link_kill(control->guests[i]);
    }
    if (control_is_hub(control)) hub_judge(control, now);
}

/* Sends, then frees the dead. */
static void flush_and_sweep(Control *control) {
    for (int i = 0; i < control->n_members; i++) {
        Link *link = control->members[i].link;
        if (link) link_flush(control, link);
    }
    int n = 0;
    for (int i = 0; i < control->n_guests; i++) {
        Link *link = control->guests[i];
        link_flush(control, link);
        if (link->fd >= 0)
            control->guests[n++] = link;
        else
            link_destroy(link);
    }
    control->n_guests = n;
    for (int i = 0; i < control->n_members; i++) {
        Link *link = control->members[i].link;
        if (link && link->fd < 0) {
            control->members[i].link = NULL;
            link_destroy(link);
        }
    }
}

/* After stopping: all is sent, and on rank 0 the others have gone (closing before would throw away
 * what they have not read), but for those that say nothing any more. */
static bool has_more_to_do(const Control *control, double now) {
    if (!control->stopping) return true;
    if (now >= control->stop_at) return false;
    for (int i = 0; i < control->n_members; i++) {
        const Link *link = control->members[i].link;
        if (!link || now - link->heard > control->options.lost_s) continue;
        if (control_is_hub(control) || !link_is_idle(link)) return true;
    }
    return false;
}

/* How often the clock is looked at: often enough for the shortest time that counts. */
static double tick_seconds(const ControlOptions *options) {
    double shortest = fmin(options->heartbeat_s, fmin(options->lost_s, options->operation_s) / 4);
    if (options->stuck_s > 0) shortest = fmin(shortest, options->stuck_s / 4);
    return fmin(fmax(shortest, 0.005), 1);
}

void *control_serve(void *argument) {
    Control *control = argument;
    size_t capacity = (size_t)control->n_members + MAX_GUESTS + 2;
    Polled polled = {calloc(capacity, sizeof *polled.fds), calloc(capacity, sizeof *polled.links),
                     0};
    if (!polled.fds || !polled.links) BUG("out of memory");
    double tick = tick_seconds(&control->options);
    bool goes_on = true;
    if (!control_is_hub(control)) { /* what came with the answer to hello */
        pthread_mutex_lock(&control->lock);
        link_dispatch(control, control->members[0].link);
        pthread_mutex_unlock(&control->lock);
    }
    while (goes_on) {
        pthread_mutex_lock(&control->lock);
        collect(control, &polled);
        double seconds = control->stopping ? fmin(tick, 0.02) : tick;
        pthread_mutex_unlock(&control->lock);
        double before = clock_now();
        int rc = poll(polled.fds, (nfds_t)polled.n, (int)ceil(seconds * 1e3));
        pthread_mutex_lock(&control->lock);
        double now = clock_now();
        if (rc > 0) handle(control, &polled, now);
        flush_and_sweep(control); /* what was just submitted is no reason to skip a heartbeat */
        send_heartbeats(control, now);
        watch(control, before);
        flush_and_sweep(control);
        bool call = atomic_load(&control->failed) && !control->called_on_failure;
        control->called_on_failure = control->called_on_failure || call;
        goes_on = has_more_to_do(control, now);
        pthread_mutex_unlock(&control->lock);
        if (call && control->options.on_failure) {
            control->options.on_failure(control->options.on_failure_state, control->reason);
        }
    }
    free(polled.fds);
    free(polled.links);
    return NULL;
}
