/* Who a process is, from every launcher's variables, right and wrong; Slurm's lists. */
#include "runtime/launch/launch_environment.h"
#include "runtime/launch/nodelist.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- environments written as "RANK=3 WORLD_SIZE=8" --- */

enum { MAX_TEXT = 512, MAX_VARIABLES = 24 };

typedef struct Environment {
    char text[MAX_TEXT];
    const char *names[MAX_VARIABLES], *values[MAX_VARIABLES];
    int n;
} Environment;

/* Variables are divided by a space; in a value "~" stands for one, "^" for an escape. */
static void environment_read(Environment *out, const char *text) {
    *out = (Environment){0};
    snprintf(out->text, sizeof out->text, "%s", text);
    for (char *word = strtok(out->text, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        for (char *c = equals + 1; *c; c++) {
            if (*c == '~') *c = ' ';
            if (*c == '^') *c = '\x1b';
        }
        out->names[out->n] = word;
        out->values[out->n++] = equals + 1;
    }
}

static const char *environment_find(const void *state, const char *name) {
    const Environment *environment = state;
    for (int i = 0; i < environment->n; i++) {
        if (strcmp(environment->names[i], name) == 0) return environment->values[i];
    }
    return NULL;
}

typedef struct Good {
    const char *text;
    LaunchKind kind;
    int rank, world, local_rank, local_world;
    const char *master;
    int port;
    const char *job;
} Good;

static const Good good[] = {
    {"", LAUNCH_ALONE, 0, 1, 0, 1, "127.0.0.1", 29500, ""},
    {"PERILUNE_JOB_TOKEN=secret", LAUNCH_ALONE, 0, 1, 0, 1, "127.0.0.1", 29500, "secret"},
    /* salloc without srun: no SLURM_PROCID */
    {"SLURM_NTASKS=8 SLURM_JOB_ID=5", LAUNCH_ALONE, 0, 1, 0, 1, "127.0.0.1", 29500, ""},

    {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=gpu-a1 MASTER_PORT=1234",
     LAUNCH_TORCHRUN, 3, 8, 1, 2, "gpu-a1", 1234, ""},
    {"RANK=0 WORLD_SIZE=1", LAUNCH_TORCHRUN, 0, 1, 0, 1, "127.0.0.1", 29500, ""},
    /* one host: it counts there as in the job */
    {"RANK=3 WORLD_SIZE=4", LAUNCH_TORCHRUN, 3, 4, 3, 4, "127.0.0.1", 29500, ""},
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=localhost", LAUNCH_TORCHRUN, 3, 4, 3, 4, "localhost", 29500,
     ""},
    /* Kubernetes: one process per pod */
    {"RANK=3 WORLD_SIZE=4 MASTER_ADDR=job-master-0 MASTER_PORT=23456", LAUNCH_TORCHRUN, 3, 4, 0, 1,
     "job-master-0", 23456, ""},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=[fe80::1%eth0] MASTER_PORT=65535", LAUNCH_TORCHRUN, 1, 2, 0,
     1, "fe80::1%eth0", 65535, ""},
    /* torchrun itself listens on MASTER_PORT */
    {"RANK=1 WORLD_SIZE=2 MASTER_PORT=40000 TORCHELASTIC_USE_AGENT_STORE=True "
     "TORCHELASTIC_RUN_ID=none",
     LAUNCH_TORCHRUN, 1, 2, 1, 2, "127.0.0.1", 40001, "none"},
    /* the second of two agents of torchrun 2.11, restarted */
    {"LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=42853 RANK=3 WORLD_SIZE=4 "
     "TORCHELASTIC_MAX_RESTARTS=1 TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=trial "
     "TORCHELASTIC_USE_AGENT_STORE=True",
     LAUNCH_TORCHRUN, 3, 4, 1, 2, "localhost", 42854, "trial"},
    {"RANK=1 WORLD_SIZE=2 MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True", LAUNCH_TORCHRUN, 1,
     2, 1, 2, "127.0.0.1", 65534, ""},
    /* it comes before all others */
    {"RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1 OMPI_COMM_WORLD_RANK=5 PMI_RANK=7",
     LAUNCH_TORCHRUN, 1, 2, 1, 2, "127.0.0.1", 29500, ""},

    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=job-7@1",
     LAUNCH_OPEN_MPI, 1, 4, 1, 4, "127.0.0.1", 29500, "job-7@1"},
    /* its daemons were started by srun: their variables are not the processes' */
    {"OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=4 MASTER_ADDR=10.0.0.7 SLURM_PROCID=1 SLURM_NTASKS=2",
     LAUNCH_OPEN_MPI, 5, 8, 1, 4, "10.0.0.7", 29500, ""},

    {"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3", LAUNCH_HYDRA, 2, 3, 2, 3,
     "127.0.0.1", 29500, ""},
    {"PMI_RANK=2 PMI_SIZE=4 PMI_LOCAL_RANK=0 PMI_LOCAL_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=999",
     LAUNCH_HYDRA, 2, 4, 0, 2, "n1", 999, ""},
    {"PMI_RANK=2 PMI_SIZE=4 MASTER_ADDR=127.0.0.1", LAUNCH_HYDRA, 2, 4, 2, 4, "127.0.0.1", 29500,
     ""},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SLURM_PROCID=0 SLURM_NTASKS=1",
     LAUNCH_HYDRA, 1, 2, 1, 2, "127.0.0.1", 29500, ""},

    /* mpiexec of MPICH 4.0 in salloc -N2 -n4: its proxies are srun's tasks */
    {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3 SLURM_PROCID=0 SLURM_NTASKS=4 "
     "SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_ID=29 SLURM_STEP_ID=0 "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=node[1-2] MASTER_ADDR=node1",
     LAUNCH_HYDRA, 0, 4, 0, 3, "node1", 29500, "29"},

    {"SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_TASKS_PER_NODE=2(x3),1 "
     "SLURM_JOB_ID=123456 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[003-006] "
     "SLURM_JOB_NODELIST=other[1-9]",
     LAUNCH_SLURM, 6, 7, 0, 1, "node003", 23456, "123456.0"},
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_ID=39999 "
     "SLURM_STEP_ID=0 SLURM_JOB_NODELIST=gpu-a[1-2]-ib",
     LAUNCH_SLURM, 3, 4, 1, 2, "gpu-a1-ib", 59999, "39999.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=2 SLURM_JOB_ID=40000 "
     "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n7",
     LAUNCH_SLURM, 1, 2, 1, 2, "127.0.0.1", 20000, "40000.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2) "
     "SLURM_TASKS_PER_NODE=9 SLURM_JOB_ID=40000 SLURM_STEP_ID=1 SLURM_JOB_NODELIST=a,b "
     "MASTER_ADDR=x MASTER_PORT=77 PERILUNE_JOB_TOKEN=t",
     LAUNCH_SLURM, 1, 2, 0, 1, "x", 77, "t"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=1(x2) SLURM_JOB_ID=40000 "
     "SLURM_STEP_ID=1 SLURM_JOB_NODELIST=a,b",
     LAUNCH_SLURM, 1, 2, 0, 1, "a", 21009, "40000.1"},
    {"SLURM_PROCID=0 SLURM_NTASKS=1", LAUNCH_SLURM, 0, 1, 0, 1, "127.0.0.1", 29500, ""},
    /* an heterogeneous job: one list for all its parts (recorded from Slurm 22.05, as the next) */
    {"SLURM_JOB_ID=16 SLURM_JOB_NODELIST=node[1-2,5] SLURM_JOB_NODELIST_HET_GROUP_1=node[2,5] "
     "SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=4 SLURM_NTASKS_HET_GROUP_1=3 SLURM_PROCID=3 "
     "SLURM_STEP_ID=1 SLURM_STEP_NODELIST=node[1-2,5] SLURM_STEP_TASKS_PER_NODE=1,2,1",
     LAUNCH_SLURM, 3, 4, 0, 1, "node1", 21025, "16.1"},
    /* srun -N2 -n4 -r1 within a job of three nodes: the step's lists, not the job's */
    {"SLURM_JOB_ID=13 SLURM_JOB_NODELIST=node[1-2,5] SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NTASKS=4 "
     "SLURM_PROCID=3 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=node[2,5] SLURM_STEP_TASKS_PER_NODE=2(x2)",
     LAUNCH_SLURM, 3, 4, 1, 2, "node2", 22031, "13.2"},
    /* rank 0 anywhere among the hosts */
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_JOB_ID=12 SLURM_STEP_ID=0 "
     "SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NODELIST=node[1-2] SLURM_DISTRIBUTION=arbitrary "
     "MASTER_ADDR=node2",
     LAUNCH_SLURM, 0, 4, 0, 2, "node2", 20012, "12.0"},
    /* srun --mpi=pmi2 */
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=1(x2) SLURM_JOB_ID=1 "
     "SLURM_STEP_ID=0 SLURM_JOB_NODELIST=a,b PMI_RANK=1 PMI_SIZE=2",
     LAUNCH_SLURM, 1, 2, 0, 1, "a", 20001, "1.0"},
};

static void test_good(void) {
    check_begin("launch: what each launcher sets is understood");
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const Good *want = &good[i];
        Environment environment;
        LaunchEnvironment launch;
        Diag *diag = diag_create();
        environment_read(&environment, want->text);
        bool ok = launch_read(&launch, environment_find, &environment, diag);
        CHECK(ok, "%s: %s", want->text, diag_text(diag));
        CHECK(!ok || (launch.kind == want->kind && launch.rank == want->rank &&
                      launch.world == want->world && launch.local_rank == want->local_rank &&
                      launch.local_world == want->local_world),
              "%s: kind %d, rank %d of %d, here %d of %d", want->text, launch.kind, launch.rank,
              launch.world, launch.local_rank, launch.local_world);
        CHECK(strcmp(launch.master_host, want->master) == 0 && launch.port == want->port,
              "%s: %s:%d", want->text, launch.master_host, launch.port);
        CHECK(strcmp(launch.job, want->job) == 0, "%s: job '%s'", want->text, launch.job);
        CHECK(launch.host[0], "no host name");
        diag_destroy(diag);
    }
}

/* What kubeflow/pytorch-operator v1 sets (setClusterSpec in pod.go). */
static void test_first_pod(void) {
    static const char *const texts[] = {
        "RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=23456 "
        "KUBERNETES_SERVICE_HOST=10.0.0.1",
        "RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=23456"};
    check_begin("launch: rank 0 of a PyTorchJob listens for other pods, elsewhere not");
    for (int pod = 0; pod < 2; pod++) {
        Environment environment;
        LaunchEnvironment launch;
        Diag *diag = diag_create();
        environment_read(&environment, texts[pod]);
        CHECK(launch_read(&launch, environment_find, &environment, diag), "%s", diag_text(diag));
        const char *master = pod == 0 ? launch.host : "localhost";
        CHECK(strcmp(launch.master_host, master) == 0 && launch.port == 23456, "%s:%d",
              launch.master_host, launch.port);
        CHECK(launch.local_rank == 0 && launch.local_world == (pod == 0 ? 1 : 4), "%d of %d",
              launch.local_rank, launch.local_world);
        diag_destroy(diag);
    }
}

#define SRUN "SLURM_STEP_ID=0 SLURM_LOCALID=0 "
#define OMPI "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 "

/* Environment, and what the error must say, whole. */
static const char *const bad[][2] = {
    {"RANK=3", "WORLD_SIZE is not set, but RANK is '3'; set both or neither"},
    {"WORLD_SIZE=3", "RANK is not set, but WORLD_SIZE is '3'; set both or neither"},
    {"RANK=8 WORLD_SIZE=8", "RANK is '8', but WORLD_SIZE is '8': ranks go from 0 to 7"},
    {"RANK=-1 WORLD_SIZE=8", "RANK is '-1': not a whole number from 0 to 1048575"},
    {"RANK= WORLD_SIZE=8", "RANK is '': not a whole number from 0 to 1048575"},
    {"RANK=1~ WORLD_SIZE=8", "RANK is '1 ': not a whole number from 0 to 1048575"},
    {"RANK=0x1 WORLD_SIZE=8", "RANK is '0x1': not a whole number from 0 to 1048575"},
    {"RANK=1 WORLD_SIZE=0", "WORLD_SIZE is '0': not a whole number from 1 to 1048576"},
    {"RANK=1 WORLD_SIZE=99999999999999999999999",
     "WORLD_SIZE is '99999999999999999999999': not a whole number from 1 to 1048576"},
    {"RANK=^[31mx WORLD_SIZE=2", "RANK is '?[31mx': not a whole number from 0 to 1048575"},
    {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=1",
     "LOCAL_WORLD_SIZE is not set, but LOCAL_RANK is '1'; set both or neither"},
    {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
     "LOCAL_RANK is '2', but LOCAL_WORLD_SIZE is '2': it must be less"},
    {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=5",
     "LOCAL_WORLD_SIZE is '5', more than the job's 4 processes"},
    {"RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
     "MASTER_ADDR is not set, but WORLD_SIZE is '4' and only 2 of them run on this host; set it to "
     "the host of rank 0"},
    {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a/b", "MASTER_ADDR is 'a/b': not a host name or address"},
    {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=", "MASTER_ADDR is '': not a host name or address"},
    {"RANK=1 WORLD_SIZE=4 MASTER_PORT=0", "MASTER_PORT is '0': not a whole number from 1 to 65535"},
    {"RANK=1 WORLD_SIZE=4 MASTER_PORT=65536",
     "MASTER_PORT is '65536': not a whole number from 1 to 65535"},
    {"RANK=0 WORLD_SIZE=1 PERILUNE_JOB_TOKEN=",
     "PERILUNE_JOB_TOKEN is empty; use 1 to 191 characters"},

    {"OMPI_COMM_WORLD_RANK=1",
     "OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK is '1'; set both or neither"},
    {OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE is not set, but OMPI_COMM_WORLD_RANK is '1'; set both or "
           "neither"},
    {OMPI "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "MASTER_ADDR is not set, but OMPI_COMM_WORLD_SIZE is '4' and only 2 of them run on this host; "
     "use mpirun -x MASTER_ADDR=HOST with rank 0's host"},
    {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
     "MASTER_ADDR is not set, but PMI_SIZE is '4' and only 2 of them run on this host; use mpiexec "
     "-genv MASTER_ADDR HOST with rank 0's host"},
    {"PMI_RANK=1 PMI_SIZE=4 MASTER_ADDR=n1",
     "PMI_LOCAL_RANK is not set, but PMI_SIZE is '4': which process of its host this is cannot be "
     "told; set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE instead"},
    {"PMI_SIZE=4", "PMI_RANK is not set, but PMI_SIZE is '4'; set both or neither"},

    {"SLURM_PROCID=1", "SLURM_NTASKS is not set, but SLURM_PROCID is '1'; set both or neither"},
    {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0",
     "SLURM_NTASKS is '8', but SLURM_STEP_ID is not set: this process was not started by srun; use "
     "srun, or set RANK=0 WORLD_SIZE=1 to run alone"},
    /* the shell of salloc -n4 under LaunchParameters=use_interactive_step (Slurm 22.05) */
    {"SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967290 "
     "SLURM_STEP_NODELIST=node1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_TASKS_PER_NODE=3,1",
     "SLURM_NTASKS is '4', but SLURM_STEP_ID is 4294967290, salloc's own: this process was not "
     "started by srun; use srun, or set RANK=0 WORLD_SIZE=1 to run alone"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8",
     "SLURM_TASKS_PER_NODE is not set, but SLURM_NTASKS is '8'; start with srun"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=2(x3)",
     "SLURM_TASKS_PER_NODE is '2(x3)', 6 tasks, but SLURM_NTASKS is '8'"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=3(x2),2",
     "SLURM_TASKS_PER_NODE is '3(x2),2': its nodes have different numbers, and SLURM_NODEID is not "
     "set"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=3(x2),2 SLURM_NODEID=3",
     "SLURM_TASKS_PER_NODE is '3(x2),2': it has fewer nodes for SLURM_NODEID 3"},
    {"SLURM_STEP_ID=0 SLURM_LOCALID=4 SLURM_PROCID=4 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2)",
     "SLURM_LOCALID is '4', but SLURM_TASKS_PER_NODE is '4': it must be less"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2) SLURM_JOB_ID=4x",
     "SLURM_JOB_ID is '4x': not a number"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2)",
     "MASTER_ADDR is not set, but SLURM_NTASKS is '8' and only 4 of them run on this host; set it "
     "to the host of rank 0"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=2(x2) SLURM_STEP_NODELIST=n[1-2] "
          "SLURM_DISTRIBUTION=arbitrary",
     "SLURM_DISTRIBUTION is 'arbitrary': rank 0 need not be on the first host of the step; set "
     "MASTER_ADDR to the host of rank 0"},
    {SRUN "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=4(x2) SLURM_STEP_NODELIST=n[1-",
     "SLURM_STEP_NODELIST is 'n[1-': a bracket is not closed"},
};

static void test_bad(void) {
    check_begin("launch: what is malformed or contradicts itself is named with its value");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Environment environment;
        LaunchEnvironment launch;
        Diag *diag = diag_create();
        char want[512];
        environment_read(&environment, bad[i][0]);
        bool ok = launch_read(&launch, environment_find, &environment, diag);
        snprintf(want, sizeof want, "%s\n", bad[i][1]);
        CHECK(!ok, "%s was accepted", bad[i][0]);
        CHECK(strcmp(diag_text(diag), want) == 0, "%s: %s", bad[i][0], diag_text(diag));
        diag_destroy(diag);
    }
    check_begin("launch: values of any length are shown short");
    Environment environment = {.names = {"RANK", "WORLD_SIZE"}, .n = 2};
    LaunchEnvironment launch;
    Diag *diag = diag_create();
    char *value = malloc(100001);
    memset(value, '7', 100000);
    value[100000] = '\0';
    environment.values[0] = environment.values[1] = value;
    CHECK(!launch_read(&launch, environment_find, &environment, diag), "accepted");
    CHECK(strlen(diag_text(diag)) < 160, "%zu characters", strlen(diag_text(diag)));
    free(value);
    diag_destroy(diag);
}

static void test_describe(void) {
    check_begin("launch: the line for people");
    static const char *const texts[][2] = {
        {"", "one process on "},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1234",
         " (1 of 2 there), told by RANK and WORLD_SIZE; rank 0 at [::1]:1234"},
        {"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3",
         " (2 of 3 there), told by mpiexec (PMI); rank 0 at 127.0.0.1:29500"}};
    for (int i = 0; i < 3; i++) {
        Environment environment;
        LaunchEnvironment launch;
        Diag *diag = diag_create();
        StrBuf text = strbuf_create();
        environment_read(&environment, texts[i][0]);
        CHECK(launch_read(&launch, environment_find, &environment, diag), "%s", diag_text(diag));
        launch_describe(&launch, &text);
        CHECK(strstr(text.text, texts[i][1]), "%s", text.text);
        strbuf_destroy(&text);
        diag_destroy(diag);
    }
}

/* --- Slurm's lists --- */

static void test_nodelist(void) {
    static const struct {
        const char *list, *hosts; /* all, with a space behind each */
    } cases[] = {
        {"node003", "node003 "},
        {"node[003-007,012],gpu-a[1-2]-ib",
         "node003 node004 node005 node006 node007 node012 gpu-a1-ib gpu-a2-ib "},
        {"n[9-11]", "n9 n10 n11 "},
        {"n[099-101]", "n099 n100 n101 "},
        {"a,b.cluster,c_d", "a b.cluster c_d "},
        {"r[1-2]n[03,05]", "r1n03 r1n05 r2n03 r2n05 "},
        {"[1-2]", "1 2 "},
    };
    check_begin("nodelist: hosts in order, with their zeros");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        StrBuf all = strbuf_create();
        char host[64];
        const char *why = "";
        int64_t n = 1;
        for (int64_t at = 0; at < n; at++) {
            bool ok = nodelist_find_host(cases[i].list, at, host, sizeof host, &n, &why);
            CHECK(ok, "%s: %s", cases[i].list, why);
            if (!ok) break;
            strbuf_printf(&all, "%s ", host);
        }
        CHECK(strcmp(all.text, cases[i].hosts) == 0, "%s: %s", cases[i].list, all.text);
        CHECK(!nodelist_find_host(cases[i].list, n, host, sizeof host, &n, &why), "one too many");
        strbuf_destroy(&all);
    }
}

static void test_hostile_nodelist(void) {
    static const char *const lists[] = {
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n[1-]",
        "n[-1]",
        "n[1,]",
        "n[,1]",
        "n[2-1]",
        "n[1-2-3]",
        "n[a]",
        "n[[1]]",
        "n[1]]",
        "n 1",
        "n;rm",
        "n/../x",
        "n\x1b[2J",
        "n[1-9999999]",
        "n[0-99999999999999]",
        "n[1-2]x[",
        "a[1-1000]b[1-1000]c[1-1000]",
        "a[1]b[1]c[1]d[1]e[1]",
        "n[1 -2]",
    };
    char host[64];
    int64_t n;
    const char *why;
    check_begin("nodelist: malformed and hostile lists are refused");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        why = NULL;
        CHECK(!nodelist_find_host(lists[i], 0, host, sizeof host, &n, &why), "'%s'", lists[i]);
        CHECK(why && why[0], "'%s' without a reason", lists[i]);
    }
    /* All of a list is looked at, not only what is before the host. */
    CHECK(!nodelist_find_host("a,b[", 0, host, sizeof host, &n, &why), "a bad end was accepted");
    check_begin("nodelist: a name that does not fit is refused, one that just fits is not");
    char small[8];
    CHECK(nodelist_find_host("abcd[100]", 0, small, sizeof small, &n, &why), "%s", why);
    CHECK(strcmp(small, "abcd100") == 0, "%s", small);
    CHECK(!nodelist_find_host("abcde[100]", 0, small, sizeof small, &n, &why), "too long");
    CHECK(!nodelist_find_host("abcdefgh", 0, small, sizeof small, &n, &why), "too long");
    check_begin("nodelist: a million random lists neither crash nor lie about their length");
    uint32_t random = 5;
    for (int i = 0; i < 1000000; i++) {
        static const char letters[] = "a1[]-,0x(.)9";
        char list[24];
        int64_t tasks, total, n_hosts = 0;
        random = random * 1664525u + 1013904223u;
        size_t length = (random >> 8) % (sizeof list - 1);
        for (size_t j = 0; j < length; j++) {
            random = random * 1664525u + 1013904223u;
            list[j] = letters[(random >> 8) % (sizeof letters - 1)];
        }
        list[length] = '\0';
        if (nodelist_find_host(list, 0, host, sizeof host, &n_hosts, &why)) {
            int64_t again;
            CHECK(nodelist_find_host(list, n_hosts - 1, host, sizeof host, &again, &why), "%s",
                  list);
            CHECK(strpbrk(host, "[],x()") == NULL || strchr(host, 'x'), "'%s' gives %s", list,
                  host);
        }
        nodelist_count_tasks(list, 0, &tasks, &total, &why);
    }
}

static void test_tasks(void) {
    static const struct {
        const char *list;
        int node, tasks, total; /* tasks -1: refused */
    } cases[] = {{"2(x3),1", 0, 2, 7},
                 {"2(x3),1", 3, 1, 7},
                 {"2(x3),1", 4, -1, 0},
                 {"4", -1, 4, 4},
                 {"4(x2)", -1, 4, 8},
                 {"4,4", -1, 4, 8},
                 {"4,3", -1, -1, 0},
                 {"", 0, -1, 0},
                 {"4,", 0, -1, 0},
                 {"4(x0)", 0, -1, 0},
                 {"4(y2)", 0, -1, 0},
                 {"4(x2", 0, -1, 0},
                 {"-4", 0, -1, 0},
                 {"4(x2)5", 0, -1, 0},
                 {"999999999(x999999999)", 0, -1, 0},
                 {"4 ", 0, -1, 0},
                 {"1(x999999)", 0, 1, 999999}};
    check_begin("nodelist: tasks of nodes, good and bad");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t tasks = 0, total = 0;
        const char *why = NULL;
        bool ok = nodelist_count_tasks(cases[i].list, cases[i].node, &tasks, &total, &why);
        CHECK(ok == (cases[i].tasks >= 0), "'%s': %d", cases[i].list, ok);
        CHECK(ok || why, "'%s' without a reason", cases[i].list);
        CHECK(!ok || (tasks == cases[i].tasks && total == cases[i].total), "'%s': %lld of %lld",
              cases[i].list, (long long)tasks, (long long)total);
    }
}

int main(void) {
    test_good();
    test_first_pod();
    test_bad();
    test_describe();
    test_nodelist();
    test_hostile_nodelist();
    test_tasks();
    return check_report();
}
