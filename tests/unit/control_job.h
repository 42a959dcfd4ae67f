/* A job of forked processes on the loopback address, for tests of the control plane. What each rank
 * says at its end comes back through a pipe. */
#ifndef TESTS_UNIT_CONTROL_JOB_H
#define TESTS_UNIT_CONTROL_JOB_H

#include "ir/base/clock.h"
#include "runtime/launch/control.h"
#include "runtime/launch/socket.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORLD = 5, SAID_BYTES = 1024 };

static inline void sleep_s(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static inline bool is_free(bool is_v6, int port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    bool ok = fd >= 0 && (is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6)
                                : bind(fd, (struct sockaddr *)&v4, sizeof v4)) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

/* A free port, by chance, for several of these tests may run at once; 0: none. Below 32768, where
 * Linux takes the ports of outgoing connections from: those would get in the way. */
static inline int find_free_port(const char *host) {
    for (int i = 0; i < 200; i++) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        uint64_t mixed = ((uint64_t)getpid() << 32 ^ (uint64_t)t.tv_nsec) * 0x9e3779b97f4a7c15u;
        int port = 12000 + (int)((mixed >> 40) % 20000);
        if (is_free(strchr(host, ':') != NULL, port)) return port;
    }
    return 0;
}

/* --- a job of forked processes --- */

typedef struct Job Job;
/* A rank's main: true when all went as it should; what it says is in `said`. */
typedef bool RankMain(Job *job, int rank, char said[SAID_BYTES]);

struct Job {
    int world;
    const char *host;
    int port;
    RankMain *run;
    ControlOptions options;
    double late_s[MAX_WORLD];         /* before a rank connects */
    uint64_t fingerprints[MAX_WORLD]; /* 0: the common one */
    pid_t pids[MAX_WORLD];
    int pipes[MAX_WORLD];
    bool went_well[MAX_WORLD], was_killed[MAX_WORLD];
    char said[MAX_WORLD][SAID_BYTES];
    double ended[MAX_WORLD]; /* by clock_now's clock */
};

static inline Job job_create(int world, RankMain *run) {
    static char token[32];
    Job job = {
        .world = world, .host = "127.0.0.1", .port = find_free_port("127.0.0.1"), .run = run};
    snprintf(token, sizeof token, "test %d", (int)getpid());
    job.options = (ControlOptions){.world = world,
                                   .port = job.port,
                                   .job = token,
                                   .fingerprint = 0x1234,
                                   .connect_s = 8,
                                   .operation_s = 8,
                                   .heartbeat_s = 0.1,
                                   .lost_s = 5};
    return job;
}

static inline ControlOptions rank_options(const Job *job, int rank) {
    static char host[32];
    ControlOptions options = job->options;
    snprintf(host, sizeof host, "host-%d", rank);
    options.rank = rank;
    options.host = host;
    options.master_host = job->host;
    options.port = job->port;
    if (job->fingerprints[rank]) options.fingerprint = job->fingerprints[rank];
    return options;
}

/* Connects; on failure says why. */
static inline Control *join(Job *job, int rank, char *said) {
    Diag *diag = diag_create();
    sleep_s(job->late_s[rank]);
    ControlOptions options = rank_options(job, rank);
    Control *control = control_connect(&options, diag);
    if (!control) snprintf(said, SAID_BYTES, "%s", diag_text(diag));
    diag_destroy(diag);
    return control;
}

static inline void job_start_rank(Job *job, int rank) {
    int ends[2];
    fflush(stdout);
    if (pipe(ends) != 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        char said[SAID_BYTES] = "";
        close(ends[0]);
        bool well = job->run(job, rank, said);
        bool written = write(ends[1], said, sizeof said) == (ssize_t)sizeof said;
        exit(well && written ? 0 : 1); /* not _exit: leaks are looked for */
    }
    close(ends[1]);
    job->pids[rank] = pid;
    job->pipes[rank] = ends[0];
}

static inline void job_start(Job *job) {
    for (int rank = 0; rank < job->world; rank++) job_start_rank(job, rank);
}

static inline void job_finish_rank(Job *job, int rank) {
    int status;
    size_t n = 0;
    while (n < SAID_BYTES) {
        ssize_t got = read(job->pipes[rank], job->said[rank] + n, SAID_BYTES - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(job->pipes[rank]);
    waitpid(job->pids[rank], &status, 0);
    job->ended[rank] = clock_now();
    job->was_killed[rank] = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    job->went_well[rank] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline void job_finish(Job *job) {
    for (int rank = 0; rank < job->world; rank++) job_finish_rank(job, rank);
}

static inline void check_all_well(const Job *job) {
    for (int i = 0; i < job->world; i++) {
        CHECK(job->went_well[i], "rank %d of %d: %s", i, job->world, job->said[i]);
    }
}

static inline void check_said(const Job *job, int rank, const char *text) {
    CHECK(strstr(job->said[rank], text), "rank %d says \"%s\", not \"%s\"", rank, job->said[rank],
          text);
}

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            const char *reason_ = "";                                                              \
            control_failed(control, &reason_);                                                     \
            snprintf(said, SAID_BYTES, "line %d: %s; %s", __LINE__, #cond, reason_);               \
            control_destroy(control);                                                              \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static inline int count_entries(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

/* What a process holds: to see that it holds no more afterwards. ThreadSanitizer has a thread of
 * its own, which comes when it likes, and looks for left threads itself. */
static inline int count_held(void) {
    int n = count_entries("/proc/self/fd");
#ifndef __SANITIZE_THREAD__
    n += 1000 * count_entries("/proc/self/task");
#endif
    return n;
}

/* A thread that was joined stays in /proc for a moment. */
static inline bool holds_as_many(int n_held) {
    for (int i = 0; i < 200 && count_held() != n_held; i++) sleep_s(0.01);
    return count_held() == n_held;
}

#endif
