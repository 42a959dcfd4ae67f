/* Control plane: what the processes of a job tell each other besides training's own messages.
 *
 * Rank 0 listens, all others connect to it (a star). Small collectives, deadlines, and a watch over
 * every rank: one service thread per process keeps all sockets, sends heartbeats, and on rank 0
 * judges. A rank whose connection closes, or from which nothing came for lost_s, is lost; one whose
 * progress does not move for stuck_s, as its own heartbeats say, is stuck, unless it only waits for
 * others. What a rank "was in" is what its last heartbeat said. Rank 0 then tells all why, and the
 * job has failed: on every rank the operation under way and all later ones return false,
 * control_failed says why, and on_failure is called once. A rank that loses rank 0 comes to that
 * end by itself. A failed job stays failed.
 *
 *     rank 3 (gpu-a2) was lost at step 12: was in B0.5 all_reduce of blocks.1.mlp.w1,
 *     models/gpt.lua:42 (its connection closed)
 *
 * Who may join: a rank that knows the job's token, of a plan with the same fingerprint and world,
 * and of the same version of the program. A rank that knows the token but not the rest, while it is
 * waited for, ends the job: nobody else will come in its place. So does one that cannot take part
 * and says so (control_decline). Anything else that connects is refused or dropped and changes
 * nothing. The token keeps jobs apart; it does not protect against those who can read the network.
 *
 * Operations block, and are called from one thread per process, by all ranks concerned in the same
 * order. control_update_progress, control_failed and control_abort may be called from any thread
 * (progress from one at a time), the first two without locks. With world 1 nothing listens and
 * everything works.
 */
#ifndef RUNTIME_LAUNCH_CONTROL_H
#define RUNTIME_LAUNCH_CONTROL_H

#include "ir/base/diag.h"
#include "runtime/launch/launch_environment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Control Control;

enum {
    CONTROL_TEXT_BYTES = 200,          /* of a progress record, with its end */
    CONTROL_KEY_BYTES = 64,            /* of an exchange's key, with its end */
    CONTROL_MAX_BYTES = 1 << 20,       /* one rank's part in an operation */
    CONTROL_MAX_RESULT_BYTES = 1 << 28 /* all ranks' parts together */
};

typedef struct ControlOptions {
    int rank, world;
    const char *master_host; /* where rank 0 is */
    int port;
    const char *host;     /* this machine's name, for reports */
    const char *job;      /* what keeps jobs apart; may be "" */
    const char *version;  /* of the program; NULL: "" */
    uint64_t fingerprint; /* of the plan */
    double connect_s;     /* for all ranks to come together */
    double operation_s;   /* for one operation */
    double heartbeat_s;   /* between heartbeats; at most stuck_s / 4, if that is set */
    double lost_s;        /* without any message */
    double stuck_s;       /* without progress; 0: not watched */
    FILE *stream;         /* where lines about waiting go; NULL: nowhere */
    void (*on_failure)(void *state, const char *reason); /* from the service thread; NULL: none */
    void *on_failure_state;
} ControlOptions;

/* 300 s to connect and per operation, heartbeats every 5 s, lost after 60 s, stuck after an hour
 * (a step may have work for long before its first message), lines to stderr. Keeps pointers into
 * `launch`. */
ControlOptions control_default_options(const LaunchEnvironment *launch, uint64_t fingerprint);

/* Returns when all ranks are there. Reports and returns NULL otherwise: who is missing, or why this
 * rank was refused. */
Control *control_connect(const ControlOptions *options, Diag *diag);

/* In place of control_connect: this rank cannot take part, `text` says why in a line. The others'
 * control_connect then reports it and returns NULL, also those' that come later: rank 0 waits for
 * them, and any other rank for rank 0, up to 10 s or connect_s, whichever is less. Reports nothing;
 * the fingerprint does not count, and with world 1 nothing happens. */
void control_decline(const ControlOptions *options, const char *text);

/* "1, 3-7" of the ranks whose flag is set, shortened when there are many ranges. */
void control_put_ranks(StrBuf *out, const bool *flags, int n);

/* "rank 3 (gpu-a2)" on rank 0, which knows all hosts, and of rank 0 and itself on any; else
 * "rank 3". */
typedef struct ShownRank {
    char text[96];
} ShownRank;
ShownRank control_show_rank(const Control *control, int rank);

/* How many ranks the job has. */
int control_world(const Control *control);

/* The end of a job that went well: returns when all ranks have called it; from then on ranks may go
 * without being lost. */
bool control_close(Control *control);
/* Ends this rank's part and frees. Without control_close before, and unless the job has failed, the
 * others see this rank as lost. NULL is fine. */
void control_destroy(Control *control);

/* --- operations --- */

bool control_barrier(Control *control);
/* The same, however long ranks take that are there: for what a disk has to do. */
bool control_await(Control *control);
/* bytes[n_bytes] of rank `root` -> bytes of all; n_bytes is equal everywhere. */
bool control_broadcast(Control *control, int root, void *bytes, size_t n_bytes);
/* The same of any number of bytes. */
bool control_share(Control *control, int root, void *bytes, size_t n_bytes);
/* Every rank's bytes[n_bytes], n_bytes <= slot_bytes, -> out[world][slot_bytes] on rank 0, zeros
 * after each; out_bytes[world], unless NULL, says how many there were. Others may pass NULL. */
bool control_gather(Control *control, const void *bytes, size_t n_bytes, size_t slot_bytes,
                    void *out, size_t *out_bytes);
/* The same, on all ranks. */
bool control_all_gather(Control *control, const void *bytes, size_t n_bytes, size_t slot_bytes,
                        void *out, size_t *out_bytes);
/* bytes[n_bytes] of the first of `ranks` -> bytes of all of them. ranks[n_ranks] is ascending and
 * has the caller. Disjoint subsets may exchange at the same time. `key` names what is exchanged,
 * in errors and so that different exchanges cannot meet: "NCCL id of t 3". */
bool control_exchange(Control *control, const char *key, const int *ranks, int n_ranks, void *bytes,
                      size_t n_bytes);

/* This machine's address on the way between rank 0 and another rank, as a number; "": there is no
 * other. */
void control_own_address(Control *control, char *out, size_t size);

/* --- watching --- */

/* What this rank is doing from now on; said again without any change, it has not moved. step < 0:
 * set up or work between steps, not watched for being stuck. waits: in a call that ends only when
 * other ranks come (not the first one to suspect). */
void control_update_progress(Control *control, int64_t step, int task, int call, bool waits,
                             const char *text);
/* *out_reason (unless NULL) stays valid until control_destroy. */
bool control_failed(const Control *control, const char **out_reason);

/* Ends the job for all: this rank failed, `text` says how. Returns when the job has failed here
 * too, after a moment at the latest. */
void control_report(Control *control, const char *text);
/* Ends the job for all, for a reason that is nobody's failure (a signal, a user's wish). */
void control_abort(Control *control, const char *text);

#endif
