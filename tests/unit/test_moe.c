/* nn.moe against the definition of a sparse mixture of experts, token by token in float64: the
 * layer's graph is run by the ops' references (tests/support), what it should give is written here.
 *
 * Would catch: experts' weights or gates mixed up, a wrong normalisation, a shared expert left out,
 * tokens beyond capacity that are not dropped or not the last ones, a loss of another sequence.
 * That training does not depend on the layout is test_unusual_models'.
 */
#include "frontend/lua/model.h"
#include "tests/support/reference_eval.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 3, SEQ = 10, MODEL = 4, EXPERTS = 5, FFN = 6, CHOICES = 2 };

static const char TEXT[] =
    "local nn = require 'nn'\n"
    "return model { name = 'mixture',\n"
    "  axes = { seq = 10, model = 4, vocab = 7, experts = 5, expert_ffn = 6, shared_ffn = 6 },\n"
    "  capacity = 0.0, scores = 'softmax', normalize = true, scale = 1.0, shared = false,\n"
    "  loss = function(m, tokens, labels)\n"
    "    local x = nn.embedding(m, 'wte', tokens)\n"
    "    local y, loss = nn.moe(m, x, { capacity = m.capacity, scores = m.scores,\n"
    "      normalize = m.normalize, scale = m.scale, shared = m.shared, balance = 1.0, z = 0.5 })\n"
    "    m:output('y', y)\n"
    "    m:output('beside', loss)\n"
    "    return nn.cross_entropy(m, nn.logits(m, 'wte', y), labels, 'vocab', { beside = loss })\n"
    "  end }\n";

typedef struct Mixture {
    double capacity, scale;
    bool sigmoid, normalize, shared;
} Mixture;

static double *named(Reference *ref, const char *name) {
    for (int n = 0; n < ref->graph->n_nodes; n++) {
        Node *node = ref->graph->nodes[n];
        if (strcmp(node_string(node, ATTR_name), name) != 0) continue;
        return reference_value(ref, node->op == OP_OUTPUT ? node->inputs[0] : node_value(node, 0));
    }
    BUG("no '%s'", name);
}

static void fill(Reference *ref) {
    uint64_t state = 3;
    for (int n = 0; n < ref->graph->n_nodes; n++) {
        Node *node = ref->graph->nodes[n];
        if (node->op != OP_PARAM && node->op != OP_INPUT) continue;
        double *values = reference_value(ref, node_value(node, 0));
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double u = (double)(state >> 11) * 0x1p-53;
            values[i] = node->op == OP_INPUT ? floor(u * 7) : 4 * u - 2;
        }
    }
}

/* out += factor (silu(x gate) (x up)) down */
static void add_expert(const double *x, const double *gate, const double *up, const double *down,
                       double factor, double *out) {
    for (int f = 0; f < FFN; f++) {
        double g = 0, u = 0;
        for (int m = 0; m < MODEL; m++) {
            g += x[m] * gate[m * FFN + f];
            u += x[m] * up[m * FFN + f];
        }
        for (int m = 0; m < MODEL; m++) {
            out[m] += factor * g / (1 + exp(-g)) * u * down[f * MODEL + m];
        }
    }
}

typedef struct Routed {
    double probability[EXPERTS], gate[CHOICES], log_sum;
    int chosen[CHOICES];
} Routed;

static Routed route_token(const Mixture *of, const double *x, const double *router) {
    Routed r = {.log_sum = 0};
    double logits[EXPERTS], score[EXPERTS], sum = 0, scores = 0;
    for (int e = 0; e < EXPERTS; e++) {
        logits[e] = 0;
        for (int m = 0; m < MODEL; m++) logits[e] += x[m] * router[m * EXPERTS + e];
        sum += exp(logits[e]);
    }
    for (int e = 0; e < EXPERTS; e++) {
        score[e] = of->sigmoid ? 1 / (1 + exp(-logits[e])) : exp(logits[e]) / sum;
        scores += score[e];
    }
    for (int e = 0; e < EXPERTS; e++) r.probability[e] = score[e] / scores;
    r.log_sum = log(sum);
    for (int k = 0; k < CHOICES; k++) {
        r.chosen[k] = -1;
        for (int e = 0; e < EXPERTS; e++) {
            bool taken = k > 0 && r.chosen[0] == e;
            if (!taken && (r.chosen[k] < 0 || logits[e] > logits[r.chosen[k]])) r.chosen[k] = e;
        }
    }
    double both = score[r.chosen[0]] + score[r.chosen[1]];
    for (int k = 0; k < CHOICES; k++) {
        r.gate[k] = of->scale * score[r.chosen[k]] / (of->normalize ? both : 1);
    }
    return r;
}

/* Of one sequence: what the layer should give, and its loss. */
static int expect_sequence(const Mixture *of, Reference *ref, int b, double *out, double *loss) {
    const double *tokens = named(ref, "tokens"), *table = named(ref, "wte");
    double share[EXPERTS] = {0}, mean[EXPERTS] = {0}, z = 0;
    int taken[EXPERTS] = {0}, n_dropped = 0;
    int room = of->capacity > 0 ? (int)ceil(SEQ * CHOICES * of->capacity / EXPERTS) : SEQ;
    memset(out, 0, sizeof(double) * SEQ * MODEL);
    for (int s = 0; s < SEQ; s++) {
        const double *x = table + (int)tokens[b * SEQ + s] * MODEL;
        Routed r = route_token(of, x, named(ref, "moe.router"));
        for (int k = 0; k < CHOICES; k++) {
            int e = r.chosen[k], weights = e * MODEL * FFN;
            share[e] += 1.0 / (SEQ * CHOICES);
            n_dropped += taken[e] >= room;
            if (taken[e]++ >= room) continue;
            add_expert(x, named(ref, "moe.wgate") + weights, named(ref, "moe.wup") + weights,
                       named(ref, "moe.wdown") + weights, r.gate[k], out + s * MODEL);
        }
        if (of->shared) {
            add_expert(x, named(ref, "moe.shared.wgate"), named(ref, "moe.shared.wup"),
                       named(ref, "moe.shared.wdown"), 1, out + s * MODEL);
        }
        for (int e = 0; e < EXPERTS; e++) mean[e] += r.probability[e] / SEQ;
        z += 0.5 * r.log_sum * r.log_sum / SEQ;
    }
    *loss = z;
    for (int e = 0; e < EXPERTS; e++) *loss += EXPERTS * share[e] * mean[e];
    return n_dropped;
}

static Model *load(Arena *arena, const Mixture *of, Diag *diag) {
    char path[] = "/tmp/perilune_mixture_XXXXXX.lua";
    int fd = mkstemps(path, 4);
    bool written = fd >= 0 && write(fd, TEXT, sizeof(TEXT) - 1) == (ssize_t)(sizeof(TEXT) - 1);
    ModelSetting settings[] = {{"capacity", arena_printf(arena, "%g", of->capacity)},
                               {"scale", arena_printf(arena, "%g", of->scale)},
                               {"scores", of->sigmoid ? "sigmoid" : "softmax"},
                               {"normalize", of->normalize ? "true" : "false"},
                               {"shared", of->shared ? "true" : "false"}};
    Model *model = written ? model_load(arena, path, settings, 5, BATCH, diag) : NULL;
    if (fd >= 0) close(fd);
    unlink(path);
    return model;
}

static void check_mixture(const char *name, Mixture of, int least_dropped) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(name);
    Model *model = load(arena, &of, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        Reference *ref = reference_create(arena, model->graph);
        fill(ref);
        reference_run(ref);
        int n_dropped = 0;
        for (int b = 0; b < BATCH; b++) {
            double out[SEQ * MODEL], loss;
            n_dropped += expect_sequence(&of, ref, b, out, &loss);
            for (int i = 0; i < SEQ * MODEL; i++) {
                double got = named(ref, "y")[b * SEQ * MODEL + i];
                CHECK(fabs(got - out[i]) < 1e-9 * fmax(1, fabs(out[i])),
                      "sequence %d, number %d: %.12g, not %.12g", b, i, got, out[i]);
            }
            double got = named(ref, "beside")[b];
            CHECK(fabs(got - loss) < 1e-9, "sequence %d: loss %.12g, not %.12g", b, got, loss);
        }
        CHECK(n_dropped >= least_dropped && (n_dropped == 0) == (least_dropped == 0),
              "%d choices dropped", n_dropped);
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    check_mixture("as Mixtral's block: softmax, gates of the chosen sum to 1, nothing dropped",
                  (Mixture){.scale = 1, .normalize = true}, 0);
    check_mixture("as OLMoE's: gates as they are, and a scale",
                  (Mixture){.scale = 2.5, .normalize = false}, 0);
    check_mixture("as DeepSeek V3's: sigmoid, a shared expert",
                  (Mixture){.scale = 2.5, .normalize = true, .sigmoid = true, .shared = true}, 0);
    check_mixture("with capacity: who comes last is dropped",
                  (Mixture){.scale = 1, .normalize = true, .capacity = 1, .shared = true}, 1);
    return check_report();
}
