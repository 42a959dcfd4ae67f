#include "ir/base/clock.h"
#include "runtime/launch/control_internal.h"
#include "runtime/launch/socket.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHOWN_RANGES = 12, MAX_SHOWN_OTHERS = 4, MAX_REFUSAL_LINES = 20 };

static const double LATE_S = 2; /* what was told longer ago may not hold any more */

/* --- words --- */

void control_name_rank(const Control *control, int rank, StrBuf *out) {
    bool known = control_is_hub(control) || rank == 0;
    const char *host = rank == control->options.rank ? control->host
                       : known                       ? control->members[rank].host
                                                     : "";
    strbuf_printf(out, "rank %d", rank);
    if (host[0]) strbuf_printf(out, " (%s)", host);
}

ShownRank control_show_rank(const Control *control, int rank) {
    ShownRank shown;
    StrBuf text = strbuf_create();
    control_name_rank(control, rank, &text);
    snprintf(shown.text, sizeof shown.text, "%s", text.text);
    strbuf_destroy(&text);
    return shown;
}

void control_put_ranks(StrBuf *out, const bool *flags, int n) {
    int n_ranges = 0;
    for (int i = 0; i < n; i++) {
        if (!flags[i]) continue;
        int last = i;
        while (last + 1 < n && flags[last + 1]) last++;
        if (n_ranges == MAX_SHOWN_RANGES) {
            strbuf_put(out, ", ...");
            return;
        }
        strbuf_printf(out, last > i ? "%s%d-%d" : "%s%d", n_ranges++ ? ", " : "", i, last);
        i = last;
    }
}

/* " at step 12: was in X"; `verb` is "was" or "has been". */
static void put_place(const ProgressRecord *progress, const char *verb, StrBuf *out) {
    if (progress->step >= 0)
        strbuf_printf(out, " at step %" PRId64, progress->step);
    else if (!progress->text[0])
        strbuf_put(out, " before it told of a step");
    else
        strbuf_put(out, " outside of steps");
    if (progress->text[0]) strbuf_printf(out, ": %s in %s", verb, progress->text);
}

void control_fail_lost(Control *control, int rank, const char *cause) {
    if (control->closed) return;
    StrBuf text = strbuf_create();
    control_name_rank(control, rank, &text);
    strbuf_put(&text, " was lost");
    /* The hub may go before its first heartbeat: then nothing is known of it. */
    const ProgressRecord *progress = &control->members[rank].progress;
    bool is_known = control_is_hub(control) || progress->step >= 0 || progress->text[0];
    if (is_known) put_place(progress, "was", &text);
    double age_s = clock_now() - control->members[rank].told;
    if (is_known && control_is_hub(control) && progress->text[0] && age_s >= LATE_S)
        strbuf_printf(&text, " %.0f s before", age_s);
    control_fail(control, "%s (%s)", text.text, cause);
    strbuf_destroy(&text);
}

void hub_fail_report(Control *control, int rank, bool is_abort, const char *text) {
    StrBuf who = strbuf_create();
    control_name_rank(control, rank, &who);
    if (is_abort) {
        control_fail(control, "ended by %s: %s", who.text, text);
    } else {
        const ProgressRecord *progress = &control->members[rank].progress;
        strbuf_put(&who, " failed");
        if (progress->step >= 0) strbuf_printf(&who, " at step %" PRId64, progress->step);
        control_fail(control, "%s: %s", who.text, text);
    }
    strbuf_destroy(&who);
}

/* --- who may join --- */

static void answer(Link *link, MessageKind kind, const char *text) {
    size_t start = message_begin(&link->out, kind);
    message_put_text(&link->out, text);
    message_end(&link->out, start);
    link->closes = true;
}

/* `ends`: with it the job, which then says so itself. */
static void refuse(Control *control, Link *link, const char *who, const char *why, bool ends) {
    answer(link, MESSAGE_REFUSED, why);
    snprintf(control->refusal, sizeof control->refusal, "%s was refused: %s", who, why);
    if (ends) {
        control_fail(control, "%s", control->refusal);
    } else if (control->options.stream && control->n_refusals++ < MAX_REFUSAL_LINES) {
        fprintf(control->options.stream, "perilune: %s\n", control->refusal);
    }
}

typedef struct Hello {
    uint32_t version, world, rank;
    uint64_t fingerprint, token;
    char host[CONTROL_HOST_BYTES]; /* up to here as in all versions */
    char program[CONTROL_PROGRAM_BYTES];
    char text[CONTROL_TEXT_BYTES]; /* why it declines */
} Hello;

/* False: no rank of any job says so. */
static bool read_hello(const Message *message, Hello *out) {
    Cursor cursor = cursor_create(message);
    *out = (Hello){.version = cursor_u32(&cursor),
                   .world = cursor_u32(&cursor),
                   .rank = cursor_u32(&cursor),
                   .fingerprint = cursor_u64(&cursor),
                   .token = cursor_u64(&cursor)};
    cursor_text(&cursor, out->host, sizeof out->host);
    if (message->kind != MESSAGE_HELLO && message->kind != MESSAGE_DECLINE) return false;
    if (out->version != CONTROL_VERSION) return cursor.ok;
    cursor_text(&cursor, out->program, sizeof out->program);
    if (message->kind == MESSAGE_DECLINE) cursor_text(&cursor, out->text, sizeof out->text);
    return cursor_end(&cursor);
}

static bool knows_token(const Control *control, const Hello *hello) {
    return hello->token == control_token(control, hello->world, hello->fingerprint, "hello");
}

/* Why this rank cannot join, into why; false: it can. */
static bool find_objection(const Control *control, const Hello *hello, char *why, size_t size) {
    const ControlOptions *options = &control->options;
    if (!knows_token(control, hello))
        snprintf(why, size,
                 "it belongs to another job: its job token differs (PERILUNE_JOB_TOKEN, or the "
                 "job's number or name)");
    else if (hello->version != CONTROL_VERSION)
        snprintf(why, size, "it is of another version of perilune");
    else if (strcmp(hello->program, control->version) != 0)
        snprintf(why, size, "it is perilune %s, rank 0 is perilune %s; start the same on all",
                 hello->program, control->version);
    else if (hello->world != (uint32_t)options->world)
        snprintf(why, size, "it was started as one of %u ranks, rank 0 as one of %d", hello->world,
                 options->world);
    else if (hello->fingerprint != options->fingerprint)
        snprintf(why, size,
                 "its plan has fingerprint %016" PRIx64 ", rank 0's has %016" PRIx64
                 "; start all ranks with the same plan",
                 hello->fingerprint, options->fingerprint);
    else if (hello->rank == 0 || hello->rank >= hello->world)
        snprintf(why, size, "there is no such rank to join");
    else if (control->members[hello->rank].joined)
        snprintf(why, size, "this rank is there already, on %s",
                 control->members[hello->rank].host);
    else if (atomic_load(&control->failed))
        snprintf(why, size, "the job has ended: %.160s", control->reason);
    else
        return false;
    return true;
}

/* Is this a rank that the job waits for? */
static bool is_awaited(const Control *control, const Hello *hello) {
    return !control->started && hello->rank > 0 && hello->rank < (uint32_t)control->options.world &&
           !control->members[hello->rank].joined;
}

static void note_coming(Control *control, const Hello *hello) {
    Member *member = &control->members[hello->rank];
    control->n_came += !member->came;
    member->came = true;
    pthread_cond_broadcast(&control->changed);
}

static void forget_guest(Control *control, const Link *link) {
    int n = 0;
    for (int i = 0; i < control->n_guests; i++) {
        if (control->guests[i] != link) control->guests[n++] = control->guests[i];
    }
    control->n_guests = n;
}

static void welcome(Control *control, Link *link, const Hello *hello) {
    Member *member = &control->members[hello->rank];
    forget_guest(control, link);
    member->joined = true;
    note_coming(control, hello);
    member->link = link;
    member->told = clock_now();
    member->progress = (ProgressRecord){.step = -1, .since = member->told};
    snprintf(member->host, sizeof member->host, "%s", hello->host);
    link->rank = (int)hello->rank;
    link->reader.max_bytes = CONTROL_MAX_BYTES + 4 * (size_t)control->options.world + 4096;
    size_t start = message_begin(&link->out, MESSAGE_WELCOME);
    message_put_u64(&link->out,
                    control_token(control, hello->world, hello->fingerprint, "welcome"));
    message_put_text(&link->out, control->host);
    message_end(&link->out, start);
    if (++control->n_joined < control->options.world) return;
    control->started = true;
    for (int i = 1; i < control->n_members; i++) {
        if (!control->members[i].link) continue; /* lost again: the job has failed */
        StrBuf *out = &control->members[i].link->out;
        message_end(out, message_begin(out, MESSAGE_START));
    }
    pthread_cond_broadcast(&control->changed);
}

/* A rank of this job, which has failed before it began. */
static void dismiss(Control *control, Link *link, const Hello *hello) {
    answer(link, MESSAGE_FAIL, control->reason);
    note_coming(control, hello);
}

void hub_admit(Control *control, Link *link, const Message *message) {
    Hello hello;
    char why[224], who[96];
    if (!read_hello(message, &hello)) {
        link->closes = true; /* no answer */
        return;
    }
    if (control->closing) {
        link->closes = true; /* of a job that follows this one: comes again */
        return;
    }
    const bool ours = knows_token(control, &hello) && is_awaited(control, &hello);
    snprintf(who, sizeof who, "rank %u (%s)", hello.rank, hello.host);
    if (ours && message->kind == MESSAGE_DECLINE) {
        control_fail(control, "%s cannot take part: %s", who, hello.text);
        dismiss(control, link, &hello);
    } else if (ours && atomic_load(&control->failed)) {
        dismiss(control, link, &hello);
    } else if (message->kind == MESSAGE_DECLINE) {
        answer(link, MESSAGE_REFUSED, "this rank is not waited for");
    } else if (find_objection(control, &hello, why, sizeof why)) {
        refuse(control, link, who, why, ours);
        if (ours) note_coming(control, &hello);
    } else {
        welcome(control, link, &hello);
    }
}

/* --- collectives --- */

void request_destroy(Request *request) {
    free(request->ranks);
    strbuf_destroy(&request->data);
    *request = (Request){0};
}

/* The n-th rank that takes part. */
static int request_rank(const Request *request, int i) {
    return request->n_ranks > 0 ? (int)request->ranks[i] : i;
}

static int request_count(const Control *control, const Request *request) {
    return request->n_ranks > 0 ? (int)request->n_ranks : control->options.world;
}

static bool request_has(const Request *request, int rank) {
    if (request->n_ranks == 0) return true;
    for (uint32_t i = 0; i < request->n_ranks; i++) {
        if ((int)request->ranks[i] == rank) return true;
    }
    return false;
}

/* "broadcast of 128 bytes from rank 0". */
static void put_request(const Request *request, StrBuf *out) {
    static const char *const names[REQUEST_KIND_END] = {
        [REQUEST_CLOSE] = "the end of the job",
        [REQUEST_BARRIER] = "barrier",
        [REQUEST_AWAIT] = "a wait for all",
        [REQUEST_BROADCAST] = "broadcast",
        [REQUEST_GATHER] = "gather",
        [REQUEST_ALL_GATHER] = "all-gather",
        [REQUEST_EXCHANGE] = "exchange",
    };
    strbuf_put(out, names[request->kind]);
    if (request->key[0]) strbuf_printf(out, " of '%s'", request->key);
    if (request->kind >= REQUEST_BROADCAST) strbuf_printf(out, ", %u bytes", request->bytes);
    if (request->kind == REQUEST_BROADCAST) strbuf_printf(out, " from rank %u", request->root);
    if (request->n_ranks > 0) strbuf_printf(out, ", among %u ranks", request->n_ranks);
}

static bool requests_match(const Request *a, const Request *b) {
    return a->kind == b->kind && a->root == b->root && a->bytes == b->bytes &&
           a->n_ranks == b->n_ranks && strcmp(a->key, b->key) == 0 &&
           (a->n_ranks == 0 || memcmp(a->ranks, b->ranks, a->n_ranks * sizeof *a->ranks) == 0);
}

static void fail_mismatch(Control *control, int rank, int other) {
    StrBuf text = strbuf_create();
    for (int i = 0; i < 2; i++) {
        control_name_rank(control, i ? other : rank, &text);
        strbuf_put(&text, i ? " is in " : " calls ");
        put_request(&control->members[i ? other : rank].request, &text);
        if (i == 0) strbuf_put(&text, " while ");
    }
    control_fail(control, "%s: all ranks must make the same calls in the same order", text.text);
    strbuf_destroy(&text);
}

static void deliver(Control *control, int rank, const StrBuf *payload) {
    if (rank == 0) {
        control->has_result = true;
        control->result.length = 0;
        strbuf_put_bytes(&control->result, payload->text, payload->length);
        pthread_cond_broadcast(&control->changed);
        return;
    }
    Link *link = control->members[rank].link;
    if (!link) return; /* lost: the job has failed */
    size_t start = message_begin(&link->out, MESSAGE_RESULT);
    strbuf_put_bytes(&link->out, payload->text, payload->length);
    message_end(&link->out, start);
}

/* What all get, or for a gather rank 0: every rank's bytes one after the other, or the root's. */
static StrBuf make_result(const Control *control, const Request *request) {
    StrBuf payload = strbuf_create();
    if (request->kind == REQUEST_GATHER || request->kind == REQUEST_ALL_GATHER) {
        for (int i = 0; i < control->n_members; i++) {
            const StrBuf *data = &control->members[i].request.data;
            message_put_bytes(&payload, data->text, data->length);
        }
    } else {
        const StrBuf *data = &control->members[request->root].request.data;
        strbuf_put_bytes(&payload, data->text, data->length);
    }
    return payload;
}

/* All have come. */
static void complete(Control *control, Request *request) {
    int n = request_count(control, request);
    bool to_rank_0 = request->kind == REQUEST_GATHER;
    StrBuf payload = make_result(control, request), nothing = strbuf_create();
    if (request->kind == REQUEST_CLOSE) control->closed = true;
    Request group = *request; /* its ranks outlive the requests that are destroyed */
    request->ranks = NULL;
    for (int i = 0; i < n; i++) {
        int rank = request_rank(&group, i);
        deliver(control, rank, to_rank_0 && rank != 0 ? &nothing : &payload);
        if (&control->members[rank].request != request) {
            request_destroy(&control->members[rank].request);
        }
    }
    free(group.ranks);
    request->n_ranks = 0;
    request_destroy(request);
    strbuf_destroy(&payload);
    strbuf_destroy(&nothing);
}

void hub_submit(Control *control, int rank, Request *request) {
    Request *own = &control->members[rank].request;
    request->pending = true;
    request->since = clock_now();
    *own = *request;
    *request = (Request){0};
    bool all = true;
    for (int i = 0; i < request_count(control, own); i++) {
        int other = request_rank(own, i);
        const Request *theirs = &control->members[other].request;
        all = all && theirs->pending;
        if (!theirs->pending || requests_match(own, theirs)) continue;
        all = false;
        if (request_has(theirs, rank)) { /* each waits for the other, for ever */
            fail_mismatch(control, rank, other);
            return;
        }
    }
    if (all) complete(control, own);
}

/* False: not a request that a rank sends. */
static bool parse_request(const Control *control, int rank, const Message *message, Request *out) {
    Cursor cursor = cursor_create(message);
    uint32_t world = (uint32_t)control->options.world;
    *out = (Request){.kind = (RequestKind)cursor_u32(&cursor),
                     .root = cursor_u32(&cursor),
                     .bytes = cursor_u32(&cursor),
                     .data = strbuf_create()};
    cursor_text(&cursor, out->key, sizeof out->key);
    uint32_t n_ranks = cursor_u32(&cursor);
    if (!cursor.ok || (unsigned)out->kind >= REQUEST_KIND_END || out->root >= world ||
        out->bytes > CONTROL_MAX_BYTES || n_ranks > world || cursor.left / 4 < n_ranks) {
        return false;
    }
    if ((out->kind == REQUEST_EXCHANGE) != (n_ranks > 0)) return false;
    if (n_ranks > 0) {
        out->ranks = calloc(n_ranks, sizeof *out->ranks);
        if (!out->ranks) BUG("out of memory");
        out->n_ranks = n_ranks;
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        out->ranks[i] = cursor_u32(&cursor);
        if (out->ranks[i] >= world || (i > 0 && out->ranks[i] <= out->ranks[i - 1])) return false;
    }
    size_t n_bytes;
    const unsigned char *bytes = cursor_bytes(&cursor, &n_bytes);
    if (!cursor_end(&cursor) || n_bytes > out->bytes || !request_has(out, rank) ||
        (n_ranks > 0 && out->root != out->ranks[0]) || control->members[rank].request.pending) {
        return false;
    }
    /* Only the root's bytes are passed on, as many as all expect. */
    if (out->kind <= REQUEST_BROADCAST || out->kind == REQUEST_EXCHANGE) {
        if (n_bytes != ((int)out->root == rank ? out->bytes : 0)) return false;
    }
    if (bytes) strbuf_put_bytes(&out->data, bytes, n_bytes);
    return true;
}

void hub_receive(Control *control, Link *link, const Message *message) {
    Cursor cursor = cursor_create(message);
    Member *member = &control->members[link->rank];
    Request request = {0};
    bool understood = false;
    if (message->kind == MESSAGE_HEARTBEAT) {
        member->told = clock_now();
        understood = control_get_progress(&cursor, &member->progress, member->told);
    } else if (message->kind == MESSAGE_REQUEST) {
        understood = parse_request(control, link->rank, message, &request);
        if (understood) hub_submit(control, link->rank, &request);
        request_destroy(&request);
    } else if (message->kind == MESSAGE_REPORT) {
        char text[CONTROL_REASON_BYTES];
        bool is_abort = cursor_u32(&cursor) != 0;
        cursor_text(&cursor, text, sizeof text);
        understood = cursor_end(&cursor);
        if (understood) hub_fail_report(control, link->rank, is_abort, text);
    }
    if (!understood) control_fail_lost(control, link->rank, "it sent what is no message");
}

/* --- who is stuck --- */

static bool is_watched(const Control *control, int rank) {
    const Member *member = &control->members[rank];
    return member->joined && member->progress.step >= 0;
}

/* When one rank stops, those that wait for it stop too, some before it. So a rank that waits is not
 * to blame unless all do, and have for as long: then nothing will ever come. Of those to blame the
 * one that has been still the longest. -1: nobody is stuck. */
static int find_stuck(const Control *control) {
    int culprit = -1, waiter = -1;
    bool all_wait = true;
    for (int i = 0; i < control->n_members; i++) {
        const ProgressRecord *progress = &control->members[i].progress;
        /* By its own word: since its last heartbeat it may have moved. */
        bool still = control->members[i].told - progress->since >= control->options.stuck_s;
        all_wait = all_wait && is_watched(control, i) && progress->waits && still;
        if (!is_watched(control, i) || !still) continue;
        int *worst = progress->waits ? &waiter : &culprit;
        if (*worst < 0 || progress->since < control->members[*worst].progress.since) *worst = i;
    }
    return culprit < 0 && all_wait ? waiter : culprit;
}

static void fail_stuck(Control *control, int rank) {
    const ProgressRecord *progress = &control->members[rank].progress;
    StrBuf text = strbuf_create();
    int n_others = 0;
    control_name_rank(control, rank, &text);
    strbuf_put(&text, " is stuck");
    put_place(progress, "has been", &text);
    strbuf_printf(&text, " for %.3g s", control->members[rank].told - progress->since);
    for (int i = 0; i < control->n_members && n_others < MAX_SHOWN_OTHERS; i++) {
        if (i == rank || !is_watched(control, i)) continue;
        strbuf_put(&text, n_others++ ? ", " : " (others: ");
        strbuf_printf(&text, "rank %d in %s", i, control->members[i].progress.text);
    }
    control_fail(control, "%s%s", text.text, n_others ? ")" : "");
    strbuf_destroy(&text);
}

/* --- operations that take too long --- */

static void fail_late(Control *control, int rank, double now) {
    const Request *request = &control->members[rank].request;
    StrBuf text = strbuf_create();
    bool *missing = calloc((size_t)control->n_members, sizeof *missing);
    if (!missing) BUG("out of memory");
    for (int i = 0; i < request_count(control, request); i++) {
        const Request *theirs = &control->members[request_rank(request, i)].request;
        missing[request_rank(request, i)] = !theirs->pending || !requests_match(request, theirs);
    }
    control_name_rank(control, rank, &text);
    strbuf_printf(&text, " has waited %.3g s in ", now - request->since);
    put_request(request, &text);
    strbuf_put(&text, " for ranks ");
    control_put_ranks(&text, missing, control->n_members);
    control_fail(control, "%s", text.text);
    strbuf_destroy(&text);
    free(missing);
}

void hub_judge(Control *control, double now) {
    if (atomic_load(&control->failed) || control->closed) return;
    if (control->options.stuck_s > 0) {
        int stuck = find_stuck(control);
        if (stuck >= 0) {
            fail_stuck(control, stuck);
            return;
        }
    }
    int longest = -1;
    for (int i = 0; i < control->n_members; i++) {
        const Request *request = &control->members[i].request;
        if (!request->pending || request->kind == REQUEST_AWAIT) continue;
        if (now - request->since < control->options.operation_s) continue;
        if (longest < 0 || request->since < control->members[longest].request.since) longest = i;
    }
    if (longest >= 0) fail_late(control, longest, now);
}
