/* Sockets between processes of one network namespace, under names that the system picks and no file
 * has (unix(7), "abstract", "autobind"), and descriptors handed over through them. Never blocking,
 * closed on exec. Whoever is in the namespace may connect: who it is must be proved.
 */
#ifndef RUNTIME_LAUNCH_LOCAL_SOCKET_H
#define RUNTIME_LAUNCH_LOCAL_SOCKET_H

#include "runtime/launch/socket.h"

enum { LOCAL_NAME_BYTES = 16 };

/* Returns the socket and its name, -1 on failure; socket_accept accepts. */
int local_socket_listen(char out_name[LOCAL_NAME_BYTES]);
/* Only characters that such names have, and a zero behind them; "" is none. */
bool local_socket_is_name(const char name[LOCAL_NAME_BYTES]);
int local_socket_connect(const char *name, char why[SOCKET_WHY_BYTES]);

/* All bytes at once into an empty buffer, with a copy of `descriptor` unless it is -1. */
bool local_socket_send(int fd, const void *bytes, size_t size, int descriptor);
/* One read. *out_descriptor: what came along, the caller's from now on; -1: none. */
SocketResult local_socket_receive(int fd, void *bytes, size_t size, size_t *out_bytes,
                                  int *out_descriptor);

#endif
