/* perilune evaluate: weights and data -> loss, perplexity, bits per byte, and the share of
 * questions whose right answer is the likeliest, or is what it writes. */
#include "frontend/commands/choices_args.h"
#include "frontend/commands/engine_args.h"
#include "frontend/commands/evaluate_choices_tell.h"
#include "frontend/commands/evaluate_classes.h"
#include "frontend/commands/evaluate_embed.h"
#include "frontend/commands/evaluate_problems.h"
#include "frontend/commands/evaluate_rewards.h"
#include "frontend/commands/evaluate_store.h"
#include "frontend/commands/generate_chat.h"
#include "frontend/commands/generate_open.h"
#include "frontend/commands/generate_writer.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/teacher_args.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_alike.h"
#include "frontend/commands/train_data.h"
#include "frontend/progress_line.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct SourceResult {
    int64_t n_windows;
    double loss, n_labels, n_bytes; /* loss: summed; n_bytes 0: not known */
    double kl, n_compared;          /* from a teacher, summed, and over how many labels */
} SourceResult;

typedef struct Evaluation {
    CliArgs *args;
    Diag *diag;
    Plan *plan;
    EngineOptions options;
    Engine *engine;
    TrainData data;
    Tokenizer *tokenizer; /* of choices, where there are no data */
    ChoicesWay way;
    CorpusOptions chat; /* of choices that are answers */
    json_t *system;     /* what is said before them */
    SourceResult sources[BLEND_MOST_SOURCES];
    PairsResult
        pairs[BLEND_MOST_SOURCES]; /* in place of sources, where the plan learns from such */
    ClassEvaluation classes;       /* likewise, where it tells classes of texts */
    RewardEvaluation rewards;      /* likewise, where it tells how good answers are one by one */
    EmbedEvaluation embed;         /* in place of data, where it makes vectors of texts */
    ChoicesResult *choices;        /* [n_choices], as --choices */
    int n_choices;
    GenerateEngine caches;    /* that choices alone are scored by; no plan: there are none */
    int32_t *tokens, *labels; /* [global_batch, plan_row], [global_batch, seq] */
    float *logits;            /* of sequences that are computed together; NULL: not asked for yet */
    bool by_logits;           /* the plan's loss is not of labels alone */
    bool is_student, compares; /* it learns from a teacher, which is loaded */
    double seconds;
    int failure;
} Evaluation;

static const Tokenizer *tokenizer_of(const Evaluation *e) {
    return e->data.n_val ? e->data.text.tokenizer : e->tokenizer;
}

/* --- losses --- */

static double mean_loss(const SourceResult *r) {
    return r->loss / r->n_labels;
}

/* Windows first, first + step, ...; those from n_used on are the first one again. */
static bool read_windows(Evaluation *e, int source, int64_t first, int64_t step, int64_t n_used) {
    for (int64_t i = 0; i < train_data_batch(&e->data); i++) {
        if (!train_data_window(&e->data, source, i < n_used ? first + i * step : first, i,
                               e->tokens, e->labels, e->diag)) {
            return false;
        }
    }
    return true;
}

/* Times `share`: of what is looked at, or taken off again. */
static void add_up(Evaluation *e, double loss, double n_labels, const int32_t *labels, int64_t n,
                   double share, SourceResult *to) {
    if (n_labels == 0) return; /* the loss of nothing is none */
    to->loss += share * loss * n_labels;
    to->n_labels += share * n_labels;
    to->n_bytes += share * (double)train_text_count_bytes(&e->data.text, e->engine, labels, n);
}

static bool check_loss(Evaluation *e, double loss) {
    if (isfinite(loss)) return true;
    diag_error(e->diag, NO_LOC, "evaluate: the loss is not finite; wrong weights?");
    return false;
}

/* By the mean loss of the whole batch. */
static bool add_batch(Evaluation *e, SourceResult *to, double share) {
    const int64_t n = e->plan->seq * e->plan->global_batch;
    double loss, n_labels = (double)engine_count_labels(e->engine, e->labels);
    if (!train_data_give(&e->data, e->engine, false, e->diag) ||
        !engine_evaluate(e->engine, e->tokens, e->labels, &loss, e->diag)) {
        return false;
    }
    if (e->is_student) engine_evaluated(e->engine, "ce", &loss); /* without the teacher's */
    if (n_labels > 0 && !check_loss(e, loss)) return false;
    if (e->compares && n_labels > 0) {
        double kl;
        engine_evaluated(e->engine, "kl", &kl);
        to->kl += share * kl * n_labels;
        to->n_compared += share * n_labels;
    }
    add_up(e, loss, n_labels, e->labels, n, share, to);
    return true;
}

/* Of some windows, by their logits. */
static bool add_logits(Evaluation *e, int64_t n_windows, SourceResult *to) {
    const Plan *plan = e->plan;
    const int64_t at_once = engine_forward_batch(e->engine), seq = plan->seq, row = plan_row(plan);
    if (!e->logits) e->logits = malloc((size_t)(at_once * seq * plan->vocab) * sizeof(float));
    if (!e->logits) BUG("out of memory");
    for (int64_t first = 0; first < n_windows; first += at_once) {
        int64_t n = n_windows - first < at_once ? n_windows - first : at_once;
        const int32_t *labels = e->labels + first * seq;
        memmove(e->tokens, e->tokens + first * row, (size_t)(n * row) * sizeof(int32_t));
        if (!engine_logits(e->engine, e->tokens, e->logits, e->diag)) return false;
        double sum = 0, n_labels = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum, n_labels)
        for (int64_t t = 0; t < n * seq; t++) {
            if (!engine_counts_label(e->engine, labels[t]) || labels[t] < 0) continue;
            sum -= log_probability(e->logits + t * plan->vocab, plan->vocab, labels[t]);
            n_labels++;
        }
        if (!check_loss(e, sum)) return false;
        if (n_labels > 0) add_up(e, sum / n_labels, n_labels, labels, n * seq, 1, to);
    }
    return true;
}

/* A model's loss may have more in it than that of the labels: of its experts' balance, say. Seen
 * in a batch by comparing it with what logits say. */
static bool find_way(Evaluation *e, bool *out_by_logits) {
    const double MOST = 2e-5; /* what rounding leaves of two ways to compute one */
    SourceResult whole = {0}, labels = {0};
    *out_by_logits = false;
    if (e->options.control || e->data.n_val == 0) return true; /* a rank has some logits only */
    if (e->data.diffusion.hides) return true;                  /* labels have weights */
    if (!read_windows(e, 0, 0, 0, 1) || !add_batch(e, &whole, 1)) return false;
    if (whole.n_labels == 0) return true;
    Diag *outer = e->diag, *inner = diag_create(); /* a model need not have logits */
    e->diag = inner;
    bool has_logits = add_logits(e, 1, &labels) && labels.n_labels > 0;
    e->diag = outer;
    diag_destroy(inner);
    if (!has_logits) return true;
    double a = mean_loss(&whole), b = mean_loss(&labels);
    *out_by_logits = fabs(a - b) > MOST * fmax(1, fabs(b));
    return true;
}

/* The windows that do not fill a batch: of a batch of them and of one window's copies, without
 * these. */
static bool add_rest(Evaluation *e, int source, int64_t first, int64_t count, SourceResult *to) {
    double copies = (double)(e->plan->global_batch - count) / (double)e->plan->global_batch;
    if (count == 0) return true;
    return read_windows(e, source, first, 1, count) && add_batch(e, to, 1) &&
           read_windows(e, source, first, 0, 1) && add_batch(e, to, -copies);
}

/* By their loss, whole batches or what is left of one. */
static bool add_losses(Evaluation *e, int source, int64_t first, int64_t count, SourceResult *to) {
    if (count < e->plan->global_batch) return add_rest(e, source, first, count, to);
    return read_windows(e, source, first, 1, count) && add_batch(e, to, 1);
}

/* By their logits; how far they are from a teacher's the plan knows. */
static bool add_by_logits(Evaluation *e, int source, int64_t first, int64_t count,
                          SourceResult *to) {
    SourceResult aside = {0};
    if (e->compares && !add_losses(e, source, first, count, &aside)) return false;
    to->kl += aside.kl;
    to->n_compared += aside.n_compared;
    return read_windows(e, source, first, 1, count) &&
           train_images_give(&e->data.images, e->diag) && add_logits(e, count, to);
}

/* Each window once, or with as many shares of it hidden as are asked for. */
static bool evaluate_source(Evaluation *e, int source, ProgressLine *line) {
    SourceResult *to = &e->sources[source];
    TrainDiffusion *diffusion = &e->data.diffusion;
    const int64_t batch = e->plan->global_batch;
    to->n_windows = dataset_count_windows(e->data.val[source].data);
    const int64_t n_batches = (to->n_windows - 1) / batch + 1, n = n_batches * diffusion->n_draws;
    for (int64_t b = 0; b < n; b++) {
        const int64_t i = b % n_batches * batch;
        int64_t count = to->n_windows - i < batch ? to->n_windows - i : batch;
        diffusion->draw = (int)(b / n_batches);
        bool done = e->by_logits ? add_by_logits(e, source, i, count, to)
                                 : add_losses(e, source, i, count, to);
        if (!done) return false;
        if (line) progress_line_show(line, (int)(b + 1), (int)n, e->data.val[source].name);
    }
    to->loss /= diffusion->n_draws;
    to->n_labels /= diffusion->n_draws;
    to->n_bytes /= diffusion->n_draws;
    if (to->n_labels > 0.5) return true;
    diag_error(e->diag, (SourceLoc){e->data.val[source].path, 0}, "no label of it counts");
    return false;
}

/* --- pairs, and answers by themselves --- */

static bool evaluate_pairs(Evaluation *e, int source, ProgressLine *line) {
    const TrainPart *part = &e->data.val[source];
    PairScoring how = train_pairs_scoring(&e->data.pairs, e->engine, e->plan);
    how.line = line;
    how.all = dataset_count_windows(part->data);
    return train_pairs_evaluate(&how, part->data, part->scores, &e->pairs[source], e->diag);
}

/* What --reference-load's weights say, in place of the others for that while. */
static bool score_by_reference(Evaluation *e, ProgressLine *line) {
    EngineWeights *own = engine_keep_weights(e->engine, true, e->diag);
    bool good = own && engine_args_load_reference(e->args, e->engine, e->diag);
    for (int i = 0; good && i < e->data.n_val; i++) {
        TrainPart *part = &e->data.val[i];
        PairScoring how = train_pairs_scoring(&e->data.pairs, e->engine, e->plan);
        how.line = line;
        how.all = dataset_count_windows(part->data);
        part->scores = ARENA_ARRAY(e->args->arena, float, 2 * how.all);
        good = train_pairs_score(&how, part->data, part->scores, e->diag);
    }
    return engine_restore_weights(own, e->diag) && good;
}

static bool evaluate(Evaluation *e) {
    const bool says = e->options.rank == 0 && !cli_given(e->args, OPT_QUIET);
    const CliValue *questions = &e->args->values[OPT_CHOICES];
    ProgressLine line = progress_line_start("batches");
    const bool pairs = e->data.pairs.reads, classes = e->data.classes.reads;
    if (e->embed.embed.reads) {
        bool good = evaluate_embed(&e->embed, e->engine, says ? &line : NULL, e->diag);
        progress_line_end(&line);
        return good;
    }
    if (classes) {
        e->classes.engine = e->engine;
        e->classes.line = says ? &line : NULL;
        if (!evaluate_classes(&e->classes, e->tokens, e->labels, e->diag)) return false;
    }
    const bool single = e->data.pairs.single;
    if (single) {
        e->rewards.engine = e->engine;
        e->rewards.line = says ? &line : NULL;
        if (!evaluate_rewards(&e->rewards, e->diag)) return false;
    }
    if (!pairs && !classes && !find_way(e, &e->by_logits)) return false;
    if (cli_given(e->args, OPT_REFERENCE_LOAD) && !score_by_reference(e, says ? &line : NULL)) {
        return false;
    }
    for (int i = 0; i < e->data.n_val && !classes && !single; i++) {
        bool good = pairs ? evaluate_pairs(e, i, says ? &line : NULL)
                          : evaluate_source(e, i, says ? &line : NULL);
        if (!good) return false;
    }
    e->seconds = progress_line_end(&line);
    ChoicesModel model = {.engine = e->engine, .plan = e->plan};
    if (e->caches.plan) {
        model = (ChoicesModel){
            .caches = choice_caches_create(e->caches.decoder, e->args->arena),
            .plan = e->plan,
            .n_together = e->caches.n_texts,
            .crew = {e->options.control, e->options.rank, e->plan->mesh.size[MESH_T]}};
    }
    for (int i = 0; i < e->n_choices; i++) {
        line = progress_line_start("questions");
        bool good =
            evaluate_choices(&model, &e->way, questions->list[i], says ? progress_line_show : NULL,
                             &line, &e->choices[i], e->diag);
        progress_line_end(&line);
        if (!good) return false;
    }
    return true;
}

/* --- preparing --- */

/* What choices cannot be, and cannot be told. */
static const char *refuse_choices(const Evaluation *e) {
    const CliArgs *args = e->args;
    const bool chat = cli_given(args, OPT_CHAT), data = cli_given(args, OPT_DATA);
    if (chat && e->n_choices == 0) {
        return "--chat: is for --choices; chats of --data go through the template as they are";
    }
    if (!chat && cli_given(args, OPT_SYSTEM)) return "--system: is for --chat only";
    if (chat && !cli_given(args, OPT_TOKENIZER)) {
        return "--chat: needs --tokenizer FILE: chats are told apart by its tokens";
    }
    if (chat && cli_given(args, OPT_BOS)) return "--bos: a chat begins as its template says";
    if (chat || data) return NULL;
    if (cli_given(args, OPT_CHAT_TEMPLATE)) {
        return "--chat-template: is for --data, and for --choices with --chat";
    }
    return cli_given(args, OPT_CHAT_SET)
               ? "--chat-set: is for --data, and for --choices with --chat"
           : cli_given(args, OPT_EOT) ? "--eot: is for --data, and for --choices with --chat"
                                      : NULL;
}

static bool check_options(const Evaluation *e) {
    if (!cli_given(e->args, OPT_LOAD)) {
        diag_error(e->diag, NO_LOC, "evaluate: which weights? give --load FILE");
        return false;
    }
    if (!cli_given(e->args, OPT_DATA) && e->n_choices == 0) {
        diag_error(e->diag, NO_LOC, "evaluate: on what? give --data, --choices or --problems FILE");
        return false;
    }
    if (!evaluate_problems_check_absent(e->args, e->diag) ||
        !evaluate_store_options(e->args, e->diag)) {
        return false;
    }
    const char *why = refuse_choices(e);
    if (why) {
        diag_error(e->diag, NO_LOC, "evaluate: %s", why);
        return false;
    }
    static const CliOption OF_DATA[] = {
        OPT_PACK,        OPT_PACK_LONG,    OPT_SEPARATOR,    OPT_FIELD,          OPT_SPECIAL,
        OPT_TOKEN_BYTES, OPT_TEACHER_LOAD, OPT_QUERY_PREFIX, OPT_PASSAGE_PREFIX, OPT_IMAGES};
    if (cli_given(e->args, OPT_DATA)) return train_data_options(e->args, e->diag);
    for (size_t i = 0; i < sizeof(OF_DATA) / sizeof(OF_DATA[0]); i++) {
        if (!cli_given(e->args, OF_DATA[i])) continue;
        diag_error(e->diag, NO_LOC, "evaluate: --%s: is for --data, not for --choices",
                   CLI_OPTIONS[OF_DATA[i]].name);
        return false;
    }
    return true;
}

/* How often each window is looked at, where the plan learns by diffusion. */
static bool set_draws(Evaluation *e) {
    const bool hides = cli_given(e->args, OPT_DATA) && e->data.diffusion.hides;
    if (hides) e->data.diffusion.n_draws = (int)cli_int(e->args, OPT_DIFFUSION_SAMPLES, 1);
    if (hides || !cli_given(e->args, OPT_DIFFUSION_SAMPLES)) return true;
    diag_error(e->diag, NO_LOC,
               "evaluate: --diffusion-samples: is for --data of models that learn by diffusion "
               "(--set diffusion=)");
    return false;
}

/* What only classes of texts have, and what they cannot have. */
static bool check_classes(Evaluation *e) {
    const bool tells = cli_given(e->args, OPT_DATA) && e->data.classes.reads;
    const char *why = NULL;
    e->classes = (ClassEvaluation){
        .data = &e->data, .predicts = cli_given(e->args, OPT_PREDICTIONS) && !e->n_choices};
    e->data.classes.threshold = cli_real(e->args, OPT_THRESHOLD, 0.5);
    e->rewards = (RewardEvaluation){.data = &e->data};
    if (e->n_choices && cli_given(e->args, OPT_PREDICTIONS) && (tells || e->data.pairs.single)) {
        why = "--predictions: are of --data or of --choices: give one of both at a time";
    } else if (e->classes.predicts && !tells && !e->data.pairs.single) {
        why = "--predictions: are of classes of texts or of rewards, a plan with --set classes= or "
              "preference=reward and --data, or of --choices";
    } else if (cli_given(e->args, OPT_THRESHOLD) &&
               (!tells || e->data.classes.labels != CLASS_SETS)) {
        why = "--threshold: is of sets of classes, a plan with --set class_kind=sets, and --data";
    } else if (e->classes.predicts && cli_given(e->args, OPT_PACK)) {
        why = "--predictions: are in the order of the texts, which --pack changes";
    }
    const bool compares = cli_given(e->args, OPT_DATA) && e->data.pairs.asks_reference;
    if (!why && cli_given(e->args, OPT_REFERENCE_LOAD) && !compares) {
        why = "--reference-load: is of plans whose loss compares with a reference, as "
              "preference=dpo's and kto's, and of --data";
    }
    if (why) diag_error(e->diag, NO_LOC, "evaluate: %s", why);
    return !why;
}

/* Choices as answers: the template, and what the system says. */
static bool prepare_chat(Evaluation *e) {
    if (!cli_given(e->args, OPT_CHAT)) return true;
    if (!corpus_options_from_args(e->args, tokenizer_of(e), &e->chat, e->diag)) return false;
    if (!e->chat.chat) {
        diag_error(e->diag, NO_LOC, "evaluate: --chat: %s", e->chat.no_chat);
        return false;
    }
    e->chat.with_special = false; /* of --data's texts */
    e->way.texts.chat = &e->chat;
    e->way.texts.system = e->system = generate_chat_system(e->args);
    return true;
}

/* The plan, and how it runs: of choices alone one for decoding, where the model has one. */
static bool find_plan(Evaluation *e) {
    CliArgs *args = e->args;
    if (e->n_choices && !cli_given(args, OPT_DATA)) {
        const int n_texts = (int)cli_int(args, OPT_SIDE_BY_SIDE, WRITER_SIDE_BY_SIDE);
        e->failure = generate_engine_open(args, n_texts, &e->caches, e->diag);
        e->plan = e->caches.plan;
        e->options = e->caches.options;
        if (e->failure != EXIT_DONE) return false;
        if (e->caches.images) {
            diag_error(e->diag, e->caches.images->loc,
                       "--choices: the model sees images, which --data and --problems give alone");
            e->failure = EXIT_USAGE;
            return false;
        }
        if (!e->plan->context) {
            choices_args_note_rows(args, &e->options, &e->caches.obstacle);
            if (!choices_args_check_rows(args, e->diag)) {
                e->failure = EXIT_USAGE;
                return false;
            }
        }
        if (!e->plan->context) e->caches.plan = NULL;
        return true;
    }
    e->plan = plan_from_operand(args, e->diag);
    /* Of several processes: the others, before anything that one alone may lack. */
    if (e->plan) e->failure = engine_options_from_args(args, e->plan, &e->options, e->diag);
    return e->plan && e->failure == EXIT_DONE;
}

/* Of several processes: the same ones. */
static bool check_choices(const Evaluation *e) {
    const CliValue *files = &e->args->values[OPT_CHOICES];
    uint64_t digest = 0;
    for (int i = 0; i < e->n_choices; i++) {
        if (!evaluate_choices_check(e->plan, &e->way, files->list[i],
                                    e->options.control ? &digest : NULL, e->diag)) {
            return false;
        }
    }
    return e->n_choices == 0 || train_alike_texts(e->args, digest, &e->options, e->diag);
}

/* Takes the memory and loads the weights. */
static bool start(Evaluation *e) {
    if (e->caches.plan) return generate_engine_start(&e->caches, e->args, e->diag);
    e->engine = engine_create(e->plan, &e->options, e->diag);
    return e->engine &&
           teacher_args_load(e->args, e->engine, e->plan, false, &e->compares, e->diag) &&
           engine_args_load(e->args, e->engine, NULL, e->diag);
}

/* Texts of --data, of whatever kind the plan asks for. */
static bool open_data(Evaluation *e) {
    const CliArgs *args = e->args;
    const bool data = cli_given(args, OPT_DATA);
    TrainEmbed *embed = &e->embed.embed;
    const char *why = NULL;
    if (!train_embed_of(e->plan, plan_label_share(e->plan), embed, e->diag)) return false;
    if (!embed->reads && cli_given(args, OPT_VECTORS)) {
        why = "--vectors: are of plans that make them of texts (--set embedding=)";
    } else if (embed->reads && e->n_choices) {
        why = "--choices: the plan makes vectors of texts, and says no tokens";
    } else if (embed->reads && e->options.control) {
        why = "vectors of texts are computed by one process, with as many ranks as it likes";
    }
    if (why) {
        diag_error(e->diag, NO_LOC, "evaluate: %s", why);
        return false;
    }
    if (data && !embed->reads) return train_data_open_whole(args, e->plan, &e->data, e->diag);
    return tokenizer_from_args(args, e->plan->vocab, &e->tokenizer, e->diag) &&
           (!data || evaluate_embed_open(args, e->plan, e->tokenizer, &e->embed, e->diag));
}

static bool prepare(Evaluation *e) {
    CliArgs *args = e->args;
    e->n_choices = args->values[OPT_CHOICES].n_list;
    if (!check_options(e) || !choices_args_way(args, &e->way, e->diag) || !find_plan(e)) {
        return false;
    }
    e->failure = EXIT_USAGE;
    if (e->n_choices && !e->caches.plan &&
        (!choices_args_check_plan(args, e->plan, e->diag) ||
         !choices_args_check_job(args, &e->options, e->diag))) {
        return false;
    }
    bool good = open_data(e) && choices_args_texts(args, tokenizer_of(e), &e->way.texts, e->diag) &&
                prepare_chat(e) && check_choices(e);
    if (!good) return false;
    if (!check_classes(e) || !set_draws(e) ||
        !evaluate_store_check(args, e->plan, &e->data, e->options.control != NULL, e->diag)) {
        return false;
    }
    if (!train_alike_check(args, &e->data, &e->options, e->diag)) return false;
    if (e->options.rank == 0 && !cli_try_outputs(args, e->diag)) return false;
    if (!start(e)) return false;
    e->is_student =
        e->engine && (plan_count_teacher(e->plan) > 0 || plan_stored_words(e->plan) > 0);
    const bool reads_logits = e->data.classes.reads || cli_given(args, OPT_STORE_LOGITS);
    if (reads_logits && engine_logits_width(e->engine) == 0) {
        diag_error(e->diag, NO_LOC,
                   "evaluate: the plan never has all logits, as with --lanes; one without has");
        return false;
    }
    int64_t batch = e->plan->global_batch;
    e->tokens = ARENA_ARRAY(args->arena, int32_t, batch * plan_row(e->plan));
    e->labels = ARENA_ARRAY(args->arena, int32_t, batch * e->plan->seq);
    e->choices = ARENA_ARRAY(args->arena, ChoicesResult, e->n_choices + 1);
    return true;
}

/* --- what is told --- */

/* Of the template that choices are answers by; nothing where they are not. */
static const char *chat_name(const Evaluation *e) {
    return e->way.texts.chat ? e->way.texts.chat->chat->how->name : "";
}

/* All sources together, each label alike. */
static SourceResult all_sources(const Evaluation *e) {
    SourceResult all = {0};
    bool bytes_known = true;
    for (int i = 0; i < e->data.n_val; i++) {
        all.n_windows += e->sources[i].n_windows;
        all.loss += e->sources[i].loss;
        all.n_labels += e->sources[i].n_labels;
        all.n_bytes += e->sources[i].n_bytes;
        all.kl += e->sources[i].kl;
        all.n_compared += e->sources[i].n_compared;
        bytes_known &= e->sources[i].n_bytes > 0;
    }
    if (!bytes_known) all.n_bytes = 0;
    return all;
}

static double bits_per_byte(const SourceResult *r) {
    return r->loss / r->n_bytes / M_LN2;
}

/* `bound`: what losses are, or "". */
static void put_source(StrBuf *out, const char *name, const SourceResult *r, const char *bound) {
    strbuf_printf(out, "loss    %s%.4f a token, perplexity %s%.6g", bound, mean_loss(r), bound,
                  exp(mean_loss(r)));
    if (r->n_bytes > 0) strbuf_printf(out, ", %s%.4f bits per byte", bound, bits_per_byte(r));
    strbuf_printf(out, "; %s: %" PRId64 " windows, %.0f labels\n", name, r->n_windows, r->n_labels);
    if (r->n_compared > 0)
        strbuf_printf(out, "kl      %.4f a token from the teacher\n", r->kl / r->n_compared);
}

static void put_answers(StrBuf *out, const char *name, const PairsResult *r) {
    strbuf_printf(out,
                  "answers %" PRId64 " desirable, %" PRId64 " not; %s\n"
                  "        log-probability %.4f desirable, %.4f not, in the mean\n",
                  r->n_wanted, r->n_pairs - r->n_wanted, name, r->chosen, r->rejected);
    if (!r->compares) return;
    strbuf_printf(out,
                  "        %.2f %% on the right side of a divergence of %.4f from the reference\n"
                  "        log-probability beyond its %+.4f desirable, %+.4f not, in the mean\n",
                  100 * r->n_right / (double)r->n_pairs, r->divergence, r->chosen_gain,
                  r->rejected_gain);
}

static void put_pairs(StrBuf *out, const char *name, const PairsResult *r) {
    double n = (double)r->n_pairs;
    if (r->rewards) {
        strbuf_printf(out,
                      "pairs   %.2f %% of chosen answers have more reward; %s: %" PRId64 " pairs\n"
                      "        reward %.4f chosen, %.4f rejected, in the mean\n",
                      100 * r->n_likelier / n, name, r->n_pairs, r->chosen, r->rejected);
        return;
    }
    strbuf_printf(out,
                  "pairs   %.2f %% of chosen answers are the likelier, %.2f %% by the token; "
                  "%s: %" PRId64 " pairs\n"
                  "        log-probability %.4f chosen, %.4f rejected, in the mean\n",
                  100 * r->n_likelier / n, 100 * r->n_likelier_by_token / n, name, r->n_pairs,
                  r->chosen, r->rejected);
    if (!r->compares) return;
    strbuf_printf(out,
                  "        %.2f %% of chosen answers have gained more on the reference\n"
                  "        log-probability beyond its %+.4f chosen, %+.4f rejected, in the mean\n",
                  100 * r->n_right / n, r->chosen_gain, r->rejected_gain);
}

static void put_text(const Evaluation *e, StrBuf *out) {
    if (e->embed.embed.reads) evaluate_embed_put(&e->embed, out);
    const bool tokens = !e->data.pairs.reads && !e->data.classes.reads;
    const char *bound = e->data.diffusion.hides ? "at most " : "";
    for (int i = 0; i < e->data.n_val && !e->data.pairs.single; i++) {
        if (!e->data.pairs.reads) break;
        (e->data.pairs.unpaired ? put_answers : put_pairs)(out, e->data.val[i].name, &e->pairs[i]);
    }
    if (e->data.pairs.single) evaluate_rewards_put(&e->rewards, out);
    if (e->data.classes.reads) evaluate_classes_put(&e->classes, out);
    for (int i = 0; i < e->data.n_val && tokens; i++) {
        put_source(out, e->data.val[i].name, &e->sources[i], bound);
    }
    SourceResult all = all_sources(e);
    if (e->data.n_val > 1 && tokens) put_source(out, "all", &all, bound);
    if (e->data.n_val && e->seconds > 0 && tokens) {
        double n_tokens =
            (double)all.n_windows * (double)plan_row_tokens(e->plan) * e->data.diffusion.n_draws;
        strbuf_printf(out, "speed   %.0f tokens in %.1f s, %.0f tokens/s\n", n_tokens, e->seconds,
                      n_tokens / e->seconds);
    }
    for (int i = 0; i < e->n_choices; i++) {
        evaluate_choices_put(out, e->args->values[OPT_CHOICES].list[i], &e->way, &e->choices[i],
                             chat_name(e));
    }
}

static void put_json_source(StrBuf *out, const SourceResult *r) {
    strbuf_printf(out,
                  "\"windows\": %" PRId64 ", \"labels\": %.0f, \"loss\": %.9g, "
                  "\"perplexity\": %.9g",
                  r->n_windows, r->n_labels, mean_loss(r), exp(mean_loss(r)));
    if (r->n_bytes > 0) strbuf_printf(out, ", \"bits_per_byte\": %.9g", bits_per_byte(r));
    if (r->n_compared > 0) strbuf_printf(out, ", \"kl\": %.9g", r->kl / r->n_compared);
}

/* Of one source; a brace that is open is closed. */
static void put_json_pair(StrBuf *out, const PairsResult *r) {
    const double n = (double)r->n_pairs;
    if (r->unpaired) {
        strbuf_printf(out, ", \"answers\": %" PRId64 ", \"desirable\": %" PRId64, r->n_pairs,
                      r->n_wanted);
    } else {
        strbuf_printf(out, ", \"pairs\": %" PRId64 ", \"%s\": %.9g", r->n_pairs,
                      r->rewards ? "more_reward" : "likelier", r->n_likelier / n);
    }
    if (!r->unpaired && !r->rewards) {
        strbuf_printf(out, ", \"likelier_by_token\": %.9g", r->n_likelier_by_token / n);
    }
    strbuf_printf(out, ", \"chosen\": %.9g, \"rejected\": %.9g", r->chosen, r->rejected);
    if (r->compares) {
        strbuf_printf(out, ", \"right\": %.9g, \"chosen_gain\": %.9g, \"rejected_gain\": %.9g",
                      r->n_right / n, r->chosen_gain, r->rejected_gain);
        if (r->unpaired) strbuf_printf(out, ", \"divergence\": %.9g", r->divergence);
    }
    strbuf_put(out, "}");
}

static void put_json_pairs(StrBuf *out, const Evaluation *e) {
    strbuf_put(out, e->data.pairs.unpaired ? "\"answers\": [" : "\"pairs\": [");
    for (int i = 0; i < e->data.n_val; i++) {
        strbuf_put(out, i ? ", {\"path\": " : "{\"path\": ");
        json_put_text(out, e->data.val[i].path);
        put_json_pair(out, &e->pairs[i]);
    }
    strbuf_put(out, "]");
}

static void put_json(const Evaluation *e, StrBuf *out) {
    SourceResult all = all_sources(e);
    strbuf_put(out, "{");
    if (e->data.n_val && e->data.pairs.single) {
        evaluate_rewards_put_json(&e->rewards, out);
    } else if (e->embed.embed.reads) {
        evaluate_embed_put_json(&e->embed, out);
    } else if (e->data.n_val && e->data.pairs.reads) {
        put_json_pairs(out, e);
    } else if (e->data.n_val && e->data.classes.reads) {
        evaluate_classes_put_json(&e->classes, out);
    } else if (e->data.n_val) {
        put_json_source(out, &all);
        if (e->data.diffusion.hides) {
            strbuf_printf(out, ", \"bound\": true, \"diffusion_samples\": %d",
                          e->data.diffusion.n_draws);
        }
        strbuf_printf(out, ", \"seconds\": %.6g, \"sources\": [", e->seconds);
        for (int i = 0; i < e->data.n_val; i++) {
            strbuf_put(out, i ? ", {\"path\": " : "{\"path\": ");
            json_put_text(out, e->data.val[i].path);
            strbuf_put(out, ", ");
            put_json_source(out, &e->sources[i]);
            strbuf_put(out, "}");
        }
        strbuf_put(out, "]");
    }
    for (int i = 0; i < e->n_choices; i++) {
        strbuf_put(out, i ? ", " : e->data.n_val ? ", \"choices\": [" : "\"choices\": [");
        evaluate_choices_put_json(out, e->args->values[OPT_CHOICES].list[i], &e->way,
                                  &e->choices[i], chat_name(e));
    }
    strbuf_put(out, e->n_choices ? "]}\n" : "}\n");
}

/* What --predictions has; released by whose it is, but of choices. */
static const StrBuf *predictions_of(const Evaluation *e, StrBuf *of_choices) {
    for (int i = 0; i < e->n_choices; i++) {
        const StrBuf *lines = &e->choices[i].predictions;
        strbuf_put_bytes(of_choices, lines->text, lines->length);
    }
    return e->n_choices           ? of_choices
           : e->data.pairs.single ? &e->rewards.predictions
                                  : &e->classes.predictions;
}

static bool tell(const Evaluation *e) {
    if (e->options.rank > 0) return true; /* the first process talks */
    StrBuf out = strbuf_create(), of_choices = strbuf_create();
    const char *predictions = cli_text(e->args, OPT_PREDICTIONS, NULL);
    const char *path = cli_text(e->args, OPT_OUTPUT, "-");
    /* One thing at most goes to standard output: what was asked to. */
    const char *vectors = cli_text(e->args, OPT_VECTORS, "");
    const bool silent =
        ((predictions && strcmp(predictions, "-") == 0) || strcmp(vectors, "-") == 0) &&
        strcmp(path, "-") == 0;
    if (cli_given(e->args, OPT_JSON)) {
        put_json(e, &out);
    } else {
        put_text(e, &out);
    }
    bool written =
        (silent || cli_write(path, &out, e->diag)) &&
        (!e->embed.embed.reads || evaluate_embed_write(&e->embed, e->diag)) &&
        (!predictions || cli_write(predictions, predictions_of(e, &of_choices), e->diag));
    strbuf_destroy(&of_choices);
    strbuf_destroy(&out);
    return written;
}

int cmd_evaluate(CliArgs *args) {
    if (cli_given(args, OPT_PROBLEMS)) return evaluate_problems(args);
    Evaluation e = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&e)) {
        status = e.failure;
    } else if (cli_given(args, OPT_STORE_LOGITS)) {
        bool stored = evaluate_store(args, e.engine, &e.data, e.tokens, e.labels, e.diag);
        if (!stored) status = EXIT_FAILED;
    } else if (!evaluate(&e) || !tell(&e)) {
        status = EXIT_FAILED;
    }
    if (status == EXIT_FAILED || status == EXIT_USAGE) engine_args_explain(&e.options, e.diag);
    cli_fail(e.diag, status);
    engine_destroy(e.engine);
    engine_destroy(e.caches.engine);
    bool together = engine_args_release(&e.options, status == EXIT_DONE);
    free(e.logits);
    evaluate_classes_release(&e.classes);
    evaluate_rewards_release(&e.rewards);
    for (int i = 0; e.choices && i < e.n_choices; i++) evaluate_choices_release(&e.choices[i]);
    json_decref(e.system);
    tokenizer_destroy(e.tokenizer);
    evaluate_embed_release(&e.embed);
    train_data_close(&e.data);
    diag_destroy(e.diag);
    return together ? status : EXIT_FAILED;
}
