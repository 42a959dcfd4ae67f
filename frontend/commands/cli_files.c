/* Outputs, found out about before anything is read or written: what a command reads, it must not
 * write over; one thing at most goes to standard output; the rest can be opened. */
#include "frontend/commands/cli.h"
#include "frontend/lua/cluster_read.h"
#include "ir/base/file.h"
#include "runtime/data/token_index.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/chat_template.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file by device and number, so that other names of it are known; one that is not there yet by
 * its folder's and its name. */
typedef struct FileId {
    dev_t device;
    ino_t number;
    const char *name; /* "" for a file that exists */
} FileId;

/* One file of the command line, or a folder that is read, and how to speak of it. */
typedef struct GivenFile {
    FileId id, folder;         /* folder: that it lies in */
    const char *path, *option; /* option NULL: an operand */
    bool written;
} GivenFile;

/* Two options may be given several times, of data with masks; all tokens may have an index. */
enum { MAX_FILES = 2 * MAX_OPERANDS + N_OPTIONS + 1 + 6 * CLI_MOST_READS + CLI_MOST_CLUSTERS };

typedef struct GivenFiles {
    GivenFile items[MAX_FILES];
    int count;
} GivenFiles;

/* False: there is no such file, and no folder for it either. */
static bool identify(Arena *arena, GivenFile *file) {
    struct stat st, folder;
    const char *path = file->path, *slash = strrchr(path, '/');
    const char *in = slash ? arena_strndup(arena, path, (size_t)(slash + 1 - path)) : ".";
    bool is_there = stat(path, &st) == 0;
    if (stat(in, &folder) != 0) return false;
    file->folder = (FileId){folder.st_dev, folder.st_ino, ""};
    file->id = is_there ? (FileId){st.st_dev, st.st_ino, ""}
                        : (FileId){folder.st_dev, folder.st_ino, slash ? slash + 1 : path};
    return true;
}

static void add_file(GivenFiles *files, Arena *arena, const char *path, const char *option,
                     bool written) {
    GivenFile file = {.path = path, .option = option, .written = written};
    if (identify(arena, &file)) files->items[files->count++] = file;
}

/* Of Megatron-LM's tokens and their index both are read, whichever is given. */
static void add_read(GivenFiles *files, Arena *arena, const char *path, const char *option) {
    add_file(files, arena, path, option, false);
    const bool is_name = token_index_is_name(path);
    if (!is_name && !token_index_is_beside(path)) return;
    char *other = token_index_other_name(path);
    if (!is_name || token_index_is_beside(other)) {
        add_file(files, arena, arena_strdup(arena, other), option, false);
    }
    free(other);
}

/* The mask that goes with the tokens that are written; NULL: none are. */
static const char *written_mask(const CliArgs *args) {
    const char *path = cli_text(args, OPT_OUTPUT, "-");
    bool encodes = args->command->run == cmd_tokenizer && args->n_operands > 0 &&
                   strcmp(args->operands[0], "encode") == 0;
    return encodes && strcmp(path, "-") != 0 ? token_mask_name(args->arena, path) : NULL;
}

/* --cluster has several in perilune rent. */
static void add_clusters(GivenFiles *files, const CliArgs *args) {
    const char *text = cli_text(args, OPT_CLUSTER, NULL);
    for (int n = 0; text && n < CLI_MOST_CLUSTERS; n++) {
        const char *name = cli_next_cluster(args, &text);
        if (!cluster_is_path(name)) continue;
        add_file(files, args->arena, name, CLI_OPTIONS[OPT_CLUSTER].name, false);
    }
}

/* All that are given; "-" is standard output. */
static void list_files(GivenFiles *files, const CliArgs *args) {
    bool has_verb = args->command->run == cmd_tokenizer;
    const char *mask = written_mask(args);
    if (mask) add_file(files, args->arena, mask, CLI_OPTIONS[OPT_OUTPUT].name, true);
    for (int i = has_verb; i < args->n_operands; i++) {
        add_read(files, args->arena, args->operands[i], NULL);
    }
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliOptionInfo *info = &CLI_OPTIONS[i];
        const CliValue *value = &args->values[i];
        for (int k = 0; info->kind == KIND_READS && k < value->n_list; k++) {
            add_read(files, args->arena, value->list[k], info->name);
            mask = token_mask_name(args->arena, value->list[k]);
            if (access(mask, F_OK) == 0) add_file(files, args->arena, mask, info->name, false);
        }
        if (!value->given || (info->kind != KIND_READ && info->kind != KIND_WRITE)) continue;
        if (i == OPT_CLUSTER) {
            add_clusters(files, args);
            continue;
        }
        if (i == OPT_CHAT_TEMPLATE && !chat_template_is_path(value->text)) continue;
        if (info->kind == KIND_WRITE && strcmp(value->text, "-") == 0) continue;
        add_file(files, args->arena, value->text, info->name, info->kind == KIND_WRITE);
    }
}

static bool is_same(const FileId *a, const FileId *b) {
    return a->device == b->device && a->number == b->number && strcmp(a->name, b->name) == 0;
}

/* Whether a file is one of a folder's by whatever name. */
static bool folder_has(Arena *arena, const char *path, const FileId *file) {
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        struct stat st;
        const char *name = arena_printf(arena, "%s/%s", path, entry->d_name);
        found = stat(name, &st) == 0 && S_ISREG(st.st_mode) && !file->name[0] &&
                st.st_dev == file->device && st.st_ino == file->number;
    }
    if (folder) closedir(folder);
    return found;
}

/* What is read whole before it is written, and is meant to move on. */
static bool may_replace(const CliArgs *args, const GivenFile *read, const GivenFile *written) {
    static const CliOption PAIRS[][2] = {
        {OPT_LOAD, OPT_SAVE}, {OPT_LOAD_TRAINED, OPT_SAVE_TRAINED}, {OPT_RESUME, OPT_CHECKPOINT}};
    if (args->command->run == cmd_tune) return !read->option;
    for (int i = 0; read->option && i < 3; i++) {
        if (strcmp(read->option, CLI_OPTIONS[PAIRS[i][0]].name) == 0 &&
            strcmp(written->option, CLI_OPTIONS[PAIRS[i][1]].name) == 0) {
            return true;
        }
    }
    return false;
}

/* -1, or the exit code: two of them are the same, and one is written. */
static int check_distinct(const CliArgs *args, const GivenFiles *files) {
    for (int i = 0; i < files->count; i++) {
        for (int k = 0; k < files->count; k++) {
            const GivenFile *a = &files->items[i], *b = &files->items[k];
            if (i == k || !b->written) continue;
            bool reads_folder = a->option || args->command->run == cmd_import ||
                                args->command->run == cmd_tokenizer;
            if (reads_folder && !a->written &&
                (is_same(&a->id, &b->folder) || folder_has(args->arena, a->path, &b->id))) {
                return cli_usage_error("--%s %s: is in the folder that %s%s reads", b->option,
                                       b->path, a->option ? "--" : "",
                                       a->option ? a->option : args->command->name);
            }
            if (!is_same(&a->id, &b->id)) continue;
            if (a->written) {
                return cli_usage_error("--%s and --%s would write the same file, %s", a->option,
                                       b->option, b->path);
            }
            if (may_replace(args, a, b)) continue;
            return cli_usage_error("--%s %s: would replace what %s%s reads", b->option, b->path,
                                   a->option ? "--" : "",
                                   a->option ? a->option : args->command->name);
        }
    }
    return -1;
}

static bool is_output(const CliArgs *args, int option) {
    return cli_given(args, (CliOption)option) && CLI_OPTIONS[option].kind == KIND_WRITE;
}

/* What `option` makes is printed: "-" says so, and --json of a command whose -o is something else
 * or is not there. */
static bool is_printed(const CliArgs *args, int option) {
    bool shows = args->command->run == cmd_show || args->command->run == cmd_compare ||
                 args->command->run == cmd_tokenizer;
    if (option == OPT_JSON) return cli_given(args, OPT_JSON) && !shows;
    return is_output(args, option) && strcmp(args->values[option].text, "-") == 0;
}

static int check_printed(const CliArgs *args) {
    int first = -1;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (is_output(args, i) && !*args->values[i].text) {
            return cli_usage_error("--%s: no file has an empty name", CLI_OPTIONS[i].name);
        }
        if (!is_printed(args, i)) continue;
        if (args->command->run == cmd_train || args->command->run == cmd_import) {
            return cli_usage_error("%s: --%s: takes a %s, not standard output", args->command->name,
                                   CLI_OPTIONS[i].name, i == OPT_TENSORBOARD ? "folder" : "file");
        }
        if (first >= 0) {
            return cli_usage_error("--%s and --%s would both be written to standard output",
                                   CLI_OPTIONS[first].name, CLI_OPTIONS[i].name);
        }
        first = i;
    }
    return -1;
}

bool cli_try_path(const char *path, Diag *diag) {
    if (!path || strcmp(path, "-") == 0) return true;
    FileWriter *writer = file_writer_open(path, diag);
    if (writer) file_writer_abandon(writer);
    return writer != NULL;
}

bool cli_try_outputs(const CliArgs *args, Diag *diag) {
    for (int i = 0; i < N_OPTIONS; i++) {
        /* Those are written in place, and opened before the first step. */
        bool whole = i != OPT_LOG && i != OPT_ANSWERS_LOG && i != OPT_TENSORBOARD;
        if (is_output(args, i) && whole && !cli_try_path(args->values[i].text, diag)) return false;
    }
    return true;
}

/* Of several processes only the first writes; which it is, train and generate know later. Those of
 * a sweep's runs are names in folders that are not there yet. */
static int check_opening(const CliArgs *args) {
    int status = -1;
    if (args->command->run == cmd_train || args->command->run == cmd_generate ||
        args->command->run == cmd_sweep) {
        return -1;
    }
    Diag *diag = diag_create();
    if (!cli_try_outputs(args, diag) || !cli_try_path(written_mask(args), diag)) {
        status = cli_fail(diag, EXIT_USAGE);
    }
    diag_destroy(diag);
    return status;
}

int cli_check_files(const CliArgs *args) {
    GivenFiles files = {.count = 0};
    list_files(&files, args);
    int status = check_distinct(args, &files);
    if (status < 0) status = check_printed(args);
    if (status < 0) status = check_opening(args);
    for (int i = 0; i < files.count; i++) {
        if (!files.items[i].written) continue;
        sandbox_protect_output(files.items[i].path, files.items[i].option);
    }
    return status;
}
