/* validate: predicted step times of runs that somebody measured, beside the measured ones. Internal
 * to frontend/validate/ and cmd_validate.c.
 *
 * table of runs (csv.h) -> Run, checked and completed (validate_rows.c; its model's shape:
 * validate_shape.c) -> its model, cluster and layout priced (validate_predict.c) -> errors by
 * family (validate_stats.c) -> text and JSON (validate_show.c), page and drawing (validate_html.c).
 * Everything belongs to one arena.
 */
#ifndef FRONTEND_VALIDATE_VALIDATE_H
#define FRONTEND_VALIDATE_VALIDATE_H

#include "frontend/lua/model.h"
#include "frontend/validate/csv.h"
#include "ir/base/strbuf.h"
#include "planner/search/search.h"

/* What a source counts as FLOPs. */
typedef enum FlopsConvention {
    STATES_NOTHING,
    STATES_MODEL,    /* forward and backward */
    STATES_HARDWARE, /* with what is recomputed */
    STATES_CAUSAL,   /* as MODEL, but half of attention: what a token may attend to */
} FlopsConvention;

/* Columns that a row may leave open; each is one bit of Run.assumed. */
typedef enum RunColumn {
#define COLUMN(upper, ...) COLUMN_##upper,
#include "frontend/validate/validate_columns.def"
#undef COLUMN
    N_RUN_COLUMNS
} RunColumn;
const char *run_column_name(RunColumn column);

enum { UNSTATED = -1 };

/* What is known of a family of runs or of a GPU: a row of published.def. */
typedef struct RunFacts {
    const char *family, *gpu; /* one of them is NULL, or both where nothing is known */
    const char *cluster, *software;
    FlopsConvention convention;
    int64_t vocab, recompute;
    const char *settings; /* "dropout=0.1,tied=false" */
} RunFacts;

/* What a model has that a GPT or Llama has not; UNSTATED where it has none. */
typedef struct LayerShape {
    int64_t head; /* hidden / heads, if it is not stated */
    /* Mixtures of experts: the first dense_layers have a SwiGLU of `ffn` instead. */
    int64_t experts, top_k, expert_ffn, shared_ffn, dense_layers;
    /* Latent attention (DeepSeek-V2, section 2.1): a head's queries and keys have nope + rope. */
    int64_t q_rank, kv_rank, nope, rope, value;
    int64_t mtp; /* one more block predicts the second next token */
} LayerShape;

/* What it is measured against, as given: UNSTATED (-1) or NULL for an empty field. */
typedef struct Run {
    int line;
    const char *id, *family, *source, *gpu, *cluster, *software, *flops, *precision;
    int64_t layers, hidden, heads, kv_heads, ffn, seq, vocab;
    LayerShape more;
    /* As Megatron-Core counts: ep x etp ranks of those that divide a stage's batch and weights have
     * all experts together; d counts all ranks that divide the batch, those of ep, too. */
    int64_t num_gpus, gpus_per_node, t, p, v, d, cp, ep, etp, micro_batch, global_batch;
    int64_t recompute, sequence_parallel, zero;
    const char *schedule;
    double seconds, tokens, tflops, peak_percent; /* tokens: a second and GPU */
    /* Completed: */
    const RunFacts *facts;
    uint64_t assumed;    /* bits of RunColumn: not stated */
    uint64_t overridden; /* stated, but taken otherwise */
    MathKind math;
    FlopsConvention convention;
    double measured_seconds; /* set with the prediction: it may need the device's peak */
    /* Predicted: */
    const char *used_cluster, *used_software;
    const char *skipped; /* NULL, or why there is no prediction */
    bool searched;       /* the best layout of those that the row leaves open */
    Candidate candidate;
    StepCost cost;
    double predicted_seconds, error; /* predicted / measured - 1 */
} Run;

/* Of one step, counted as `convention` says. */
double run_flops(const Run *run, FlopsConvention convention);
/* Which of the shipped models (models/NAME.lua) the run's is: deepseek with latent attention, moe
 * with experts, llama with grouped keys or three products in the MLP, else gpt. */
const char *run_model(const Run *run);
/* That model's settings; returns how many. */
enum { MAX_RUN_SETTINGS = 24 };
int run_model_settings(Arena *arena, const Run *run, ModelSetting out[MAX_RUN_SETTINGS]);
/* NULL, or what is wrong with the shape: a sentence in `arena`. */
const char *run_shape_problem(Arena *arena, const Run *run);
/* Perilune's e, whose d is the number of copies of an expert: with t, experts lie on t x e ranks.
 * 0: there is none; *out_why says so. */
int run_expert_degree(Arena *arena, const Run *run, const char **out_why);

typedef struct RunTable {
    const char *path;
    int n_runs;
    Run *runs;
} RunTable;

/* Are all columns there that are needed? For csv_read. */
bool validate_check_header(const CsvTable *header, Diag *diag);

/* Reads and checks every row of a table with such a header; `as_stated`: nothing is overridden.
 * False: reported with the line. */
bool validate_read(Arena *arena, const CsvTable *csv, bool as_stated, RunTable *out, Diag *diag);

/* Keeps the rows of `family`, or with FAMILY_single and FAMILY_multi those on one node or on
 * several. False: reported: there are none. */
bool validate_filter(RunTable *table, const char *family, Diag *diag);
bool run_in_family(const Run *run, const char *family);

typedef struct ValidateOptions {
    const char *cluster, *software, *model; /* NULL: by the row's own columns, family and shape */
    void (*progress)(void *user, int n_done, int n_all, const char *what);
    void *user;
} ValidateOptions;

/* Sets what is predicted of every run. False: reported, as when there is no such cluster or
 * software. */
bool validate_predict(Arena *arena, RunTable *table, const ValidateOptions *options, Diag *diag);

/* How many rows took the options' cluster, or their software (the same pointer; NULL: not asked).
 */
int validate_count_users(const RunTable *table, const char *cluster, const char *software);

/* Errors of the runs of a family, or of its part on one node or on several. */
typedef struct FamilyStats {
    const char *name;
    bool is_part;
    int n_rows, n_skipped;
    double mean_abs_error, max_abs_error, bias; /* fractions; of rows that were predicted */
    const Run *worst;
    int n_groups;  /* of rows that differ in the layout alone */
    double regret; /* mean over groups: measured time of the one predicted best / best - 1 */
} FamilyStats;

/* In the order of the rows, each family followed by its parts if it has both. */
FamilyStats *validate_stats(Arena *arena, const RunTable *table, int *out_count);

/* What all forms of the result take. */
typedef struct Validation {
    Arena *arena;
    const RunTable *table;
    const char *cluster, *software; /* as given by options; NULL: not given */
    int n_stats;
    const FamilyStats *stats;
    double elapsed_seconds;
} Validation;

void validate_show_text(StrBuf *out, const Validation *result);
/* False: reported. */
bool validate_show_json(StrBuf *out, const Validation *result, Diag *diag);
void validate_show_html(StrBuf *out, const Validation *result);
/* The scatter alone, a file of its own. */
void validate_show_svg(StrBuf *out, const Validation *result);

/* "full", "selective sp z1": what a layout has beside its degrees. */
enum { CHOICES_TEXT = 48 };
const char *run_choices(const Run *run, char text[CHOICES_TEXT]);
/* Rows that used --cluster and --software, where given: each a sentence with `end` behind it. */
void validate_put_users(StrBuf *out, const Validation *result, const char *end);
/* "not stated: vocab, zero_stage; not taken as stated: cp", or "" */
const char *run_assumed(Arena *arena, const Run *run);

#endif
