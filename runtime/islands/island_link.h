/* One TCP connection between two islands: messages (runtime/launch/message.h), and long arrays in
 * parts of them, both ways at once, without ever blocking.
 *
 * Nothing that arrives is trusted: a part must be where the one before it ended and fit into what
 * is expected, or the link is broken for good.
 */
#ifndef RUNTIME_ISLANDS_ISLAND_LINK_H
#define RUNTIME_ISLANDS_ISLAND_LINK_H

#include "runtime/launch/message.h"
#include "runtime/launch/socket.h"

enum {
    ISLAND_PART_BYTES = 1 << 20,   /* of an array, in a message */
    ISLAND_TALK_BYTES = 16 * 1024, /* of any other message */
    ISLAND_HOST_BYTES = 64         /* of a machine's name */
};

typedef struct IslandLink {
    int fd;          /* -1: closed */
    const char *why; /* it was closed; a constant */
    bool is_deaf;    /* nothing more of it is looked at: it sent what it should not have */
    MessageReader reader;
    unsigned char *room; /* of a read */
    StrBuf out;          /* bytes to send from `sent` on */
    size_t sent;
    const unsigned char *array; /* goes out behind `out`; the caller's until all is sent */
    size_t array_bytes, array_at;
    unsigned char *into; /* where an array that comes goes; NULL: none is expected */
    size_t into_bytes, into_at;
    double heard;           /* when anything moved last, in seconds of clock_now */
    int64_t n_sent, n_read; /* bytes */
} IslandLink;

/* Of a connected socket, which it owns from now on. */
IslandLink *island_link_create(int fd);
void island_link_destroy(IslandLink *link); /* NULL is fine */
void island_link_close(IslandLink *link, const char *why);

void island_link_send_array(IslandLink *link, const void *bytes, size_t n_bytes);
void island_link_expect(IslandLink *link, void *into, size_t n_bytes);
bool island_link_has_sent(const IslandLink *link);
bool island_link_has_array(const IslandLink *link); /* all that was expected is there */

/* The next message that is no part of an array; those go where they are expected. False: there is
 * none (yet). Of a link that is closed there may be some that had come before. Valid until
 * links_wait. */
bool island_link_next(IslandLink *link, Message *out);

/* Sends and reads what can be, of links that are open (NULLs are passed over), after waiting for it
 * up to `seconds`. With `listener` also for a connection: *out_fd, -1: none came. */
void island_links_wait(IslandLink *const *links, int n, int listener, double seconds, int *out_fd);

#endif
