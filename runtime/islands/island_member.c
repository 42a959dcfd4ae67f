/* Any island but the first: to island 0 and back. */
#include "ir/base/clock.h"
#include "runtime/islands/islands_internal.h"
#include "runtime/launch/launch_environment.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum Heard {
    HEARD_NOTHING,
    HEARD_MESSAGE, /* that is for the caller */
    HEARD_END,     /* island 0 has ended, or refuses: reported */
    HEARD_LOST,    /* the connection is no more */
    HEARD_STOPPED
} Heard;

static void say(const Islands *islands, const char *text) {
    if (!islands->options.stream) return;
    fprintf(islands->options.stream, "perilune: %s\n", text);
    fflush(islands->options.stream);
}

/* Moves what can be moved, and looks at what has come. */
static Heard hear(Islands *islands, Message *message, Diag *diag) {
    IslandLink *link = islands->hub;
    IslandLink *const only[1] = {link};
    if (islands_stopped(islands)) return HEARD_STOPPED;
    island_links_wait(only, 1, -1, ISLANDS_LOOK_S, NULL);
    while (island_link_next(link, message)) {
        char text[ISLANDS_WHY_BYTES + 32];
        if (message->kind == MESSAGE_ISLAND_WAIT) {
            islands->answered = link->heard;
            continue;
        }
        if (message->kind != MESSAGE_FAIL && message->kind != MESSAGE_REFUSED) return HEARD_MESSAGE;
        Cursor cursor = cursor_create(message);
        cursor_text(&cursor, text, sizeof text);
        const bool failed = message->kind == MESSAGE_FAIL;
        if (!text[0]) snprintf(text, sizeof text, "island 0 refuses, and does not say why");
        diag_error(diag, NO_LOC, "%s%s", failed ? "island 0 has ended: " : "", text);
        return HEARD_END;
    }
    if (link->fd >= 0 && clock_now() > link->heard + islands->options.timeout_s) {
        island_link_close(link, "nothing comes from it (--outer-timeout)");
    }
    return link->fd < 0 ? HEARD_LOST : HEARD_NOTHING;
}

/* --- joining --- */

typedef struct Welcome {
    bool takes, with_state;
    IslandsPlace place;
} Welcome;

static bool read_welcome(const Islands *islands, const Message *message, Welcome *out) {
    Cursor cursor = cursor_create(message);
    const uint64_t token = cursor_u64(&cursor);
    out->takes = cursor_u32(&cursor) != 0;
    out->with_state = cursor_u32(&cursor) != 0;
    out->place.step = (int64_t)cursor_u64(&cursor);
    out->place.samples = (int64_t)cursor_u64(&cursor);
    out->place.n_meetings = (int64_t)cursor_u64(&cursor);
    out->place.at_step = (int64_t)cursor_u64(&cursor);
    out->place.at_samples = (int64_t)cursor_u64(&cursor);
    bool fine =
        out->place.at_samples >= 0 && out->place.at_step >= (out->takes ? out->place.step : 0);
    for (int p = 0; p < islands->options.n_parts; p++) {
        PartTurn *turn = &out->place.turns[p];
        turn->met = (int64_t)cursor_u64(&cursor);
        turn->merge = (int64_t)cursor_u64(&cursor);
        fine = fine && turn->met >= 0 && turn->merge >= 0;
    }
    return fine && message->kind == MESSAGE_ISLAND_WELCOME && cursor_end(&cursor) &&
           token == islands_token(islands, "welcome") && out->place.step >= 0 &&
           out->place.samples >= 0 && out->place.n_meetings >= 0 &&
           (!out->with_state || islands->wants_state);
}

/* A new connection, over which this island has said hello. False: `why` says why there is none. */
static bool connect_to_hub(Islands *islands, char why[SOCKET_WHY_BYTES]) {
    int fd = socket_connect(islands->options.host, islands->options.port, 5, why);
    island_link_destroy(islands->hub);
    islands->hub = NULL;
    if (fd < 0) return false;
    islands->hub = island_link_create(fd);
    islands_put_hello(islands, &islands->hub->out);
    return true;
}

/* The weights, and the state if it comes along, that follow a welcome. */
static Heard take_weights(Islands *islands, const Welcome *welcome, Diag *diag) {
    const IslandsOptions *options = &islands->options;
    const size_t n = (size_t)options->n_values;
    const size_t n_all =
        (options->streams ? 2 * n : n) + (welcome->with_state ? (size_t)options->n_state : 0);
    Message message;
    free(islands->incoming);
    islands->incoming = islands_allocate(n_all, sizeof(float));
    islands->has_state = welcome->with_state;
    islands->has_own = options->streams;
    island_link_expect(islands->hub, islands->incoming, n_all * sizeof(float));
    /* Parts may have come with the welcome. */
    if (island_link_next(islands->hub, &message)) return HEARD_LOST;
    while (!island_link_has_array(islands->hub)) {
        Heard heard = hear(islands, &message, diag);
        if (heard == HEARD_MESSAGE) island_link_close(islands->hub, "it sent what is no message");
        if (heard == HEARD_NOTHING) continue;
        /* What came with the last bytes of an ended connection may be all. */
        if (heard == HEARD_LOST && island_link_has_array(islands->hub)) break;
        islands->has_state = islands->has_own = false;
        return heard == HEARD_MESSAGE ? HEARD_LOST : heard;
    }
    memcpy(islands->weights, islands->incoming, n * sizeof(float));
    islands_forget_digests(islands);
    islands->place = welcome->place;
    islands->wants_state = false;
    return HEARD_MESSAGE;
}

/* One connection's worth of trying. HEARD_MESSAGE: welcome, and all that followed. */
static Heard try_to_join(Islands *islands, Welcome *welcome, double *next_line,
                         char why[SOCKET_WHY_BYTES], Diag *diag) {
    Message message;
    if (islands_stopped(islands)) return HEARD_STOPPED;
    if (!connect_to_hub(islands, why)) return HEARD_LOST;
    for (;;) {
        Heard heard = hear(islands, &message, diag);
        if (heard == HEARD_LOST) snprintf(why, SOCKET_WHY_BYTES, "%s", islands->hub->why);
        if (clock_now() > *next_line && heard == HEARD_NOTHING) {
            *next_line = clock_now() + 6 * ISLANDS_LINE_S;
            say(islands, "waits for island 0, which answers when all are there, or at its next "
                         "meeting");
        }
        if (heard == HEARD_NOTHING) continue;
        if (heard != HEARD_MESSAGE) return heard;
        if (!read_welcome(islands, &message, welcome)) {
            snprintf(why, SOCKET_WHY_BYTES, "it is not island 0 of this run that answers there");
            return HEARD_LOST;
        }
        if (!welcome->takes) return HEARD_MESSAGE;
        heard = take_weights(islands, welcome, diag);
        islands->answered = islands->hub->heard;
        if (heard == HEARD_LOST) snprintf(why, SOCKET_WHY_BYTES, "the connection was closed");
        return heard;
    }
}

static void pause_for(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

IslandsResult islands_join(Islands *islands, Diag *diag) {
    const double begun = clock_now();
    double next_line = begun + 2, pause = 0.05;
    char why[SOCKET_WHY_BYTES] = "";
    Welcome welcome = {0};
    islands->has_state = islands->has_own = false;
    islands->answered = begun;
    for (;;) {
        Heard heard = try_to_join(islands, &welcome, &next_line, why, diag);
        if (heard == HEARD_MESSAGE) return welcome.takes ? ISLANDS_TAKEN : ISLANDS_MET;
        if (heard == HEARD_STOPPED) return ISLANDS_STOPPED;
        if (heard == HEARD_END) return ISLANDS_FAILED;
        if (clock_now() > islands->answered + islands->options.timeout_s) break;
        if (clock_now() > next_line) {
            char text[SOCKET_WHY_BYTES + 80];
            snprintf(text, sizeof text, "island 0 cannot be reached (%s): tries again", why);
            say(islands, text);
            next_line = clock_now() + ISLANDS_LINE_S;
        }
        pause_for(pause);
        pause = fmin(pause * 1.5, 1);
    }
    ShownHost host = launch_show_host(islands->options.host);
    diag_error(diag, NO_LOC, "island 0 at %s:%d cannot be reached for %.10g s: %s", host.text,
               islands->options.port, islands->options.timeout_s, why);
    return ISLANDS_FAILED;
}

/* --- a meeting --- */

/* What of the whole has been sent and read, also over connections that are no more. */
typedef struct Meeting {
    int part;
    const float *own; /* of the part, as what comes back */
    const IslandsPlace *place;
    IslandsReport *report;
    double offered; /* when all had been sent; 0: not yet */
} Meeting;

static void put_offer(Islands *islands, const Meeting *meeting) {
    const IslandsOptions *options = &islands->options;
    size_t start = message_begin(&islands->hub->out, MESSAGE_ISLAND_OFFER);
    message_put_u64(&islands->hub->out, (uint64_t)meeting->place->step);
    message_put_u32(&islands->hub->out, (uint32_t)meeting->part);
    message_end(&islands->hub->out, start);
    if (islands_send_deltas(islands)) {
        outer_deltas(options->dtype, meeting->own,
                     islands->weights + options->part_at[meeting->part],
                     islands_part_values(islands, meeting->part), islands->deltas);
    }
    island_link_send_array(islands->hub,
                           islands_send_deltas(islands) ? islands->deltas : meeting->own,
                           islands_offer_bytes(islands, meeting->part));
}

/* The result's head; its array follows. */
static bool read_result(Islands *islands, const Meeting *meeting, const Message *message) {
    Cursor cursor = cursor_create(message);
    const int64_t step = (int64_t)cursor_u64(&cursor);
    const uint32_t n_present = cursor_u32(&cursor);
    const uint64_t norm = cursor_u64(&cursor);
    if (message->kind != MESSAGE_ISLAND_RESULT || !cursor_end(&cursor) ||
        step != meeting->place->step || n_present < 2 ||
        n_present > (uint32_t)islands->options.n_islands || !island_link_has_sent(islands->hub)) {
        return false;
    }
    meeting->report->n_present = (int)n_present;
    memcpy(&meeting->report->norm, &norm, sizeof norm);
    island_link_expect(islands->hub,
                       islands_send_deltas(islands) ? islands->deltas : islands->incoming,
                       islands_offer_bytes(islands, meeting->part));
    return true;
}

/* Over one connection. HEARD_MESSAGE: the new weights are there. */
static Heard offer_once(Islands *islands, Meeting *meeting, Diag *diag) {
    Message message;
    bool has_result = false;
    put_offer(islands, meeting);
    for (;;) {
        if (has_result && island_link_has_array(islands->hub)) break;
        Heard heard = hear(islands, &message, diag);
        if (!meeting->offered && island_link_has_sent(islands->hub)) meeting->offered = clock_now();
        if (heard == HEARD_NOTHING) continue;
        if (heard == HEARD_LOST && has_result && island_link_has_array(islands->hub)) break;
        if (heard != HEARD_MESSAGE) return heard;
        if (has_result || !read_result(islands, meeting, &message)) {
            island_link_close(islands->hub, "it sent what is no message");
            return HEARD_LOST;
        }
        has_result = true;
        meeting->report->wait_seconds = clock_now() - meeting->offered;
        /* Parts may have come with the head. */
        if (island_link_next(islands->hub, &message)) {
            island_link_close(islands->hub, "it sent what is no message");
            return HEARD_LOST;
        }
    }
    float *weights = islands->weights + islands->options.part_at[meeting->part];
    if (islands_send_deltas(islands)) {
        outer_move(islands->options.dtype, weights, islands->deltas,
                   islands_part_values(islands, meeting->part));
    } else {
        memcpy(weights, islands->incoming, islands_offer_bytes(islands, meeting->part));
    }
    islands_forget_digest(islands, meeting->part);
    return HEARD_MESSAGE;
}

static int64_t bytes_moved(const Islands *islands) {
    return islands->hub ? islands->hub->n_sent + islands->hub->n_read : 0;
}

IslandsResult islands_offer(Islands *islands, int part, const float *own, const IslandsPlace *place,
                            IslandsReport *out, Diag *diag) {
    Meeting meeting = {.part = part, .own = own, .place = place, .report = out};
    islands->has_state = islands->has_own = false;
    for (;;) {
        if (!islands->hub || islands->hub->fd < 0) {
            char text[160];
            snprintf(text, sizeof text,
                     "the connection to island 0 is lost (%s): tries to come back",
                     islands->hub ? islands->hub->why : "");
            say(islands, text);
            IslandsResult result = islands_join(islands, diag);
            if (result != ISLANDS_MET) return result;
        }
        const int64_t before = bytes_moved(islands);
        Heard heard = offer_once(islands, &meeting, diag);
        out->bytes += bytes_moved(islands) - before;
        if (heard == HEARD_STOPPED) return ISLANDS_STOPPED;
        if (heard == HEARD_END) return ISLANDS_FAILED;
        if (heard != HEARD_MESSAGE) continue;
        islands->place.step = place->step;
        islands->place.samples = place->samples;
        islands->place.n_meetings++;
        return ISLANDS_MET;
    }
}
