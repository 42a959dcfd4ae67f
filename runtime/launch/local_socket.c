#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC */
#include "runtime/launch/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024, MOST_DESCRIPTORS = 4 };

static int open_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Abstract names begin with a zero byte, which the caller's do not have. */
int local_socket_listen(char out_name[LOCAL_NAME_BYTES]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = sizeof address;
    const size_t before = offsetof(struct sockaddr_un, sun_path) + 1;
    int fd = open_socket();
    out_name[0] = '\0';
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 ||
        listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
        length <= before || length - before >= LOCAL_NAME_BYTES) {
        close(fd);
        return -1;
    }
    memcpy(out_name, address.sun_path + 1, length - before);
    out_name[length - before] = '\0';
    return fd;
}

bool local_socket_is_name(const char name[LOCAL_NAME_BYTES]) {
    size_t length = strnlen(name, LOCAL_NAME_BYTES);
    return length < LOCAL_NAME_BYTES && strspn(name, "0123456789abcdef") == length;
}

int local_socket_connect(const char *name, char why[SOCKET_WHY_BYTES]) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(name);
    int fd = open_socket();
    memcpy(address.sun_path + 1, name, length);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0) {
        return fd;
    }
    snprintf(why, SOCKET_WHY_BYTES, "its local socket: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

bool local_socket_send(int fd, const void *bytes, size_t size, int descriptor) {
    struct iovec piece = {(void *)bytes, size};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Who sends more descriptors than one has them closed. */
static void take_descriptors(struct msghdr *message, int *out_descriptor) {
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int got;
            memcpy(&got, CMSG_DATA(header) + i * sizeof(int), sizeof got);
            if (*out_descriptor < 0)
                *out_descriptor = got;
            else
                close(got);
        }
    }
}

SocketResult local_socket_receive(int fd, void *bytes, size_t size, size_t *out_bytes,
                                  int *out_descriptor) {
    struct iovec piece = {bytes, size};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    *out_descriptor = -1;
    *out_bytes = n > 0 ? (size_t)n : 0;
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? SOCKET_WAIT
                                                                         : SOCKET_CLOSED;
    }
    take_descriptors(&message, out_descriptor);
    return n > 0 ? SOCKET_MOVED : SOCKET_CLOSED;
}
