/* Island 0: who is there, whose weights have come, what all get. */
#include "ir/base/clock.h"
#include "runtime/islands/islands_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_REFUSAL_LINES = 20 }; /* a stranger comes as often as it will */

static const double hello_s = 10;   /* who connects says hello at once */
static const double guest_s = 0.5;  /* so long a meeting waits for what a new one has to say */
static const double farewell_s = 2; /* for what is said at the end */

static void say(const Islands *islands, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const Islands *islands, const char *format, ...) {
    if (!islands->options.stream) return;
    va_list args;
    va_start(args, format);
    fputs("perilune: ", islands->options.stream);
    vfprintf(islands->options.stream, format, args);
    fputc('\n', islands->options.stream);
    va_end(args);
    fflush(islands->options.stream);
}

static int count(const Islands *islands, PeerState state) {
    int n = 0;
    for (int i = 1; i < islands->options.n_islands; i++) n += islands->peers[i].state == state;
    return n;
}

/* A peer's connection is no more. */
static void lose(Islands *islands, int island, const char *why) {
    Peer *peer = &islands->peers[island];
    say(islands, "island %d (%s) is lost after step %" PRId64 ": %s", island, peer->host,
        islands->place.step, why);
    islands->n_gone += peer->link->n_sent + peer->link->n_read;
    island_link_destroy(peer->link);
    peer->link = NULL;
    peer->state = PEER_ABSENT;
}

/* What is to be said, before a connection is closed. */
static void say_last(IslandLink *link) {
    IslandLink *const only[1] = {link};
    const double end = clock_now() + farewell_s;
    while (link->fd >= 0 && !island_link_has_sent(link) && clock_now() < end) {
        island_links_wait(only, 1, -1, ISLANDS_LOOK_S, NULL);
    }
}

/* --- guests --- */

/* place: where training is, for one that takes it; else NULL. */
static void put_welcome(Islands *islands, Peer *peer, const IslandsPlace *place, bool with_state) {
    const bool takes = place;
    if (!takes) place = &islands->place;
    StrBuf *out = &peer->link->out;
    size_t start = message_begin(out, MESSAGE_ISLAND_WELCOME);
    message_put_u64(out, islands_token(islands, "welcome"));
    message_put_u32(out, takes);
    message_put_u32(out, with_state);
    message_put_u64(out, (uint64_t)islands->place.step);
    message_put_u64(out, (uint64_t)islands->place.samples);
    message_put_u64(out, (uint64_t)islands->place.n_meetings);
    message_put_u64(out, (uint64_t)place->at_step);
    message_put_u64(out, (uint64_t)place->at_samples);
    for (int p = 0; p < islands->options.n_parts; p++) {
        message_put_u64(out, (uint64_t)place->turns[p].met);
        message_put_u64(out, (uint64_t)place->turns[p].merge);
    }
    message_end(out, start);
    peer->state = PEER_TRAINS;
}

/* Takes over the link, or leaves it to be closed. */
static bool admit(Islands *islands, IslandLink *link, const IslandHello *hello) {
    char why[ISLANDS_WHY_BYTES];
    bool objects = islands_object(islands, hello, why);
    Peer *peer = objects ? NULL : &islands->peers[hello->island];
    if (!objects && peer->state != PEER_ABSENT) {
        snprintf(why, sizeof why, "is there already, on %s: every island needs its own number",
                 peer->host);
        objects = true;
    }
    if (objects) {
        char text[ISLANDS_WHY_BYTES + 32];
        snprintf(text, sizeof text, "island %u %s", hello->island, why);
        if (islands->n_refused++ < MOST_REFUSAL_LINES) {
            say(islands, "%s: refused; it is on %s", text, hello->host);
        }
        islands_put_text(link, MESSAGE_REFUSED, text);
        return false;
    }
    peer->link = link;
    peer->state = PEER_WAITS;
    peer->in_step = hello->step == islands->place.step && hello->digest == islands->digest;
    peer->wants_state = hello->wants_state && (islands->options.streams || islands->place.step > 0);
    snprintf(peer->host, sizeof peer->host, "%s", hello->host);
    return true;
}

/* What a guest has to say; it is a guest no more, or closed, when it has said it. */
static void hear_guest(Islands *islands, int at) {
    IslandLink *link = islands->guests[at];
    Message message;
    IslandHello hello;
    if (island_link_next(link, &message)) {
        if (!islands_read_hello(&message, &hello)) {
            island_link_close(link, "no hello");
        } else if (admit(islands, link, &hello)) {
            islands->guests[at] = NULL;
            return;
        } else {
            say_last(link);
            island_link_close(link, "refused");
        }
    } else if (clock_now() > islands->guest_came[at] + hello_s) {
        island_link_close(link, "no hello");
    }
    if (link->fd >= 0) return;
    island_link_destroy(link);
    islands->guests[at] = NULL;
}

static bool has_guests(const Islands *islands) {
    for (int i = 0; i < ISLANDS_MOST_GUESTS; i++) {
        if (islands->guests[i]) return true;
    }
    return false;
}

static void add_guest(Islands *islands, int fd) {
    int at = 0;
    while (at < ISLANDS_MOST_GUESTS && islands->guests[at]) at++;
    if (at == ISLANDS_MOST_GUESTS) { /* the oldest is the likeliest stranger */
        at = 0;
        for (int i = 1; i < ISLANDS_MOST_GUESTS; i++) {
            if (islands->guest_came[i] < islands->guest_came[at]) at = i;
        }
        island_link_destroy(islands->guests[at]);
    }
    islands->guests[at] = island_link_create(fd);
    islands->guest_came[at] = clock_now();
}

/* --- peers --- */

/* Its weights follow: perhaps of the next meeting, while others still get what comes of this. */
static bool read_offer(Islands *islands, Peer *peer, const Message *message) {
    Cursor cursor = cursor_create(message);
    const int64_t step = (int64_t)cursor_u64(&cursor);
    const uint32_t part = cursor_u32(&cursor);
    if (message->kind != MESSAGE_ISLAND_OFFER || !cursor_end(&cursor) ||
        peer->state != PEER_TRAINS || part >= (uint32_t)islands->options.n_parts) {
        return false;
    }
    peer->offer_step = step;
    peer->offer_part = (int)part;
    if (!peer->offer)
        peer->offer = islands_allocate(outer_bytes(islands->options.dtype, islands->largest), 1);
    island_link_expect(peer->link, peer->offer, islands_offer_bytes(islands, (int)part));
    peer->state = PEER_OFFERS;
    return true;
}

/* All of its weights are here. Of numbers that are not finite no mean with others' would be: it is
 * told so, which ends it. */
static void take_offer(Islands *islands, int island) {
    Peer *peer = &islands->peers[island];
    const bool deltas = islands_send_deltas(islands);
    const OuterOffer offer = {deltas ? NULL : peer->offer, deltas ? peer->offer : NULL};
    peer->state = PEER_OFFERED;
    if (outer_offer_is_finite(islands->options.dtype, &offer,
                              islands_part_values(islands, peer->offer_part))) {
        return;
    }
    char text[ISLANDS_WHY_BYTES];
    snprintf(text, sizeof text,
             "island %d: its weights after step %" PRId64 " are not finite, so island 0 leaves "
             "them out: go on from a checkpoint before, or without one from island 0's weights",
             island, peer->offer_step);
    islands_put_text(peer->link, MESSAGE_REFUSED, text);
    say_last(peer->link);
    island_link_close(peer->link, "its weights are not finite, and are left out");
}

static void hear_peer(Islands *islands, int island, int64_t step, double came) {
    static const char OTHER[] = "it does not offer the weights of this meeting";
    Peer *peer = &islands->peers[island];
    Message message;
    while (peer->link && island_link_next(peer->link, &message)) {
        if (!read_offer(islands, peer, &message)) island_link_close(peer->link, OTHER);
    }
    if (!peer->link) return;
    const bool offers = peer->state == PEER_OFFERS || peer->state == PEER_OFFERED;
    const bool same = peer->offer_step == step && peer->offer_part == islands->part;
    if (step >= 0 && offers && !same) island_link_close(peer->link, OTHER);
    if (peer->state == PEER_OFFERS && island_link_has_array(peer->link))
        take_offer(islands, island);
    const bool late = peer->state == PEER_TRAINS || peer->state == PEER_OFFERS ||
                      !island_link_has_sent(peer->link);
    const double since = fmax(came, peer->link->heard);
    if (late && clock_now() > since + islands->options.timeout_s) {
        island_link_close(peer->link, "it is late: nothing comes from it (--outer-timeout)");
    }
    if (peer->link->fd < 0) lose(islands, island, peer->link->why);
}

/* One look at all that has come. step < 0: no meeting. came: when this island did. */
static void look(Islands *islands, int64_t step, double came) {
    const int n = islands->options.n_islands;
    IslandLink *links[ISLANDS_MOST + ISLANDS_MOST_GUESTS] = {0};
    int fd;
    for (int i = 1; i < n; i++) links[i] = islands->peers[i].link;
    memcpy(links + n, islands->guests, sizeof islands->guests);
    island_links_wait(links, n + ISLANDS_MOST_GUESTS, islands->listener, ISLANDS_LOOK_S, &fd);
    /* Whoever is lost may be the one that comes again. */
    for (int i = 1; i < n; i++) hear_peer(islands, i, step, came);
    if (fd >= 0) add_guest(islands, fd);
    for (int i = 0; i < ISLANDS_MOST_GUESTS; i++) {
        if (islands->guests[i]) hear_guest(islands, i);
    }
}

static void put_names(const Islands *islands, PeerState state, StrBuf *out) {
    int n = 0;
    for (int i = 1; i < islands->options.n_islands; i++) {
        if (islands->peers[i].state == state) strbuf_printf(out, "%s%d", n++ ? ", " : "", i);
    }
}

/* "waits for island 1, 3", now and then. */
static void say_waiting(const Islands *islands, PeerState state, double *next) {
    if (clock_now() < *next || count(islands, state) == 0) return;
    if (atomic_load(&islands->is_behind)) return;
    *next = clock_now() + ISLANDS_LINE_S;
    StrBuf text = strbuf_create();
    put_names(islands, state, &text);
    say(islands, "island 0 waits for island%s %s", count(islands, state) > 1 ? "s" : "", text.text);
    strbuf_destroy(&text);
}

/* All that are there hear now and then that island 0 is, too. */
static void give_signs(Islands *islands, double *next) {
    if (clock_now() < *next) return;
    *next = clock_now() + ISLANDS_SIGN_S;
    for (int i = 1; i < islands->options.n_islands; i++) {
        Peer *peer = &islands->peers[i];
        if (peer->state != PEER_OFFERED && peer->state != PEER_WAITS) continue;
        if (!island_link_has_sent(peer->link)) continue;
        message_end(&peer->link->out, message_begin(&peer->link->out, MESSAGE_ISLAND_WAIT));
    }
}

static bool all_sent(const Islands *islands) {
    for (int i = 1; i < islands->options.n_islands; i++) {
        const IslandLink *link = islands->peers[i].link;
        if (link && !island_link_has_sent(link)) return false;
    }
    return true;
}

/* Until everything is on its way: what is sent is the caller's. */
static void send_all(Islands *islands) {
    const double came = clock_now();
    while (!all_sent(islands)) look(islands, -1, came);
}

/* --- the beginning --- */

static bool open_listener(Islands *islands, Diag *diag) {
    char why[SOCKET_WHY_BYTES];
    if (islands->options.n_islands == 1) return true;
    islands->listener = socket_listen(islands->options.host, islands->options.port, why);
    if (islands->listener >= 0) return true;
    diag_error(diag, NO_LOC, "--island-address: island 0 cannot listen on port %d: %s",
               islands->options.port, why);
    return false;
}

/* Those that have the same weights may begin. */
static void start_alike(Islands *islands) {
    for (int i = 1; i < islands->options.n_islands; i++) {
        Peer *peer = &islands->peers[i];
        if (peer->state == PEER_WAITS && peer->in_step) put_welcome(islands, peer, NULL, false);
    }
}

IslandsResult islands_gather(Islands *islands, Diag *diag) {
    if (!open_listener(islands, diag)) return ISLANDS_FAILED;
    const double came = clock_now(), end = came + islands->options.timeout_s;
    double next_line = came + 2, next_sign = came;
    islands->digest = islands_digest(islands);
    while (count(islands, PEER_ABSENT) > 0) {
        if (islands_stopped(islands)) return ISLANDS_STOPPED;
        if (clock_now() > end) {
            StrBuf names = strbuf_create();
            put_names(islands, PEER_ABSENT, &names);
            diag_error(diag, NO_LOC,
                       "not all islands came within %.10g s (--outer-timeout): "
                       "without %s",
                       islands->options.timeout_s, names.text);
            strbuf_destroy(&names);
            return ISLANDS_FAILED;
        }
        say_waiting(islands, PEER_ABSENT, &next_line);
        give_signs(islands, &next_sign);
        look(islands, -1, clock_now());
    }
    start_alike(islands);
    send_all(islands);
    return ISLANDS_MET;
}

/* --- a meeting --- */

static int64_t count_bytes(const Islands *islands) {
    int64_t bytes = islands->n_gone;
    for (int i = 1; i < islands->options.n_islands; i++) {
        const IslandLink *link = islands->peers[i].link;
        if (link) bytes += link->n_sent + link->n_read;
    }
    return bytes;
}

/* The mean of what is there, in the order of islands, and the step by it. */
static void take_step(Islands *islands, const float *own, IslandsReport *out) {
    OuterOffer offers[ISLANDS_MOST] = {{.weights = own}};
    int n = 1;
    for (int i = 1; i < islands->options.n_islands; i++) {
        const Peer *peer = &islands->peers[i];
        out->missing[i] = peer->state != PEER_OFFERED;
        if (out->missing[i]) continue;
        if (islands_send_deltas(islands)) {
            offers[n++].deltas = peer->offer;
        } else {
            offers[n++].weights = peer->offer;
        }
    }
    const int64_t at = islands->options.part_at[islands->part];
    out->n_present = n;
    const OuterState state = {.weights = islands->weights + at,
                              .momentum = islands->momentum + at,
                              .dtype = islands->options.dtype,
                              .moved = islands->moved,
                              .residual = islands->residual ? islands->residual + at : NULL};
    out->norm = outer_step(&islands->options.rule, offers, n,
                           islands_part_values(islands, islands->part), &state);
    islands_forget_digest(islands, islands->part);
}

/* To those whose weights are in it. */
static void put_results(Islands *islands, const IslandsReport *report) {
    const float *weights = islands->weights + islands->options.part_at[islands->part];
    const void *array = islands_send_deltas(islands) ? islands->moved : weights;
    for (int i = 1; i < islands->options.n_islands; i++) {
        Peer *peer = &islands->peers[i];
        if (peer->state != PEER_OFFERED) continue;
        uint64_t norm;
        memcpy(&norm, &report->norm, sizeof norm);
        size_t start = message_begin(&peer->link->out, MESSAGE_ISLAND_RESULT);
        message_put_u64(&peer->link->out, (uint64_t)islands->place.step);
        message_put_u32(&peer->link->out, (uint32_t)report->n_present);
        message_put_u64(&peer->link->out, norm);
        message_end(&peer->link->out, start);
        island_link_send_array(peer->link, array, islands_offer_bytes(islands, islands->part));
        peer->state = PEER_TRAINS;
    }
}

/* One that is alone waits for nobody, and is not stopped in it. */
IslandsResult islands_collect(Islands *islands, int part, const float *own,
                              const IslandsPlace *place, IslandsReport *out, Diag *diag) {
    islands->part = part;
    if (!outer_offer_is_finite(DTYPE_F32, &(OuterOffer){.weights = own},
                               islands_part_values(islands, part))) {
        diag_error(diag, NO_LOC,
                   "island 0: its weights after step %" PRId64 " are not finite: go on from a "
                   "checkpoint before",
                   place->step);
        return ISLANDS_FAILED;
    }
    const double came = clock_now();
    const int64_t before = count_bytes(islands);
    double next_line = came + 2, next_sign = came;
    islands->digest = islands_digest(islands);
    do {
        if (islands->listener >= 0 && islands_stopped(islands)) return ISLANDS_STOPPED;
        say_waiting(islands, PEER_TRAINS, &next_line);
        give_signs(islands, &next_sign);
        if (islands->listener >= 0) look(islands, place->step, came);
        start_alike(islands); /* whose connection broke, and who is back in time */
    } while (count(islands, PEER_TRAINS) + count(islands, PEER_OFFERS) > 0 ||
             (has_guests(islands) && clock_now() < came + guest_s));
    out->wait_seconds = clock_now() - came;
    take_step(islands, own, out);
    islands->place.step = place->step;
    islands->place.samples = place->samples;
    islands->place.n_meetings++;
    islands->digest = 0;
    put_results(islands, out);
    send_all(islands);
    out->bytes = count_bytes(islands) - before;
    return ISLANDS_MET;
}

/* --- who takes weights --- */

int islands_count_waiting(const Islands *islands, bool *out_wants_state) {
    int n = 0;
    *out_wants_state = false;
    for (int i = 1; islands->peers && i < islands->options.n_islands; i++) {
        if (islands->peers[i].state != PEER_WAITS) continue;
        n++;
        *out_wants_state |= islands->peers[i].wants_state;
    }
    return n;
}

void islands_admit(Islands *islands, const IslandsPlace *place, const float *own,
                   const float *state) {
    const size_t n_values = (size_t)islands->options.n_values, n = own ? 2 * n_values : n_values;
    const size_t n_state = state ? (size_t)islands->options.n_state : 0;
    float *all = islands_allocate(n + n_state, sizeof(float));
    memcpy(all, islands->weights, n_values * sizeof(float));
    if (own) memcpy(all + n_values, own, n_values * sizeof(float));
    if (n_state) memcpy(all + n, state, n_state * sizeof(float));
    for (int i = 1; i < islands->options.n_islands; i++) {
        Peer *peer = &islands->peers[i];
        if (peer->state != PEER_WAITS) continue;
        const bool with_state = state && peer->wants_state;
        put_welcome(islands, peer, place, with_state);
        island_link_send_array(peer->link, all, (n + (with_state ? n_state : 0)) * sizeof(float));
        say(islands, "island %d (%s) takes the weights of step %" PRId64 "%s", i, peer->host,
            place->at_step, with_state ? ", and the optimizer's state" : "");
    }
    send_all(islands);
    free(all);
}

/* --- the end --- */

void islands_close_hub(Islands *islands, const char *why) {
    const double end = clock_now() + farewell_s;
    for (int i = 1; i < islands->options.n_islands && why; i++) {
        Peer *peer = &islands->peers[i];
        if (peer->link) islands_put_text(peer->link, MESSAGE_FAIL, why);
    }
    while (why && !all_sent(islands) && clock_now() < end) look(islands, -1, clock_now());
    for (int i = 0; i < ISLANDS_MOST_GUESTS; i++) island_link_destroy(islands->guests[i]);
    for (int i = 0; i < islands->options.n_islands; i++) {
        island_link_destroy(islands->peers[i].link);
        free(islands->peers[i].offer);
    }
    free(islands->peers);
    if (islands->listener >= 0) close(islands->listener);
}
