#include "frontend/commands/train_data.h"

#include "ir/base/hash.h"
#include "ir/op.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAME_BYTES = 40 };

/* --- options --- */

static bool check_weights(const CliArgs *args, Diag *diag) {
    const CliValue *weights = &args->values[OPT_DATA_WEIGHT];
    int n_data = args->values[OPT_DATA].n_list;
    if (weights->given && weights->n_list != n_data) {
        diag_error(diag, NO_LOC, "train: --data-weight: %d for %d --data; each needs one",
                   weights->n_list, n_data);
        return false;
    }
    for (int i = 0; i < weights->n_list; i++) {
        double weight;
        if (cli_parse_real(weights->list[i], &weight) && weight > 0) continue;
        diag_error(diag, NO_LOC, "train: --data-weight: '%s' is no number above 0",
                   weights->list[i]);
        return false;
    }
    return true;
}

bool train_data_options(const CliArgs *args, Diag *diag) {
    int n_data = args->values[OPT_DATA].n_list, n_val = args->values[OPT_VAL].n_list;
    if (n_data == 0) {
        diag_error(diag, NO_LOC, "train: which text? give --data FILE");
        return false;
    }
    if (n_data > BLEND_MOST_SOURCES || n_val > BLEND_MOST_SOURCES) {
        diag_error(diag, NO_LOC, "train: --%s: %d of them; at most %d (a folder is one)",
                   n_data > BLEND_MOST_SOURCES ? "data" : "val", n_data > n_val ? n_data : n_val,
                   BLEND_MOST_SOURCES);
        return false;
    }
    if (cli_int(args, OPT_TOKEN_BYTES, 1) == 3) {
        diag_error(diag, NO_LOC, "train: --token-bytes: 3 is none of 1, 2 and 4");
        return false;
    }
    if (n_val && cli_given(args, OPT_VAL_FRACTION)) {
        diag_error(diag, NO_LOC, "train: --val and --val-fraction: one of them");
        return false;
    }
    return check_weights(args, diag);
}

/* --- opening --- */

/* Special tokens are never hidden, and hide nothing but the mask, and so it is with what stands
 * between documents. Diffusion hides them, too, since what it writes has ends. */
static void set_kept(TrainData *data) {
    const Tokenizer *tokenizer = data->diffusion.hides ? NULL : data->text.tokenizer;
    int64_t vocab = data->plan->vocab, separator = train_documents_separator(data->plan);
    if (!tokenizer && separator < 0) return;
    unsigned char *kept = ARENA_ARRAY(data->args->arena, unsigned char, vocab);
    for (int64_t id = 0; id < vocab; id++) {
        bool is_known = tokenizer && id < (int64_t)tokenizer->n_ids;
        bool is_word = is_known ? !tokenizer_is_special(tokenizer, (uint32_t)id) : !tokenizer;
        kept[id] = !is_word || id == separator;
    }
    data->hidden.kept = data->diffusion.how.kept = kept;
}

/* The mask is the tokenizer's own where it has one. */
static bool check_mask_token(const Tokenizer *tokenizer, int64_t mask, Diag *diag) {
    static const char *const MASKS[] = {"[MASK]", "<mask>", "<|mdm_mask|>", "<|mask|>"};
    const AddedToken *known = NULL;
    if (!tokenizer) return true;
    for (size_t i = 0; i < sizeof(MASKS) / sizeof(MASKS[0]) && !known; i++) {
        known = added_tokens_by_text(&tokenizer->added, MASKS[i]);
    }
    bool is_special =
        mask < (int64_t)tokenizer->n_ids && tokenizer_is_special(tokenizer, (uint32_t)mask);
    if (known ? mask == known->id : is_special) return true;
    if (known) {
        diag_error(diag, NO_LOC,
                   "--tokenizer: the plan hides tokens behind number %" PRId64
                   ", but its %s is %u: plan with --set mask_token=%u",
                   mask, known->text, known->id, known->id);
        return false;
    }
    diag_error(diag, NO_LOC,
               "--tokenizer: token %" PRId64
               ", which the plan hides others behind, is %s; plan with "
               "--set mask_token=, a special token's number (perilune tokenizer show)",
               mask, mask < (int64_t)tokenizer->n_ids ? "not a special one" : "none of its tokens");
    return false;
}

static bool set_hidden(TrainData *data, const Node *share, Diag *diag) {
    int64_t vocab = data->plan->vocab, mask = node_int(share, ATTR_mask, -1);
    double rate = node_float(share, ATTR_rate, 0);
    if (!(rate > 0 && rate < 1) || mask < 0 || mask >= vocab) {
        diag_error(diag, share->loc,
                   "label_share: rate %g and mask %" PRId64
                   ": must be a share between 0 and 1, and "
                   "a token of the %" PRId64,
                   rate, mask, vocab);
        return false;
    }
    data->hidden = (MaskedLm){.rate = rate, .mask = (int32_t)mask, .vocab = (int32_t)vocab};
    set_kept(data);
    return check_mask_token(data->text.tokenizer, mask, diag);
}

/* The path's last part, as it can stand in a line and in JSON; where another has that name, with
 * its number. */
static const char *make_name(const TrainPart *parts, int n_parts, const char *path, Arena *arena) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (end - begin > MOST_NAME_BYTES) begin = end - MOST_NAME_BYTES;
    char *name = arena_strndup(arena, path + begin, end - begin);
    for (char *c = name; *c; c++) {
        if (*c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\') *c = '?';
    }
    for (int i = 0; i < n_parts; i++) {
        if (strcmp(parts[i].name, name) == 0)
            return arena_printf(arena, "%s#%d", name, n_parts + 1);
    }
    return name;
}

static void add_part(TrainPart *parts, int *n, const char *path, Dataset *dataset, Arena *arena) {
    parts[*n] =
        (TrainPart){.path = path, .name = make_name(parts, *n, path, arena), .data = dataset};
    (*n)++;
}

static Dataset *open_file(TrainData *data, const char *path, Diag *diag) {
    const int rows = train_pairs_rows(&data->pairs);
    const int window = (int)(data->images.reads ? data->images.window : data->source.window) * rows;
    const int n_texts = data->text.n_texts;
    Dataset *dataset =
        train_text_open(&data->text, data->args, path, window, (int)data->plan->vocab, diag);
    if (!dataset) return NULL;
    TrainPairs *pairs = &data->pairs;
    const bool is_text = data->text.n_texts > n_texts, unpaired = pairs->unpaired;
    bool good = !pairs->reads || pairs->single || (unpaired && is_text) ||
                preference_check(dataset, path, data->plan->seq, pairs->tokens, pairs->labels,
                                 &pairs->hash, diag);
    if (good && unpaired && !is_text) {
        dataset = train_pairs_unpair(pairs, dataset, path, (int)data->plan->vocab, diag);
    }
    if (!dataset) return NULL;
    data->files[data->n_files++] = dataset;
    good = good && (!unpaired || preference_hash(dataset, data->plan->seq, pairs->tokens,
                                                 pairs->labels, &pairs->hash, diag));
    return good ? dataset : NULL;
}

static bool open_train(TrainData *data, const char *path, double val_fraction, Diag *diag) {
    Dataset *whole = open_file(data, path, diag), *train = whole, *val = NULL;
    if (!whole) return false;
    if (val_fraction > 0 && !dataset_split(whole, val_fraction, &train, &val, diag)) {
        diag_note(diag, NO_LOC, "--val-fraction 0 trains without validation");
        return false;
    }
    add_part(data->train, &data->n_train, path, train, data->args->arena);
    data->train[data->n_train - 1].pool =
        train_embed_pool(&data->embed, dataset_count_windows(train));
    if (data->is_whole) val = whole;
    if (val) add_part(data->val, &data->n_val, path, val, data->args->arena);
    return true;
}

static bool open_all(TrainData *data, Diag *diag) {
    const CliValue *train = &data->args->values[OPT_DATA], *val = &data->args->values[OPT_VAL];
    bool parts = !val->given && !data->is_whole;
    double fraction = parts ? cli_real(data->args, OPT_VAL_FRACTION, 0.1) : 0;
    for (int i = 0; i < train->n_list; i++) {
        if (!open_train(data, train->list[i], fraction, diag)) return false;
    }
    if (!data->is_whole && !train_classes_weigh(&data->classes, diag)) return false;
    data->classes.n_of_data = data->classes.table.n;
    data->text.is_val = true;
    for (int i = 0; i < val->n_list; i++) {
        Dataset *dataset = open_file(data, val->list[i], diag);
        if (!dataset) return false;
        add_part(data->val, &data->n_val, val->list[i], dataset, data->args->arena);
    }
    return train_text_check_use(&data->text, data->args, train->list[0], diag);
}

/* --- masks --- */

/* Do labels come of what is hidden? Those of diffusion are all that could be. */
static bool hides_tokens(const TrainData *data) {
    return data->hidden.rate > 0 || data->source.hides;
}

/* Labels that are left out must be left out of the loss, and the other way round. */
static bool check_masks(const TrainData *data, const TrainPart *parts, int n, bool *any,
                        Diag *diag) {
    for (int i = 0; i < n; i++) {
        SourceLoc loc = {parts[i].path, 0};
        bool has_mask = dataset_is_masked(parts[i].data);
        *any |= has_mask;
        if (has_mask && hides_tokens(data)) {
            diag_error(
                diag, loc,
                "says which labels count, and the plan's loss chooses them: it hides tokens");
            return false;
        }
        if (has_mask && !data->masked) {
            diag_error(diag, loc,
                       "says which labels count, and the plan's loss counts all: plan with --set "
                       "masked=true (a model of your own: ignore = -1 for nn.cross_entropy)");
            return false;
        }
        if (!has_mask || dataset_count_labels(parts[i].data, -1) > 0) continue;
        diag_error(diag, loc, "no label of it counts%s",
                   parts == data->val ? " in validation" : "");
        return false;
    }
    return true;
}

static bool check_all_masks(TrainData *data, Diag *diag) {
    bool any = false, any_val = false;
    const Node *share = plan_label_share(data->plan);
    data->masked = share && node_float(share, ATTR_value, 0) == DATASET_NO_LABEL;
    data->masked |= data->pairs.reads;
    bool masks = share && node_attr(share, ATTR_rate) && !data->source.hides;
    if (masks && !set_hidden(data, share, diag)) return false;
    if (data->diffusion.hides) {
        data->diffusion.packed = data->text.packed.n_windows > 0;
        set_kept(data);
        if (!check_mask_token(data->text.tokenizer, data->diffusion.how.mask, diag)) return false;
    }
    if (!check_masks(data, data->train, data->n_train, &any, diag) ||
        !check_masks(data, data->val, data->n_val, &any_val, diag)) {
        return false;
    }
    if (any || !data->masked || hides_tokens(data) || data->diffusion.hides) return true;
    diag_error(diag, (SourceLoc){data->train[0].path, 0},
               "has no mask, and the plan's loss is over labels that a mask counts: plan with "
               "--set masked=false, or give data of prompts and answers");
    if (!data->text.tokenizer) {
        diag_note(diag, NO_LOC, "with --tokenizer FILE lines of .jsonl are taken apart");
    }
    return false;
}

/* --- shares --- */

/* Shares of losses, which are means over labels. Of one source nothing has to be counted, which
 * would read all of it. */
static void set_label_shares(TrainData *data) {
    const Node *share = plan_label_share(data->plan);
    int64_t left_out = share ? (int64_t)node_float(share, ATTR_value, -1) : -1;
    double n_labels = 0;
    for (int i = 0; i < data->n_train; i++) {
        TrainPart *part = &data->train[i];
        part->label_share = part->share;
        if (data->n_train > 1 && !data->pairs.reads) {
            part->label_share *= (double)dataset_count_labels(part->data, left_out) /
                                 (double)dataset_count_windows(part->data);
        }
        n_labels += part->label_share;
    }
    for (int i = 0; i < data->n_train && n_labels > 0; i++) data->train[i].label_share /= n_labels;
    /* A validation set of its own is what it is; a part of the sources stands for their blend. */
    bool is_own = cli_given(data->args, OPT_VAL) || data->is_whole;
    n_labels = 0;
    for (int i = 0; i < data->n_val; i++) {
        TrainPart *part = &data->val[i];
        part->label_share = !is_own            ? data->train[i].label_share
                            : data->n_val == 1 ? 1
                            : data->pairs.reads
                                ? (double)dataset_count_windows(part->data)
                                : (double)dataset_count_labels(part->data, left_out);
        n_labels += part->label_share;
    }
    for (int i = 0; i < data->n_val && n_labels > 0; i++) data->val[i].label_share /= n_labels;
}

static void set_shares(TrainData *data) {
    const CliValue *given = &data->args->values[OPT_DATA_WEIGHT];
    double weights[BLEND_MOST_SOURCES] = {0};
    for (int i = 0; i < data->n_train; i++) {
        weights[i] = (double)dataset_count_windows(data->train[i].data);
        if (given->given) cli_parse_real(given->list[i], &weights[i]); /* looked at before */
    }
    data->blend = blend_create(weights, data->n_train);
    for (int i = 0; i < data->n_train; i++) data->train[i].share = blend_share(&data->blend, i);
    set_label_shares(data);
}

static double entropy_of(const TrainPart *parts, int n) {
    const Dataset *all[BLEND_MOST_SOURCES];
    double shares[BLEND_MOST_SOURCES];
    for (int i = 0; i < n; i++) {
        all[i] = parts[i].data;
        shares[i] = parts[i].label_share;
    }
    return dataset_blend_entropy(all, shares, n, DATASET_MOST_COUNTED);
}

/* Of all that is trained on, and perhaps of what is validated on. Where data are evaluated alone,
 * it is not needed. */
static bool open_stored(TrainData *data, Diag *diag) {
    TrainStored *stored = &data->stored;
    Arena *arena = data->args->arena;
    if (data->is_whole) return true;
    if (!train_stored_open(data->args, data->plan, stored, diag)) return false;
    if (!stored->file) return true;
    if (data->source.reads || data->classes.reads || data->pairs.reads || data->embed.reads ||
        data->images.reads || hides_tokens(data) || data->diffusion.hides) {
        diag_error(diag, NO_LOC,
                   "--teacher-logits: are of decoders that learn from texts, not from pairs, "
                   "classes, images, hidden tokens or what an encoder reads");
        return false;
    }
    for (int i = 0; i < data->n_train; i++) {
        const TrainPart *part = &data->train[i];
        if (!train_stored_has(stored, part->data, part->path, false, arena, diag)) return false;
    }
    if (!train_stored_name(stored, data->train[0].data, data->train[0].path, arena, diag)) {
        return false;
    }
    stored->of_val = data->n_val > 0;
    for (int i = 0; i < data->n_val && stored->of_val; i++) {
        stored->of_val =
            train_stored_has(stored, data->val[i].data, data->val[i].path, true, arena, diag);
        if (diag_error_count(diag) > 0) return false;
    }
    return true;
}

/* Images are of decoders that learn what follows. */
static bool check_images(const TrainData *data, Diag *diag) {
    const bool others = data->source.reads || data->classes.reads || data->pairs.reads ||
                        data->embed.reads || data->diffusion.hides;
    if (!data->images.reads || !others) return true;
    diag_error(diag, NO_LOC,
               "the plan's model sees images, and learns from pairs, classes, hidden tokens or "
               "what an encoder reads: images are of decoders that say what follows");
    return false;
}

static bool open_data(TrainData *out, Diag *diag) {
    const CliArgs *args = out->args;
    const Plan *plan = out->plan;
    if (!train_text_from_args(args, plan->vocab, &out->text, diag) ||
        !train_source_open(plan, plan_label_share(plan), &out->source, args->arena, diag) ||
        !train_diffusion_of(plan, args->arena, &out->diffusion, diag)) {
        return false;
    }
    out->text.source = &out->source;
    out->text.pairs = &out->pairs;
    out->text.classes = &out->classes;
    out->text.embed = &out->embed;
    out->text.images = &out->images;
    if (!train_embed_of(plan, plan_label_share(plan), &out->embed, diag)) return false;
    out->text.is_whole = out->is_whole;
    if (!train_images_of(args, plan, plan_label_share(plan), &out->images, diag)) return false;
    if (!train_classes_of(plan, plan_label_share(plan), args->arena, &out->classes, diag)) {
        return false;
    }
    out->classes.may_lack = cli_given(args, OPT_PREDICTIONS);
    out->pairs = train_pairs_of(plan, args->arena);
    out->pairs.single = out->pairs.rewards && cli_given(args, OPT_PREDICTIONS);
    out->answers = train_answers_of(plan, args->arena);
    if (out->pairs.asks_reference) {
        out->reference = ARENA_ARRAY(args->arena, float, plan->global_batch);
    }
    if (!check_images(out, diag)) return false;
    if (!train_source_check_tokenizer(&out->source, out->text.tokenizer, diag)) return false;
    if (!open_all(out, diag) || !check_all_masks(out, diag)) return false;
    if (!open_stored(out, diag)) return false;
    const bool own_rows = out->classes.reads || out->embed.reads || out->images.reads;
    for (int i = 0; i < out->n_train && !own_rows; i++) {
        if (!train_documents_check(&out->text, args, plan, out->train[i].path, out->train[i].data,
                                   &out->documents, diag)) {
            return false;
        }
    }
    set_shares(out);
    out->train_entropy = entropy_of(out->train, out->n_train);
    if (out->n_val) out->val_entropy = entropy_of(out->val, out->n_val);
    return true;
}

/* Rows of prompts and answers have labels that do not count, and padding. */
static bool open_prompts(TrainData *data, Diag *diag) {
    const Plan *plan = data->plan;
    const Node *share = plan_label_share(plan);
    if (train_images_refuse(plan, "train: --on-policy", diag)) return false;
    const bool hides = share && node_attr(share, ATTR_rate);
    if (!train_prompts_read_by(plan)) {
        data->masked = share && node_float(share, ATTR_value, 0) == DATASET_NO_LABEL;
        if (!data->masked || hides || plan_source(plan)) {
            diag_error(diag, NO_LOC,
                       plan_source(plan) ? "train: --on-policy: the model has an encoder"
                       : hides ? "train: --on-policy: the plan's loss is over tokens that it hides"
                               : "train: --on-policy: the plan's loss counts prompts, too: plan "
                                 "with --set masked=true (a model of your own: ignore = -1 for "
                                 "nn.cross_entropy)");
            return false;
        }
    }
    return train_prompts_open(data->args, plan, &data->prompts, diag);
}

bool train_data_open(const CliArgs *args, const Plan *plan, TrainData *out, Diag *diag) {
    *out = (TrainData){.args = args, .plan = plan, .full_batch = plan->global_batch};
    if (train_prompts_asked(args, plan)) return open_prompts(out, diag);
    return open_data(out, diag);
}

bool train_data_open_whole(const CliArgs *args, const Plan *plan, TrainData *out, Diag *diag) {
    *out =
        (TrainData){.args = args, .plan = plan, .full_batch = plan->global_batch, .is_whole = true};
    return open_data(out, diag);
}

static bool is_file(const TrainData *data, const Dataset *dataset) {
    for (int i = 0; i < data->n_files; i++) {
        if (data->files[i] == dataset) return true;
    }
    return false;
}

void train_data_close(TrainData *data) {
    for (int i = 0; i < data->n_train; i++) {
        if (!is_file(data, data->train[i].data)) dataset_close(data->train[i].data);
    }
    for (int i = 0; i < data->n_val; i++) {
        if (!is_file(data, data->val[i].data)) dataset_close(data->val[i].data);
    }
    for (int i = 0; i < data->n_files; i++) dataset_close(data->files[i]);
    data->n_train = data->n_val = data->n_files = 0;
    train_classes_release(&data->classes);
    train_embed_release(&data->embed);
    train_images_release(&data->images);
    train_stored_close(&data->stored);
    train_prompts_close(&data->prompts);
    train_text_release(&data->text);
}

/* --- samples --- */

/* Sources of the same size are not read in the same order. */
static uint64_t seed_of(const TrainData *data, int source) {
    return (uint64_t)data->plan->seed + (uint64_t)source * 0x9e3779b97f4a7c15u;
}

/* What is hidden differs in every sample, and in all windows of validation from these. */
static uint64_t hiding_key(const TrainData *data, int64_t number) {
    return mix_bits(data->plan->seed) ^ (uint64_t)number;
}

/* What the dataset gave, as the model is to see it. */
static bool finish_sample(TrainData *data, const TrainPart *part, int64_t number, int64_t at,
                          int32_t *tokens, int32_t *labels, Diag *diag) {
    const uint64_t key = hiding_key(data, number);
    if (data->source.reads) {
        return train_source_fill(&data->source, part->path, key, tokens, labels, diag);
    }
    if (data->images.reads) {
        return train_images_fill(&data->images, part->path, at, tokens, labels, diag);
    }
    const ClassRowOptions *how = &data->classes.how;
    const int64_t seq = data->plan->seq;
    if (data->classes.reads) {
        class_row_finish(tokens, labels, seq, how->first, (int32_t)how->pad);
        train_classes_take(&data->classes, labels, at);
        return true;
    }
    if (data->embed.reads) {
        class_row_finish(tokens, labels, seq, data->embed.first, (int32_t)data->embed.how.pad);
        return true;
    }
    if (data->pairs.rewards) train_pairs_mark_ends(labels, seq, train_pairs_rows(&data->pairs));
    if (data->diffusion.hides) {
        const bool first_counts = !dataset_is_masked(part->data);
        train_diffusion_fill(&data->diffusion, number, key, first_counts, at, tokens, labels);
    }
    masked_lm_apply(&data->hidden, key, tokens, labels, seq);
    return true;
}

int64_t train_data_batch(const TrainData *data) {
    return data->plan->global_batch / train_pairs_batch_rows(&data->pairs);
}

/* Window i of a part as number `at` of a batch; `number`: the sample's. */
static bool read_window(TrainData *data, const TrainPart *part, int64_t i, int64_t number,
                        int64_t at, int32_t *tokens, int32_t *labels, Diag *diag) {
    const TrainSource *source = &data->source;
    const TrainImages *images = &data->images;
    const int rows = train_pairs_batch_rows(&data->pairs);
    tokens += at * rows * plan_row(data->plan);
    labels += at * rows * data->plan->seq;
    if (data->pairs.unpaired) {
        const float none[2] = {0, 0}, *scores = part->scores ? part->scores + 2 * i : none;
        TrainPairs *pairs = &data->pairs;
        if (!dataset_window(part->data, i, pairs->tokens, pairs->labels, diag)) return false;
        train_answers_take(&data->answers, at, pairs->tokens, pairs->labels, scores, tokens, labels,
                           &data->reference[at]);
        return true;
    }
    int32_t *to_tokens = source->reads ? source->tokens : images->reads ? images->tokens : tokens;
    int32_t *to_labels = source->reads ? source->labels : images->reads ? images->labels : labels;
    if (!dataset_window(part->data, i, to_tokens, to_labels, diag)) {
        return false;
    }
    const bool validates = number < 0;
    if (!train_stored_take(&data->stored, part->path, at, tokens, validates, diag)) return false;
    for (int k = 0; part->scores && k < rows; k++) {
        data->reference[at * rows + k] = part->scores[i * rows + k];
    }
    return finish_sample(data, part, number, at, tokens, labels, diag);
}

bool train_data_sample(TrainData *data, int64_t index, int64_t at, int32_t *tokens, int32_t *labels,
                       Diag *diag) {
    int64_t sample;
    int source = blend_pick(&data->blend, index, &sample);
    const TrainPart *part = &data->train[source];
    int64_t i = dataset_sample_window(part->data, seed_of(data, source), sample);
    const int64_t epoch = sample / dataset_count_windows(part->data);
    if (part->pool && epoch > 0) {
        tokens += at * data->plan->seq;
        labels += at * data->plan->seq;
        embed_epoch_row(part->pool, seed_of(data, source), epoch, i, tokens, labels);
        return finish_sample(data, part, index, at, tokens, labels, diag);
    }
    return read_window(data, part, i, index, at, tokens, labels, diag);
}

bool train_data_look_ahead(TrainData *data, int64_t index, int64_t at, Diag *diag) {
    TrainImages *images = &data->images;
    int64_t sample;
    const int source = blend_pick(&data->blend, index, &sample);
    const Dataset *part = data->train[source].data;
    const int64_t i = dataset_sample_window(part, seed_of(data, source), sample);
    if (!dataset_window(part, i, images->tokens, images->labels, diag)) return false;
    train_images_expect(images, at);
    return true;
}

bool train_data_window(TrainData *data, int source, int64_t i, int64_t at, int32_t *tokens,
                       int32_t *labels, Diag *diag) {
    return read_window(data, &data->val[source], i, ~i, at, tokens, labels, diag);
}

bool train_data_give(TrainData *data, Engine *engine, bool trains, Diag *diag) {
    train_diffusion_give(&data->diffusion, engine, data->plan->global_batch, trains);
    train_stored_give(&data->stored, engine);
    train_classes_give(&data->classes, data->plan, engine);
    return train_images_give(&data->images, diag) &&
           train_answers_give(&data->answers, engine, diag);
}

/* --- words --- */

/* Of rows with images not the images' numbers behind them. */
static int64_t count_tokens(const TrainData *data, const TrainPart *parts, int n) {
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        count += data->images.reads ? dataset_count_windows(parts[i].data) * data->plan->seq
                                    : dataset_count_tokens(parts[i].data);
    }
    return count;
}

static int64_t count_counted(const TrainPart *parts, int n) {
    int64_t count = 0;
    for (int i = 0; i < n; i++) count += dataset_count_counted(parts[i].data);
    return count;
}

void train_data_name(const TrainData *data, char *text, size_t size) {
    if (data->prompts.reads) {
        snprintf(text, size, "%d prompts, %016" PRIx64, data->prompts.n_train, data->prompts.hash);
        return;
    }
    StrBuf name = strbuf_create();
    const Blend *blend = &data->blend;
    if (data->n_train > 1) strbuf_printf(&name, "%d sources, ", data->n_train);
    strbuf_printf(&name, "%" PRId64 " tokens, unigram entropy %.9g",
                  count_tokens(data, data->train, data->n_train), data->train_entropy);
    if (data->stored.file) {
        strbuf_printf(&name, ", teacher %08" PRIx32, (uint32_t)data->stored.name);
    }
    if (data->classes.table.n > 0) {
        const ClassTable *table = &data->classes.table;
        const size_t n = (size_t)data->classes.n_of_data * (size_t)table->n_words;
        const uint64_t labels = hash_bytes(table->items, n * sizeof(*table->items), 0);
        strbuf_printf(&name, ", labels %08" PRIx32, (uint32_t)labels);
    }
    size_t length = name.length;
    uint64_t hash = 0;
    for (int i = 0; i < data->n_train && data->n_train > 1; i++) {
        strbuf_printf(&name, "%s%" PRId64, i ? ":" : ", weights ", blend->parts[i]);
        hash = mix_bits(hash ^ (uint64_t)blend->parts[i]);
    }
    if (name.length < size) {
        snprintf(text, size, "%s", name.text);
    } else { /* other weights must have another name */
        snprintf(text, size, "%.*s, weights %08" PRIx32, (int)length, name.text, (uint32_t)hash);
    }
    strbuf_destroy(&name);
}

int64_t train_data_mapped_bytes(const TrainData *data) {
    int64_t bytes = data->stored.file ? stored_bytes(&data->stored.shape) : 0;
    for (int i = 0; i < data->n_files; i++) bytes += dataset_mapped_bytes(data->files[i]);
    return bytes;
}

void train_data_print_entropy(const TrainData *data) {
    const bool scores = data->classes.reads && data->classes.labels != CLASS_ONE;
    if (data->pairs.reads || data->prompts.reads || data->embed.reads || scores) {
        printf("\n");
        return;
    }
    const TrainPart *parts = data->n_val ? data->val : data->train;
    int n = data->n_val ? data->n_val : data->n_train;
    bool sampled = false;
    for (int i = 0; i < n; i++) {
        sampled |= dataset_count_tokens(parts[i].data) > DATASET_MOST_COUNTED;
    }
    if (data->classes.reads) {
        printf("; entropy of the classes %.4f\n",
               data->n_val ? data->val_entropy : data->train_entropy);
        return;
    }
    printf("; unigram entropy %.4f%s\n", data->n_val ? data->val_entropy : data->train_entropy,
           sampled ? " (of a sample)" : "");
}

/* "1000 tokens", with what counts of them where not all do. */
static void print_tokens(const TrainData *data, const TrainPart *parts, int n) {
    int64_t all = count_tokens(data, parts, n);
    printf("%" PRId64 " tokens", all);
    if (!data->masked || hides_tokens(data) || data->classes.reads || data->embed.reads) return;
    if (data->diffusion.hides && !dataset_is_masked(parts[0].data)) return;
    int64_t counted = count_counted(parts, n);
    printf(" (%" PRId64 " count, %.1f %%)", counted, 100 * (double)counted / (double)all);
}

static void print_source(const TrainData *data, int source) {
    const TrainPart *part = &data->train[source];
    printf("source  %s: %.4g %% of the samples; ", part->name, 100 * part->share);
    print_tokens(data, part, 1);
    int n_files = dataset_count_files(part->data);
    if (n_files > 1) printf(" of %d files", n_files);
    printf("\n");
}

void train_data_print(const TrainData *data) {
    int n_files = 0;
    if (data->prompts.reads) {
        train_prompts_print(&data->prompts);
        return;
    }
    for (int i = 0; i < data->n_train; i++) n_files += dataset_count_files(data->train[i].data);
    printf("data    ");
    print_tokens(data, data->train, data->n_train);
    if (n_files > 1) printf(" of %d files", n_files);
    if (data->n_val) {
        printf(" to train on, ");
        if (data->masked && !hides_tokens(data)) {
            print_tokens(data, data->val, data->n_val);
        } else {
            printf("%" PRId64, count_tokens(data, data->val, data->n_val));
        }
        printf(" to validate");
    }
    train_data_print_entropy(data);
    for (int i = 0; i < data->n_train && data->n_train > 1; i++) print_source(data, i);
    if (data->text.packed.n_windows > 0) pack_print(&data->text.packed, &data->text.packing);
    if (data->text.n_filled > 0) {
        printf("filling %" PRId64 " of %" PRId64 " documents have their middle last\n",
               data->text.n_filled, data->text.n_documents);
    }
    if (data->hidden.rate > 0) {
        printf(
            "hidden  %.3g %% of the tokens are to be said: 8 of 10 behind token %d, 1 behind any "
            "other\n",
            100 * data->hidden.rate, data->hidden.mask);
    }
    train_diffusion_print(&data->diffusion);
    train_source_print(&data->source);
    train_pairs_print(&data->pairs);
    train_stored_print(&data->stored);
    train_classes_print(&data->classes);
    train_embed_print(&data->embed);
    train_images_print(&data->images);
    if (data->classes.reads || data->embed.reads || data->images.reads) return;
    train_documents_print(&data->documents);
}

/* Adds, for each source, the samples of [first, end). */
static void add_samples(const TrainData *data, int64_t first, int64_t end, int64_t *counts) {
    Blend before = data->blend, after = data->blend;
    blend_seek(&before, first);
    blend_seek(&after, end);
    for (int i = 0; i < data->n_train; i++) counts[i] += after.had[i] - before.had[i];
}

void train_data_print_samples(const TrainData *data, const TrainSkips *skips, int64_t first,
                              int64_t end) {
    int64_t counts[BLEND_MOST_SOURCES] = {0};
    train_images_print_read(&data->images);
    if (data->n_train <= 1) return;
    for (int64_t at = train_skips_next(skips, first), next; at < end;
         at = train_skips_next(skips, next)) {
        next = train_skips_until(skips, at, end);
        add_samples(data, at, next, counts);
    }
    Blend after = data->blend;
    blend_seek(&after, end);
    for (int i = 0; i < data->n_train; i++) {
        double windows = (double)dataset_count_windows(data->train[i].data);
        printf("source  %s: %" PRId64 " samples", data->train[i].name, counts[i]);
        if (first > 0) printf(", %" PRId64 " with those before", after.had[i]);
        printf(", %.3g epochs\n", (double)after.had[i] / windows);
    }
}
