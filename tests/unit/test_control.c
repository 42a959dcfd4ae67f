/* The control plane with real processes on the loopback address: results of operations, who is let
 * in, and every way to lose a rank. What each rank says at its end comes back through a pipe. */
#include "runtime/launch/control.h"
#include "runtime/launch/message.h"
#include "runtime/launch/socket.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORLD = 5, SAID_BYTES = 1024 };

static void sleep_s(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* A port of this machine that was free just now. */
static int find_free_port(const char *host) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool is_v6 = strchr(host, ':') != NULL;
    struct sockaddr *address = is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t size = is_v6 ? sizeof v6 : sizeof v4;
    int port = 0, fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return 0;
    if (bind(fd, address, size) == 0 && getsockname(fd, address, &size) == 0) {
        port = ntohs(is_v6 ? v6.sin6_port : v4.sin_port);
    }
    close(fd);
    return port;
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
    double ended[MAX_WORLD]; /* by socket_now's clock */
};

static Job job_create(int world, RankMain *run) {
    Job job = {
        .world = world, .host = "127.0.0.1", .port = find_free_port("127.0.0.1"), .run = run};
    job.options = (ControlOptions){.world = world,
                                   .port = job.port,
                                   .job = "test",
                                   .fingerprint = 0x1234,
                                   .connect_s = 8,
                                   .operation_s = 8,
                                   .heartbeat_s = 0.1,
                                   .lost_s = 5};
    return job;
}

static ControlOptions rank_options(const Job *job, int rank) {
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
static Control *join(Job *job, int rank, char *said) {
    Diag *diag = diag_create();
    sleep_s(job->late_s[rank]);
    ControlOptions options = rank_options(job, rank);
    Control *control = control_connect(&options, diag);
    if (!control) snprintf(said, SAID_BYTES, "%s", diag_text(diag));
    diag_destroy(diag);
    return control;
}

static void job_start_rank(Job *job, int rank) {
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

static void job_start(Job *job) {
    for (int rank = 0; rank < job->world; rank++) job_start_rank(job, rank);
}

static void job_finish_rank(Job *job, int rank) {
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
    job->ended[rank] = socket_now();
    job->was_killed[rank] = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    job->went_well[rank] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void job_finish(Job *job) {
    for (int rank = 0; rank < job->world; rank++) job_finish_rank(job, rank);
}

static void check_all_well(const Job *job) {
    for (int i = 0; i < job->world; i++) {
        CHECK(job->went_well[i], "rank %d of %d: %s", i, job->world, job->said[i]);
    }
}

/* --- operations --- */

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

static int count_entries(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

static bool gathers_are_right(Control *control, int rank, int world) {
    unsigned char mine[MAX_WORLD * 100], all[MAX_WORLD * MAX_WORLD * 100];
    size_t slot = (size_t)world * 100, sizes[MAX_WORLD];
    memset(mine, 'a' + rank, sizeof mine);
    for (int round = 0; round < 2; round++) {
        memset(all, 0xff, sizeof all);
        bool everywhere = round == 1;
        /* Rank 0's part is empty. */
        bool ok = everywhere
                      ? control_all_gather(control, mine, (size_t)rank * 100, slot, all, sizes)
                      : control_gather(control, mine, (size_t)rank * 100, slot, all, sizes);
        if (!ok) return false;
        for (size_t i = 0; i < slot * (size_t)world && (everywhere || rank == 0); i++) {
            size_t from = i / slot, at = i % slot;
            if (all[i] != (at < from * 100 ? 'a' + from : 0)) return false;
            if (sizes[from] != from * 100) return false;
        }
    }
    return true;
}

/* Even and odd ranks exchange at the same time, then each half of {0 1 2 ...} alone. */
static bool exchanges_are_right(Control *control, int rank, int world) {
    int ranks[MAX_WORLD], n = 0;
    for (int i = rank % 2; i < world; i += 2) ranks[n++] = i;
    char id[128] = {0};
    if (rank == ranks[0]) memset(id, '0' + rank, sizeof id);
    const char *key = rank % 2 ? "id of odd" : "id of even";
    return control_exchange(control, key, ranks, n, id, sizeof id) && id[0] == '0' + ranks[0] &&
           id[127] == '0' + ranks[0];
}

static bool operations_rank(Job *job, int rank, char *said) {
    int n_files = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
    Control *control = join(job, rank, said);
    if (!control) return false;
    static unsigned char large[CONTROL_MAX_BYTES];
    for (int root = 0; root < job->world; root++) {
        char text[16] = "";
        if (rank == root) snprintf(text, sizeof text, "from %d", root);
        EXPECT(control_broadcast(control, root, text, sizeof text));
        EXPECT(text[5] == '0' + root);
        EXPECT(control_broadcast(control, root, NULL, 0));
        for (size_t i = 0; i < sizeof large; i++) large[i] = rank == root ? (i * 7) & 0xff : 0;
        EXPECT(control_broadcast(control, root, large, sizeof large));
        EXPECT(large[12345] == (12345 * 7 & 0xff) &&
               large[sizeof large - 1] == ((sizeof large - 1) * 7 & 0xff));
    }
    EXPECT(gathers_are_right(control, rank, job->world));
    for (int i = 0; i < 200; i++) {
        control_update_progress(control, i, i, i, false, "a step");
        EXPECT(control_barrier(control));
        if (i % 10 == 0) EXPECT(exchanges_are_right(control, rank, job->world));
    }
    EXPECT(control_close(control));
    EXPECT(!control_failed(control, NULL));
    control_destroy(control);
    if (count_entries("/proc/self/fd") == n_files && count_entries("/proc/self/task") == n_threads)
        return true;
    snprintf(said, SAID_BYTES, "descriptors or threads are left");
    return false;
}

static void test_operations(void) {
    static const int worlds[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "control: all operations are right on %d ranks", worlds[i]);
        check_begin(name);
        Job job = job_create(worlds[i], operations_rank);
        job_start(&job);
        job_finish(&job);
        check_all_well(&job);
    }
    check_begin("control: over IPv6 too");
    Job job = job_create(2, operations_rank);
    job.host = "::1";
    job.port = find_free_port("::1");
    if (job.port == 0) {
        printf("skip control: over IPv6 too: this machine has no ::1\n");
        check_case_name[0] = '\0';
        return;
    }
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
}

/* The barrier must not end before the slowest has come to it. */
static bool barrier_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return false;
    double times[MAX_WORLD], now;
    if (rank == 1) sleep_s(0.15);
    double mine = socket_now(); /* one clock for all processes of a machine */
    EXPECT(control_barrier(control));
    now = socket_now();
    EXPECT(control_all_gather(control, &mine, sizeof mine, sizeof mine, times, NULL));
    for (int i = 0; i < job->world; i++) EXPECT(times[i] <= now);
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

static void test_slow_joiner(void) {
    check_begin("control: a rank that comes late is waited for; rank 0 may be the late one");
    for (int late = 0; late < 3; late += 2) {
        Job job = job_create(3, barrier_rank);
        job.late_s[late] = 0.4;
        job_start(&job);
        job_finish(&job);
        check_all_well(&job);
    }
}

static void check_said(const Job *job, int rank, const char *text) {
    CHECK(strstr(job->said[rank], text), "rank %d says \"%s\", not \"%s\"", rank, job->said[rank],
          text);
}

static bool join_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return false;
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

static void test_missing(void) {
    check_begin("control: ranks that do not come are named on all that did");
    Job job = job_create(5, join_rank);
    job.options.connect_s = 1;
    for (int i = 0; i < 5; i += i == 0 ? 2 : 3) job_start_rank(&job, i); /* 0 and 2 */
    for (int i = 0; i < 5; i += i == 0 ? 2 : 3) {
        job_finish_rank(&job, i);
        check_said(&job, i, "not all ranks came within 1 s: without ranks 1, 3-4");
    }
    check_begin("control: without rank 0 the others say where they looked");
    job = job_create(2, join_rank);
    job.options.connect_s = 0.5;
    job_start_rank(&job, 1);
    job_finish_rank(&job, 1);
    check_said(&job, 1, "rank 1 found no rank 0 at 127.0.0.1:");
    check_said(&job, 1, "within 0.5 s: Connection refused");
}

static void test_refusals(void) {
    check_begin("control: a rank with another plan is told both fingerprints");
    Job job = job_create(3, join_rank);
    job.options.connect_s = 1.2;
    job.fingerprints[2] = 0xbad;
    job_start(&job);
    job_finish(&job);
    check_said(&job, 2,
               "its plan has fingerprint 0000000000000bad, rank 0's has 0000000000001234; start "
               "all ranks with the same plan");
    check_said(&job, 1, "without rank 2; rank 2 (host-2) was refused: its plan has");
}

/* Ranks that are refused while a job of two runs, which must not notice. */
static bool stranger_rank(Job *job, int rank, char *said) {
    if (rank < 2) {
        ControlOptions options = rank_options(job, rank);
        Diag *diag = diag_create();
        options.world = 2;
        Control *control = control_connect(&options, diag);
        snprintf(said, SAID_BYTES, "%s", diag_text(diag));
        diag_destroy(diag);
        if (!control) return false;
        for (double begin = socket_now(); socket_now() < begin + 0.8;) {
            int enough = rank == 0 && socket_now() > begin + 0.7;
            EXPECT(control_barrier(control));
            EXPECT(control_broadcast(control, 0, &enough, sizeof enough));
            if (enough) break;
        }
        EXPECT(control_close(control));
        control_destroy(control);
        return true;
    }
    sleep_s(0.3);
    Diag *diag = diag_create();
    ControlOptions options = rank_options(job, rank);
    options.world = 2;
    options.rank = 1;
    if (rank == 2) options.job = "another";
    if (rank == 4) options.world = 9;
    Control *control = control_connect(&options, diag);
    snprintf(said, SAID_BYTES, "%s", diag_text(diag));
    diag_destroy(diag);
    if (!control) return true;
    control_destroy(control);
    return false;
}

static void test_strangers(void) {
    check_begin("control: another job, a second rank 1 and another world are refused, the job "
                "goes on");
    Job job = job_create(5, stranger_rank);
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    check_said(&job, 2, "it belongs to another job: its job token differs");
    check_said(&job, 3, "this rank is there already, on host-1");
    check_said(&job, 4, "it was started as one of 9 ranks, rank 0 as one of 2");
}

/* --- bytes that are no messages --- */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A frame whose parts are right or not, by chance. */
static void put_noise(StrBuf *out, uint32_t *random) {
    uint32_t choice = next_random(random) % 8;
    size_t n = next_random(random) % 300, start = out->length;
    if (choice > 0) start = message_begin(out, (MessageKind)(1 + next_random(random) % 9));
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)next_random(random);
        strbuf_put_bytes(out, &byte, 1);
    }
    if (choice > 1) message_end(out, start);
    if (choice == 2) out->text[start + next_random(random) % MESSAGE_HEADER_BYTES] ^= 0x10;
    if (choice == 3) out->length -= n / 2; /* half a message, then the next */
}

/* Talks to rank 0's port: half a hello, noise, silence, and connections that close at once. */
static void disturb(const char *host, int port) {
    char why[SOCKET_WHY_BYTES];
    uint32_t random = 7;
    for (int i = 0; i < 60; i++) {
        size_t n;
        int fd = socket_connect(host, port, 1, why);
        if (fd < 0) {
            sleep_s(0.02);
            continue;
        }
        StrBuf noise = strbuf_create();
        if (i % 3 == 0) {
            message_begin(&noise, MESSAGE_HELLO); /* a header alone, of no payload */
        } else {
            for (int j = 0; j < 3; j++) put_noise(&noise, &random);
        }
        if (i % 5 != 0) socket_send(fd, noise.text, noise.length, &n);
        strbuf_destroy(&noise);
        if (i % 4 != 0) close(fd); /* others stay open and silent until the process ends */
    }
}

static bool disturbed_rank(Job *job, int rank, char *said) {
    if (rank == 3) {
        disturb(job->host, job->port);
        return true;
    }
    ControlOptions options = rank_options(job, rank);
    Diag *diag = diag_create();
    options.world = 3;
    sleep_s(rank == 0 ? 0 : 0.3); /* the noise comes before and after they have come */
    Control *control = control_connect(&options, diag);
    snprintf(said, SAID_BYTES, "%s", diag_text(diag));
    diag_destroy(diag);
    if (!control) return false;
    for (int i = 0; i < 300; i++) {
        EXPECT(control_barrier(control));
        sleep_s(0.002);
    }
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

static void test_garbage(void) {
    check_begin("control: strangers with garbage, half messages and silence change nothing");
    Job job = job_create(4, disturbed_rank);
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
}

/* What a rank of the job says must be understood too: one that turns to garbage is lost. */
static bool mad_rank(Job *job, int rank, char *said) {
    if (rank != 1) {
        Control *control = join(job, rank, said);
        if (!control) return true;
        const char *reason;
        bool ok = control_barrier(control);
        control_failed(control, &reason);
        snprintf(said, SAID_BYTES, "%s", reason);
        control_destroy(control);
        return !ok;
    }
    char why[SOCKET_WHY_BYTES];
    int fd;
    while ((fd = socket_connect(job->host, job->port, 1, why)) < 0) sleep_s(0.02);
    /* Says hello by means of a real rank 1's bytes: taken from a listener of its own. */
    char end[64];
    int copy_port = find_free_port(job->host), listener = socket_listen(job->host, copy_port, why);
    pid_t pid = fork();
    if (pid == 0) {
        Job copy = *job;
        char ignored[SAID_BYTES];
        copy.port = copy_port;
        copy.options.connect_s = 0.5;
        control_destroy(join(&copy, rank, ignored));
        _exit(0);
    }
    bool exhausted;
    int from = -1;
    if (!socket_wait(listener, false, 2) || (from = socket_accept(listener, &exhausted)) < 0 ||
        !socket_wait(from, false, 2))
        return false;
    size_t n, sent;
    unsigned char hello[512];
    bool ok = socket_receive(from, hello, sizeof hello, &n) == SOCKET_MOVED &&
              socket_send(fd, hello, n, &sent) == SOCKET_MOVED && sent == n;
    sleep_s(0.3);
    ok = ok && socket_send(fd, "PLCM and so on", 14, &sent) == SOCKET_MOVED;
    while (socket_wait(fd, false, 3) && socket_receive(fd, end, sizeof end, &n) == SOCKET_MOVED) {
    }
    waitpid(pid, NULL, 0);
    close(from);
    close(listener);
    close(fd);
    return ok;
}

static void test_mad_rank(void) {
    check_begin("control: a rank that turns to garbage is lost, not a crash");
    Job job = job_create(3, mad_rank);
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    for (int i = 0; i < 3; i += 2) {
        check_said(&job, i,
                   "rank 1 (host-1) was lost before its first step (it sent what is no message)");
    }
}

static void test_reader(void) {
    check_begin("messages: what is written is read back, however the stream is cut");
    uint32_t random = 11;
    StrBuf stream = strbuf_create();
    enum { N = 300 };
    for (uint32_t i = 0; i < N; i++) {
        size_t start = message_begin(&stream, (MessageKind)(1 + i % 9));
        message_put_u32(&stream, i);
        message_put_u64(&stream, UINT64_C(0x100000001) * i);
        message_put_text(&stream, i % 2 ? "odd \x1b[31m" : "even");
        message_end(&stream, start);
    }
    MessageReader reader = message_reader_create(1024);
    uint32_t n_read = 0;
    for (size_t at = 0; at < stream.length;) {
        size_t n = 1 + next_random(&random) % 50;
        if (n > stream.length - at) n = stream.length - at;
        message_reader_feed(&reader, stream.text + at, n);
        at += n;
        Message message;
        while (message_reader_next(&reader, &message) == MESSAGE_COMPLETE) {
            Cursor cursor = cursor_create(&message);
            char text[64];
            CHECK((uint32_t)message.kind == 1 + n_read % 9, "kind of message %u", n_read);
            CHECK(cursor_u32(&cursor) == n_read, "number of message %u", n_read);
            CHECK(cursor_u64(&cursor) == UINT64_C(0x100000001) * n_read, "u64 of %u", n_read);
            cursor_text(&cursor, text, sizeof text);
            CHECK(strcmp(text, n_read % 2 ? "odd ?[31m" : "even") == 0, "text '%s'", text);
            CHECK(cursor_end(&cursor), "message %u has more", n_read);
            n_read++;
        }
    }
    CHECK(n_read == N, "%u messages of %d", n_read, N);
    message_reader_destroy(&reader);
    strbuf_destroy(&stream);
}

/* Random streams: no crash (the sanitizers look on), no message longer than allowed, nothing after
 * a bad byte; and every cursor stays within its payload. */
static void test_reader_noise(void) {
    check_begin("messages: 20000 streams of noise are refused or read within their bounds");
    uint32_t random = 23;
    int n_complete = 0, n_bad = 0;
    for (int round = 0; round < 20000; round++) {
        StrBuf stream = strbuf_create();
        for (uint32_t i = next_random(&random) % 4 + 1; i > 0; i--) put_noise(&stream, &random);
        MessageReader reader = message_reader_create(256);
        for (size_t at = 0; at < stream.length;) {
            size_t n = 1 + next_random(&random) % 200;
            if (n > stream.length - at) n = stream.length - at;
            message_reader_feed(&reader, stream.text + at, n);
            at += n;
            Message message;
            MessageStatus status;
            while ((status = message_reader_next(&reader, &message)) == MESSAGE_COMPLETE) {
                Cursor cursor = cursor_create(&message);
                char text[32];
                size_t length;
                CHECK(message.length <= 256, "%zu bytes", message.length);
                CHECK(message.kind > 0 && message.kind < MESSAGE_KIND_END, "kind %d", message.kind);
                cursor_u32(&cursor);
                cursor_text(&cursor, text, sizeof text);
                CHECK(strlen(text) < sizeof text, "text");
                const unsigned char *bytes = cursor_bytes(&cursor, &length);
                CHECK(!bytes || bytes + length <= message.payload + message.length, "past its end");
                CHECK(cursor.left <= message.length, "left");
                n_complete++;
            }
            if (status == MESSAGE_BAD) {
                size_t held = reader.buffer.length;
                n_bad++;
                message_reader_feed(&reader, "PLCM", 4);
                CHECK(message_reader_next(&reader, &message) == MESSAGE_BAD, "it came back");
                CHECK(reader.buffer.length == held, "it keeps what will not be read");
                break;
            }
        }
        message_reader_destroy(&reader);
        strbuf_destroy(&stream);
    }
    CHECK(n_complete > 1000 && n_bad > 1000, "%d read, %d bad: the noise is one-sided", n_complete,
          n_bad);
}

/* --- losing ranks --- */

/* Trains until the job fails; rank `victim` does what `fate` says at step 12. */
typedef enum Fate { FATE_KILLED, FATE_STOPPED, FATE_STUCK, FATE_REPORTS, FATE_ABORTS } Fate;
static Fate fate;
static int victim;

static void meet_fate(Control *control) {
    control_update_progress(control, 12, 5, 3, false,
                            "B0.5 all_reduce of blocks.1.mlp.w1, models/gpt.lua:42");
    sleep_s(0.3); /* a heartbeat says so */
    if (fate == FATE_KILLED) raise(SIGKILL);
    if (fate == FATE_STOPPED) raise(SIGSTOP);
    if (fate == FATE_REPORTS) control_report(control, "no memory left on the device");
    if (fate == FATE_ABORTS) control_abort(control, "interrupted");
    if (fate == FATE_STUCK) {
        while (!control_failed(control, NULL)) sleep_s(0.02);
    }
}

static void count_call(void *state, const char *reason) {
    (void)reason;
    atomic_fetch_add((atomic_int *)state, 1);
}

static bool fated_rank(Job *job, int rank, char *said) {
    atomic_int n_calls = 0;
    int n_files = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
    job->options.on_failure = count_call;
    job->options.on_failure_state = &n_calls;
    Control *control = join(job, rank, said);
    if (!control) return false;
    for (int step = 0;; step++) {
        char text[64];
        snprintf(text, sizeof text, "step %d on rank %d", step, rank);
        control_update_progress(control, step, 0, 0, true, text);
        if (rank == victim && step == 12) meet_fate(control);
        if (!control_barrier(control)) break;
        sleep_s(0.005);
    }
    const char *reason = "";
    EXPECT(control_failed(control, &reason));
    EXPECT(!control_barrier(control)); /* it stays failed */
    EXPECT(!control_close(control));
    snprintf(said, SAID_BYTES, "%s", reason);
    control_destroy(control);
    if (n_calls == 1 && count_entries("/proc/self/fd") == n_files &&
        count_entries("/proc/self/task") == n_threads)
        return true;
    snprintf(said, SAID_BYTES, "%d calls of on_failure, or descriptors or threads are left",
             n_calls);
    return false;
}

/* All ranks but a dead one end in time, with the same reason. */
static void check_fate(Fate what, int who, double seconds, const char *expected) {
    fate = what;
    victim = who;
    Job job = job_create(4, fated_rank);
    if (what == FATE_STOPPED) job.options.lost_s = 1;
    if (what == FATE_STUCK) job.options.stuck_s = 1;
    double begin = socket_now();
    job_start(&job);
    for (int i = 0; i < job.world; i++) {
        if (i != who) job_finish_rank(&job, i);
    }
    if (what == FATE_STOPPED) kill(job.pids[who], SIGKILL);
    job_finish_rank(&job, who);
    for (int i = 0; i < job.world; i++) {
        if (i == who && (what == FATE_KILLED || what == FATE_STOPPED)) {
            CHECK(job.was_killed[i], "rank %d was not killed", i);
            continue;
        }
        CHECK(job.went_well[i], "rank %d: %s", i, job.said[i]);
        check_said(&job, i, expected);
        CHECK(job.ended[i] < begin + seconds, "rank %d took %g s", i, job.ended[i] - begin);
    }
}

static void test_fates(void) {
    static const char place[] = "at step 12: was in B0.5 all_reduce of blocks.1.mlp.w1, "
                                "models/gpt.lua:42";
    char expected[256];
    snprintf(expected, sizeof expected, "rank 3 (host-3) was lost %s (its connection closed)",
             place);
    check_begin("control: a killed rank ends all others, who name it and where it was");
    check_fate(FATE_KILLED, 3, 4.5, expected); /* below lost_s: by the connection */
    check_begin("control: so does rank 0, which the others notice");
    snprintf(expected, sizeof expected, "rank 0 (host-0) was lost %s (its connection closed)",
             place);
    check_fate(FATE_KILLED, 0, 4.5, expected);
    check_begin("control: a rank that stops answering is lost after lost_s");
    snprintf(expected, sizeof expected, "rank 2 (host-2) was lost %s (nothing heard for 1", place);
    check_fate(FATE_STOPPED, 2, 10, expected);
    check_begin("control: so is rank 0");
    snprintf(expected, sizeof expected, "rank 0 (host-0) was lost %s (nothing heard for 1", place);
    check_fate(FATE_STOPPED, 0, 10, expected);
    check_begin("control: a rank without progress is stuck, not those that wait for it");
    check_fate(FATE_STUCK, 2, 10,
               "rank 2 (host-2) is stuck at step 12: has been in B0.5 all_reduce of "
               "blocks.1.mlp.w1, models/gpt.lua:42 for 1");
    check_fate(FATE_STUCK, 0, 10, "(others: rank 1 in step 12 on rank 1, rank 2 in");
    check_begin("control: a rank's report and its wish to end reach all");
    check_fate(FATE_REPORTS, 1, 10, "rank 1 (host-1) failed at step 12: no memory left on the");
    check_fate(FATE_REPORTS, 0, 10, "rank 0 (host-0) failed at step 12: no memory left on the");
    check_fate(FATE_ABORTS, 1, 10, "ended by rank 1 (host-1): interrupted");
}

/* --- calls that do not meet --- */

static int quarrel;

static bool quarrel_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return true; /* the others quarrelled before it had started; it knows why */
    char byte = 0;
    bool ok = true;
    if (quarrel == 0)
        ok = rank == 1 ? control_broadcast(control, 2, &byte, 1) : control_barrier(control);
    if (quarrel == 1) ok = rank == 1 ? control_close(control) : control_barrier(control);
    if (quarrel == 2 && rank != 1) ok = control_barrier(control);
    while (!control_failed(control, NULL)) sleep_s(0.01);
    const char *reason;
    control_failed(control, &reason);
    snprintf(said, SAID_BYTES, "%s", reason);
    control_destroy(control);
    return !ok || (quarrel == 2 && rank == 1);
}

static void test_quarrels(void) {
    static const char *const expected[] = {"broadcast, 1 bytes from rank 2", "the end of the job",
                                           "has waited 1 s in barrier for ranks 1"};
    check_begin("control: calls that do not match, or do not come, are named");
    for (quarrel = 0; quarrel < 3; quarrel++) {
        Job job = job_create(3, quarrel_rank);
        if (quarrel == 2) job.options.operation_s = 1;
        job_start(&job);
        job_finish(&job);
        check_all_well(&job);
        for (int i = 0; i < 3; i++) check_said(&job, i, expected[quarrel]);
        if (quarrel < 2)
            check_said(&job, 2, "all ranks must make the same calls in the same order");
    }
}

int main(void) {
    test_reader();
    test_reader_noise();
    test_operations();
    test_slow_joiner();
    test_missing();
    test_refusals();
    test_strangers();
    test_garbage();
    test_mad_rank();
    test_fates();
    test_quarrels();
    return check_report();
}
