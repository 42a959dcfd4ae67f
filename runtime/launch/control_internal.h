/* What the files of the control plane share; see control.h for what it does.
 *
 *     control.c          the calls: connecting, operations, reports
 *     control_service.c  the service thread: sockets, heartbeats
 *     control_hub.c      rank 0: who may join, collectives, who is lost or stuck
 *
 * Everything in Control but the mailbox, `told`, `failed` and what does not change is guarded by
 * `lock`.
 * Functions here are called with it held, unless they say otherwise.
 */
#ifndef RUNTIME_LAUNCH_CONTROL_INTERNAL_H
#define RUNTIME_LAUNCH_CONTROL_INTERNAL_H

#include "runtime/launch/control.h"
#include "runtime/launch/mailbox.h"
#include "runtime/launch/message.h"

#include <pthread.h>

enum {
    CONTROL_VERSION = 3,
    CONTROL_HOST_BYTES = 64,
    CONTROL_PROGRAM_BYTES = 32, /* of its version */
    CONTROL_REASON_BYTES = 2048,
    MAX_GUESTS = 256,
    GUEST_MAX_BYTES = 1024 /* of a message from who has not said hello */
};

/* One connection. */
typedef struct Link {
    int fd;   /* -1: dead, freed at the end of the service thread's turn */
    int rank; /* at the other end; -1: a guest, who has not said hello */
    MessageReader reader;
    StrBuf out; /* bytes to send from `sent` on */
    size_t sent;
    double opened, heard;
    bool closes; /* once all is sent */
} Link;

typedef enum RequestKind {
    REQUEST_CLOSE,
    REQUEST_BARRIER,
    REQUEST_AWAIT, /* a barrier without a time limit */
    REQUEST_BROADCAST,
    REQUEST_GATHER,
    REQUEST_ALL_GATHER,
    REQUEST_EXCHANGE,
    REQUEST_KIND_END
} RequestKind;

/* One rank's part in a collective. */
typedef struct Request {
    bool pending;
    RequestKind kind;
    uint32_t root;
    uint32_t bytes; /* of the message, or of a slot */
    char key[CONTROL_KEY_BYTES];
    uint32_t n_ranks, *ranks; /* none: all ranks; from malloc */
    StrBuf data;
    double since;
} Request;

/* A rank as rank 0 sees it. Other ranks have one Member: rank 0. */
typedef struct Member {
    bool joined;
    bool came;  /* joined, or has been told why not */
    Link *link; /* NULL: this process, or gone */
    char host[CONTROL_HOST_BYTES];
    ProgressRecord progress; /* `since` by this process' clock */
    double told;             /* when it said so */
    Request request;
} Member;

struct Control {
    ControlOptions options; /* with its texts copied: */
    char master_host[LAUNCH_HOST_BYTES], host[CONTROL_HOST_BYTES], job[LAUNCH_JOB_BYTES];
    char version[CONTROL_PROGRAM_BYTES];
    Mailbox mailbox;
    ProgressRecord told; /* the last one written; the training thread's own */
    atomic_bool failed;
    char reason[CONTROL_REASON_BYTES]; /* written before `failed` */
    pthread_t thread;
    bool has_thread;
    int wake_fd;  /* an eventfd: wakes the service thread */
    int listener; /* -1: none */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* started, a result, or failed */
    bool started;           /* all ranks are there */
    int n_came;             /* members[].came */
    bool closed;            /* control_close has ended: ranks may go */
    bool closing;           /* in control_close */
    bool called_on_failure;
    bool stopping;
    double stop_at;

    Member *members; /* [world] on rank 0, [1] elsewhere */
    int n_members, n_joined;
    Link *guests[MAX_GUESTS];
    int n_guests, n_refusals;
    char refusal[352]; /* the last one, "" when there was none */
    double next_heartbeat, no_accept_until;

    bool has_result;
    StrBuf result;
};

/* --- control.c --- */

/* The job has failed; the first reason stays. Rank 0 tells the others. */
void control_fail(Control *control, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool control_is_hub(const Control *control);
/* No lock needed. */
void control_wake(Control *control);
/* What a hello and its answer prove: that both know the job's token. */
uint64_t control_token(const Control *control, uint32_t world, uint64_t fingerprint,
                       const char *purpose);

/* --- control_service.c --- */

/* Any thread: no lock needed until it is given to the service thread. */
Link *link_create(int fd, int rank, size_t max_bytes);
void link_destroy(Link *link);
/* The thread's main, given the Control; takes the lock itself. */
void *control_serve(void *argument);
void control_put_progress(StrBuf *out, const ProgressRecord *record, double now);
/* A heartbeat's record, `since` by this process' clock. False: malformed. */
bool control_get_progress(Cursor *cursor, ProgressRecord *out, double now);
/* "rank 3 (gpu-a2)". */
void control_name_rank(const Control *control, int rank, StrBuf *out);

/* --- control_hub.c --- */

/* A guest's first message: it becomes a member or is told why not. */
void hub_admit(Control *control, Link *link, const Message *message);
void hub_receive(Control *control, Link *link, const Message *message);
/* Takes over the request's memory. */
void hub_submit(Control *control, int rank, Request *request);
/* "rank 3 (gpu-a2) was lost at step 12: was in ... (cause)". */
void control_fail_lost(Control *control, int rank, const char *cause);
void hub_fail_report(Control *control, int rank, bool is_abort, const char *text);
/* Stuck ranks, and operations that took too long. */
void hub_judge(Control *control, double now);
void request_destroy(Request *request);

#endif
