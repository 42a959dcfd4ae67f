/* What the files of runtime/islands share; see islands.h for what it does.
 *
 *     islands.c        beginning and end, who may be with whom
 *     island_hub.c     island 0
 *     island_member.c  any other
 */
#ifndef RUNTIME_ISLANDS_ISLANDS_INTERNAL_H
#define RUNTIME_ISLANDS_ISLANDS_INTERNAL_H

#include "runtime/islands/island_link.h"
#include "runtime/islands/islands.h"

#include <stdatomic.h>

enum {
    ISLANDS_VERSION = 2,
    ISLANDS_MOST_GUESTS = 64, /* connections that have not said hello */
    ISLANDS_WHY_BYTES = 512
};

/* How often waits look around, say something, and tell those who wait that somebody is there. */
#define ISLANDS_LOOK_S 0.2
#define ISLANDS_LINE_S 10.0
#define ISLANDS_SIGN_S 1.0

typedef enum PeerState {
    PEER_ABSENT,
    PEER_WAITS,   /* for an answer to its hello */
    PEER_TRAINS,  /* until it offers its weights */
    PEER_OFFERS,  /* they are on their way */
    PEER_OFFERED, /* they are here */
} PeerState;

/* Another island, as island 0 sees it. */
typedef struct Peer {
    IslandLink *link; /* NULL: absent */
    PeerState state;
    bool in_step; /* PEER_WAITS: has the weights of the last meeting */
    bool wants_state;
    void *offer; /* a part of its weights or deltas; from malloc, once there was any */
    int64_t offer_step;
    int offer_part;
    char host[ISLAND_HOST_BYTES];
} Peer;

struct Islands {
    IslandsOptions options;
    float *weights, *momentum, *residual;
    IslandsPlace place;
    int64_t largest; /* numbers of a part */
    atomic_bool aborts, is_behind;
    uint64_t digests[OUTER_MOST_PARTS]; /* of parts' weights, where they are known */
    bool has_digest[OUTER_MOST_PARTS];
    /* Island 0: */
    int listener;
    Peer *peers; /* [n_islands]; its own stays absent */
    IslandLink *guests[ISLANDS_MOST_GUESTS];
    double guest_came[ISLANDS_MOST_GUESTS];
    int n_refused;
    void *moved;     /* of `largest` numbers, where distances travel */
    uint64_t digest; /* of weights */
    int part;        /* that meets */
    int64_t n_gone;  /* bytes of links that are no more */
    /* Others: */
    IslandLink *hub;
    /* [largest]; after weights were taken [n_values], with `streams` as many more, the own ones,
     * and with has_state [n_state] */
    float *incoming;
    void *deltas; /* likewise */
    bool wants_state, has_state, has_own;
    double answered; /* when something came that island 0 alone says, in seconds of clock_now */
};

/* What an island says of itself. */
typedef struct IslandHello {
    uint32_t protocol, n_islands, island;
    uint64_t token, model, digest;
    int64_t step; /* of the last meeting that it knows */
    bool wants_state;
    char host[ISLAND_HOST_BYTES], version[32];
    char recipe[ISLANDS_RECIPE_BYTES];
} IslandHello;

/* --- islands.c --- */

void *islands_allocate(size_t n, size_t each);
/* What both prove to each other: that they know the token. */
uint64_t islands_token(const Islands *islands, const char *purpose);
/* Of weights: two that differ in a bit have another. What changes them says so. */
uint64_t islands_digest(Islands *islands);
void islands_forget_digest(Islands *islands, int part);
void islands_forget_digests(Islands *islands);
bool islands_stopped(const Islands *islands);
int64_t islands_part_values(const Islands *islands, int part);
size_t islands_offer_bytes(const Islands *islands, int part);
/* Distances from the last meeting's weights travel, not weights. */
static inline bool islands_send_deltas(const Islands *islands) {
    return islands->options.dtype != DTYPE_F32;
}
void islands_own_host(char out[ISLAND_HOST_BYTES]);
void islands_put_hello(Islands *islands, StrBuf *out);
bool islands_read_hello(const Message *message, IslandHello *out);
/* Why an island may not be with this one, in a line that follows its name; false: it may. */
bool islands_object(const Islands *islands, const IslandHello *hello, char why[ISLANDS_WHY_BYTES]);
/* A message of one text. */
void islands_put_text(IslandLink *link, MessageKind kind, const char *text);

/* --- island_hub.c and island_member.c --- */

IslandsResult islands_gather(Islands *islands, Diag *diag);
IslandsResult islands_collect(Islands *islands, int part, const float *own,
                              const IslandsPlace *place, IslandsReport *out, Diag *diag);
void islands_close_hub(Islands *islands, const char *why);

IslandsResult islands_join(Islands *islands, Diag *diag);
IslandsResult islands_offer(Islands *islands, int part, const float *own, const IslandsPlace *place,
                            IslandsReport *out, Diag *diag);

#endif
