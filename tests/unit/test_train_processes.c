/* `perilune train` as a job of several processes whose layout is searched, on the fake of CUDA's
 * libraries: the program itself, its main included, in forked processes. NCCL's messages have no
 * effect on the fake, so losses say nothing here; what is looked at is who comes, goes and goes on.
 *
 * Catches: ranks with another plan than rank 0's; a run that does not go on with fewer processes; a
 * process without a rank that waits, fails or takes part; ranks that hang where rank 0 finds no
 * layout; the next connection refused by the end of the one before; a run that hangs where another
 * rank is lost or has failed, in NCCL's kernels or in NCCL itself; ranks that wait for one without
 * a GPU, or do not wait for one that writes a checkpoint; another NCCL or GPU that nobody tells
 * of. */
#ifdef HAVE_CUDA
#define main perilune_main
#include "frontend/main.c"
#undef main

#include "runtime/cuda/driver/device.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/control_job.h"

#include <fcntl.h>
#include <sys/syscall.h>

enum { MOST_ARGS = 48, DEFECTIVE = 99 };

static char folder[] = "/tmp/train_processes_XXXXXX";

static FakeOptions fakes[MAX_WORLD]; /* the ranks' */
static bool lacks_gpu[MAX_WORLD];    /* of them */
static bool is_older[MAX_WORLD];     /* its libraries and its GPU */

static const char *file_in(const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static double first_write_s; /* rank 0's first write into a checkpoint takes so long */
static bool writes_slowly;

/* In libc's place. */
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
    if (writes_slowly) sleep_s(first_write_s);
    writes_slowly = false;
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

static cudaError_t no_devices(int *out) {
    *out = 0;
    return cudaErrorNoDevice;
}

static ncclResult_t older_nccl(int *out) {
    *out = 22102;
    return ncclSuccess;
}

static CuApi fake; /* as it is where nothing is older */

static cudaError_t older_gpu(struct cudaDeviceProp *out, int device) {
    cudaError_t status = fake.cudaGetDeviceProperties(out, device);
    snprintf(out->name, sizeof(out->name), "Older GPU");
    return status;
}

/* In the forked process: its exit code. */
static int run_rank(int rank, int world, int port, int argc, const char **argv) {
    char name[16];
    snprintf(name, sizeof(name), "rank%d", rank);
    int out = open(file_in(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", 0);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_WORLD_SIZE", world);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("GOMP_SPINCOUNT", "2000", 1); /* or main starts itself again */
    fakes[rank].in_order = true;
    writes_slowly = rank == 0;
    fake = *fake_cuda_create(&fakes[rank]);
    CuApi api = fake;
    if (lacks_gpu[rank]) api.cudaGetDeviceCount = no_devices;
    if (is_older[rank]) api.ncclGetVersion = older_nccl;
    if (is_older[rank]) api.cudaGetDeviceProperties = older_gpu;
    cuda_api_replace(&api);
    int status = perilune_main(argc, (char **)argv);
    for (int i = 0; i < fake_cuda_n_defects(); i++) printf("DEFECT %s\n", fake_cuda_defect(i));
    fflush(stdout);
    return fake_cuda_n_defects() ? DEFECTIVE : status;
}

/* What each of `world` processes ends with, and the first rank's words. */
static const char *run_job(int world, const char *options, int status[MAX_WORLD]) {
    static char said[1 << 16];
    static char copy[1024];
    const char *argv[MOST_ARGS] = {"perilune", "train"};
    int argc = 2, port = find_free_port("127.0.0.1");
    pid_t children[MAX_WORLD];
    snprintf(copy, sizeof(copy), "%s", options);
    for (char *word = strtok(copy, " "); word && argc < MOST_ARGS; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    fflush(NULL);
    for (int rank = 0; rank < world; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) exit(run_rank(rank, world, port, argc, argv));
    }
    for (int rank = 0; rank < world; rank++) {
        int how;
        waitpid(children[rank], &how, 0);
        status[rank] = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    }
    said[0] = '\0';
    for (int rank = 0; rank < world; rank++) {
        char name[16];
        size_t length = strlen(said);
        snprintf(name, sizeof(name), "rank%d", rank);
        FILE *file = fopen(file_in(name), "r");
        if (!file) continue;
        length += fread(said + length, 1, sizeof(said) - 1 - length, file);
        said[length] = '\0';
        fclose(file);
    }
    return said;
}

static bool all_end_with(const int *status, int n, int code) {
    for (int i = 0; i < n; i++) {
        if (status[i] != code) return false;
    }
    return true;
}

static void says(const char *said, const char *what) {
    CHECK(strstr(said, what), "no '%s' in: %s", what, said);
}

/* The model is divided over t and d; a batch of 12 over 1, 2, 3, 4 and 6. */
#define RUN                                                                                        \
    "models/gpt.lua --set layers=2 --set seq=16 --set model=32 --set heads=2 --set vocab=256 "     \
    "--device cuda --cluster tests/data/slow_device.lua --precision f32 --timeout 120 "            \
    "--val-fraction 0 "

static void check_fewer(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("three processes find a layout; two go on with the run");
    snprintf(options, sizeof(options),
             RUN "--global-batch 12 --data %s --steps 2 --checkpoint %s --continue",
             file_in("text"), file_in("ckpt"));
    const char *said = run_job(3, options, status);
    CHECK(all_end_with(status, 3, EXIT_DONE), "%s", said);
    says(said, ": 3 ranks;");
    says(said, "a step on slow-device, the best of ");
    snprintf(options, sizeof(options),
             RUN "--global-batch 12 --data %s --steps 3 --checkpoint %s --continue",
             file_in("text"), file_in("ckpt"));
    said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_DONE), "%s", said);
    says(said, ": 2 ranks;");
    says(said, "after step 2");
    says(said, "done     1 steps");
}

static void check_unused(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("five processes of which four can share the work");
    /* One communicator: the fake's processes cannot tell several apart. */
    snprintf(options, sizeof(options), RUN "--global-batch 12 --mesh t=1,p=1 --data %s --steps 1",
             file_in("text"));
    const char *said = run_job(5, options, status);
    CHECK(all_end_with(status, 5, EXIT_DONE), "%s", said);
    says(said, ": 4 ranks;");
    says(said, "1 of 5 processes have nothing to do: batch and model cannot be divided over all");
    says(said, "perilune: rank 4 has nothing to do: the layout has 4 ranks\n");
}

static void check_refused(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("where rank 0 finds no layout, all end");
    snprintf(options, sizeof(options),
             RUN "--global-batch 12 --data %s --steps 1 --memory-limit 0.001", file_in("text"));
    const char *said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_FAILED), "%d %d %s", status[0], status[1], said);
    says(said, "perilune: rank 0 made no plan\n");
    snprintf(options, sizeof(options), RUN "--data %s --steps 1", file_in("text"));
    said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_USAGE), "%s", said);
    says(said, "perilune: train: --global-batch: how many sequences a step?");
    snprintf(options, sizeof(options), RUN "--global-batch 12 --ranks 4 --data %s --steps 1",
             file_in("text"));
    said = run_job(2, options, status);
    CHECK(status[0] == EXIT_USAGE && status[1] == EXIT_FAILED, "%d %d %s", status[0], status[1],
          said);
    says(said, "perilune: 2 processes were started for 4 ranks; leave out --ranks\n");
}

/* Of three ranks one ends, or fails, in the second step, which the others' devices never end. */
static void check_lost(void) {
    char options[1024];
    int status[MAX_WORLD];
    snprintf(options, sizeof(options), RUN "--global-batch 12 --data %s --steps 4",
             file_in("text"));
    check_begin("a rank is lost while graphs run: the others end");
    for (int rank = 0; rank < 3; rank++) fakes[rank].hangs_at = 2;
    fakes[1] = (FakeOptions){.dies_at = 2};
    const char *said = run_job(3, options, status);
    CHECK(status[0] == EXIT_FAILED && status[1] == FAKE_DIED && status[2] == EXIT_FAILED,
          "%d %d %d %s", status[0], status[1], status[2], said);
    says(said, "perilune: rank 1 (");
    says(said, "its connection closed");
    check_begin("a rank's launch fails while the others' graphs run: all end");
    fakes[1] = (FakeOptions){.fails_at = 2};
    said = run_job(3, options, status);
    CHECK(all_end_with(status, 3, EXIT_FAILED), "%d %d %d %s", status[0], status[1], status[2],
          said);
    says(said, "rank 1 (");
    says(said, " failed at step 2: CUDA: launching the step's graph: the fake's error 719\n");
    memset(fakes, 0, sizeof(fakes));
}

/* The last --timeout counts. */
static void check_never_aborts(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("a rank's launch fails, and NCCL never gives up: its process ends");
    snprintf(options, sizeof(options), RUN "--timeout 6 --global-batch 12 --data %s --steps 4",
             file_in("text"));
    fakes[0].hangs_at = 2;
    fakes[1] = (FakeOptions){.fails_at = 2, .never_aborts = true};
    const char *said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_FAILED), "%d %d %s", status[0], status[1], said);
    says(said, "perilune: rank 1: NCCL did not give up its communicators within 6 s: ");
    memset(fakes, 0, sizeof(fakes));
}

/* Rank 0 owns all of it. */
static void check_slow_disk(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("a checkpoint that takes longer than ranks wait for each other");
    snprintf(options, sizeof(options),
             RUN "--timeout 4 --global-batch 12 --mesh t=1,p=1 --data %s --steps 1 --checkpoint %s",
             file_in("text"), file_in("slow"));
    first_write_s = 6;
    const char *said = run_job(2, options, status);
    first_write_s = 0;
    CHECK(all_end_with(status, 2, EXIT_DONE), "%d %d %s", status[0], status[1], said);
}

/* Of two ranks one finds no GPU: where all are to have one, and where a plan leaves it open. */
static void check_lacking(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("a rank that finds no GPU: all end at once and say which");
    lacks_gpu[1] = true;
    snprintf(options, sizeof(options), RUN "--global-batch 12 --data %s --steps 1",
             file_in("text"));
    const char *said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_FAILED), "%d %d %s", status[0], status[1], said);
    says(said, "perilune: rank 1 (");
    says(said, " failed: --device cuda: no GPU was found: ");
    const char *plan[] = {"perilune", "plan",   "models/gpt.lua", "--set", "layers=2",
                          "--set",    "seq=16", "--device",       "cuda",  "--mesh",
                          "t=2",      "-o",     file_in("plan")};
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        exit(perilune_main((int)(sizeof(plan) / sizeof(plan[0])), (char **)plan));
    }
    waitpid(child, &status[0], 0);
    CHECK(status[0] == 0, "no plan");
    snprintf(options, sizeof(options), "%s --no-graph --data %s --steps 1", file_in("plan"),
             file_in("text"));
    said = run_job(2, options, status);
    CHECK(all_end_with(status, 2, EXIT_FAILED), "%d %d %s", status[0], status[1], said);
    says(said, ") uses no GPU, though rank 0 (");
    says(said, ") does: no GPU was found: ");
    lacks_gpu[1] = false;
}

static void check_older(void) {
    char options[1024];
    int status[MAX_WORLD];
    check_begin("ranks with another NCCL and another GPU: a line each, and the run goes on");
    is_older[1] = is_older[2] = true;
    snprintf(options, sizeof(options), RUN "--global-batch 12 --mesh t=1,p=1 --data %s --steps 1",
             file_in("text"));
    const char *said = run_job(3, options, status);
    CHECK(all_end_with(status, 3, EXIT_DONE), "%d %d %d %s", status[0], status[1], status[2], said);
    says(said, "note: ranks 1-2 (the first on ");
    says(said, " have NCCL 2.21.2, rank 0 has 2.");
    says(said, " have a GPU Older GPU (sm_");
    is_older[1] = is_older[2] = false;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(folder)) return 1;
    FILE *text = fopen(file_in("text"), "w");
    for (int i = 0; i < 2000 && text; i++) fprintf(text, "%d ", i);
    if (text) fclose(text);
    check_fewer();
    check_unused();
    check_refused();
    check_lost();
    check_never_aborts();
    check_slow_disk();
    check_lacking();
    check_older();
    int status = check_report();
    char command[300];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) == 0 ? status : 1;
}
#else
#include <stdio.h>
int main(void) {
    puts("skip train_processes: built without CUDA's headers");
    return 0;
}
#endif
