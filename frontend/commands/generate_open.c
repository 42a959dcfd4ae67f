#include "frontend/commands/generate_open.h"

#include "frontend/commands/generate_causal.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/train_alike.h"
#include "ir/op.h"

#include <inttypes.h>
#include <string.h>

enum { CHUNK = 128 }; /* positions that are read together: more are hardly faster */

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

/* What the loss says of images, if it does. A plan for decoding no longer has what places them. */
static void find_images(Opening *o, const Graph *graph) {
    ImageRule rule;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_LABEL_SHARE && image_rule_is_there(node)) o->out->images = node;
    }
    if (o->out->images && !image_rule_read(o->out->images, &rule)) {
        image_rule_fits(graph, o->out->images, &rule, o->diag);
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

static const Node *find_diffusion(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (node_diffuses(graph->nodes[n])) return graph->nodes[n];
    }
    return NULL;
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
    find_images(o, request.forward);
    if (diag_error_count(o->diag) > 0) return NULL;
    if (!generate_check_causal(o->args->command->name, o->args->arena, request.forward, o->diag))
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
    return generate_check_logits("generate", plan, diag);
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
    bool model = plan_is_model(o->args->operand), cached = !cli_given(o->args, OPT_NO_CACHE);
    if (!cached) o->obstacle.what = "--no-cache";
    if (model && cached) decode = plan_of_model(o);
    if (diag_error_count(o->diag) > 0) return EXIT_USAGE;
    if (!decode) {
        training = plan_from_operand(o->args, o->diag);
        if (!training) return EXIT_USAGE;
        for (int p = 0; p < training->n_programs; p++) {
            find_images(o, training->programs[p].graph);
        }
        if (diag_error_count(o->diag) > 0) return EXIT_USAGE;
        for (int p = 0; p < training->n_programs && !out->diffuses; p++) {
            writes_by_diffusion(o, training->programs[p].graph);
        }
        if (out->diffuses
                ? !check_mask(out, training, o->diag)
                : !generate_check_plan(o->args->command->name, o->args->arena, training, o->diag)) {
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
    if (plan_is_model(args->operand)) {
        PlanRequest request = {0};
        if (!plan_load_model(args, args->arena, 1, &request, diag)) return false;
        if (!generate_check_causal("train", args->arena, request.forward, diag)) return false;
        out->plan = make_decode_plan(&o, &request, beside->plan->precision,
                                     (int)cli_int(args, OPT_FROZEN_BITS, 0), options->device);
    } else {
        if (!generate_check_plan("train", args->arena, beside->plan, diag)) return false;
        out->plan = plan_of_plan(&o, beside->plan);
    }
    out->obstacle = o.obstacle;
    if (out->plan) out->context = out->plan->context;
    return out->plan || diag_error_count(diag) == 0;
}
