#include "frontend/commands/train_prompts.h"

#include "frontend/commands/generate_chat.h"
#include "frontend/commands/pack_args.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_completions.h"
#include "frontend/commands/train_pairs.h"
#include "frontend/json_lines.h"
#include "runtime/data/mix.h"
#include "runtime/data/shuffle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ANSWERS = 8, DEFAULT_OF_PAIRS = 2 };

bool train_prompts_read_by(const Plan *plan) {
    return plan_reads_numbers(plan, TOKEN_ADVANTAGES) ||
           plan_reads_numbers(plan, TOKEN_CENTERED_REWARDS) || train_prompts_in_pairs(plan);
}

bool train_prompts_in_pairs(const Plan *plan) {
    return plan_reads_numbers(plan, TOKEN_EXTRA_WEIGHTS);
}

bool train_prompts_compare(const Plan *plan) {
    return plan_reads_numbers(plan, TOKEN_REFERENCE_SCORES) ||
           (train_prompts_in_pairs(plan) && train_pairs_compare(plan));
}

bool train_prompts_asked(const CliArgs *args, const Plan *plan) {
    return train_prompts_read_by(plan) || cli_given(args, OPT_ON_POLICY);
}

/* What is being read. */
typedef struct Reading {
    TrainPrompts *prompts;
    const CliArgs *args;
    const Plan *plan;
    CorpusOptions how; /* without a tokenizer nothing is in it */
    Diag *diag;
} Reading;

/* --- options --- */

static bool choose_pairs(const CliArgs *args, TrainPrompts *out, Diag *diag) {
    const char *name = cli_text(args, OPT_PAIRS, "best");
    out->all_pairs = strcmp(name, "all") == 0;
    if (out->all_pairs || strcmp(name, "best") == 0) return true;
    diag_error(diag, NO_LOC, "train: --pairs: '%s' is neither best nor all", name);
    return false;
}

static bool check_options(const CliArgs *args, const Plan *plan, TrainPrompts *out, Diag *diag) {
    static const CliOption OTHERS[] = {OPT_DATA_WEIGHT,    OPT_TOKEN_BYTES,  OPT_SEPARATOR,
                                       OPT_FIELD,          OPT_PACK,         OPT_PACK_LONG,
                                       OPT_REFERENCE,      OPT_SKIP_SAMPLES, OPT_QUERY_PREFIX,
                                       OPT_PASSAGE_PREFIX, OPT_IMAGES};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cli_given(args, OTHERS[i])) continue;
        diag_error(diag, NO_LOC,
                   "train: --%s: is not for prompts, which the plan's model writes answers to",
                   CLI_OPTIONS[OTHERS[i]].name);
        return false;
    }
    out->length = cli_int(args, OPT_ANSWER_LENGTH, plan->seq);
    out->on_policy = cli_given(args, OPT_ON_POLICY);
    out->share = cli_real(args, OPT_ON_POLICY, 1);
    out->in_pairs = !out->on_policy && train_prompts_in_pairs(plan);
    const int preset = out->in_pairs ? DEFAULT_OF_PAIRS : DEFAULT_ANSWERS;
    out->n_answers = out->on_policy ? 1 : (int)cli_int(args, OPT_ANSWERS, preset);
    if (!choose_pairs(args, out, diag)) return false;
    const int n = out->n_answers;
    out->group_rows = !out->in_pairs ? n : out->all_pairs ? n * (n - 1) : 2;
    if (plan->global_batch % out->group_rows == 0) return true;
    if (out->in_pairs) {
        diag_error(diag, NO_LOC,
                   "train: --answers: the pairs of %d to each prompt are %d rows, which do not "
                   "divide the global batch of %d: give another number of them, or --global-batch",
                   n, out->group_rows, plan->global_batch);
        return false;
    }
    diag_error(diag, NO_LOC,
               "train: --answers: %d to each prompt do not divide the global batch of %d: give "
               "another number of them, or --global-batch",
               n, plan->global_batch);
    return false;
}

/* --- lines --- */

/* The tokens of a chat that ends with a question. */
static bool encode_messages(const Reading *r, const json_t *messages, TrainPrompt *prompt) {
    TokenList tokens = {0};
    if (!r->how.chat) {
        diag_error(r->diag, prompt->loc, "has messages: %s",
                   r->how.no_chat ? r->how.no_chat : "they need --tokenizer FILE");
        return false;
    }
    prompt->begin = generate_text_fork(&r->prompts->chat);
    bool good = generate_chat_encode(r->how.chat, messages, prompt->record,
                                     r->prompts->text.tokenizer, prompt->loc, &tokens, r->diag);
    generate_chat_begin_answer(&prompt->begin, tokens);
    return good;
}

/* For a teacher the last one may be the answer to the others. */
static bool encode_asked(const Reading *r, const json_t *messages, TrainPrompt *prompt) {
    json_t *asked = r->prompts->on_policy ? train_completion_asked(messages) : NULL;
    bool good = encode_messages(r, asked ? asked : messages, prompt);
    json_decref(asked);
    return good;
}

static bool encode_text(const Reading *r, const json_t *text, TrainPrompt *prompt) {
    char where[512];
    snprintf(where, sizeof(where), "%s:%d", prompt->loc.file, prompt->loc.line);
    prompt->begin = generate_text_fork(&r->prompts->text);
    if (r->how.first != NO_TOKEN) token_list_add(&prompt->begin.tokens, r->how.first);
    return generate_text_prompt(&prompt->begin, json_string_value(text), json_string_length(text),
                                where, r->diag);
}

static bool encode(const Reading *r, TrainPrompt *prompt) {
    const json_t *text = json_object_get(prompt->record, "prompt");
    const json_t *messages = json_object_get(prompt->record, "messages");
    if (text && messages) {
        diag_error(r->diag, prompt->loc, "has both 'prompt' and 'messages': which is it?");
        return false;
    }
    if (json_is_array(text)) messages = text;
    if (json_is_array(messages)) return encode_asked(r, messages, prompt);
    if (json_is_string(text)) return encode_text(r, text, prompt);
    diag_error(r->diag, prompt->loc,
               "no object with 'prompt', a text or a list of messages, or with 'messages'");
    return false;
}

static void add_hash(TrainPrompts *prompts, const TrainPrompt *prompt) {
    uint64_t hash = mix_bits(prompts->hash ^ prompt->begin.tokens.count);
    for (size_t i = 0; i < prompt->begin.tokens.count; i++) {
        hash = mix_bits(hash ^ prompt->begin.tokens.items[i]);
    }
    char *line = json_dumps(prompt->record, JSON_SORT_KEYS | JSON_COMPACT);
    if (!line) BUG("out of memory");
    for (const char *c = line; *c; c++) hash = mix_bits(hash ^ (unsigned char)*c);
    free(line);
    prompts->hash = hash;
}

static bool add_line(void *user, json_t *object, SourceLoc loc, int n_lines) {
    Reading *r = user;
    TrainPrompts *prompts = r->prompts;
    (void)n_lines;
    if (prompts->count == prompts->capacity) {
        prompts->capacity = prompts->capacity ? 2 * prompts->capacity : 64;
        TrainPrompt *items =
            realloc(prompts->items, (size_t)prompts->capacity * sizeof(TrainPrompt));
        if (!items) BUG("out of memory");
        prompts->items = items;
    }
    TrainPrompt *prompt = &prompts->items[prompts->count++];
    *prompt = (TrainPrompt){.record = json_incref(object), .loc = loc};
    if (!encode(r, prompt)) return false;
    const size_t n = prompt->begin.n_prompt_tokens;
    if (n >= (size_t)r->plan->seq) {
        diag_error(r->diag, loc, "takes %zu tokens; a row has %" PRId64 ", the answer among them",
                   n, r->plan->seq);
        return false;
    }
    add_hash(prompts, prompt);
    return true;
}

/* Appends those of an option's files. */
static bool read_files(Reading *r, CliOption option) {
    const CliValue *files = &r->args->values[option];
    for (int i = 0; i < files->n_list; i++) {
        const int before = r->prompts->count;
        if (!json_lines_each(files->list[i], add_line, r, r->diag)) return false;
        if (r->prompts->count > before) continue;
        diag_error(r->diag, (SourceLoc){files->list[i], 0}, "has no prompt");
        return false;
    }
    return true;
}

/* --- what the data answer --- */

static bool encode_completion(Reading *r, TrainPrompt *prompt) {
    bool is_cut = false;
    if (!r->prompts->text.tokenizer) {
        diag_error(r->diag, prompt->loc, "has a completion, which --tokenizer FILE takes apart");
        return false;
    }
    if (!train_completion_encode(&r->how, r->prompts->text.tokenizer, r->plan->seq, prompt, &is_cut,
                                 r->diag)) {
        return false;
    }
    r->prompts->n_cut += is_cut;
    return true;
}

/* Of lines to learn from, where some rows are the data's; of those to validate on, where all have
 * one. */
static bool encode_completions(Reading *r) {
    TrainPrompts *prompts = r->prompts;
    prompts->validates_rows = prompts->n_val > 0 && prompts->text.tokenizer;
    for (int i = 0; i < prompts->n_val && prompts->validates_rows; i++) {
        const TrainPrompt *prompt = &prompts->items[prompts->n_train + i];
        prompts->validates_rows = train_completion_is_there(prompt->record);
    }
    for (int i = 0; i < prompts->count; i++) {
        TrainPrompt *prompt = &prompts->items[i];
        if (i < prompts->n_train ? prompts->share == 1 : !prompts->validates_rows) continue;
        if (!train_completion_is_there(prompt->record)) {
            diag_error(
                r->diag, prompt->loc,
                "has no completion: --on-policy %g learns from some, --on-policy 1 from none",
                prompts->share);
            return false;
        }
        if (!encode_completion(r, prompt)) return false;
    }
    return true;
}

/* --- all --- */

static bool begin_texts(Reading *r) {
    TrainPrompts *prompts = r->prompts;
    const char *stop;
    if (!generate_text_begin(r->args, r->plan->vocab, &prompts->text, r->diag)) return false;
    Tokenizer *tokenizer = prompts->text.tokenizer;
    r->how.first = NO_TOKEN;
    if (cli_given(r->args, OPT_FIM)) {
        diag_error(r->diag, NO_LOC, "--fim: prompts are answered, and have no middle");
        return false;
    }
    if (!fill_middle_check_args(r->args, r->diag)) return false;
    if (tokenizer) {
        if (!corpus_options_from_args(r->args, tokenizer, &r->how, r->diag)) return false;
        if (r->how.last != NO_TOKEN) prompts->text.end = r->how.last;
        prompts->pad = pack_padding(tokenizer, &r->how);
    }
    prompts->chat = generate_text_fork(&prompts->text);
    if (r->how.chat) generate_chat_set_end(r->how.chat, r->args->arena, &prompts->chat, &stop);
    if (prompts->text.end != NO_TOKEN || prompts->text.n_stops > 0 || r->how.chat) return true;
    diag_error(r->diag, NO_LOC,
               "train: what ends an answer? give --eot TOKEN of a --tokenizer, or --stop TEXT");
    return false;
}

bool train_prompts_open(const CliArgs *args, const Plan *plan, TrainPrompts *out, Diag *diag) {
    *out = (TrainPrompts){.reads = true};
    Reading r = {.prompts = out, .args = args, .plan = plan, .diag = diag};
    if (!check_options(args, plan, out, diag) || !begin_texts(&r)) return false;
    if (!read_files(&r, OPT_DATA)) return false;
    out->n_train = out->count;
    if (!read_files(&r, OPT_VAL)) return false;
    out->n_val = out->count - out->n_train;
    if (!cli_given(args, OPT_VAL)) {
        out->n_val = (int)(out->count * cli_real(args, OPT_VAL_FRACTION, 0.1));
        out->n_train -= out->n_val;
    }
    if (out->on_policy && !encode_completions(&r)) return false;
    for (int i = 0; i < out->count; i++) {
        out->n_tokens += (double)out->items[i].begin.n_prompt_tokens / out->count;
    }
    return true;
}

void train_prompts_close(TrainPrompts *prompts) {
    if (!prompts->reads) return;
    for (int i = 0; i < prompts->count; i++) {
        if (prompts->items[i].begin.borrows) generate_text_release(&prompts->items[i].begin);
        json_decref(prompts->items[i].record);
        free(prompts->items[i].row);
        free(prompts->items[i].is_label);
    }
    free(prompts->items);
    if (prompts->chat.borrows) generate_text_release(&prompts->chat);
    generate_text_release(&prompts->text);
    *prompts = (TrainPrompts){0};
}

int train_prompts_pick(const TrainPrompts *prompts, uint64_t seed, int64_t index) {
    return (int)shuffle_pick(prompts->n_train, seed, index);
}

int64_t train_prompts_room(const TrainPrompts *prompts, const Plan *plan, int prompt) {
    int64_t room = plan->seq - (int64_t)prompts->items[prompt].begin.n_prompt_tokens;
    return room < prompts->length ? room : prompts->length;
}

void train_prompts_print(const TrainPrompts *prompts) {
    if (!prompts->reads) return;
    printf("prompts %d to learn from, %d to validate; of %.1f tokens in the mean; ",
           prompts->n_train, prompts->n_val, prompts->n_tokens);
    if (!prompts->on_policy) {
        printf("%d answers to each%s\n", prompts->n_answers,
               !prompts->in_pairs       ? ""
               : prompts->all_pairs     ? ", in pairs of every two"
               : prompts->n_answers > 2 ? ", the best and the worst a pair"
                                        : ", a pair");
        return;
    }
    printf("%.4g %% of the rows are the model's own answers\n", 100 * prompts->share);
    if (prompts->n_cut > 0) {
        printf("        %d completions are longer than a row: cut\n", prompts->n_cut);
    }
}
