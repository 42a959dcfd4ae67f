#include "frontend/commands/train_images.h"

#include "frontend/progress_line.h"
#include "ir/base/clock.h"
#include "ir/op.h"
#include "runtime/data/dataset.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { MOST_READERS = 8 }; /* threads that read images ahead */

/* One image, with what is around it, and a token to be said of it. */
static bool check_room(const TrainImages *images, Diag *diag) {
    const ImageRule *rule = &images->rule;
    const Plan *plan = images->plan;
    const TokenList *tokens = image_texts_of(images->texts, (ImageGrid){0, 0}, diag);
    if (!tokens) return false;
    const int64_t around = (int64_t)tokens->count - rule->tokens;
    const int64_t needed = (int64_t)tokens->count + 1;
    if (plan->seq >= needed) return true;
    diag_error(diag, plan_label_share(plan)->loc,
               "an image is %" PRId64 " tokens and %" PRId64 " around them, and rows have %" PRId64
               ": plan with --set seq=%" PRId64 " or more",
               rule->tokens, around, plan->seq, needed);
    return false;
}

bool train_images_of(const CliArgs *args, const Plan *plan, const Node *share, TrainImages *out,
                     Diag *diag) {
    const char *folder = cli_text(args, OPT_IMAGES, NULL);
    ImageRule rule;
    *out = (TrainImages){0};
    if (!plan_images(plan, share, &rule, diag)) return false;
    if (rule.images == 0) {
        if (folder) diag_error(diag, NO_LOC, "--images: the plan's model sees no images");
        return !folder;
    }
    *out = (TrainImages){.reads = true,
                         .plan = plan,
                         .rule = rule,
                         .store = image_store_create(folder),
                         .window = plan->seq + rule.images};
    out->tokens = ARENA_ARRAY(args->arena, int32_t, out->window);
    out->labels = ARENA_ARRAY(args->arena, int32_t, out->window);
    out->wanted = ARENA_ARRAY(args->arena, ImageWanted, plan->global_batch * rule.images);
    out->expected = ARENA_ARRAY(args->arena, ImageWanted, plan->global_batch * rule.images);
    return true;
}

void train_images_release(TrainImages *images) {
    image_ahead_destroy(images->ahead);
    images->ahead = NULL;
    image_store_destroy(images->store);
    image_texts_destroy(images->texts);
    images->store = NULL;
    images->texts = NULL;
}

bool train_images_refuse(const Plan *plan, const char *what, Diag *diag) {
    if (plan_pixels(plan) == 0) return false;
    diag_error(diag, NO_LOC, "%s: the model sees images, which --data and --problems give alone",
               what);
    return true;
}

/* --- data --- */

bool train_images_check_options(const TrainImages *images, const CliArgs *args, const char *path,
                                bool plain, Diag *diag) {
    const char *why = NULL;
    if (!images->reads) return true;
    if (plain) {
        why = "the plan's model sees images: lines of .jsonl name them, which --tokenizer FILE "
              "takes apart";
    } else if (cli_given(args, OPT_SEPARATOR)) {
        why = "--separator: texts with images are lines of .jsonl";
    } else if (cli_given(args, OPT_PACK)) {
        why = "--pack: texts with images are not packed: each has its row";
    }
    if (why) diag_error(diag, (SourceLoc){path, 0}, "%s", why);
    return !why;
}

void train_images_options(TrainImages *images, const CliArgs *args, const Tokenizer *tokenizer,
                          CorpusOptions *options) {
    if (!images->reads) return;
    if (!images->texts) {
        images->texts = image_texts_create(&images->rule, tokenizer, images->plan->vocab);
    }
    images->corpus = corpus_images_of(images->store, tokenizer, (uint32_t)images->rule.token,
                                      options->chat, args->arena);
    options->images = &images->corpus;
}

static bool check_files(TrainImages *images, const CliArgs *args, Diag *diag) {
    ProgressLine line = progress_line_start("images checked");
    bool good =
        image_store_check(images->store, &images->rule,
                          cli_given(args, OPT_QUIET) ? NULL : progress_line_show, &line, diag);
    progress_line_end(&line);
    return good;
}

bool train_images_rows(TrainImages *images, const CliArgs *args, uint32_t pad, TokenBuffer *buffer,
                       Diag *diag) {
    ImageTotals totals;
    images->how = (ImageRowOptions){.rule = &images->rule,
                                    .store = images->store,
                                    .texts = images->texts,
                                    .seq = (size_t)images->plan->seq,
                                    .pad = pad};
    if (image_store_count(images->store) > 0 && !check_room(images, diag)) return false;
    if (!check_files(images, args, diag) || !image_rows(buffer, &images->how, &totals, diag)) {
        return false;
    }
    image_add_totals(&images->totals, &totals);
    return true;
}

int train_images_vocab(const TrainImages *images, int vocab) {
    const int64_t n = image_store_count(images->store) + 1;
    return n > vocab ? (int)n : vocab;
}

/* --- rows --- */

/* Does the stage of this process read pixels? */
static bool reads_pixels(const Plan *plan, MeshCoord coord) {
    const Graph *graph = plan->programs[plan->stages[coord.at[MESH_P]].program].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_INPUT && strcmp(node_string(node, ATTR_name), INPUT_PIXELS) == 0) {
            return true;
        }
    }
    return false;
}

/* Cores that training leaves to others. */
static int spare_cores(const EngineOptions *options) {
    const int n_cores = omp_get_num_procs();
    const int n_processes = options->n_on_host > 0 ? options->n_on_host : 1;
    if (options->device == DEVICE_CUDA) {
        const int half = n_cores / 2 / n_processes;
        return half < 1 ? 1 : half;
    }
    return options->n_threads > 0 ? n_cores / n_processes - options->n_threads : 0;
}

void train_images_start(TrainImages *images, const EngineOptions *options) {
    const Plan *plan = images->plan;
    const int spare = spare_cores(options);
    if (!images->reads) return;
    images->shares = options->control && !options->virtual_ranks;
    if (images->shares) {
        const MeshCoord coord = mesh_coord(&plan->mesh, options->rank);
        images->own = reads_pixels(plan, coord) ? mesh_member(&plan->mesh, coord, MESH_RDE) : -1;
    }
    if (spare < 1) return;
    images->ahead = image_ahead_create(images->store, &images->rule,
                                       spare < MOST_READERS ? spare : MOST_READERS);
}

/* Those of a row that is filled again. */
static void forget_wanted(TrainImages *images, const int32_t *pixels) {
    const int32_t *end = pixels + plan_pixels(images->plan);
    int64_t n = 0;
    for (int64_t i = 0; i < images->n_wanted; i++) {
        const int32_t *to = images->wanted[i].out;
        if (to < pixels || to >= end) images->wanted[n++] = images->wanted[i];
    }
    images->n_wanted = n;
}

/* Of number `at` of a batch. */
static bool is_needed(const TrainImages *images, int64_t at) {
    const Plan *plan = images->plan;
    return !images->shares || at / plan->micro_batch % mesh_batch_parts(&plan->mesh) == images->own;
}

/* The images of the row in images->tokens; `pixels` is where they go, or NULL. */
static void add_wanted(const TrainImages *images, int32_t *pixels, ImageWanted *wanted,
                       int64_t *count) {
    const int64_t most = images->plan->global_batch * images->rule.images;
    const int64_t numbers = image_numbers(&images->rule);
    for (int64_t i = 0, n; i < images->rule.images; i += n) {
        const int64_t number = images->tokens[images->plan->seq + i] - 1;
        if (number < 0) break;
        if (*count == most) BUG("more images than a batch has");
        const ImageGrid grid = image_store_grid(images->store, &images->rule, number);
        n = image_grid_parts(grid);
        if (i + n > images->rule.images) BUG("more parts of images than a row has");
        wanted[(*count)++] = (ImageWanted){number, grid, pixels ? pixels + i * numbers : NULL};
    }
}

bool train_images_fill(TrainImages *images, const char *path, int64_t at, int32_t *tokens,
                       int32_t *labels, Diag *diag) {
    const int64_t seq = images->plan->seq;
    int32_t *pixels = tokens + plan_row_tokens(images->plan);
    memset(pixels, 0, (size_t)plan_pixels(images->plan) * sizeof(*pixels));
    memcpy(labels, images->labels, (size_t)seq * sizeof(*labels));
    for (int64_t i = 0; i < seq; i++) {
        tokens[i] = images->tokens[i];
        if (tokens[i] < images->plan->vocab) continue;
        diag_error(diag, (SourceLoc){path, 0}, "token %d is outside the vocabulary of %" PRId64,
                   tokens[i], images->plan->vocab);
        return false;
    }
    forget_wanted(images, pixels);
    if (is_needed(images, at)) add_wanted(images, pixels, images->wanted, &images->n_wanted);
    return true;
}

void train_images_expect(TrainImages *images, int64_t at) {
    if (is_needed(images, at)) add_wanted(images, NULL, images->expected, &images->n_expected);
}

void train_images_look_ahead(TrainImages *images) {
    image_ahead_begin(images->ahead, images->expected, images->n_expected);
    images->n_expected = 0;
}

bool train_images_give(TrainImages *images, Diag *diag) {
    images->of_batch = 0;
    if (images->n_wanted == 0) return true;
    const double begun = clock_now();
    int64_t n = images->n_wanted;
    images->n_read += n;
    images->n_wanted = 0;
    if (images->ahead) n = image_ahead_take(images->ahead, images->wanted, n);
    const bool good = image_store_read(images->store, &images->rule, images->wanted, n, diag);
    images->of_batch = clock_now() - begun;
    images->seconds += images->of_batch;
    return good;
}

/* --- words --- */

void train_images_print(const TrainImages *images) {
    const ImageTotals *t = &images->totals;
    if (!images->reads || t->n_texts == 0) return;
    printf("images  %" PRId64 " of %" PRId64 " files in %" PRId64 " texts, ", t->n_images,
           image_store_count(images->store), t->n_texts);
    if (images->rule.split != IMAGE_WHOLE) printf("in %" PRId64 " parts of ", t->n_parts);
    printf("%" PRId64 " tokens each; rows are %.1f %% full\n", images->rule.tokens,
           100 * (double)t->n_tokens / ((double)t->n_texts * (double)images->plan->seq));
    if (t->n_cut) {
        printf("        %" PRId64 " texts are longer than a row and lose their end\n", t->n_cut);
    }
    if (t->n_many) {
        printf("        %" PRId64 " more have more %s than a row, %" PRId64 ": left out\n",
               t->n_many, image_rule_parts(&images->rule), images->rule.images);
    }
    if (t->n_long) {
        printf("        %" PRId64 " more have an image behind a row's end: left out\n", t->n_long);
    }
    if (t->n_empty) {
        printf("        %" PRId64 " more have no label that counts: left out\n", t->n_empty);
    }
}

void train_images_print_read(const TrainImages *images) {
    if (images->n_read == 0) return;
    printf("images  %" PRId64 " read in %.1f s, for which training waited: %.2f ms each\n",
           images->n_read, images->seconds, 1e3 * images->seconds / (double)images->n_read);
}
