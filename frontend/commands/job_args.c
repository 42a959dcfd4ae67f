#include "frontend/commands/job_args.h"

#include "frontend/commands/plan_args.h"
#include "frontend/commands/search_args.h"
#include "frontend/commands/train_checkpoint.h"
#include "frontend/commands/train_data.h"
#include "frontend/lua/cluster_read.h"
#include "ir/base/utf8.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { NAME_CHARACTERS = 50, ONE_NODE_RANKS = 8 };

static void describe_word(StrBuf *out, const char *text) {
    strbuf_put(out, " ");
    job_put_word(out, text);
}

void job_args_describe(const CliArgs *args, StrBuf *out) {
    strbuf_printf(out, "perilune %s", args->command->name);
    describe_word(out, args->operand);
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliValue *value = &args->values[i];
        const char *option = arena_printf(args->arena, "--%s", CLI_OPTIONS[i].name);
        for (int k = 0; k < value->n_list; k++) {
            describe_word(out, option);
            describe_word(out, value->list[k]);
        }
        if (!value->given || value->n_list) continue;
        describe_word(out, option);
        if (CLI_OPTIONS[i].kind != KIND_FLAG) describe_word(out, value->text);
    }
    if (args->n_operands > 1) strbuf_put(out, " --");
    for (int i = 1; i < args->n_operands; i++) describe_word(out, args->operands[i]);
}

int job_args_parse_train(JobArgs *job) {
    CliArgs *args = job->args;
    job->train = (CliArgs){.arena = args->arena, .command = cli_find_command("train")};
    char **argv = ARENA_ARRAY(args->arena, char *, args->n_operands);
    for (int i = 0; i < args->n_operands; i++) {
        argv[i] = arena_strdup(args->arena, args->operands[i]);
    }
    int status = cli_parse(&job->train, args->n_operands, argv);
    if (status < 0) status = cli_check_files(&job->train);
    return status;
}

/* --- what the run is --- */

static bool check_train(const JobArgs *job, Diag *diag) {
    TrainCheckpoint checkpoint;
    if (!cli_given(&job->train, OPT_DATA)) {
        diag_error(diag, NO_LOC,
                   "job: what is the run to learn from? its own options follow --, as in -- --data "
                   "FILE --steps N");
        return false;
    }
    if (cli_given(&job->train, OPT_VIRTUAL_RANKS)) {
        diag_error(diag, NO_LOC, "job: --virtual-ranks: a job has a process for each rank");
        return false;
    }
    return train_data_options(&job->train, diag) &&
           train_checkpoint_options(&job->train, &checkpoint, diag);
}

static bool says_cpu(const CliArgs *train) {
    return strcmp(cli_text(train, OPT_DEVICE, ""), "cpu") == 0;
}

/* A run that searches has so many ranks as there are processes; on what, its cluster says. */
static bool read_cluster(JobArgs *job, int *out_per_node, Diag *diag) {
    const char *name = cli_text(&job->train, OPT_CLUSTER, NULL);
    const Cluster *cluster = name ? cluster_read(job->args->arena, name, NULL, diag) : NULL;
    if (!name) {
        diag_error(diag, NO_LOC,
                   "job: --ranks: the job's processes are its ranks: give --cluster NAME instead");
    } else if (cluster && cli_given(&job->train, OPT_RANKS)) {
        diag_error(diag, NO_LOC, "job: --ranks: the job's processes are its ranks: leave it out");
        return false;
    } else if (cluster && !cli_given(&job->train, OPT_GLOBAL_BATCH)) {
        diag_error(diag, NO_LOC,
                   "train: --global-batch: how many sequences a step? with --cluster "
                   "it must be given");
        return false;
    } else if (cluster) {
        *out_per_node = cluster->node.n_devices;
        job->spec.cuda = !cluster->is_cpu && !says_cpu(&job->train);
    }
    return cluster;
}

static bool read_plan(JobArgs *job, Diag *diag) {
    if (!(job->plan = plan_from_operand(&job->train, diag))) return false;
    const char *device = cli_text(&job->train, OPT_DEVICE, job->plan->cuda ? "cuda" : "cpu");
    job->spec.cuda = strcmp(device, "cuda") == 0;
    if (strcmp(device, "cuda") != 0 && strcmp(device, "cpu") != 0) {
        diag_error(diag, NO_LOC, "--device: '%s' is neither cpu nor cuda", device);
        return false;
    }
    job->spec.has_fingerprint = !plan_is_model(job->train.operand);
    job->spec.fingerprint = job->plan->fingerprint;
    return true;
}

/* --- on how many nodes --- */

/* Divisors of n_ranks, the largest first. */
static void put_divisors(StrBuf *out, int n_ranks, int most) {
    int n = 0;
    for (int k = most < n_ranks ? most : n_ranks; k >= 1 && n < 4; k--) {
        if (n_ranks % k == 0) strbuf_printf(out, "%s%d", n++ ? ", " : "", k);
    }
}

static bool refuse_uneven(int n_ranks, const char *option, int64_t value, int most, Diag *diag) {
    StrBuf would = strbuf_create();
    put_divisors(&would, n_ranks, most);
    diag_error(diag, NO_LOC,
               "job: --%s %lld: the plan's %d ranks are not as many on each node; --ranks-per-node "
               "%s would do",
               option, (long long)value, n_ranks, would.text);
    strbuf_destroy(&would);
    return false;
}

static bool find_nodes(JobArgs *job, int cluster_per_node, Diag *diag) {
    JobSpec *spec = &job->spec;
    int64_t nodes = cli_int(job->args, OPT_NODES, 0);
    int64_t per_node = cli_int(job->args, OPT_RANKS_PER_NODE, 0);
    if (!nodes && spec->hosts.count) nodes = spec->hosts.count;
    if (!job->plan) {
        if (!nodes) {
            diag_error(diag, NO_LOC,
                       "job: --nodes: on how many? the run's layout is not known yet");
            return false;
        }
        if (!per_node) per_node = cluster_per_node;
        spec->n_nodes = (int)nodes, spec->n_per_node = (int)per_node;
        if (nodes * per_node > 1 << 20) {
            diag_error(diag, NO_LOC, "job: %lld ranks are too many", (long long)(nodes * per_node));
            return false;
        }
        spec->n_ranks = (int)(nodes * per_node);
        return true;
    }
    const int n_ranks = mesh_rank_count(&job->plan->mesh);
    if (!per_node && !nodes) {
        const int most = spec->target == JOB_SHELL ? n_ranks
                         : cluster_per_node        ? cluster_per_node
                                                   : ONE_NODE_RANKS;
        per_node = n_ranks < most ? n_ranks : most;
        if (n_ranks > most && !cluster_per_node) {
            diag_error(diag, NO_LOC, "job: --nodes: on how many are the plan's %d ranks to be?",
                       n_ranks);
            return false;
        }
    }
    const bool by_nodes = nodes && !per_node;
    if (by_nodes ? n_ranks % nodes != 0 : n_ranks % per_node != 0) {
        return refuse_uneven(n_ranks, by_nodes ? "nodes" : "ranks-per-node",
                             by_nodes ? nodes : per_node, by_nodes ? INT_MAX : (int)per_node, diag);
    }
    if (by_nodes) per_node = n_ranks / nodes;
    if (!nodes) nodes = n_ranks / per_node;
    if (nodes * per_node != n_ranks) {
        diag_error(diag, NO_LOC, "job: %lld nodes of %lld ranks are %lld, and the plan has %d",
                   (long long)nodes, (long long)per_node, (long long)(nodes * per_node), n_ranks);
        return false;
    }
    spec->n_ranks = n_ranks, spec->n_nodes = (int)nodes, spec->n_per_node = (int)per_node;
    return true;
}

/* --- texts --- */

static bool check_plain(const CliArgs *args, CliOption option, const char **out, Diag *diag) {
    *out = cli_text(args, option, NULL);
    if (!*out || job_text_is_plain(*out)) return true;
    diag_error(diag, NO_LOC, "--%s: '%s' may have letters, digits and ._,+@:/=- alone",
               CLI_OPTIONS[option].name, *out);
    return false;
}

static bool split_hosts(JobArgs *job, Diag *diag) {
    const char *text = cli_text(job->args, OPT_HOSTS, NULL);
    JobTexts *hosts = &job->spec.hosts;
    int capacity = 0;
    while (text) {
        size_t length = strcspn(text, ",");
        const char *host = arena_strndup(job->args->arena, text, length);
        if (!job_text_is_plain(host) || strpbrk(host, "@:/=+")) {
            diag_error(diag, NO_LOC, "--hosts: '%s' is not a list of hosts, as in a,b",
                       cli_text(job->args, OPT_HOSTS, ""));
            return false;
        }
        ARENA_PUSH(job->args->arena, hosts->items, hosts->count, capacity, host);
        text = text[length] ? text + length + 1 : NULL;
    }
    return true;
}

/* NAME:PATH or /PATH:PATH. */
static bool check_volume(const JobSpec *spec, const char *text, Diag *diag) {
    const char *colon = strrchr(text, ':');
    bool fine = colon && colon > text && colon[1] == '/' && !strpbrk(text, ",\n\r");
    if (fine && text[0] != '/') {
        StrBuf claim = strbuf_create();
        strbuf_put_bytes(&claim, text, (size_t)(colon - text));
        fine = job_is_kubernetes(spec->target) && job_text_is_label(claim.text, 253);
        strbuf_destroy(&claim);
    }
    if (fine) return true;
    diag_error(diag, NO_LOC,
               "--volume: '%s' is not %s/FOLDER:/PATH: what of the %s is seen where in the "
               "container",
               text, job_is_kubernetes(spec->target) ? "CLAIM:/PATH or " : "",
               job_is_kubernetes(spec->target) ? "cluster" : "node");
    return false;
}

/* What goes with some launchers alone is not ignored with others. */
static bool check_targets(const JobArgs *job, Diag *diag) {
    static const struct {
        CliOption option;
        unsigned targets;
    } FOR[] = {
        {OPT_PARTITION, 1u << JOB_SLURM},
        {OPT_ACCOUNT, 1u << JOB_SLURM},
        {OPT_SHARED, 1u << JOB_SLURM},
        {OPT_IMAGE, 1u << JOB_SLURM | 1u << JOB_KUBERNETES | 1u << JOB_PYTORCHJOB},
        {OPT_VOLUME, 1u << JOB_SLURM | 1u << JOB_KUBERNETES | 1u << JOB_PYTORCHJOB},
        {OPT_HOST_MEMORY, 1u << JOB_SLURM | 1u << JOB_KUBERNETES | 1u << JOB_PYTORCHJOB},
        {OPT_TIME, 1u << JOB_SLURM | 1u << JOB_KUBERNETES | 1u << JOB_PYTORCHJOB},
        {OPT_HOSTS, 1u << JOB_MPI | 1u << JOB_TORCHRUN},
        {OPT_LAUNCHER_OPTION, 1u << JOB_SLURM | 1u << JOB_MPI | 1u << JOB_TORCHRUN},
    };
    const JobSpec *spec = &job->spec;
    for (size_t i = 0; i < sizeof(FOR) / sizeof(FOR[0]); i++) {
        CliOption option = FOR[i].option;
        bool given = cli_given(job->args, option);
        if (!given || FOR[i].targets >> spec->target & 1) continue;
        diag_error(diag, NO_LOC, "--%s: a script for %s has no such thing",
                   CLI_OPTIONS[option].name, job_target_name(spec->target));
        return false;
    }
    if (spec->target == JOB_SLURM && spec->volumes.count && !spec->image) {
        diag_error(diag, NO_LOC, "--volume: is of a container: give --image, too");
        return false;
    }
    if (job_is_kubernetes(spec->target) && !spec->image) {
        diag_error(diag, NO_LOC, "--image: which container has perilune in it?");
        return false;
    }
    if (spec->target == JOB_SHELL && spec->n_nodes > 1) {
        diag_error(diag, NO_LOC,
                   "job: --for shell is for one machine, and the plan is to be on %d: mpi is for "
                   "several",
                   spec->n_nodes);
        return false;
    }
    if (spec->hosts.count && spec->hosts.count != spec->n_nodes) {
        diag_error(diag, NO_LOC, "--hosts: names %d, and the job has %d node%s", spec->hosts.count,
                   spec->n_nodes, spec->n_nodes == 1 ? "" : "s");
        return false;
    }
    if (spec->target == JOB_MPI && spec->n_nodes > 1 && !spec->hosts.count) {
        diag_error(diag, NO_LOC, "job: --hosts: which are the %d nodes? as in a,b", spec->n_nodes);
        return false;
    }
    return true;
}

/* The plan's name without its folder and ending, as far as it can be one. */
static const char *default_name(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = arena_strdup(arena, slash ? slash + 1 : path), *dot = strrchr(name, '.');
    if (dot && dot > name) *dot = '\0';
    if (strlen(name) > NAME_CHARACTERS) name[NAME_CHARACTERS] = '\0';
    for (char *c = name; *c; c++) {
        *c = (char)tolower((unsigned char)*c);
        if (!((*c >= 'a' && *c <= 'z') || isdigit((unsigned char)*c))) *c = '-';
    }
    while (*name == '-') name++;
    for (size_t n = strlen(name); n > 0 && name[n - 1] == '-'; n--) name[n - 1] = '\0';
    return *name ? name : "perilune";
}

const char *job_args_own_program(Arena *arena) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    return n > 0 && n < (ssize_t)sizeof(path) ? arena_strndup(arena, path, (size_t)n) : "perilune";
}

static bool read_texts(JobArgs *job, Diag *diag) {
    CliArgs *args = job->args;
    JobSpec *spec = &job->spec;
    const CliValue *volumes = &args->values[OPT_VOLUME];
    const CliValue *options = &args->values[OPT_LAUNCHER_OPTION];
    if (!check_plain(args, OPT_PARTITION, &spec->partition, diag) ||
        !check_plain(args, OPT_ACCOUNT, &spec->account, diag)) {
        return false;
    }
    spec->image = cli_text(args, OPT_IMAGE, NULL);
    if (spec->image && (!*spec->image || strpbrk(spec->image, " \t\r\n"))) {
        diag_error(diag, NO_LOC, "--image: '%s' is not the name of one", spec->image);
        return false;
    }
    spec->volumes = (JobTexts){volumes->list, volumes->n_list};
    for (int i = 0; i < volumes->n_list; i++) {
        if (!check_volume(spec, volumes->list[i], diag)) return false;
    }
    spec->options = (JobTexts){options->list, options->n_list};
    for (int i = 0; i < options->n_list; i++) {
        if (job_text_is_option(options->list[i])) continue;
        diag_error(diag, NO_LOC,
                   "--launcher-option: '%s' is not an option, --NAME=VALUE, without quotes, $, # "
                   "and \\",
                   options->list[i]);
        return false;
    }
    spec->name = cli_text(args, OPT_JOB_NAME, NULL);
    if (!spec->name) spec->name = default_name(args->arena, args->operand);
    if (!job_text_is_label(spec->name, NAME_CHARACTERS)) {
        diag_error(diag, NO_LOC,
                   "--name: '%s' is not 1 to %d lower case letters, digits and -, which it begins "
                   "and ends without",
                   spec->name, NAME_CHARACTERS);
        return false;
    }
    spec->program =
        cli_text(args, OPT_PROGRAM, spec->image ? "perilune" : job_args_own_program(args->arena));
    spec->plan = cli_text(args, OPT_PLAN_AT, args->operand);
    spec->directory = cli_text(args, OPT_CHDIR, NULL);
    return true;
}

/* --- what train is given --- */

static bool add_arguments(JobArgs *job, Diag *diag) {
    CliArgs *args = job->args;
    JobTexts *list = &job->spec.arguments;
    int capacity = 0;
    for (int i = 1; i < args->n_operands; i++) {
        ARENA_PUSH(args->arena, list->items, list->count, capacity, args->operands[i]);
    }
    job->checkpoint = cli_text(&job->train, OPT_CHECKPOINT, NULL);
    job->spec.goes_on = job->checkpoint;
    const char *resume = cli_text(&job->train, OPT_RESUME, NULL);
    if (job->checkpoint && resume && strcmp(resume, job->checkpoint) != 0) {
        diag_error(diag, NO_LOC,
                   "job: --resume: a job that is started again goes on from its --checkpoint: copy "
                   "%s to %s, and leave out --resume",
                   resume, job->checkpoint);
        return false;
    }
    if (job->checkpoint && !resume && !cli_given(&job->train, OPT_CONTINUE)) {
        ARENA_PUSH(args->arena, list->items, list->count, capacity, "--continue");
    }
    if (job->spec.cpus && !cli_given(&job->train, OPT_THREADS)) {
        ARENA_PUSH(args->arena, list->items, list->count, capacity, "--threads");
        const char *count = arena_printf(args->arena, "%d", job->spec.cpus);
        ARENA_PUSH(args->arena, list->items, list->count, capacity, count);
    }
    if (job->spec.restarts && !job->checkpoint) {
        diag_error(diag, NO_LOC, "--restarts: from what? give --checkpoint FILE behind --");
        return false;
    }
    return true;
}

static bool is_utf8(const char *text, Diag *diag) {
    if (!text || utf8_valid_bytes((const unsigned char *)text, strlen(text)) == strlen(text)) {
        return true;
    }
    StrBuf shown = strbuf_create();
    job_put_comment(&shown, text);
    diag_error(diag, NO_LOC, "job: '%s' is not UTF-8, as YAML must be", shown.text);
    strbuf_destroy(&shown);
    return false;
}

static bool check_utf8(const JobSpec *spec, Diag *diag) {
    const JobTexts lists[] = {spec->arguments, spec->volumes};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < lists[k].count; i++) {
            if (!is_utf8(lists[k].items[i], diag)) return false;
        }
    }
    return is_utf8(spec->program, diag) && is_utf8(spec->plan, diag) &&
           is_utf8(spec->directory, diag) && is_utf8(spec->image, diag);
}

bool job_args_read(JobArgs *job, Diag *diag) {
    CliArgs *args = job->args;
    JobSpec *spec = &job->spec;
    const char *target = cli_text(args, OPT_FOR, NULL), *time = cli_text(args, OPT_TIME, NULL);
    int per_node = 0;
    if (!target || !job_target_find(target, &spec->target)) {
        diag_error(diag, NO_LOC, "--for: %s%s%s " JOB_TARGET_NAMES, target ? "'" : "",
                   target ? target : "which launcher?", target ? "' is none of" : "");
        return false;
    }
    if (time && !job_time_parse(time, &spec->time_s)) {
        diag_error(diag, NO_LOC, "--time: '%s' is not a time, as 12:00:00 or 2-12:00:00", time);
        return false;
    }
    spec->cpus = (int)cli_int(args, OPT_CPUS, 0);
    spec->restarts = (int)cli_int(args, OPT_RESTARTS, 0);
    spec->shared = cli_given(args, OPT_SHARED);
    if (!read_texts(job, diag) || !check_train(job, diag) || !split_hosts(job, diag)) return false;
    const char *cluster_name = cli_text(args, OPT_CLUSTER, NULL);
    if (cluster_name) {
        const Cluster *cluster = cluster_read(args->arena, cluster_name, NULL, diag);
        if (!cluster) return false;
        per_node = cluster->node.n_devices;
    }
    const bool searches = plan_is_model(job->train.operand) && search_is_wanted(&job->train);
    spec->ranks_may_leave = searches;
    if (!(searches ? read_cluster(job, &per_node, diag) : read_plan(job, diag))) return false;
    if (!find_nodes(job, per_node, diag) || !check_targets(job, diag)) return false;
    return add_arguments(job, diag) && (!job_is_kubernetes(spec->target) || check_utf8(spec, diag));
}
