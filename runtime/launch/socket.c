#define _GNU_SOURCE /* accept4 */
#include "runtime/launch/socket.h"

#include "ir/base/clock.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SOCKET_FLAGS = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, BACKLOG = 4096 };

static void explain(char *why, const char *what, int error) {
    char text[96] = "";
    const char *message = strerror_r(error, text, sizeof text); /* GNU's: may not use text */
    snprintf(why, SOCKET_WHY_BYTES, "%s%s%s", what, what[0] ? ": " : "", message);
}

static bool resolve(const char *host, int port, int flags, struct addrinfo **out, char *why) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    hints.ai_flags = AI_NUMERICSERV | flags;
    int rc = getaddrinfo(host, service, &hints, out);
    if (rc == 0) return true;
    if (rc == EAI_SYSTEM)
        explain(why, "cannot be resolved", errno);
    else
        snprintf(why, SOCKET_WHY_BYTES, "cannot be resolved: %s", gai_strerror(rc));
    *out = NULL;
    return false;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int listen_on(const struct sockaddr *address, socklen_t size, char *why) {
    int on = 1, off = 0;
    int fd = socket(address->sa_family, SOCKET_FLAGS, 0);
    if (fd < 0) {
        explain(why, "", errno);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0) return fd;
    explain(why, "", errno);
    close(fd);
    return -1;
}

int socket_listen(const char *host, int port, char why[SOCKET_WHY_BYTES]) {
    struct sockaddr_in6 any_v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any_v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct addrinfo *addresses;
    int fd = -1;
    int flags = strcmp(host, "localhost") == 0 ? 0 : AI_NUMERICHOST;
    if (resolve(host, port, flags, &addresses, why)) {
        bool all_loopback = true;
        for (struct addrinfo *a = addresses; a; a = a->ai_next) {
            all_loopback = all_loopback && is_loopback(a->ai_addr);
        }
        for (struct addrinfo *a = addresses; a && all_loopback && fd < 0; a = a->ai_next) {
            fd = listen_on(a->ai_addr, a->ai_addrlen, why);
        }
        freeaddrinfo(addresses);
        if (all_loopback) return fd;
    }
    fd = listen_on((struct sockaddr *)&any_v6, sizeof any_v6, why);
    return fd >= 0 ? fd : listen_on((struct sockaddr *)&any_v4, sizeof any_v4, why);
}

/* Control messages are small and waited for. */
static void send_at_once(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int socket_accept(int listener, bool *out_exhausted) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    *out_exhausted =
        fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (fd >= 0) send_at_once(fd);
    return fd;
}

static int connect_to(const struct addrinfo *address, double deadline, char *why) {
    int error = 0;
    socklen_t size = sizeof error;
    int fd = socket(address->ai_family, SOCKET_FLAGS, 0);
    if (fd < 0) {
        explain(why, "", errno);
        return -1;
    }
    send_at_once(fd);
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    if (errno != EINPROGRESS && errno != EINTR) {
        error = errno;
    } else if (!socket_wait(fd, true, deadline - clock_now())) {
        error = ETIMEDOUT;
    } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error == 0) return fd;
    explain(why, "", error);
    close(fd);
    return -1;
}

int socket_connect_any(const struct addrinfo *addresses, double seconds,
                       char why[SOCKET_WHY_BYTES]) {
    double deadline = clock_now() + seconds;
    int fd = -1, n_left = 0;
    for (const struct addrinfo *a = addresses; a; a = a->ai_next) n_left++;
    for (const struct addrinfo *a = addresses; a && fd < 0; a = a->ai_next) {
        double now = clock_now();
        fd = connect_to(a, now + (deadline - now) / n_left--, why);
    }
    return fd;
}

int socket_connect(const char *host, int port, double seconds, char why[SOCKET_WHY_BYTES]) {
    struct addrinfo *addresses;
    if (!resolve(host, port, 0, &addresses, why)) return -1;
    int fd = socket_connect_any(addresses, seconds, why);
    freeaddrinfo(addresses);
    return fd;
}

static SocketResult judge(ssize_t n, size_t *out_bytes) {
    *out_bytes = n > 0 ? (size_t)n : 0;
    if (n > 0) return SOCKET_MOVED;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? SOCKET_WAIT
                                                                                : SOCKET_CLOSED;
}

SocketResult socket_receive(int fd, void *bytes, size_t size, size_t *out_bytes) {
    return judge(recv(fd, bytes, size, 0), out_bytes);
}

SocketResult socket_send(int fd, const void *bytes, size_t size, size_t *out_bytes) {
    return judge(send(fd, bytes, size, MSG_NOSIGNAL), out_bytes);
}

SocketResult socket_move_pieces(int fd, struct iovec *pieces, int n, bool sends,
                                size_t *out_bytes) {
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n};
    return judge(sends ? sendmsg(fd, &message, MSG_NOSIGNAL) : recvmsg(fd, &message, 0), out_bytes);
}

static bool name_of(int fd, char *host, size_t size, char service[16]) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
           getnameinfo((struct sockaddr *)&address, length, host, (socklen_t)size, service, 16,
                       NI_NUMERICHOST | NI_NUMERICSERV) == 0;
}

int socket_port(int fd) {
    char host[NI_MAXHOST], service[16];
    return name_of(fd, host, sizeof host, service) ? (int)strtol(service, NULL, 10) : 0;
}

void socket_own_address(int fd, char *out, size_t size) {
    static const char V4_IN_V6[] = "::ffff:";
    char host[NI_MAXHOST], service[16];
    if (!name_of(fd, host, sizeof host, service)) host[0] = '\0';
    bool mapped = strncmp(host, V4_IN_V6, sizeof V4_IN_V6 - 1) == 0 && strchr(host, '.');
    snprintf(out, size, "%s", mapped ? host + sizeof V4_IN_V6 - 1 : host);
}

bool socket_wait(int fd, bool writable, double seconds) {
    double deadline = clock_now() + seconds;
    struct pollfd poll_fd = {.fd = fd, .events = writable ? POLLOUT : POLLIN};
    for (;;) {
        double left = deadline - clock_now();
        int rc = poll(&poll_fd, 1, left > 0 ? (int)ceil(fmin(left, 1e6) * 1000) : 0);
        if (rc > 0) return true;
        if (rc < 0 && errno != EINTR) return false;
        if (rc == 0 && deadline <= clock_now()) return false;
    }
}

bool socket_reserve_descriptors(size_t n, size_t *out_limit) {
    struct rlimit limit;
    *out_limit = n;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n) return true;
    *out_limit = (size_t)limit.rlim_max;
    if (limit.rlim_max < n) return false;
    limit.rlim_cur = n;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}
