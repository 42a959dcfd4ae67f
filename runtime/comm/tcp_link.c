/* A connection of two ranks: a TCP socket or, on one host, two rings in shared memory beside a
 * local socket, which carries nothing but wake-ups and tells when the other process has ended. */
#include "runtime/comm/tcp_internal.h"

#include <sys/uio.h>
#include <unistd.h>

void tcp_link_close(TcpLink *link) {
    if (link->fd >= 0) close(link->fd);
    ring_pair_close(&link->rings);
    *link = TCP_LINK_NONE;
}

bool tcp_link_is_shared(const TcpLink *link) {
    return link->rings.memory != NULL;
}

/* What was written before the end is still read. */
SocketResult tcp_link_move(TcpLink *link, struct iovec *pieces, int n, bool sends,
                           size_t *out_bytes) {
    bool wakes;
    if (!tcp_link_is_shared(link)) {
        return socket_move_pieces(link->fd, pieces, n, sends, out_bytes);
    }
    *out_bytes = 0;
    if (link->is_broken || (sends && link->is_closed)) return SOCKET_CLOSED;
    Ring *ring = sends ? &link->rings.out : &link->rings.in;
    const RingResult result = ring_move(ring, pieces, n, out_bytes, &wakes);
    link->is_broken = result == RING_BROKEN;
    if (wakes) {
        size_t sent; /* nothing: there is a wake-up unread, or the other side has ended */
        socket_send(link->fd, "", 1, &sent);
    }
    if (result == RING_MOVED) return SOCKET_MOVED;
    return link->is_broken || link->is_closed ? SOCKET_CLOSED : SOCKET_WAIT;
}

bool tcp_link_sleeps(TcpLink *link, bool sends, bool receives, struct pollfd *out_poll) {
    if (!tcp_link_is_shared(link)) {
        *out_poll = (struct pollfd){
            .fd = link->fd, .events = (short)((sends ? POLLOUT : 0) | (receives ? POLLIN : 0))};
        return true;
    }
    *out_poll = (struct pollfd){.fd = link->fd, .events = POLLIN};
    if (link->is_closed || link->is_broken) return false;
    return (!sends || ring_sleeps(&link->rings.out)) && (!receives || ring_sleeps(&link->rings.in));
}

void tcp_link_wake(TcpLink *link, const struct pollfd *polled) {
    char wakes[64];
    size_t n;
    if (!tcp_link_is_shared(link) || polled->revents == 0) return;
    if (socket_receive(link->fd, wakes, sizeof wakes, &n) == SOCKET_CLOSED) link->is_closed = true;
}
