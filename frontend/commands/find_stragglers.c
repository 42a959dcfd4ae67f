#include "frontend/commands/find_stragglers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* By class of work, the medians of a stage's other ranks. */
typedef struct Others {
    double seconds[N_WORK_CLASSES];
} Others;

typedef struct Finder {
    const StragglerLayout *layout;
    const RankWork *work;
    Arena *arena;
    StragglerReport report;
    Others *others;                    /* [n_ranks] */
    int capacity;                      /* of report.stragglers */
    double *own[N_MESSAGE_CLASSES];    /* [n_ranks] by the first rank of a group; NAN: no group's */
    double *errors[N_MESSAGE_CLASSES]; /* [n_ranks] of own */
} Finder;

StragglerLayout straggler_layout(const Plan *plan, double threshold) {
    return (StragglerLayout){plan->mesh, plan->n_micro, plan->n_chunks, plan->path == PATH_V,
                             threshold};
}

const char *straggler_message_name(int message) {
    switch (message) {
    case MESSAGE_TIED: return "stages that share weights";
    case MESSAGE_SEND_FORWARD: return "the pipeline, forward";
    case MESSAGE_SEND_BACKWARD: return "the pipeline, backward";
    default: return mesh_axis_name(message);
    }
}

/* --- medians of the others --- */

static int by_size(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of what is sorted, without the element `skipped`. */
static double median_without(const double *sorted, int n, int skipped) {
    const int low = (n - 2) / 2, high = (n - 1) / 2;
    return (sorted[low + (low >= skipped)] + sorted[high + (high >= skipped)]) / 2;
}

/* Each of values[n] -> the median of the others; NAN: there is none. */
static void median_of_others(const double *values, int n, double *out, Arena *arena) {
    double *sorted = ARENA_ARRAY(arena, double, n + 1);
    memcpy(sorted, values, (size_t)n * sizeof(*values));
    qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
    for (int i = 0; i < n; i++) {
        const double *at = bsearch(&values[i], sorted, (size_t)n, sizeof(*sorted), by_size);
        out[i] = n > 1 ? median_without(sorted, n, (int)(at - sorted)) : NAN;
    }
}

/* --- ranks' own work --- */

static int stage_of(const Finder *finder, int rank) {
    return mesh_coord(&finder->layout->mesh, rank).at[MESH_P];
}

static void add(Finder *finder, Straggler straggler) {
    StragglerReport *report = &finder->report;
    ARENA_PUSH(finder->arena, report->stragglers, report->n_stragglers, finder->capacity,
               straggler);
}

/* error, others_error: standard ones of both. */
static bool counts(const Finder *finder, double seconds, double median, double threshold,
                   double error, double others_error) {
    const double excess = seconds - median;
    return seconds > threshold * median &&
           excess >= STRAGGLER_LEAST_SHARE * finder->report.step_seconds &&
           excess >= STRAGGLER_ERRORS * hypot(error, others_error);
}

/* By the class that makes up most of the difference. */
static void name_rank(Finder *finder, int rank, int n_alike, double median) {
    Straggler straggler = {.rank = rank,
                           .message = -1,
                           .n_alike = n_alike,
                           .seconds = finder->report.own_seconds[rank],
                           .median_seconds = median};
    double most = -INFINITY;
    for (int kind = 0; kind < N_WORK_CLASSES; kind++) {
        const double seconds = finder->work[rank].work_seconds[kind];
        const double of_others = finder->others[rank].seconds[kind];
        if (seconds - of_others <= most) continue;
        most = seconds - of_others;
        straggler.class = (WorkClass)kind;
        straggler.class_seconds = seconds;
        straggler.class_median_seconds = of_others;
    }
    add(finder, straggler);
}

/* ranks[n]: a stage's. */
static void find_others(Finder *finder, const int *ranks, int n) {
    double *values = ARENA_ARRAY(finder->arena, double, n);
    double *medians = ARENA_ARRAY(finder->arena, double, n);
    for (int kind = 0; kind < N_WORK_CLASSES; kind++) {
        for (int i = 0; i < n; i++) values[i] = finder->work[ranks[i]].work_seconds[kind];
        median_of_others(values, n, medians, finder->arena);
        for (int i = 0; i < n; i++) finder->others[ranks[i]].seconds[kind] = medians[i];
    }
}

static void compare_stage(Finder *finder, const int *ranks, int n) {
    StragglerReport *report = &finder->report;
    double *values = ARENA_ARRAY(finder->arena, double, n);
    double *medians = ARENA_ARRAY(finder->arena, double, n);
    double *errors = ARENA_ARRAY(finder->arena, double, n);
    double *others_errors = ARENA_ARRAY(finder->arena, double, n);
    for (int i = 0; i < n; i++) {
        values[i] = report->own_seconds[ranks[i]];
        errors[i] = finder->work[ranks[i]].work_error;
    }
    median_of_others(values, n, medians, finder->arena);
    median_of_others(errors, n, others_errors, finder->arena);
    find_others(finder, ranks, n);
    for (int i = 0; i < n; i++) {
        const int rank = ranks[i];
        report->ratio[rank] = medians[i] > 0 ? values[i] / medians[i] : NAN;
        if (isnan(report->ratio[rank])) continue;
        if (report->slowest < 0 || report->ratio[rank] > report->ratio[report->slowest]) {
            report->slowest = rank;
        }
        if (counts(finder, values[i], medians[i], finder->layout->threshold, errors[i],
                   others_errors[i])) {
            name_rank(finder, rank, n - 1, medians[i]);
        }
    }
}

static void compare_ranks(Finder *finder) {
    const int n_ranks = finder->report.n_ranks;
    int *ranks = ARENA_ARRAY(finder->arena, int, n_ranks);
    for (int stage = 0; stage < finder->layout->mesh.size[MESH_P]; stage++) {
        int n = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            if (stage_of(finder, rank) == stage) ranks[n++] = rank;
        }
        compare_stage(finder, ranks, n);
    }
}

/* --- messages --- */

static bool is_link(int message) {
    return message >= MESSAGE_SEND_FORWARD;
}

/* Bit a: members of a group differ on axis a. */
static unsigned axes_of(const StragglerLayout *layout, int message) {
    return message == MESSAGE_TIED ? 1u << MESH_P : mesh_axes(&layout->mesh, message);
}

static int first_of_group(const StragglerLayout *layout, int message, int rank) {
    MeshCoord coord = mesh_coord(&layout->mesh, rank);
    const unsigned axes = axes_of(layout, message);
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (axes >> axis & 1) coord.at[axis] = 0;
    }
    return mesh_rank(&layout->mesh, coord);
}

/* Who receives what the rank sends. */
static int receiver_of(const StragglerLayout *layout, int message, int rank) {
    MeshCoord coord = mesh_coord(&layout->mesh, rank);
    const int p = layout->mesh.size[MESH_P], by = message == MESSAGE_SEND_FORWARD ? 1 : p - 1;
    coord.at[MESH_P] = (coord.at[MESH_P] + by) % p;
    return mesh_rank(&layout->mesh, coord);
}

/* Of those that share weights, some stages alone. A rank whose messages others issue for it, as one
 * of several on a GPU, has none, and its group no figure. */
static void find_groups(Finder *finder, int message) {
    const int n_ranks = finder->report.n_ranks;
    double *own = finder->own[message];
    for (int rank = 0; rank < n_ranks; rank++) own[rank] = NAN;
    for (int rank = 0; rank < n_ranks; rank++) {
        const double seconds = rank_message_seconds(&finder->work[rank], message);
        const int first = first_of_group(finder->layout, message, rank);
        if (seconds == 0 && message == MESSAGE_TIED) continue;
        if (!isnan(own[first]) && seconds >= own[first]) continue;
        own[first] = seconds;
        finder->errors[message][first] = finder->work[rank].message_errors[message];
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        if (own[rank] <= 0) own[rank] = NAN;
    }
}

static void find_links(Finder *finder, int message) {
    const int received =
        message == MESSAGE_SEND_FORWARD ? MESSAGE_RECV_FORWARD : MESSAGE_RECV_BACKWARD;
    for (int rank = 0; rank < finder->report.n_ranks; rank++) {
        const int peer = receiver_of(finder->layout, message, rank);
        const double own = fmin(rank_message_seconds(&finder->work[rank], message),
                                rank_message_seconds(&finder->work[peer], received));
        finder->own[message][rank] = own > 0 ? own : NAN;
        finder->errors[message][rank] = fmax(finder->work[rank].message_errors[message],
                                             finder->work[peer].message_errors[received]);
    }
}

/* firsts[n]: groups or links that do the same. */
static void compare_messages(Finder *finder, int message, const int *firsts, int n) {
    MessageFigures *figures = &finder->report.messages[message];
    double *values = ARENA_ARRAY(finder->arena, double, n + 1);
    double *medians = ARENA_ARRAY(finder->arena, double, n + 1);
    double *errors = ARENA_ARRAY(finder->arena, double, n + 1);
    double *others_errors = ARENA_ARRAY(finder->arena, double, n + 1);
    for (int i = 0; i < n; i++) {
        values[i] = finder->own[message][firsts[i]];
        errors[i] = finder->errors[message][firsts[i]];
    }
    median_of_others(values, n, medians, finder->arena);
    median_of_others(errors, n, others_errors, finder->arena);
    for (int i = 0; i < n; i++) {
        if (!figures->n_groups++ || values[i] > figures->slowest_seconds) {
            figures->slowest = firsts[i];
            figures->slowest_seconds = values[i];
            figures->median_seconds = n > 1 ? medians[i] : values[i];
        }
        if (n > 1 && counts(finder, values[i], medians[i], STRAGGLER_MESSAGE_THRESHOLD, errors[i],
                            others_errors[i])) {
            add(finder, (Straggler){.rank = firsts[i],
                                    .message = message,
                                    .n_alike = n - 1,
                                    .seconds = values[i],
                                    .median_seconds = medians[i]});
        }
    }
}

static void compare_class(Finder *finder, int message) {
    const int n_stages = finder->layout->mesh.size[MESH_P], n_ranks = finder->report.n_ranks;
    const bool crosses = !is_link(message) && axes_of(finder->layout, message) >> MESH_P & 1;
    int *firsts = ARENA_ARRAY(finder->arena, int, n_ranks);
    for (int stage = 0; stage < (crosses ? 1 : n_stages); stage++) {
        int n = 0;
        for (int rank = 0; rank < n_ranks; rank++) {
            if (isnan(finder->own[message][rank])) continue;
            if (crosses || stage_of(finder, rank) == stage) firsts[n++] = rank;
        }
        compare_messages(finder, message, firsts, n);
    }
}

/* What messages of a class take a rank themselves: never more than it spends in them. */
static double own_share(const Finder *finder, int rank, int message) {
    const double busy = rank_message_seconds(&finder->work[rank], message);
    int first = rank, of = message;
    if (message == MESSAGE_RECV_FORWARD || message == MESSAGE_RECV_BACKWARD) {
        if (finder->layout->goes_back) return 0; /* mostly waiting */
        const bool forward = message == MESSAGE_RECV_FORWARD;
        of = forward ? MESSAGE_SEND_FORWARD : MESSAGE_SEND_BACKWARD;
        /* Its sender: who gets what it sends the other way. */
        const int other_way = forward ? MESSAGE_SEND_BACKWARD : MESSAGE_SEND_FORWARD;
        first = receiver_of(finder->layout, other_way, rank);
    } else if (!is_link(message)) {
        first = first_of_group(finder->layout, message, rank);
    }
    const double own = finder->own[of][first];
    return isnan(own) || own > busy ? busy : own;
}

static void compare_all_messages(Finder *finder) {
    StragglerReport *report = &finder->report;
    for (int message = 0; message < N_MESSAGE_CLASSES; message++) {
        double *own = ARENA_ARRAY(finder->arena, double, report->n_ranks);
        finder->own[message] = own;
        finder->errors[message] = ARENA_ARRAY(finder->arena, double, report->n_ranks);
        const bool of_link = is_link(message);
        const bool sends = message == MESSAGE_SEND_FORWARD || message == MESSAGE_SEND_BACKWARD;
        if (!of_link && (message >= N_MESH_AXES || finder->layout->mesh.size[message] > 1)) {
            find_groups(finder, message);
        } else if (sends && !finder->layout->goes_back) {
            find_links(finder, message);
        } else {
            for (int rank = 0; rank < report->n_ranks; rank++) own[rank] = NAN;
        }
        compare_class(finder, message);
    }
    for (int rank = 0; rank < report->n_ranks; rank++) {
        for (int message = 0; message < N_MESSAGE_CLASSES; message++) {
            const double own = own_share(finder, rank, message);
            if (!is_link(message)) report->message_seconds[rank] += own;
            report->waiting_seconds[rank] += finder->work[rank].message_seconds[message] - own;
        }
    }
}

/* --- what they cost --- */

/* Of work[n_ranks]: all that a step has to wait for, but messages. A pipeline of m micro-batches
 * and v chunks a stage is as fast as its slowest stage, and fills and empties with 1 / (m v) of
 * each other stage's (Narayanan et al. 2021, section 2.2). */
static double critical_seconds(const Finder *finder, const RankWork *work) {
    const StragglerLayout *layout = finder->layout;
    const int n_stages = layout->mesh.size[MESH_P];
    double data = 0, update = 0, slowest = 0, all = 0;
    double *of = ARENA_ARRAY(finder->arena, double, n_stages);
    for (int rank = 0; rank < finder->report.n_ranks; rank++) {
        const double *seconds = work[rank].work_seconds;
        const int stage = stage_of(finder, rank);
        data = fmax(data, seconds[WORK_DATA]);
        update = fmax(update, seconds[WORK_UPDATE]);
        of[stage] = fmax(of[stage], seconds[WORK_PRODUCTS] + seconds[WORK_ATTENTION] +
                                        seconds[WORK_ELEMENTWISE]);
    }
    for (int stage = 0; stage < n_stages; stage++) {
        slowest = fmax(slowest, of[stage]);
        all += of[stage];
    }
    return data + update + slowest +
           (all - slowest) / (fmax(1, layout->n_micro) * fmax(1, layout->n_chunks));
}

/* Groups work side by side: the slowest of all counts. */
static double slowest_message(const Finder *finder, int message) {
    double slowest = 0;
    for (int rank = 0; rank < finder->report.n_ranks; rank++) {
        slowest = fmax(slowest, finder->own[message][rank]); /* of a NAN, the other */
    }
    return slowest;
}

/* With those that are named like others. */
static double slowest_message_without(const Finder *finder, int message) {
    double *own = finder->own[message];
    double slowest;
    for (int i = 0; i < finder->report.n_stragglers; i++) {
        const Straggler *straggler = &finder->report.stragglers[i];
        if (straggler->message == message) own[straggler->rank] = straggler->median_seconds;
    }
    slowest = slowest_message(finder, message);
    for (int i = 0; i < finder->report.n_stragglers; i++) {
        const Straggler *straggler = &finder->report.stragglers[i];
        if (straggler->message == message) own[straggler->rank] = straggler->seconds;
    }
    return slowest;
}

static void find_costs(Finder *finder) {
    StragglerReport *report = &finder->report;
    const size_t bytes = (size_t)report->n_ranks * sizeof(RankWork);
    RankWork *like = ARENA_ARRAY(finder->arena, RankWork, report->n_ranks);
    double saved = 0;
    memcpy(like, finder->work, bytes);
    for (int i = 0; i < report->n_stragglers; i++) {
        const Straggler *straggler = &report->stragglers[i];
        if (straggler->message >= 0) continue;
        memcpy(like[straggler->rank].work_seconds, finder->others[straggler->rank].seconds,
               sizeof(like->work_seconds));
    }
    saved += critical_seconds(finder, finder->work) - critical_seconds(finder, like);
    for (int message = 0; message < N_MESSAGE_CLASSES; message++) {
        saved += slowest_message(finder, message) - slowest_message_without(finder, message);
    }
    report->without_seconds = fmax(0, report->step_seconds - fmax(0, saved));
}

static int by_cost(const void *a, const void *b) {
    const Straggler *x = a, *y = b;
    const double x_cost = x->seconds - x->median_seconds, y_cost = y->seconds - y->median_seconds;
    if (x_cost != y_cost) return x_cost > y_cost ? -1 : 1;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : x->message - y->message;
}

StragglerReport find_stragglers(const StragglerLayout *layout, const RankWork *work, Arena *arena) {
    const int n_ranks = mesh_rank_count(&layout->mesh);
    Finder finder = {.layout = layout,
                     .work = work,
                     .arena = arena,
                     .others = ARENA_ARRAY(arena, Others, n_ranks),
                     .report = {.n_ranks = n_ranks,
                                .own_seconds = ARENA_ARRAY(arena, double, n_ranks),
                                .ratio = ARENA_ARRAY(arena, double, n_ranks),
                                .message_seconds = ARENA_ARRAY(arena, double, n_ranks),
                                .waiting_seconds = ARENA_ARRAY(arena, double, n_ranks),
                                .slowest = -1}};
    StragglerReport *report = &finder.report;
    for (int rank = 0; rank < n_ranks; rank++) {
        report->own_seconds[rank] = rank_work_seconds(&work[rank]);
        report->step_seconds = fmax(report->step_seconds,
                                    work[rank].step_seconds + work[rank].work_seconds[WORK_DATA]);
    }
    compare_ranks(&finder);
    compare_all_messages(&finder);
    if (report->n_stragglers) {
        qsort(report->stragglers, (size_t)report->n_stragglers, sizeof(Straggler), by_cost);
    }
    find_costs(&finder);
    return *report;
}

void straggler_put_ranks(const StragglerLayout *layout, int message, int first, bool *flags) {
    const int n_ranks = mesh_rank_count(&layout->mesh);
    for (int rank = 0; rank < n_ranks; rank++) {
        flags[rank] = rank == first;
        if (message < 0 || flags[rank]) continue;
        flags[rank] = is_link(message) ? rank == receiver_of(layout, message, first)
                                       : first_of_group(layout, message, rank) == first;
    }
}
