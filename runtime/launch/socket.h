/* TCP sockets between the processes of a job: IPv4 and IPv6, never blocking, closed on exec.
 *
 * All waits have an end; none can raise SIGPIPE. Failures come back as a text in `why`.
 */
#ifndef RUNTIME_LAUNCH_SOCKET_H
#define RUNTIME_LAUNCH_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

enum { SOCKET_WHY_BYTES = 160 };

/* Listens on `port`: on all addresses of this machine, or on the loopback one only when `host` is
 * written as one (a machine's own name may lead to 127.0.1.1 on itself, and elsewhere on others).
 * Returns the socket, -1 on failure. */
int socket_listen(const char *host, int port, char why[SOCKET_WHY_BYTES]);

/* The next waiting connection, -1: none. *out_exhausted: this process has no descriptor left. */
int socket_accept(int listener, bool *out_exhausted);

/* Tries all addresses in turn, each for its share of `seconds`: one that nothing answers from, not
 * even with a refusal, leaves the others theirs. Returns the socket, -1 on failure. */
struct addrinfo;
int socket_connect_any(const struct addrinfo *addresses, double seconds,
                       char why[SOCKET_WHY_BYTES]);
/* The addresses of `host`, as the resolver gives them; its time is not counted. */
int socket_connect(const char *host, int port, double seconds, char why[SOCKET_WHY_BYTES]);

typedef enum SocketResult { SOCKET_MOVED, SOCKET_WAIT, SOCKET_CLOSED } SocketResult;

/* One read or write. *out_bytes says how much, when it moved. */
SocketResult socket_receive(int fd, void *bytes, size_t size, size_t *out_bytes);
SocketResult socket_send(int fd, const void *bytes, size_t size, size_t *out_bytes);

/* The same for pieces of memory, one after the other. */
struct iovec;
SocketResult socket_move_pieces(int fd, struct iovec *pieces, int n, bool sends, size_t *out_bytes);

/* The port that a socket listens on; 0: none. */
int socket_port(int fd);
/* This end's address as a number, without a port; "": none. */
void socket_own_address(int fd, char *out, size_t size);

/* Waits until fd can be read or written; false after `seconds`. */
bool socket_wait(int fd, bool writable, double seconds);

/* So that this process may hold n descriptors open; raises the soft limit. False: the system's
 * limit, *out_limit, is lower. */
bool socket_reserve_descriptors(size_t n, size_t *out_limit);

#endif
