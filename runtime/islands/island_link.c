#include "runtime/islands/island_link.h"

#include "ir/base/clock.h"
#include "ir/base/diag.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18 };

/* A machine that has vanished without a word is noticed after half a minute or so. */
static void keep_alive(int fd) {
    int on = 1, idle = 15, interval = 5, count = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

IslandLink *island_link_create(int fd) {
    IslandLink *link = calloc(1, sizeof *link);
    if (!link) BUG("out of memory");
    link->fd = fd;
    link->reader = message_reader_create(ISLAND_PART_BYTES + ISLAND_TALK_BYTES);
    link->room = malloc(READ_BYTES);
    if (!link->room) BUG("out of memory");
    link->out = strbuf_create();
    link->heard = clock_now();
    keep_alive(fd);
    return link;
}

void island_link_close(IslandLink *link, const char *why) {
    if (link->fd < 0) return;
    close(link->fd);
    link->fd = -1;
    link->why = why;
}

void island_link_destroy(IslandLink *link) {
    if (!link) return;
    island_link_close(link, "");
    message_reader_destroy(&link->reader);
    strbuf_destroy(&link->out);
    free(link->room);
    free(link);
}

void island_link_send_array(IslandLink *link, const void *bytes, size_t n_bytes) {
    link->array = bytes;
    link->array_bytes = n_bytes;
    link->array_at = 0;
}

void island_link_expect(IslandLink *link, void *into, size_t n_bytes) {
    link->into = into;
    link->into_bytes = n_bytes;
    link->into_at = 0;
}

bool island_link_has_sent(const IslandLink *link) {
    return link->sent == link->out.length && link->array_at == link->array_bytes;
}

bool island_link_has_array(const IslandLink *link) {
    return link->into_at == link->into_bytes;
}

/* --- sending --- */

/* The array's next part, once all before it has gone. */
static void fill(IslandLink *link) {
    if (link->sent < link->out.length || link->array_at == link->array_bytes) return;
    const size_t left = link->array_bytes - link->array_at;
    const size_t part = left < ISLAND_PART_BYTES ? left : ISLAND_PART_BYTES;
    link->sent = link->out.length = 0;
    size_t start = message_begin(&link->out, MESSAGE_ISLAND_DATA);
    message_put_u64(&link->out, link->array_at);
    message_put_bytes(&link->out, link->array + link->array_at, part);
    message_end(&link->out, start);
    link->array_at += part;
}

static void flush(IslandLink *link) {
    for (fill(link); link->fd >= 0 && link->sent < link->out.length; fill(link)) {
        size_t n;
        SocketResult result =
            socket_send(link->fd, link->out.text + link->sent, link->out.length - link->sent, &n);
        if (result == SOCKET_CLOSED) island_link_close(link, "its connection closed");
        if (result != SOCKET_MOVED) break;
        link->sent += n;
        link->n_sent += (int64_t)n;
        link->heard = clock_now();
    }
    if (link->sent == link->out.length) link->sent = link->out.length = 0;
}

/* --- reading --- */

/* False: it is not the part that has to come. */
static bool take_part(IslandLink *link, const Message *message) {
    Cursor cursor = cursor_create(message);
    const uint64_t at = cursor_u64(&cursor);
    size_t n;
    const unsigned char *bytes = cursor_bytes(&cursor, &n);
    if (!cursor_end(&cursor) || !link->into || n == 0 || at != link->into_at ||
        n > link->into_bytes - link->into_at) {
        return false;
    }
    memcpy(link->into + link->into_at, bytes, n);
    link->into_at += n;
    return true;
}

static bool deafen(IslandLink *link) {
    island_link_close(link, "it sent what is no message");
    link->is_deaf = true;
    return false;
}

bool island_link_next(IslandLink *link, Message *out) {
    while (!link->is_deaf) {
        MessageStatus status = message_reader_next(&link->reader, out);
        if (status == MESSAGE_BAD) return deafen(link);
        if (status != MESSAGE_COMPLETE) return false;
        if (out->kind != MESSAGE_ISLAND_DATA)
            return out->length <= ISLAND_TALK_BYTES || deafen(link);
        if (!take_part(link, out)) return deafen(link);
    }
    return false;
}

/* One read: what it brings is taken before the next, so that memory stays that of a part. */
static void read_some(IslandLink *link) {
    size_t n;
    SocketResult result = socket_receive(link->fd, link->room, READ_BYTES, &n);
    if (result == SOCKET_CLOSED) island_link_close(link, "its connection closed");
    if (result != SOCKET_MOVED) return;
    link->n_read += (int64_t)n;
    link->heard = clock_now();
    message_reader_feed(&link->reader, link->room, n);
}

void island_links_wait(IslandLink *const *links, int n, int listener, double seconds, int *out_fd) {
    struct pollfd *polls = calloc((size_t)n + 1, sizeof *polls);
    if (!polls) BUG("out of memory");
    for (int i = 0; i < n; i++) {
        const bool open = links[i] && links[i]->fd >= 0;
        polls[i].fd = open ? links[i]->fd : -1;
        polls[i].events = POLLIN;
        if (open && !island_link_has_sent(links[i])) polls[i].events |= POLLOUT;
    }
    polls[n].fd = listener;
    polls[n].events = POLLIN;
    if (out_fd) *out_fd = -1;
    if (poll(polls, (nfds_t)n + 1, (int)ceil(fmax(seconds, 0) * 1000)) > 0) {
        for (int i = 0; i < n; i++) {
            if (polls[i].fd < 0) continue;
            if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) read_some(links[i]);
            if (links[i]->fd >= 0 && (polls[i].revents & POLLOUT)) flush(links[i]);
        }
        bool exhausted;
        if (out_fd && polls[n].revents) *out_fd = socket_accept(listener, &exhausted);
    }
    free(polls);
}
