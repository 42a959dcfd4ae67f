/* The filling of comm.h whose ranks are processes, of one machine or several: one rank in each,
 * with a connection to every rank that it shares a group with and one for every channel.
 *
 * A connection is a TCP socket or, between ranks of one host and network namespace, two rings in
 * memory that one of them made and handed to the other through a local socket (ring.h, tcp_link.c):
 * that it arrives shows that the host is the same. Where that fails it is TCP, and a line says why.
 * What goes over both is the same, and so are the checks.
 *
 * Same calls, same bits as between threads (comm_inproc.c). Collectives move the fewest bytes that
 * they can: of an all-reduce each member sums one slice, block by block as the others' parts come
 * in, and passes every block on as soon as it is summed. The calling thread serves all of a
 * group's connections at once, both ways, so no order of sends can block two members; nothing is
 * kept of a message but two blocks for each other member. Sends to channels go on in a thread of
 * their own; their slots are free once the system has taken the message.
 *
 * Order of use: create the world, then its groups and channels, the same on all ranks concerned;
 * connect; then the calls of comm.h, all from one thread. A lost connection aborts the world, but
 * waits a moment for why_failed, which knows more.
 *
 * What is read from connections is compared with what is expected, byte counts above all, and never
 * trusted. Who may connect knows a number that is drawn for this connection and told to the job's
 * ranks by all_gather alone; whatever else connects is dropped.
 */
#ifndef RUNTIME_COMM_COMM_TCP_H
#define RUNTIME_COMM_COMM_TCP_H

#include "ir/base/diag.h"
#include "runtime/comm/comm.h"

#include <stdint.h>

/* Interfaces to be reached at, "eth1,ib0"; else all but loopback are tried. */
#define COMM_TCP_INTERFACES "PERILUNE_INTERFACES"

/* "0": messages go over TCP within a host, too. */
#define COMM_TCP_SHARES "PERILUNE_SHARED_MEMORY"

/* This rank among the others, and what it can ask before they are connected. */
typedef struct CommJob {
    int rank, world;
    void *user;
    /* bytes[n_bytes] of every rank -> out[world][n_bytes] on all; false: the job has failed. */
    bool (*all_gather)(void *user, const void *bytes, size_t n_bytes, void *out);
    /* NULL while the job goes on. From any thread. */
    const char *(*why_failed)(void *user);
    const char *own_address; /* the first to be tried by other hosts; "": none in particular */
    double connect_s;        /* for all connections */
    double patience_s;       /* after a lost connection, for why_failed */
} CommJob;

/* Who computes where. */
typedef struct CommHost {
    int n_ranks;   /* on this host */
    int n_sharing; /* of them: those that may use the same cores as this rank */
    int n_cores;   /* that this rank may use */
} CommHost;

/* The worlds below are of this kind. */
CommWorld *comm_tcp_create(const CommJob *job);
/* `ranks` has this one; `tag` differs from those of all other groups that share two ranks. */
CommGroup *comm_tcp_group_create(CommWorld *base, const int *ranks, int n_members, uint32_t tag,
                                 const char *name);
/* This rank is one of its ends. */
CommChannel *comm_tcp_channel_create(CommWorld *base, int from, int to, uint32_t tag, int n_slots,
                                     const char *name);
/* Whether messages within a host may go through shared memory, as the environment says. False:
 * reported. */
bool comm_tcp_may_share(bool *out, Diag *diag);
/* False: reported. */
bool comm_tcp_connect(CommWorld *base, CommHost *out_host, Diag *diag);
/* What connections keep of messages: 128 KiB for each rank that this one shares a group with, and
 * half of the memory that is shared with it, whose other half that rank counts. */
size_t comm_tcp_staging_bytes(const CommWorld *base);

#endif
