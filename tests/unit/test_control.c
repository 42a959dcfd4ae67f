/* The control plane with real processes: results of operations, who is waited for, who is let in,
 * who cannot take part. */
#include "ir/base/clock.h"
#include "tests/unit/control_job.h"
#include "tests/unit/message_noise.h"

#include <netdb.h>
#include <sys/resource.h>

/* --- operations --- */

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
    int n_held = count_held();
    Control *control = join(job, rank, said);
    if (!control) return false;
    static unsigned char large[CONTROL_MAX_BYTES];
    for (int root = 0; root < job->world; root++) {
        char text[32] = "";
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
    if (holds_as_many(n_held)) return true;
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
    double mine = clock_now(); /* one clock for all processes of a machine */
    EXPECT(control_barrier(control));
    now = clock_now();
    EXPECT(control_all_gather(control, &mine, sizeof mine, sizeof mine, times, NULL));
    for (int i = 0; i < job->world; i++) EXPECT(times[i] <= now);
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

/* Rank 2 works for longer than an operation may last, and than a rank may say nothing. */
static bool await_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return false;
    double times[MAX_WORLD];
    if (rank == 2) sleep_s(2.5);
    double mine = clock_now();
    EXPECT(control_await(control));
    double now = clock_now();
    EXPECT(control_all_gather(control, &mine, sizeof mine, sizeof mine, times, NULL));
    for (int i = 0; i < job->world; i++) EXPECT(times[i] <= now);
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

static void test_await(void) {
    check_begin("control: what may take any time is waited for");
    Job job = job_create(3, await_rank);
    job.options.operation_s = 1;
    job.options.lost_s = 1;
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
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
    job.host = "::1";
    job_start_rank(&job, 1);
    job_finish_rank(&job, 1);
    check_said(&job, 1, "rank 1 found no rank 0 at [::1]:");
}

static void test_port_in_use(void) {
    check_begin("control: a port that is taken is an error that says what to do");
    char why[SOCKET_WHY_BYTES];
    Job job = job_create(2, join_rank);
    job.options.connect_s = 0.3;
    int listener = socket_listen(job.host, job.port, why);
    CHECK(listener >= 0, "%s", why);
    job_start_rank(&job, 0);
    job_finish_rank(&job, 0);
    close(listener);
    check_said(&job, 0, "rank 0 cannot listen on port ");
    check_said(&job, 0, ": Address already in use; set MASTER_PORT to a free port on all ranks");
}

/* Long before all would have had to be there. */
static void check_soon(const Job *job, double begin) {
    for (int i = 0; i < job->world; i++) {
        double seconds = job->ended[i] - begin;
        CHECK(seconds < 3, "rank %d ended after %g s", i, seconds);
    }
}

/* Of a job of version "0.9" rank 2 is of another one; else it has another world. */
static bool misfit_rank(Job *job, int rank, char *said) {
    if (rank == 2 && strcmp(job->options.version, "0.9") == 0)
        job->options.version = "1.0";
    else if (rank == 2)
        job->options.world = 4;
    return !join(job, rank, said);
}

static bool short_rank(Job *job, int rank, char *said) {
    struct rlimit few = {24, 24};
    if (rank == 0) setrlimit(RLIMIT_NOFILE, &few);
    return !join(job, rank, said);
}

static void test_few_descriptors(void) {
    check_begin("control: rank 0 may not open enough files, which all are told");
    Job job = job_create(3, short_rank);
    double begin = clock_now();
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    check_soon(&job, begin);
    for (int i = 0; i < 3; i++)
        check_said(&job, i, "open files for 3 ranks, the system allows 24 (ulimit -Hn)");
}

static void test_refusals(void) {
    check_begin("control: a rank with another plan is told both fingerprints");
    Job job = job_create(3, join_rank);
    job.fingerprints[2] = 0xbad;
    double begin = clock_now();
    job_start(&job);
    job_finish(&job);
    check_said(&job, 2,
               "its plan has fingerprint 0000000000000bad, rank 0's has 0000000000001234; start "
               "all ranks with the same plan");
    for (int i = 0; i < 2; i++) check_said(&job, i, "rank 2 (host-2) was refused: its plan has");
    check_soon(&job, begin);
    check_begin("control: so are a rank of another version, and one of another world");
    for (int other = 0; other < 2; other++) {
        job = job_create(3, misfit_rank);
        job.options.version = other ? "1.0" : "0.9";
        job.late_s[1] = 0.15; /* is told, too, though it comes when all is over */
        begin = clock_now();
        job_start(&job);
        job_finish(&job);
        const char *why = other
                              ? "it was started as one of 4 ranks, rank 0 as one of 3"
                              : "it is perilune 1.0, rank 0 is perilune 0.9; start the same on all";
        for (int i = 0; i < 3; i++) check_said(&job, i, why);
        check_said(&job, 1, "rank 2 (host-2) was refused: ");
        check_soon(&job, begin);
    }
}

static bool declining_rank(Job *job, int rank, char *said) {
    const bool declines = job->fingerprints[rank] != 0;
    if (!declines) return !join(job, rank, said);
    ControlOptions options = rank_options(job, rank);
    sleep_s(job->late_s[rank]);
    control_decline(&options, "run.plan: cannot open: it is not there\n  note: of no interest");
    return true;
}

/* Ranks are late in turn, those that cannot take part among them. */
static void test_declining(void) {
    check_begin("control: a rank that cannot take part says so to all, whoever is late");
    static const struct {
        int who, also, late; /* 0 may be the one that cannot */
    } cases[] = {{2, 2, 0}, {2, 2, 1}, {2, 2, 2}, {0, 0, 0}, {0, 0, 1}, {0, 2, 1}, {1, 2, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        Job job = job_create(3, declining_rank);
        job.fingerprints[cases[c].who] = job.fingerprints[cases[c].also] = 7;
        job.late_s[cases[c].late] = 0.15;
        double begin = clock_now();
        job_start(&job);
        job_finish(&job);
        check_all_well(&job);
        check_soon(&job, begin);
        for (int i = 0; i < 3; i++) {
            if (job.fingerprints[i]) continue;
            check_said(&job, i, " cannot take part: run.plan: cannot open: it is not there");
            CHECK(!strchr(job.said[i], '\n') || !strstr(job.said[i], "note"), "%s", job.said[i]);
        }
    }
    check_begin(
        "control: one that cannot take part waits for rank 0 no longer than for the others");
    Job job = job_create(2, declining_rank);
    job.options.connect_s = 0.5;
    for (int i = 0; i < 2; i++) {
        job.fingerprints[i] = 7;
        job_start_rank(&job, i);
        double begin = clock_now();
        job_finish_rank(&job, i);
        CHECK(job.went_well[i] && clock_now() - begin < 2, "%g s", clock_now() - begin);
    }
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
        for (double begin = clock_now(); clock_now() < begin + 0.8;) {
            int enough = rank == 0 && clock_now() > begin + 0.7;
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

/* --- a host with several addresses --- */

static struct sockaddr_in loopback_at(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A listener that answers nothing more, as behind a firewall that drops: its queue is full. */
static int listen_deaf(int port, int fillers[2]) {
    struct sockaddr_in address = loopback_at(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok =
        fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 0) == 0;
    for (int i = 0; i < 2; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        int rc = connect(fillers[i], (struct sockaddr *)&address, sizeof address);
        ok = ok && (rc == 0 || errno == EINPROGRESS);
    }
    CHECK(ok, "no listener at port %d", port);
    return fd;
}

static void test_deaf_address(void) {
    check_begin("control: an address that nothing answers from leaves the next one its time");
    char why[SOCKET_WHY_BYTES];
    int fillers[2], deaf_port = find_free_port("127.0.0.1");
    int deaf = listen_deaf(deaf_port, fillers), port = find_free_port("127.0.0.1");
    int listener = socket_listen("127.0.0.1", port, why);
    struct sockaddr_in first = loopback_at(deaf_port), second = loopback_at(port);
    struct addrinfo addresses[2] = {
        {.ai_family = AF_INET,
         .ai_addr = (struct sockaddr *)&first,
         .ai_addrlen = sizeof first,
         .ai_next = &addresses[1]},
        {.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&second, .ai_addrlen = sizeof second}};
    double begin = clock_now();
    int fd = socket_connect_any(addresses, 2, why);
    double seconds = clock_now() - begin;
    CHECK(fd >= 0, "%s", why);
    CHECK(seconds > 0.9 && seconds < 1.9, "%g s", seconds);
    int fds[] = {deaf, fillers[0], fillers[1], listener, fd};
    for (int i = 0; i < 5; i++) close(fds[i]);
}

/* --- bytes that are no messages --- */

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
        check_said(
            &job, i,
            "rank 1 (host-1) was lost before it told of a step (it sent what is no message)");
    }
}

int main(void) {
    test_operations();
    test_slow_joiner();
    test_await();
    test_missing();
    test_port_in_use();
    test_few_descriptors();
    test_refusals();
    test_declining();
    test_strangers();
    test_deaf_address();
    test_garbage();
    test_mad_rank();
    return check_report();
}
