#include "frontend/commands/generate_engine.h"

#include "frontend/commands/plan_args.h"
#include "frontend/commands/train_alike.h"
#include "ir/expr.h"
#include "ir/op.h"
#include "planner/decode/decode.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 128 }; /* positions that are read together: more are hardly faster */

static bool is_named(const Node *node, const char *name) {
    return node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), name) == 0;
}

static bool is_logits(const Node *node) {
    return is_named(node, "logits");
}

/* What the logits are made from, by id, or what is sent to a stage that may make them of it. */
static bool *find_sources(Arena *arena, const Graph *graph) {
    bool *needed = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool logits = is_logits(node);
        if (node->phase != PHASE_FORWARD) continue;
        needed[n] |= logits || node->op == OP_SEND;
        for (int i = 0; needed[n] && i < node->n_inputs; i++) {
            needed[node->inputs[i].node->id] = true;
        }
    }
    return needed;
}

/* Does the node compare places of queries with those of keys (nn.later), which tells later keys? */
static bool tells_later_keys(const Node *node, int keys) {
    const char *error;
    Expr expr;
    if (node->op == OP_LESS) {
        expr = expr_of_node(node);
    } else if (node->op != OP_FUSED ||
               !expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) {
        return false;
    }
    for (int n = 0; n < expr.n_instructions; n++) {
        const ExprInstruction *ins = &expr.instructions[n];
        if (ins->op != OP_LESS || ins->operands[0] >= 0 || ins->operands[1] >= 0) continue;
        Value places = node->inputs[~ins->operands[0]], renamed = node->inputs[~ins->operands[1]];
        if (places.node->op == OP_DOCUMENTS && places.output == 1 &&
            renamed.node->op == OP_RENAME && value_equal(renamed.node->inputs[0], places) &&
            type_find_axis(value_type(renamed), keys) >= 0) {
            return true;
        }
    }
    return false;
}

/* Keys beside queries of one sequence, in attention of its scores: are later ones told from others,
 * in the block that renames them or outside of blocks? (That they are hidden is the model's to see
 * to.) */
static bool hides_later_keys(const Graph *graph, const Node *rename) {
    bool hides = false, shows = false;
    int keys =
        rename->types[0]
            .axes[type_find_axis(value_type(rename->inputs[0]), node_axis(rename, ATTR_axis))];
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase != PHASE_FORWARD) continue;
        if (node->block != rename->block && node->block != NO_BLOCK) continue;
        hides |= tells_later_keys(node, keys);
        if (node->op != OP_RELATIVE_BIAS || node_axis(node, ATTR_keys) != keys) continue;
        hides |= node_int(node, ATTR_causal, 0) != 0;
        shows |= node_int(node, ATTR_causal, 0) == 0;
    }
    return hides && !shows;
}

static bool looks_ahead(const Graph *graph, const Node *node) {
    const int seq = axis_find(&graph->axes, "seq", 3); /* others are an image's, say */
    switch (node->op) {
    case OP_ATTENTION: return node_axis(node, ATTR_seq) == seq && !node_int(node, ATTR_causal, 1);
    case OP_SHIFT: return node_int(node, ATTR_by, 0) > 0;
    case OP_RENAME: return node_axis(node, ATTR_axis) == seq && !hides_later_keys(graph, node);
    default: return false;
    }
}

static const Node *find_diffusion(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (node_diffuses(graph->nodes[n])) return graph->nodes[n];
    }
    return NULL;
}

/* A model that looks at what follows cannot write what follows. */
static bool check_causal(const char *what, Arena *arena, const Graph *graph, Diag *diag) {
    const bool *needed = find_sources(arena, graph);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const Type *logits = is_logits(node) ? value_type(node->inputs[0]) : NULL;
        const bool classes =
            logits && logits->rank > 0 && logits->axes[logits->rank - 1] != AXIS_VOCAB;
        if (classes || is_named(node, OUTPUT_VECTORS)) {
            diag_error(diag, node->loc,
                       "%s: this model tells what whole texts or answers are (`evaluate` says it); "
                       "it writes none",
                       what);
            return false;
        }
        if (!needed[n] || !looks_ahead(graph, node)) continue;
        diag_error(diag, node->loc, "%s: this %s: it looks at what is not written yet", what,
                   node->op == OP_SHIFT ? "shift is by more than 0" : "attention is not causal");
        return false;
    }
    return true;
}

static bool check_logits(const char *what, const Plan *plan, Diag *diag) {
    bool found = false;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) found |= is_logits(graph->nodes[n]);
    }
    if (!found) {
        diag_error(
            diag, NO_LOC,
            "%s: the plan never has all logits, as with --loss-parts or --lanes; one without has",
            what);
    }
    return found;
}

bool generate_engine_check_causal(const char *what, Arena *arena, const Plan *plan, Diag *diag) {
    for (int p = 0; p < plan->n_programs; p++) {
        if (!check_causal(what, arena, plan->programs[p].graph, diag)) return false;
    }
    return check_logits(what, plan, diag);
}

/* Opening one from the command line. */
typedef struct Opening {
    CliArgs *args;
    GenerateEngine *out;
    Diag *diag;
    DecodeObstacle obstacle;
    bool beside;   /* training */
    bool scores;   /* texts are scored */
    int t, copies; /* of the plan for decoding */
} Opening;

/* Sets t and copies, or the obstacle. False: reported. */
static bool find_layout(Opening *o) {
    static const CliOption OTHERS[] = {OPT_CHUNKS,         OPT_SPLIT,      OPT_EXPERT_PARTS,
                                       OPT_VOCAB_MULTIPLE, OPT_LOSS_PARTS, OPT_LANES};
    bool seen[N_MESH_AXES] = {false};
    Mesh mesh = {0};
    if (!plan_mesh_from_args(o->args, &mesh, seen, o->diag)) return false;
    o->t = mesh.size[MESH_T];
    o->copies = mesh.size[MESH_D];
    const bool tasks = cli_given(o->args, OPT_PROMPTS) || cli_given(o->args, OPT_PROBLEMS) ||
                       cli_given(o->args, OPT_CHOICES);
    if (mesh_rank_count(&mesh) != o->t * o->copies) {
        o->obstacle.what = "a layout is asked for, and caches are divided over t and d alone";
    } else if (o->copies > 1 && !tasks) {
        o->obstacle.what = "over d there are --prompts, --problems and --choices alone";
    }
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cli_given(o->args, OTHERS[i])) continue;
        o->obstacle.what =
            arena_printf(o->args->arena, "--%s is asked for, and caches have no such",
                         CLI_OPTIONS[OTHERS[i]].name);
    }
    return true;
}

/* --context N of a model: --set seq=N, where it has no table of positions. */
static bool lengthen(Opening *o, PlanRequest *request) {
    int64_t wanted = cli_int(o->args, OPT_POSITIONS, request->seq);
    CliValue *set = &o->args->values[OPT_SET];
    if (wanted <= request->seq) return true;
    if (decode_has_table(request->forward)) {
        diag_error(o->diag, NO_LOC,
                   "--context: the model has a table of %" PRId64 " positions, and no more",
                   request->seq);
        return false;
    }
    ARENA_PUSH(o->args->arena, set->list, set->n_list, set->list_capacity,
               arena_printf(o->args->arena, "seq=%" PRId64, wanted));
    return plan_load_model(o->args, o->args->arena, 1, request, o->diag);
}

/* What the loss says of images, if it does. */
static void find_images(GenerateEngine *out, const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_LABEL_SHARE && image_rule_is_there(node)) out->images = node;
    }
}

static Plan *make_decode_plan(Opening *o, const PlanRequest *from, DType precision, int frozen_bits,
                              DeviceKind device) {
    int64_t context = cli_int(o->args, OPT_POSITIONS, from->seq);
    DecodeRequest request = {.model = from->model,
                             .settings = from->settings,
                             .forward = from->forward,
                             .n_blocks = from->n_blocks,
                             .context = context,
                             .vocab = from->vocab,
                             .precision = precision,
                             .frozen_bits = frozen_bits,
                             .sequences = o->out->n_texts,
                             .chunk = context < CHUNK ? (int)context : CHUNK,
                             .scores = o->scores,
                             .t = o->t,
                             .copies = o->copies,
                             .cuda = device == DEVICE_CUDA};
    return decode_plan(o->args->arena, &request, &o->obstacle, o->diag);
}

/* `generate` alone does. Sets what the plan for training says about it, and why there are no
 * caches.
 */
static bool writes_by_diffusion(Opening *o, const Graph *graph) {
    const Node *node = find_diffusion(graph);
    if (!node || o->args->command->run != cmd_generate) return false;
    o->out->diffuses = true;
    o->out->mask = (int32_t)node_int(node, ATTR_mask, 0);
    o->out->shifted = node_int(node, ATTR_by, 0) != 0;
    o->obstacle = (DecodeObstacle){
        .loc = node->loc,
        .what =
            "it writes by diffusion, each pass over a whole window, as long as --set seq= says"};
    return true;
}

/* A plan for decoding of MODEL.lua; NULL: an obstacle, or reported. */
static Plan *plan_of_model(Opening *o) {
    PlanRequest request = {0};
    DeviceKind device;
    if (!device_from_args(o->args, &device, o->diag)) return NULL;
    if (!find_layout(o)) return NULL;
    if (!plan_precision_from_args(o->args, &request.options, o->diag)) return NULL;
    if (!plan_load_model(o->args, o->args->arena, 1, &request, o->diag)) return NULL;
    if (writes_by_diffusion(o, request.forward)) return NULL;
    find_images(o->out, request.forward);
    if (!check_causal(o->args->command->name, o->args->arena, request.forward, o->diag))
        return NULL;
    if (o->obstacle.what || !lengthen(o, &request)) return NULL;
    return make_decode_plan(o, &request, request.options.precision, request.options.frozen_bits,
                            device);
}

/* The same of a plan for training. */
static Plan *plan_of_plan(Opening *o, const Plan *plan) {
    PlanRequest request = {.model = plan->model,
                           .settings = plan->settings,
                           .forward = plan->programs[0].graph,
                           .n_blocks = plan->n_blocks,
                           .seq = plan->seq,
                           .vocab = plan->vocab};
    if (mesh_rank_count(&plan->mesh) > plan->mesh.size[MESH_D] * plan->mesh.size[MESH_R] ||
        plan->n_chunks > 1) {
        o->obstacle.what = "the plan divides the model: give MODEL.lua, or a plan of one rank";
    } else if (plan_pixels(plan) > 0) { /* fused, it no longer says what stands in images' places */
        o->obstacle.what = "the plan's model sees images: give MODEL.lua";
    } else if (o->out->options.control && !o->beside) {
        o->obstacle.what = "several processes were started, and caches are one's";
    } else if (cli_int(o->args, OPT_POSITIONS, 1) > plan->seq) {
        diag_error(o->diag, NO_LOC,
                   "--context: the plan's sequences have %" PRId64
                   " positions; a MODEL.lua may be given more",
                   plan->seq);
    } else {
        /* Frozen weights are packed already. */
        return make_decode_plan(o, &request, plan->precision, 0, o->out->options.device);
    }
    return NULL;
}

static bool is_model(const char *path) {
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".lua") == 0;
}

/* How prompts and completions begin and end, as the loss says. */
static bool find_source(const char *what, GenerateEngine *out, Diag *diag) {
    out->source = plan_source(out->plan);
    for (int p = 0; p < out->plan->n_programs && out->source; p++) {
        const Graph *graph = out->plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_LABEL_SHARE || !node_attr(node, ATTR_start)) continue;
            out->start = (int32_t)node_int(node, ATTR_start, 0);
            out->eos = (int32_t)node_int(node, ATTR_eos, 0);
            out->pad = (int32_t)node_int(node, ATTR_pad, out->start);
            const int64_t vocab = out->plan->vocab;
            if (out->start >= 0 && out->start < vocab && out->eos >= 0 && out->eos < vocab &&
                out->pad >= 0 && out->pad < vocab) {
                return true;
            }
        }
    }
    if (!out->source) return true;
    diag_error(diag, NO_LOC,
               "%s: the model has an encoder, and its loss does not say which tokens begin and end "
               "what it reads: from_source = { start, eos } for nn.cross_entropy",
               what);
    return false;
}

/* A plan that came from a file: the token, and all logits. */
static bool check_mask(const GenerateEngine *out, const Plan *plan, Diag *diag) {
    if (out->mask < 0 || out->mask >= plan->vocab) {
        diag_error(diag, NO_LOC, "generate: the plan's mask, %d, is none of its %" PRId64 " tokens",
                   out->mask, plan->vocab);
        return false;
    }
    return check_logits("generate", plan, diag);
}

/* What is needed of the old way: a window as long as the model's sequences. */
static bool open_windows(Opening *o) {
    GenerateEngine *out = o->out;
    if (!find_source(o->args->command->name, out, o->diag)) return false;
    if (cli_given(o->args, OPT_POSITIONS)) {
        diag_error(o->diag, o->obstacle.loc, "--context needs caches: %s", o->obstacle.what);
        return false;
    }
    out->obstacle = o->obstacle;
    out->context = out->plan->seq;
    return true;
}

/* Sets plan, options and, where there are caches, context. */
static int find_plan(Opening *o) {
    GenerateEngine *out = o->out;
    Plan *decode = NULL, *training = NULL;
    bool model = is_model(o->args->operand), cached = !cli_given(o->args, OPT_NO_CACHE);
    if (!cached) o->obstacle.what = "--no-cache";
    if (model && cached) decode = plan_of_model(o);
    if (diag_error_count(o->diag) > 0) return EXIT_USAGE;
    if (!decode) {
        training = plan_from_operand(o->args, o->diag);
        if (!training) return EXIT_USAGE;
        for (int p = 0; p < training->n_programs; p++) {
            find_images(out, training->programs[p].graph);
        }
        for (int p = 0; p < training->n_programs && !out->diffuses; p++) {
            writes_by_diffusion(o, training->programs[p].graph);
        }
        if (out->diffuses ? !check_mask(out, training, o->diag)
                          : !generate_engine_check_causal(o->args->command->name, o->args->arena,
                                                          training, o->diag)) {
            return EXIT_USAGE;
        }
    }
    int failure =
        engine_options_from_args(o->args, decode ? decode : training, &out->options, o->diag);
    if (failure != EXIT_DONE) return failure;
    if (!train_alike_check(o->args, NULL, &out->options, o->diag)) return EXIT_USAGE;
    if (decode && decode->mesh.size[MESH_D] > 1 && !out->options.control) {
        diag_error(o->diag, NO_LOC,
                   "--mesh d=%d: texts are divided among processes, and this is one",
                   decode->mesh.size[MESH_D]);
        return EXIT_USAGE;
    }
    if (!decode && !model && cached && !out->diffuses) decode = plan_of_plan(o, training);
    if (diag_error_count(o->diag) > 0) return EXIT_USAGE;
    const char *lacking =
        training ? engine_args_missing_gpu(o->args, training, &out->options) : NULL;
    if (lacking) { /* standard output is for the text */
        fprintf(stderr,
                "note: on the processor, though the plan is for CUDA: no GPU can be used: %s\n",
                lacking);
    }
    out->plan = decode ? decode : training;
    out->context = decode ? decode->context : 0;
    return decode || open_windows(o) ? EXIT_DONE : EXIT_USAGE;
}

int generate_engine_open(CliArgs *args, int n_texts, GenerateEngine *out, Diag *diag) {
    *out = (GenerateEngine){.n_texts = n_texts};
    Opening o = {.args = args, .out = out, .diag = diag, .scores = cli_given(args, OPT_CHOICES)};
    return find_plan(&o);
}

bool generate_engine_open_beside(CliArgs *args, const GenerateBeside *beside, GenerateEngine *out,
                                 Diag *diag) {
    const EngineOptions *options = beside->options;
    *out = (GenerateEngine){.n_texts = beside->n_texts, .options = *options};
    Opening o = {.args = args,
                 .out = out,
                 .diag = diag,
                 .beside = true,
                 .scores = beside->scores,
                 .t = beside->together};
    o.copies = options->control ? control_world(options->control) / beside->together : 1;
    if (beside->together == 1) {
        o.copies = 1;
        out->options.control = NULL;
        out->options.rank = 0;
        out->options.several_hosts = false;
    } else if (!options->control) {
        out->options.virtual_ranks = options->device == DEVICE_CUDA;
    }
    if (is_model(args->operand)) {
        PlanRequest request = {0};
        if (!plan_load_model(args, args->arena, 1, &request, diag)) return false;
        if (!check_causal("train", args->arena, request.forward, diag)) return false;
        out->plan = make_decode_plan(&o, &request, beside->plan->precision,
                                     (int)cli_int(args, OPT_FROZEN_BITS, 0), options->device);
    } else {
        if (!generate_engine_check_causal("train", args->arena, beside->plan, diag)) return false;
        out->plan = plan_of_plan(&o, beside->plan);
    }
    out->obstacle = o.obstacle;
    if (out->plan) out->context = out->plan->context;
    return out->plan || diag_error_count(diag) == 0;
}

void generate_engine_note_windows(const GenerateEngine *e) {
    const DecodeObstacle *obstacle = &e->obstacle;
    if (e->plan->context || e->diffuses) return;
    fprintf(stderr, "note: every token computes its whole context again: ");
    if (obstacle->loc.file) fprintf(stderr, "%s:%d: ", obstacle->loc.file, obstacle->loc.line);
    fprintf(stderr, "%s\n", obstacle->what);
}

bool generate_engine_create(GenerateEngine *e, Arena *arena, Diag *diag) {
    e->engine = engine_create(e->plan, &e->options, diag);
    if (!e->engine) return false;
    int64_t n_tokens = e->n_texts;
    if (e->plan->context) {
        e->decoder = decoder_create(e->engine, e->plan, arena);
        e->firsts = ARENA_ARRAY(arena, size_t, e->n_texts);
        e->waits = ARENA_ARRAY(arena, bool, e->n_texts);
        e->begins = ARENA_ARRAY(arena, bool, e->n_texts);
        e->reads = ARENA_ARRAY(arena, DecoderRead, e->n_texts);
        e->held = ARENA_ARRAY(arena, HeldTokens, e->n_texts);
        e->seen = ARENA_ARRAY(arena, const TextImages *, e->n_texts);
        e->pixels = ARENA_ARRAY(arena, int32_t, e->decoder->pixels + 1);
        for (int i = 0; i < e->n_texts; i++) {
            e->held[i].tokens = ARENA_ARRAY(arena, int32_t, e->context);
        }
        e->prompt = (ReadPrompt){.tokens = ARENA_ARRAY(arena, uint32_t, e->context),
                                 .logits = ARENA_ARRAY(arena, float, e->plan->vocab),
                                 .holds = ARENA_ARRAY(arena, bool, e->n_texts)};
    } else {
        int64_t rows = engine_forward_batch(e->engine);
        n_tokens = rows * plan_row(e->plan);
        e->windows = ARENA_ARRAY(arena, float, rows * e->plan->seq * e->plan->vocab);
    }
    e->tokens = ARENA_ARRAY(arena, int32_t, n_tokens);
    return true;
}

bool generate_engine_start(GenerateEngine *e, const CliArgs *args, Diag *diag) {
    if (generate_engine_create(e, args->arena, diag)) {
        return engine_args_load(args, e->engine, NULL, diag);
    }
    if (e->plan->context && e->options.device == DEVICE_CUDA) {
        diag_note(diag, NO_LOC, "--no-cache writes without caches, by other kernels");
    }
    return false;
}

bool generate_engine_release(GenerateEngine *e, bool good) {
    engine_destroy(e->engine);
    e->engine = NULL;
    return engine_args_release(&e->options, good);
}

bool generate_engine_check_prompt(const GenerateEngine *e, const GenerateText *text,
                                  const char *where, Diag *diag) {
    if (e->diffuses && (int64_t)text->tokens.count >= e->context) {
        diag_error(diag, NO_LOC,
                   "%s: %zu tokens; the model has %" PRId64
                   " positions, and needs one of them for an answer: --set seq=",
                   where, text->tokens.count, e->context);
        return false;
    }
    if (!e->source || (int64_t)text->n_prompt_tokens < e->source) return true;
    diag_error(diag, NO_LOC,
               "%s: %zu tokens; the encoder reads %" PRId64 " at most, and one that ends them",
               where, text->n_prompt_tokens, e->source - 1);
    return false;
}

/* The prompt to the encoder, what was written since to the decoder. Returns whose logits follow. */
static size_t fill_pair(GenerateEngine *e, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    size_t n_prompt = text->n_prompt_tokens, n = tokens->count - n_prompt;
    int32_t *decoder = e->tokens + e->source;
    for (int64_t i = 0; i < e->source; i++) {
        size_t at = (size_t)i;
        e->tokens[i] = at < n_prompt    ? (int32_t)tokens->items[at]
                       : at == n_prompt ? e->eos
                                        : e->pad;
    }
    for (size_t i = 0; i <= n; i++) {
        decoder[i] = i ? (int32_t)tokens->items[n_prompt + i - 1] : e->start;
    }
    return n;
}

/* The causal mask makes what follows the last token irrelevant, so a short context lies at the
 * beginning of the window. */
static size_t fill_window(GenerateEngine *e, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    size_t seq = (size_t)e->context, length = tokens->count < seq ? tokens->count : seq;
    const uint32_t *context = tokens->items + tokens->count - length;
    for (size_t i = 0; i < length; i++) e->tokens[i] = (int32_t)context[i];
    return length - 1;
}

bool generate_engine_windows(GenerateEngine *e, Diag *diag) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!engine_logits(e->engine, e->tokens, e->windows, diag)) return false;
    clock_gettime(CLOCK_MONOTONIC, &end);
    e->seconds +=
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    e->n_windows++;
    return true;
}

/* False, reported: what no longer fits is forgotten, and would tear images from the text. */
static bool fits(const GenerateEngine *e, const GenerateText *text, size_t first, Diag *diag) {
    if (!text->images || text->tokens.count - first <= (size_t)e->context) return true;
    diag_error(diag, NO_LOC,
               "a text with images is longer than the context, %" PRId64
               " tokens with those of its images: --context, or a smaller --length",
               e->context);
    return false;
}

static bool compute_window(GenerateEngine *e, const GenerateText *text, float *out_logits,
                           Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    if (!fits(e, text, 0, diag)) return false;
    if (e->images && !text_images_equal(e->in_tokens, text->images)) {
        int32_t *pixels = e->tokens + plan_row_tokens(e->plan);
        if (!text_images_read(text->images, plan_pixels(e->plan), pixels, diag)) return false;
        e->in_tokens = text->images;
    }
    size_t last = e->source ? fill_pair(e, text) : fill_window(e, text);
    if (!generate_engine_windows(e, diag)) return false;
    memcpy(out_logits, e->windows + last * vocab, vocab * sizeof(float));
    return true;
}

static bool is_read(const ReadPrompt *prompt, const GenerateText *text) {
    const TokenList *tokens = &text->tokens;
    return prompt->count > 0 && prompt->count == tokens->count &&
           text_images_equal(prompt->images, text->images) &&
           memcmp(prompt->tokens, tokens->items, tokens->count * sizeof(*tokens->items)) == 0;
}

/* The caches of text i have its first `count` tokens as reading many at once makes them. */
static void hold_beginning(GenerateEngine *e, int i, const GenerateText *text, int64_t count) {
    e->held[i].count = count;
    e->seen[i] = text->images;
    memcpy(e->held[i].tokens, text->tokens.items, (size_t)count * sizeof(uint32_t));
}

/* Text i begins as others do, of which the caches have all. */
static bool share_prompt(GenerateEngine *e, int i, const GenerateText *text, float *out_logits) {
    ReadPrompt *prompt = &e->prompt;
    if (!is_read(prompt, text)) return false;
    for (int k = 0; k < e->n_texts; k++) {
        if (k == i || !prompt->holds[k] ||
            !decoder_copy_first(e->decoder, k, i, (int64_t)prompt->count, prompt->start)) {
            continue;
        }
        memcpy(out_logits, prompt->logits, (size_t)e->plan->vocab * sizeof(float));
        prompt->holds[i] = true;
        const int64_t n = (int64_t)prompt->count;
        hold_beginning(e, i, text, n - decoder_count_few(e->decoder, n));
        return true;
    }
    return false;
}

/* Text i was read from its beginning on. */
static void keep_prompt(GenerateEngine *e, int i, const GenerateText *text, const float *logits) {
    ReadPrompt *prompt = &e->prompt;
    prompt->count = text->tokens.count;
    prompt->images = text->images;
    prompt->start = e->decoder->starts[i];
    memcpy(prompt->tokens, text->tokens.items, prompt->count * sizeof(*prompt->tokens));
    memcpy(prompt->logits, logits, (size_t)e->plan->vocab * sizeof(float));
    memset(prompt->holds, 0, (size_t)e->n_texts * sizeof(*prompt->holds));
    prompt->holds[i] = true;
}

/* How much of the text, which is read from its beginning, may have been read with another: what is
 * read many at once, but for its last token, whose logits are asked for. */
static int64_t shareable(const GenerateEngine *e, const GenerateText *text) {
    const int64_t n = (int64_t)text->tokens.count, few = decoder_count_few(e->decoder, n);
    return few ? n - few : n - 1;
}

/* Text i begins as another one does, or did: with examples, or what a chat's system says. What it
 * has of it then has the bits that reading it would give. */
static void take_beginning(GenerateEngine *e, int i, const GenerateText *text) {
    const int64_t most = shareable(e, text);
    int64_t count = 0;
    int from = i;
    for (int k = 0; k < e->n_texts; k++) {
        if (!text_images_equal(e->seen[k], text->images)) continue;
        const int64_t common =
            held_tokens_common(&e->held[k], (const int32_t *)text->tokens.items, most);
        if (common > count || (common == count && k == i)) from = k, count = common;
    }
    if (count == 0 || e->decoder->states) return;
    decoder_copy_first(e->decoder, from, i, count,
                       decoder_find_start(e->decoder, (const int32_t *)text->tokens.items, count));
    hold_beginning(e, i, text, count);
}

/* Is most of the text about to be read, as the beginning of one of these? Then it waits. */
static bool awaits(const GenerateEngine *e, const GenerateText *texts, int i, int n_reads) {
    const GenerateText *text = &texts[i];
    for (int r = 0; r < n_reads; r++) {
        const TokenList *other = &texts[e->reads[r].sequence].tokens;
        if (!text_images_equal(texts[e->reads[r].sequence].images, text->images)) continue;
        const HeldTokens all = {(int32_t *)other->items, (int64_t)other->count};
        const int64_t n = (int64_t)text->tokens.count;
        const int64_t common = held_tokens_common(&all, (const int32_t *)text->tokens.items, n);
        const bool same = common == n && n == all.count;
        if (e->begins[e->reads[r].sequence] &&
            (same || (common >= e->decoder->chunk && !e->decoder->states))) {
            return true;
        }
    }
    return false;
}

/* Where text i no longer fits, the end of it is read anew, half a context. False, reported: that
 * would tear its images from it. */
static bool restart_full(GenerateEngine *e, int i, const GenerateText *text, Diag *diag) {
    const size_t context = (size_t)e->context, count = text->tokens.count;
    if (!fits(e, text, e->firsts[i], diag)) return false;
    if (count - e->firsts[i] <= context) return true;
    e->firsts[i] = count - (context > 1 ? context / 2 : 1);
    e->n_restarts++;
    e->prompt.holds[i] = false;
    e->held[i].count = 0;
    decoder_clear(e->decoder, i);
    return true;
}

/* What the caches do not have of text i, whose images are looked at where it is read from its
 * beginning. False: reported. */
static bool read_of(GenerateEngine *e, int i, const GenerateText *text, float *out_logits,
                    DecoderRead *out, Diag *diag) {
    const size_t count = text->tokens.count;
    int64_t few = -1;
    if (e->begins[i]) {
        few = decoder_count_few(e->decoder, (int64_t)count);
        take_beginning(e, i, text);
    }
    if (text->images && e->decoder->lengths[i] == 0) {
        if (!text_images_read(text->images, e->decoder->pixels, e->pixels, diag) ||
            !decoder_look(e->decoder, i, e->pixels, diag)) {
            return false;
        }
        e->seen[i] = text->images;
        e->held[i].count = 0; /* which was read with others */
    }
    const size_t begin = e->firsts[i] + (size_t)e->decoder->lengths[i];
    const int64_t n = (int64_t)(count - begin);
    *out = (DecoderRead){i, (const int32_t *)text->tokens.items + begin, n,
                         few < 0 ? decoder_count_few(e->decoder, n) : few, out_logits};
    return true;
}

/* What was read from its beginning is there for others: those that wait for all of it have it. */
static void share_read(GenerateEngine *e, const GenerateText *texts, const DecoderRead *read,
                       float *out_logits) {
    const int i = (int)read->sequence;
    const int64_t n = (int64_t)texts[i].tokens.count;
    keep_prompt(e, i, &texts[i], read->logits);
    hold_beginning(e, i, &texts[i], n - read->few);
    for (int k = 0; k < e->n_texts; k++) {
        float *logits = out_logits + (size_t)k * (size_t)e->plan->vocab;
        if (e->waits[k] && e->begins[k] && share_prompt(e, k, &texts[k], logits)) {
            e->waits[k] = false;
        }
    }
}

/* Reads texts that wait, those together that have little in common. */
static bool read_round(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                       Diag *diag) {
    const size_t vocab = (size_t)e->plan->vocab;
    int n = 0;
    for (int i = 0; i < e->n_texts; i++) {
        float *logits = out_logits + (size_t)i * vocab;
        if (!e->waits[i]) continue;
        const bool done = e->begins[i] && share_prompt(e, i, &texts[i], logits);
        if (!done && e->begins[i] && awaits(e, texts, i, n)) continue;
        if (!done && !read_of(e, i, &texts[i], logits, &e->reads[n++], diag)) return false;
        e->waits[i] = false;
    }
    if (n > 0 && !decoder_read_all(e->decoder, e->reads, n, diag)) return false;
    for (int r = 0; r < n; r++) {
        if (e->begins[e->reads[r].sequence]) share_read(e, texts, &e->reads[r], out_logits);
    }
    return true;
}

/* What the caches do not have of the texts that wait. */
static bool read_texts(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                       Diag *diag) {
    for (int i = 0; i < e->n_texts; i++) {
        if (!e->waits[i]) continue;
        if (!restart_full(e, i, &texts[i], diag)) return false;
        const bool begins = e->firsts[i] == 0 && e->decoder->lengths[i] == 0;
        e->begins[i] = e->apart && e->n_texts > 1 && begins;
    }
    for (int i = 0; i < e->n_texts; i++) { /* the first that waits is read in any round */
        if (e->waits[i] && !read_round(e, texts, out_logits, diag)) return false;
        if (e->waits[i]) i--;
    }
    return true;
}

/* All texts are alike: the first is read, and is the others' too. */
static bool read_prompt(GenerateEngine *e, const GenerateText *texts, float *out_logits,
                        Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    e->waits[0] = true;
    if (!read_texts(e, texts, out_logits, diag)) return false;
    for (int i = 1; i < e->n_texts; i++) {
        decoder_copy(e->decoder, 0, i);
        e->firsts[i] = e->firsts[0];
        memcpy(out_logits + (size_t)i * vocab, out_logits, vocab * sizeof(float));
    }
    return true;
}

static bool decode(GenerateEngine *e, const GenerateText *texts, const bool *live,
                   float *out_logits, Diag *diag) {
    bool any = false;
    if (!e->apart && e->decoder->lengths[0] == 0) return read_prompt(e, texts, out_logits, diag);
    for (int i = 0; i < e->n_texts; i++) {
        const TokenList *tokens = &texts[i].tokens;
        size_t length = (size_t)e->decoder->lengths[i]; /* 0: a prompt, which is read */
        bool next = length > 0 && e->firsts[i] + length + 1 == tokens->count;
        bool writes = live[i] && next && !decoder_is_full(e->decoder, i);
        e->tokens[i] = writes ? (int32_t)tokens->items[tokens->count - 1] : -1;
        any |= writes;
    }
    if (any && !decoder_write(e->decoder, e->tokens, out_logits, diag)) return false;
    for (int i = 0; i < e->n_texts; i++) e->waits[i] = live[i] && e->tokens[i] < 0;
    return read_texts(e, texts, out_logits, diag); /* after: writing leaves their rows alone */
}

void generate_engine_turn(GenerateEngine *e, size_t kept) {
    if (!e->decoder) return;
    size_t first = e->firsts[0];
    if (kept <= first || decoder_cut(e->decoder, 0, (int64_t)(kept - first)) == 0) {
        decoder_clear(e->decoder, 0);
        e->firsts[0] = 0;
    }
}

void generate_engine_forget(GenerateEngine *e) {
    e->prompt.count = 0;
    for (int i = 0; e->decoder && i < e->n_texts; i++) e->held[i].count = 0;
}

void generate_engine_begin(GenerateEngine *e, int i) {
    e->apart = true;
    if (!e->decoder) return;
    decoder_clear(e->decoder, i);
    e->prompt.holds[i] = false;
    e->firsts[i] = 0;
}

bool generate_engine_logits(GenerateEngine *e, const GenerateText *texts, const bool *live,
                            float *out_logits, Diag *diag) {
    size_t vocab = (size_t)e->plan->vocab;
    if (e->decoder) return decode(e, texts, live, out_logits, diag);
    for (int i = 0; i < e->n_texts; i++) {
        float *logits = out_logits + (size_t)i * vocab;
        if (live[i] && !compute_window(e, &texts[i], logits, diag)) return false;
    }
    return true;
}
