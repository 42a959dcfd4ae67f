#include "runtime/comm/tcp_internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static const uint64_t HASH_START = UINT64_C(0xcbf29ce484222325);

uint64_t tcp_host_id(uint64_t *out_machine) {
    char name[256] = "", boot[64] = "";
    struct stat network = {0};
    uint64_t hash = HASH_START;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot);
        if (n > 0) hash = hash_bytes(hash, boot, (size_t)n);
        close(fd);
    }
    *out_machine = hash;
    if (gethostname(name, sizeof name - 1) == 0) hash = hash_bytes(hash, name, strlen(name));
    if (stat("/proc/self/ns/net", &network) == 0) {
        hash = hash_bytes(hash, &network.st_ino, sizeof network.st_ino);
    }
    return hash;
}

bool tcp_is_address(const char text[TCP_ADDRESS_BYTES]) {
    size_t length = strnlen(text, TCP_ADDRESS_BYTES);
    return length > 0 && length < TCP_ADDRESS_BYTES &&
           strspn(text, "0123456789abcdefABCDEF.:") == length;
}

/* Is the name in "eth1,ib0"? */
static bool is_listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; *at;) {
        const size_t item = strcspn(at, ",");
        if (item == length && memcmp(at, name, length) == 0) return true;
        at += item + (at[item] == ',');
    }
    return false;
}

/* As text; false: of another kind, or valid on one link only. */
static bool show_address(const struct sockaddr *address, char out[TCP_ADDRESS_BYTES]) {
    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        return inet_ntop(AF_INET, &v4->sin_addr, out, TCP_ADDRESS_BYTES) != NULL;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    return address && address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
           inet_ntop(AF_INET6, &v6->sin6_addr, out, TCP_ADDRESS_BYTES) != NULL;
}

static bool fail_unlisted(const struct ifaddrs *all, const char *list, Diag *diag) {
    char names[256] = "";
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        size_t length = strlen(names);
        char address[TCP_ADDRESS_BYTES];
        if (!show_address(i->ifa_addr, address) || is_listed(names, i->ifa_name)) continue;
        snprintf(names + length, sizeof names - length, "%s%s", length ? "," : "", i->ifa_name);
    }
    diag_error(diag, NO_LOC, "%s: '%.64s' names no interface with an address; there are %s",
               COMM_TCP_INTERFACES, list, names[0] ? names : "none");
    return false;
}

bool tcp_own_addresses(const char *first, char out[TCP_MOST_ADDRESSES][TCP_ADDRESS_BYTES],
                       int *out_n, Diag *diag) {
    const char *list = getenv(COMM_TCP_INTERFACES);
    struct ifaddrs *all = NULL;
    bool chosen = list && list[0];
    *out_n = 0;
    if (getifaddrs(&all) != 0) all = NULL;
    for (const struct ifaddrs *i = all; i && *out_n < TCP_MOST_ADDRESSES; i = i->ifa_next) {
        char address[TCP_ADDRESS_BYTES];
        bool wanted = chosen ? is_listed(list, i->ifa_name) : !(i->ifa_flags & IFF_LOOPBACK);
        if (!wanted || !(i->ifa_flags & IFF_UP) || !show_address(i->ifa_addr, address)) continue;
        int n = (*out_n)++;
        memcpy(out[n], address, sizeof address);
        if (strcmp(address, first) != 0) continue;
        memcpy(out[n], out[0], sizeof address);
        memcpy(out[0], address, sizeof address);
    }
    bool fine = *out_n > 0 || !chosen || fail_unlisted(all, list, diag);
    if (all) freeifaddrs(all);
    return fine;
}
