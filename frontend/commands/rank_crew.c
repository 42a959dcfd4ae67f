#include "frontend/commands/rank_crew.h"

#include <stdlib.h>
#include <string.h>

static CrewShare every(int64_t first, int64_t step, int64_t count) {
    return (CrewShare){(count - first + step - 1) / step, first, step};
}

CrewShare rank_crew_written(const RankCrew *crew, int64_t count) {
    if (!crew->control) return every(0, 1, count);
    return every(crew->rank / crew->together, control_world(crew->control) / crew->together, count);
}

/* Of what a group writes its members have one after the other. */
CrewShare rank_crew_own_of(const RankCrew *crew, int rank, int64_t count) {
    const int world = crew->control ? control_world(crew->control) : 1;
    const int n_groups = world / crew->together;
    return every(rank / crew->together + rank % crew->together * n_groups, world, count);
}

CrewShare rank_crew_own(const RankCrew *crew, int64_t count) {
    return crew->control ? rank_crew_own_of(crew, crew->rank, count) : every(0, 1, count);
}

/* bytes[n_bytes] of this rank and of all others, lengths[world] of them, -> one after the other: in
 * pieces of what an operation takes. */
static bool gather(Control *control, const unsigned char *bytes, size_t n_bytes,
                   const uint64_t *lengths, size_t most, unsigned char *out) {
    const size_t world = (size_t)control_world(control);
    size_t piece = CONTROL_MAX_RESULT_BYTES / world;
    if (piece > CONTROL_MAX_BYTES) piece = CONTROL_MAX_BYTES;
    unsigned char *slots = malloc(world * piece);
    if (!slots) BUG("out of memory for %zu bytes", world * piece);
    bool good = true;
    for (size_t at = 0; good && at < most; at += piece) {
        size_t own = at >= n_bytes ? 0 : n_bytes - at < piece ? n_bytes - at : piece;
        good = control_all_gather(control, own ? bytes + at : bytes, own, piece, slots, NULL);
        for (size_t r = 0, first = 0; good && r < world; first += lengths[r++]) {
            if (at >= lengths[r]) continue;
            size_t n = lengths[r] - at < piece ? (size_t)lengths[r] - at : piece;
            memcpy(out + first + at, slots + r * piece, n);
        }
    }
    free(slots);
    return good;
}

/* How many bytes each rank has, the longest of them, and all together. */
static bool gather_lengths(Control *control, size_t own, size_t most, uint64_t *lengths,
                           size_t *out_longest, size_t *out_all) {
    const uint64_t length = own;
    *out_longest = *out_all = 0;
    if (!control_await(control) || /* one may write for longer than others */
        !control_all_gather(control, &length, sizeof(length), sizeof(length), lengths, NULL)) {
        return false;
    }
    for (int r = 0; r < control_world(control); r++) {
        if (lengths[r] > most - *out_all) return false;
        if (lengths[r] > *out_longest) *out_longest = (size_t)lengths[r];
        *out_all += (size_t)lengths[r];
    }
    return true;
}

static bool gather_all(Control *control, const void *bytes, size_t n_bytes, size_t most,
                       uint64_t *lengths, unsigned char **out, size_t *out_n) {
    size_t longest;
    if (!gather_lengths(control, n_bytes, most, lengths, &longest, out_n)) return false;
    *out = malloc(*out_n + 1);
    if (!*out) BUG("out of memory for %zu bytes", *out_n);
    return gather(control, bytes ? bytes : "", n_bytes, lengths, longest, *out);
}

bool rank_crew_gather(Control *control, const void *bytes, size_t n_bytes, size_t most,
                      uint64_t *out_lengths, unsigned char **out, size_t *out_n) {
    uint64_t *own = out_lengths ? NULL : calloc((size_t)control_world(control), sizeof(*own));
    if (!own && !out_lengths) BUG("out of memory");
    *out = NULL;
    const bool good =
        gather_all(control, bytes, n_bytes, most, own ? own : out_lengths, out, out_n);
    if (!good) {
        free(*out);
        *out = NULL;
    }
    free(own);
    return good;
}
