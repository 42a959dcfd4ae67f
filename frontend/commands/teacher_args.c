#include "frontend/commands/teacher_args.h"

#include "frontend/commands/plan_args.h"
#include "frontend/lua/teacher.h"
#include "ir/teacher.h"
#include "runtime/data/stored_logits.h"

#include <inttypes.h>
#include <string.h>

static bool check_kind(const Distillation *how, bool gives_beta, Diag *diag) {
    static const char *const KINDS[] = {"forward", "reverse", "jsd"};
    bool known = false;
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        known |= strcmp(how->kind, KINDS[i]) == 0;
    }
    if (!known) {
        diag_error(diag, NO_LOC, "--distill: '%s' is none of forward, reverse, jsd", how->kind);
    } else if (gives_beta && strcmp(how->kind, "jsd") != 0) {
        diag_error(diag, NO_LOC, "--distill-beta: is of --distill jsd, not of %s", how->kind);
        known = false;
    }
    return known;
}

/* What a file has of a teacher, and what cannot be made of it. */
static bool check_stored(const CliArgs *args, Distillation *how, Diag *diag) {
    const char *path = cli_text(args, OPT_TEACHER_LOGITS, NULL), *why = NULL;
    if (!path) return true;
    if (cli_given(args, OPT_TEACHER)) {
        why = "--teacher-logits: are a teacher's already; give this or --teacher";
    } else if (strcmp(how->kind, "forward") != 0) {
        why = "--distill: of --teacher-logits there is forward alone: others need all of a "
              "teacher's words";
    } else if (how->temperature != 1) {
        why = "--distill-temperature: --teacher-logits are probabilities of some words at "
              "temperature 1, of which no others can be made";
    } else if (cli_given(args, OPT_ON_POLICY)) {
        why =
            "--on-policy: needs --teacher MODEL.lua: nothing is stored of what is not written yet";
    }
    if (why) {
        diag_error(diag, NO_LOC, "%s", why);
        return false;
    }
    StoredLogits *stored = stored_logits_open(path, diag);
    if (!stored) return false;
    how->stored = stored_logits_shape(stored).n_words;
    how->stored_vocab = stored_logits_shape(stored).vocab;
    stored_logits_close(stored);
    return true;
}

bool teacher_args_check(const CliArgs *args, Distillation *out, Diag *diag) {
    static const CliOption HOW[] = {OPT_DISTILL,      OPT_DISTILL_ALPHA, OPT_DISTILL_TEMPERATURE,
                                    OPT_DISTILL_BETA, OPT_TEACHER_SET,   OPT_TEACHER_SET_FROM};
    /* Its own loss on what it wrote itself would make that likelier, whatever it is. */
    const double alpha = cli_given(args, OPT_ON_POLICY) ? 1 : 0.5;
    *out = (Distillation){.kind = cli_text(args, OPT_DISTILL, "forward"),
                          .alpha = cli_real(args, OPT_DISTILL_ALPHA, alpha),
                          .temperature = cli_real(args, OPT_DISTILL_TEMPERATURE, 1),
                          .beta = cli_real(args, OPT_DISTILL_BETA, 0.5)};
    for (size_t i = 0; i < sizeof(HOW) / sizeof(HOW[0]); i++) {
        if (!cli_given(args, HOW[i])) continue;
        out->is_given |= i < 4;
        if (cli_given(args, OPT_TEACHER)) continue;
        if (i < 4 && cli_given(args, OPT_TEACHER_LOGITS)) continue;
        diag_error(diag, NO_LOC, "--%s: from which model? give --teacher MODEL.lua",
                   CLI_OPTIONS[HOW[i]].name);
        return false;
    }
    return check_kind(out, cli_given(args, OPT_DISTILL_BETA), diag) &&
           check_stored(args, out, diag);
}

static void add(CliArgs *args, SettingList *list, const char *key, const char *value) {
    ModelSetting setting = {key, value};
    ARENA_PUSH(args->arena, list->items, list->count, list->capacity, setting);
}

/* What the two have alike unless it is said: how long sequences are, and what ends documents. */
static SettingList shared_settings(CliArgs *args, const Model *student) {
    SettingList list = {0};
    const Setting *documents = settings_find(&student->settings, "documents");
    add(args, &list, "seq", arena_printf(args->arena, "%" PRId64, student->seq));
    if (documents && documents->type == SETTING_INTEGER && documents->integer >= 0) {
        add(args, &list, "documents", setting_text(documents, args->arena));
    }
    return list;
}

static Model *load_teacher(CliArgs *args, Arena *arena, int64_t batch, const Model *student,
                           Diag *diag) {
    const char *path = cli_text(args, OPT_TEACHER, ""), *from;
    SettingList settings = {ARENA_ARRAY(args->arena, ModelSetting, 1), 0, 1};
    SettingList shared = shared_settings(args, student);
    const char *weights = cli_text(args, OPT_TEACHER_LOAD, NULL); /* they know, too */
    if (!plan_add_settings(args, OPT_TEACHER_SET, OPT_TEACHER_SET_FROM, weights, &shared, &settings,
                           &from, diag)) {
        return NULL;
    }
    Model *teacher = model_load(arena, path, settings.items, settings.count, batch, diag);
    if (teacher && !plan_check_settings(args, OPT_TEACHER_SET, teacher, diag)) return NULL;
    if (teacher && (!from || strcmp(from, teacher->name) == 0)) return teacher;
    if (!teacher) {
        diag_note(diag, NO_LOC, "of the teacher, --teacher %s%s%s%s", path,
                  from ? "; its settings are those of model '" : "", from ? from : "",
                  from ? "'" : "");
        return NULL;
    }
    diag_error(diag, NO_LOC, "--teacher %s: is model '%s'; the weights' settings are of model '%s'",
               path, teacher->name, from);
    return NULL;
}

/* In lines as settings are, so that plans that learn otherwise differ by them. */
static const char *with_distillation(const char *settings, const Distillation *how, Arena *arena) {
    if (how->stored) {
        return arena_printf(arena, "%sdistill.kind=stored\ndistill.alpha=%.10g\n", settings,
                            how->alpha);
    }
    return arena_printf(arena,
                        "%sdistill.kind=%s\ndistill.alpha=%.10g\ndistill.temperature=%.10g\n"
                        "distill.beta=%.10g\n",
                        settings, how->kind, how->alpha, how->temperature, how->beta);
}

bool teacher_args_join(CliArgs *args, Arena *arena, int64_t batch, Model *model,
                       const Distillation *how, const char **settings, Diag *diag) {
    const Node *asked = teacher_find_input(model->graph);
    if (how->stored) *settings = with_distillation(*settings, how, arena);
    const bool teaches = args->command->sections[0].groups & IN_TEACHING ||
                         args->command->sections[1].groups & IN_TEACHING;
    if (!asked || (!cli_given(args, OPT_TEACHER) && !teaches)) return true;
    if (!cli_given(args, OPT_TEACHER)) {
        diag_error(diag, asked->loc, "the loss reads a teacher's logits: give --teacher MODEL.lua");
        return false;
    }
    Model *teacher = load_teacher(args, arena, batch, model, diag);
    if (!teacher || !teacher_join(arena, model, teacher, diag)) return false;
    *settings = with_distillation(teacher_settings_text(model, teacher, arena), how, arena);
    return true;
}

bool teacher_args_load(const CliArgs *args, Engine *engine, const Plan *plan, bool needed,
                       bool *out_loaded, Diag *diag) {
    const char *path = cli_text(args, OPT_TEACHER_LOAD, NULL);
    const bool has = plan_count_teacher(plan) > 0;
    if (out_loaded) *out_loaded = path != NULL;
    if (path && !has) {
        diag_error(diag, NO_LOC,
                   "--teacher-load: the plan has no teacher: make it with --teacher MODEL.lua");
        return false;
    }
    if (!path && has && needed) {
        diag_error(diag, NO_LOC,
                   "the plan has a teacher: --teacher-load FILE says which weights "
                   "it has");
        return false;
    }
    return !path || engine_load_teacher(engine, path, diag);
}
