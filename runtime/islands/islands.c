#include "runtime/islands/islands.h"

#include "ir/base/clock.h"
#include "runtime/data/mix.h"
#include "runtime/islands/islands_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *islands_allocate(size_t n, size_t each) {
    void *memory = calloc(n ? n : 1, each);
    if (!memory) BUG("out of memory for %zu bytes", n * each);
    return memory;
}

static uint64_t mix_text(uint64_t hash, const char *text) {
    do hash = mix_bits(hash ^ (unsigned char)*text);
    while (*text++);
    return hash;
}

uint64_t islands_token(const Islands *islands, const char *purpose) {
    return mix_text(mix_text(mix_bits(islands->options.model), islands->options.token), purpose);
}

static uint64_t digest_part(const Islands *islands, int part) {
    const float *weights = islands->weights + islands->options.part_at[part];
    const int64_t n = islands_part_values(islands, part);
    uint64_t hash = mix_bits((uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29; /* both steps can be undone: one other bit is another hash */
    }
    return hash;
}

uint64_t islands_digest(Islands *islands) {
    uint64_t hash = 0;
    for (int p = 0; p < islands->options.n_parts; p++) {
        if (!islands->has_digest[p]) islands->digests[p] = digest_part(islands, p);
        islands->has_digest[p] = true;
        hash = mix_bits(hash ^ islands->digests[p]);
    }
    return hash;
}

void islands_forget_digest(Islands *islands, int part) {
    islands->has_digest[part] = false;
}

void islands_forget_digests(Islands *islands) {
    memset(islands->has_digest, 0, sizeof islands->has_digest);
}

bool islands_stopped(const Islands *islands) {
    return atomic_load(&islands->aborts) ||
           (islands->options.stopped && islands->options.stopped());
}

void islands_abort(Islands *islands, bool aborts) {
    atomic_store(&islands->aborts, aborts);
}

void islands_behind(Islands *islands, bool is_behind) {
    atomic_store(&islands->is_behind, is_behind);
}

int64_t islands_part_values(const Islands *islands, int part) {
    return islands->options.part_at[part + 1] - islands->options.part_at[part];
}

size_t islands_offer_bytes(const Islands *islands, int part) {
    return outer_bytes(islands->options.dtype, islands_part_values(islands, part));
}

void islands_own_host(char out[ISLAND_HOST_BYTES]) {
    memset(out, 0, ISLAND_HOST_BYTES);
    if (gethostname(out, ISLAND_HOST_BYTES - 1) != 0) snprintf(out, ISLAND_HOST_BYTES, "?");
}

/* --- hello --- */

void islands_put_hello(Islands *islands, StrBuf *out) {
    char host[ISLAND_HOST_BYTES];
    islands_own_host(host);
    size_t start = message_begin(out, MESSAGE_ISLAND_HELLO);
    message_put_u32(out, ISLANDS_VERSION);
    message_put_u32(out, (uint32_t)islands->options.n_islands);
    message_put_u32(out, (uint32_t)islands->options.island);
    message_put_u64(out, islands_token(islands, "hello"));
    message_put_u64(out, islands->options.model);
    message_put_u64(out, (uint64_t)islands->place.step);
    message_put_u64(out, islands_digest(islands));
    message_put_u32(out, islands->wants_state);
    message_put_text(out, host);
    message_put_text(out, islands->options.version);
    message_put_bytes(out, islands->options.recipe, strlen(islands->options.recipe));
    message_end(out, start);
}

/* Lines, of which a terminal may be shown one: other control characters are none of them. */
static bool read_recipe(Cursor *cursor, char out[ISLANDS_RECIPE_BYTES]) {
    size_t length;
    const unsigned char *bytes = cursor_bytes(cursor, &length);
    if (length >= ISLANDS_RECIPE_BYTES) return false;
    for (size_t i = 0; i < length; i++) {
        const bool shown = (bytes[i] >= ' ' && bytes[i] != 0x7f) || bytes[i] == '\n';
        out[i] = shown ? (char)bytes[i] : '?';
    }
    out[length] = '\0';
    return true;
}

bool islands_read_hello(const Message *message, IslandHello *out) {
    Cursor cursor = cursor_create(message);
    if (message->kind != MESSAGE_ISLAND_HELLO) return false;
    *out = (IslandHello){.protocol = cursor_u32(&cursor)};
    out->n_islands = cursor_u32(&cursor);
    out->island = cursor_u32(&cursor);
    out->token = cursor_u64(&cursor);
    out->model = cursor_u64(&cursor);
    out->step = (int64_t)cursor_u64(&cursor);
    out->digest = cursor_u64(&cursor);
    out->wants_state = cursor_u32(&cursor) != 0;
    cursor_text(&cursor, out->host, sizeof out->host);
    cursor_text(&cursor, out->version, sizeof out->version);
    return read_recipe(&cursor, out->recipe) && cursor_end(&cursor);
}

/* Of two texts of lines the first that is not the same; "" where one has none. */
static bool find_other_line(const char *a, const char *b, char line_a[160], char line_b[160]) {
    while (*a || *b) {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            snprintf(line_a, 160, "%.*s", (int)(n < 159 ? n : 159), a);
            snprintf(line_b, 160, "%.*s", (int)(m < 159 ? m : 159), b);
            return true;
        }
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    return false;
}

bool islands_object(const Islands *islands, const IslandHello *hello, char why[ISLANDS_WHY_BYTES]) {
    const IslandsOptions *own = &islands->options;
    char theirs[160], ours[160];
    if (hello->protocol != ISLANDS_VERSION || strcmp(hello->version, own->version) != 0) {
        snprintf(why, ISLANDS_WHY_BYTES, "is perilune %s, island 0 is %s: all must be the same",
                 hello->version, own->version);
    } else if (hello->model != own->model) {
        snprintf(why, ISLANDS_WHY_BYTES,
                 "trains another model or with another optimizer than island 0: what they exchange "
                 "differs in names or shapes");
    } else if (hello->token != islands_token(islands, "hello")) {
        snprintf(why, ISLANDS_WHY_BYTES,
                 "belongs to another run: PERILUNE_JOB_TOKEN is not the one of island 0");
    } else if (hello->n_islands != (uint32_t)own->n_islands) {
        snprintf(why, ISLANDS_WHY_BYTES, "has --islands %u, island 0 has --islands %d",
                 hello->n_islands, own->n_islands);
    } else if (hello->island == 0 || hello->island >= (uint32_t)own->n_islands) {
        snprintf(why, ISLANDS_WHY_BYTES, "must have a number from 1 to %d", own->n_islands - 1);
    } else if (find_other_line(hello->recipe, own->recipe, theirs, ours)) {
        snprintf(why, ISLANDS_WHY_BYTES, "has '%s', island 0 has '%s': all must have the same",
                 theirs, ours);
    } else {
        return false;
    }
    return true;
}

void islands_put_text(IslandLink *link, MessageKind kind, const char *text) {
    size_t start = message_begin(&link->out, kind);
    message_put_text(&link->out, text);
    message_end(&link->out, start);
}

/* --- what the engine's side calls --- */

Islands *islands_create(const IslandsOptions *options, float *weights, float *momentum,
                        float *residual) {
    Islands *islands = islands_allocate(1, sizeof *islands);
    islands->options = *options;
    islands->weights = weights;
    islands->momentum = momentum;
    islands->residual = residual;
    islands->listener = -1;
    if (!options->n_parts) {
        islands->options.n_parts = 1;
        islands->options.part_at[1] = options->n_values;
    }
    for (int p = 0; p < islands->options.n_parts; p++) {
        const int64_t n = islands_part_values(islands, p);
        if (n > islands->largest) islands->largest = n;
    }
    const size_t largest = (size_t)islands->largest;
    const bool moves = islands_send_deltas(islands);
    if (options->island == 0) {
        islands->peers = islands_allocate((size_t)options->n_islands, sizeof(Peer));
        if (moves)
            islands->moved = islands_allocate(outer_bytes(options->dtype, islands->largest), 1);
    } else {
        islands->incoming = islands_allocate(largest, sizeof(float));
        if (moves)
            islands->deltas = islands_allocate(outer_bytes(options->dtype, islands->largest), 1);
    }
    return islands;
}

void islands_destroy(Islands *islands, const char *why) {
    if (!islands) return;
    if (islands->peers) islands_close_hub(islands, why);
    island_link_destroy(islands->hub);
    free(islands->incoming);
    free(islands->deltas);
    free(islands->moved);
    free(islands);
}

IslandsResult islands_start(Islands *islands, IslandsPlace *place, bool wants_state, Diag *diag) {
    islands->place = *place;
    islands->wants_state = wants_state;
    islands_forget_digests(islands);
    if (islands->options.island == 0) return islands_gather(islands, diag);
    IslandsResult result = islands_join(islands, diag);
    *place = islands->place;
    return result;
}

IslandsResult islands_meet(Islands *islands, int part, const float *own, IslandsPlace *place,
                           IslandsReport *out, Diag *diag) {
    *out = (IslandsReport){.n_present = 1};
    IslandsResult result = islands->options.island == 0
                               ? islands_collect(islands, part, own, place, out, diag)
                               : islands_offer(islands, part, own, place, out, diag);
    *place = islands->place;
    return result;
}

const float *islands_taken_own(const Islands *islands) {
    return islands->has_own ? islands->incoming + islands->options.n_values : NULL;
}

const float *islands_taken_state(const Islands *islands) {
    const int64_t before = islands->options.n_values * (islands->options.streams ? 2 : 1);
    return islands->has_state ? islands->incoming + before : NULL;
}
