#include "runtime/cuda/epilogue.h"

#include "ir/expr.h"
#include "runtime/cuda/kernels/fused_args.h"

#include <string.h>

enum { MOST_BETWEEN = 64, MOST_ADDENDS = 3 };

typedef struct Folder {
    CommandList *list;
    const Graph *graph;
    const EpilogueCheck *check;
    Arena *arena;
    int *uses;      /* by value index */
    int *last;      /* by value index: the last product so far that makes the value, or -1 */
    int *value_of;  /* by command: the value that a product's D holds */
    int n_commands; /* entries of value_of */
} Folder;

/* An elementwise launch that reads a product. */
typedef struct Reader {
    const Node *node;
    Expr expr;
    const FusedArgs *args;
    int at;      /* its place in the list */
    int product; /* the product's */
    int operand; /* that is the product */
} Reader;

/* --- what a program computes, in terms of the product --- */

typedef enum Form { FORM_OTHER, FORM_SUM, FORM_GELU, FORM_GELU_GRAD } Form;

/* A sum of the product (or not), a bias and addends, and what is made of it. */
typedef struct Term {
    Form form;
    bool product;
    int bias; /* operand, or -1 */
    int n_addends;
    int addends[MOST_ADDENDS]; /* operands */
    int pre;                   /* FORM_GELU_GRAD: the operand that is gelu's */
} Term;

static const Term OTHER = {.form = FORM_OTHER, .bias = -1};

static Type local_type(const Folder *f, Value value) {
    return type_local(value_type(value), value_sharding(value), &f->graph->mesh);
}

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

/* The last axes of `whole`, n elements together, so that it lies along the columns of D. */
static bool is_bias(const Type *bias, const Type *whole, int64_t n) {
    int first = whole->rank - bias->rank;
    if (first < 1 || type_elements(bias) != n) return false;
    for (int i = 0; i < bias->rank; i++) {
        if (bias->axes[i] != whole->axes[first + i]) return false;
        if (bias->dims[i] != whole->dims[first + i]) return false;
    }
    return true;
}

static Term leaf_term(const Folder *f, const Reader *reader, int k) {
    const GemmCommand *gemm = &f->list->items[reader->product].gemm;
    Type whole = local_type(f, reader->node->inputs[reader->operand]);
    Type own = local_type(f, reader->node->inputs[k]);
    Term term = {.form = FORM_SUM, .bias = -1};
    if (k == reader->operand) {
        term.product = true;
    } else if (own.dtype != gemm->out_dtype) {
        return OTHER;
    } else if (type_same_shape(&own, &whole)) {
        term.addends[term.n_addends++] = k;
    } else if (is_bias(&own, &whole, gemm->layout.n)) {
        term.bias = k;
    } else {
        return OTHER;
    }
    return term;
}

static Term add_terms(const Term *a, const Term *b) {
    Term sum = *a;
    if (a->form != FORM_SUM || b->form != FORM_SUM) return OTHER;
    if ((a->product && b->product) || (a->bias >= 0 && b->bias >= 0)) return OTHER;
    if (a->n_addends + b->n_addends > MOST_ADDENDS) return OTHER;
    sum.product |= b->product;
    if (b->bias >= 0) sum.bias = b->bias;
    for (int i = 0; i < b->n_addends; i++) sum.addends[sum.n_addends++] = b->addends[i];
    return sum;
}

static Term gelu_term(const Term *x) {
    Term term = *x;
    if (x->form != FORM_SUM || !x->product || x->n_addends) return OTHER;
    term.form = FORM_GELU;
    return term;
}

static Term gelu_grad_term(const Term *x, const Term *dy) {
    Term term = *dy;
    if (x->form != FORM_SUM || x->product || x->bias >= 0 || x->n_addends != 1) return OTHER;
    if (dy->form != FORM_SUM || !dy->product || dy->bias >= 0 || dy->n_addends) return OTHER;
    term.form = FORM_GELU_GRAD;
    term.pre = x->addends[0];
    return term;
}

/* Fills the terms of the program's instructions. Casts round nothing inside a program. */
static void find_terms(const Folder *f, const Reader *reader, Term *terms) {
    for (int n = 0; n < reader->expr.n_instructions; n++) {
        const ExprInstruction *ins = &reader->expr.instructions[n];
        Term x[EXPR_MAX_OPERANDS];
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            int operand = ins->operands[i];
            x[i] = operand < 0 ? leaf_term(f, reader, ~operand) : terms[operand];
        }
        terms[n] = OTHER;
        if (ins->op == OP_ADD) terms[n] = add_terms(&x[0], &x[1]);
        if (ins->op == OP_GELU) terms[n] = gelu_term(&x[0]);
        if (ins->op == OP_GELU_GRAD) terms[n] = gelu_grad_term(&x[0], &x[1]);
        if (op_is_cast(ins->op) || ins->op == OP_COPY) terms[n] = x[0];
    }
}

/* --- memory --- */

/* What cuBLASLt reads and writes must be apart, but for C, which may be D. */
static bool is_apart(const GemmCommand *g) {
    const MatmulLayout *l = &g->layout;
    Access d = gemm_range(g->d, l->m, l->n, g->out_dtype, true);
    Access aux = gemm_range(g->aux, g->aux ? l->m : 0, l->n, g->out_dtype, true);
    Access others[GEMM_MOST_READS + 1];
    int n_others = gemm_reads(g, others);
    others[n_others++] =
        gemm_range(g->c, g->c && g->c != g->d ? l->m : 0, l->n, g->out_dtype, false);
    for (int i = 0; i < n_others; i++) {
        if (others[i].bytes &&
            (access_overlaps(&d, &others[i]) || (aux.bytes && access_overlaps(&aux, &others[i]))))
            return false;
    }
    return !aux.bytes || !access_overlaps(&d, &aux);
}

/* May the product run where its reader stands? Its operands must still be there, and nobody may
 * have asked for what it keeps storing where it was. */
static bool may_wait(const Folder *f, const Reader *reader, bool keeps_result) {
    const GemmCommand *g = &f->list->items[reader->product].gemm;
    const MatmulLayout *l = &g->layout;
    int first = reader->product + 1, end = reader->at;
    Access reads[GEMM_MOST_READS + 1];
    int n_reads = gemm_reads(g, reads);
    reads[n_reads++] = gemm_range(g->c, g->c ? l->m : 0, l->n, g->out_dtype, false);
    for (int i = 0; i < n_reads; i++) {
        if (reads[i].bytes && !command_list_leaves_alone(f->list, first, end, &reads[i], true))
            return false;
    }
    Access result = gemm_range(g->d, l->m, l->n, g->out_dtype, true);
    return !keeps_result || command_list_leaves_alone(f->list, first, end, &result, false);
}

/* --- folding --- */

/* No cuBLASLt epilogue yet, nothing added. */
static bool is_plain(const GemmCommand *g) {
    return g->epilogue == EPILOGUE_SUM && !g->bias && !g->c && g->beta == 0;
}

static bool fold_sum(const Reader *reader, const Term *term, GemmCommand *g) {
    if (g->epilogue != EPILOGUE_SUM || (term->bias < 0 && !term->n_addends)) return false;
    if ((term->bias >= 0 && g->bias) || (term->n_addends && g->c)) return false;
    if (term->bias >= 0) g->bias = reader->args->in[term->bias];
    if (term->n_addends) {
        g->c = reader->args->in[term->addends[0]];
        g->beta = 1;
    }
    return true;
}

static bool fold_gelu(const Reader *reader, const Term *term, GemmCommand *g, void *aux) {
    if (g->epilogue != EPILOGUE_SUM || g->c || (term->bias >= 0 && g->bias)) return false;
    if (term->bias >= 0) g->bias = reader->args->in[term->bias];
    g->epilogue = EPILOGUE_GELU;
    g->aux = aux;
    return true;
}

static bool fold_gelu_grad(const Reader *reader, const Term *term, GemmCommand *g) {
    if (!is_plain(g)) return false;
    g->epilogue = EPILOGUE_GELU_GRAD;
    g->aux = (void *)reader->args->in[term->pre];
    return true;
}

/* The product with the program's work in it; *out_result says which result D becomes. `others`:
 * does anything else read the product? */
static bool fold_program(const Reader *reader, const Term *terms, bool others, GemmCommand *g,
                         int *out_result) {
    const Expr *expr = &reader->expr;
    const Term *first = &terms[expr->outputs[0]];
    *out_result = 0;
    if (expr->n_outputs == 1) {
        void *product = g->d;
        g->d = reader->args->out[0];
        if (!first->product) return false;
        if (first->form == FORM_GELU && others) {
            return first->bias < 0 && fold_gelu(reader, first, g, product);
        }
        if (others) return false;
        if (first->form == FORM_SUM) return fold_sum(reader, first, g);
        if (first->form == FORM_GELU) return fold_gelu(reader, first, g, NULL);
        return first->form == FORM_GELU_GRAD && fold_gelu_grad(reader, first, g);
    }
    if (expr->n_outputs != 2 || others) return false;
    int gelu = first->form == FORM_GELU ? 0 : 1;
    const Term *y = &terms[expr->outputs[gelu]], *x = &terms[expr->outputs[1 - gelu]];
    if (y->form != FORM_GELU || x->form != FORM_SUM || !x->product) return false;
    if (x->n_addends || x->bias != y->bias) return false;
    *out_result = gelu;
    g->d = reader->args->out[gelu];
    return fold_gelu(reader, y, g, reader->args->out[1 - gelu]);
}

/* cuBLASLt: aux has a leading dimension, here n, that is a multiple of 8. Its gelu is made of
 * tanh.approx, good to 2^-11: enough in 16 bits, not in f32. After products of blocks of fp8
 * Transformer Engine, whose use of them is tried, has a bias, C and gelu's gradient only; the last
 * is not in cuBLASLt's list of what combines with them and left to a kernel. */
static bool is_legal(const Folder *f, const GemmCommand *g) {
    bool wide_bias = g->bias && g->out_dtype == DTYPE_F32; /* theirs would be bf16 */
    if (g->scales_a.at && (g->epilogue != EPILOGUE_SUM || wide_bias)) return false;
    if (g->aux && g->layout.n % 8) return false;
    if (gemm_has_gelu(g) && g->out_dtype == DTYPE_F32) return false;
    return is_apart(g) && (!f->check->supports || f->check->supports(f->check->user, g));
}

/* Those of both, each once, without the product's result where it is not stored any more. */
static void join_accesses(const Folder *f, const Command *product, const Command *launch,
                          Command *out) {
    const Command *both[] = {product, launch};
    Access *joined = ARENA_ARRAY(f->arena, Access, product->n_accesses + launch->n_accesses);
    uintptr_t result = (uintptr_t)product->gemm.d;
    bool kept = out->gemm.aux == product->gemm.d;
    int count = 0;
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < both[b]->n_accesses; i++) {
            const Access *access = &both[b]->accesses[i];
            bool known = false;
            if (access->at == result && access->write == (b == 0) && !(b == 0 && kept)) continue;
            for (int k = 0; k < count && !known; k++) {
                known = joined[k].at == access->at && joined[k].bytes == access->bytes &&
                        joined[k].write == access->write;
            }
            if (!known) joined[count++] = *access;
        }
    }
    out->accesses = joined;
    out->n_accesses = count;
}

/* An addend's own product with another addend in it. */
typedef struct Link {
    int at; /* in the list */
    GemmCommand gemm;
    Access addend;
} Link;

/* Can addend `own`, if it is a product that only this program reads, become own + other? */
static bool find_link(const Folder *f, const Reader *reader, int own, int other, Link *out) {
    int value = value_index(reader->node->inputs[own]), at = f->last[value];
    if (at < 0 || at >= reader->product || reader->at - at > MOST_BETWEEN) return false;
    const Command *earlier = &f->list->items[at];
    const CommandInfo *info = &earlier->info, *here = &f->list->items[reader->at].info;
    GemmCommand gemm = earlier->gemm;
    if (f->uses[value] != 1 || info->micro != here->micro || info->task != here->task ||
        info->chunk != here->chunk || !is_plain(&gemm) || gemm.layout.batch != 1 ||
        matmul_accumulator(gemm.product) >= 0) {
        return false;
    }
    gemm.c = reader->args->in[other];
    gemm.beta = 1;
    *out =
        (Link){at, gemm, gemm_range(gemm.c, gemm.layout.m, gemm.layout.n, gemm.out_dtype, false)};
    return command_list_leaves_alone(f->list, at, reader->at, &out->addend, true) &&
           is_legal(f, &gemm);
}

static void set_link(Folder *f, const Link *link) {
    Command *earlier = &f->list->items[link->at];
    Access *accesses = ARENA_ARRAY(f->arena, Access, earlier->n_accesses + 1);
    memcpy(accesses, earlier->accesses, (size_t)earlier->n_accesses * sizeof(*accesses));
    accesses[earlier->n_accesses++] = link->addend;
    earlier->accesses = accesses;
    earlier->gemm = link->gemm;
}

/* Of product + x + y one addend, say x, is itself a product that only this program reads: it
 * becomes x + y, and is left as the only addend; of three addends x becomes x + (y + z), y being
 * such a product before it. False: nothing has changed. */
static bool chain_addends(Folder *f, const Reader *reader, Term *term) {
    const int *of = term->addends;
    for (int i = 0; i < term->n_addends; i++) {
        for (int k = 0; k < term->n_addends; k++) {
            Link link, before;
            if (k == i || !find_link(f, reader, of[i], of[k], &link)) continue;
            bool more = term->n_addends == 3;
            if (more &&
                (!find_link(f, reader, of[k], of[3 - i - k], &before) || before.at >= link.at)) {
                continue;
            }
            if (more) set_link(f, &before);
            set_link(f, &link);
            term->addends[0] = of[i];
            term->n_addends = 1;
            return true;
        }
    }
    return false;
}

static bool fold_reader(Folder *f, const Reader *reader) {
    Command *launch = &f->list->items[reader->at], *product = &f->list->items[reader->product];
    const Node *node = reader->node;
    Command folded = *launch;
    Term terms[EXPR_MAX_INSTRUCTIONS];
    int result, value = value_index(node->inputs[reader->operand]);
    bool others = f->uses[value] > 1;
    find_terms(f, reader, terms);
    folded.kind = COMMAND_GEMM;
    folded.gemm = product->gemm;
    if (!fold_program(reader, terms, others, &folded.gemm, &result)) return false;
    for (int o = 0; o < node->n_outputs; o++) {
        Type own = local_type(f, node_value((Node *)node, o));
        Type whole = local_type(f, node->inputs[reader->operand]);
        if (own.dtype != folded.gemm.out_dtype || !type_same_shape(&own, &whole)) return false;
    }
    if (!may_wait(f, reader, folded.gemm.aux == product->gemm.d)) return false;
    Term *sum = &terms[reader->expr.outputs[0]];
    if (sum->n_addends > 1) {
        /* As if there were only one, to know before anything changes. */
        if (sum->bias >= 0 || !is_legal(f, &folded.gemm) || !chain_addends(f, reader, sum)) {
            return false;
        }
        folded.gemm.c = reader->args->in[sum->addends[0]];
    } else if (!is_legal(f, &folded.gemm)) {
        return false;
    }
    join_accesses(f, product, launch, &folded);
    product->kind = COMMAND_GONE;
    *launch = folded;
    f->last[value] = -1;
    f->value_of[reader->at] = value_index(node_value((Node *)node, result));
    f->last[f->value_of[reader->at]] = reader->at;
    return true;
}

/* The product that operand k of the launch at `at` is, if it may be folded at all; else -1. */
static int find_product(const Folder *f, const Node *node, int k, int at) {
    int value = value_index(node->inputs[k]), i = f->last[value];
    const Command *launch = &f->list->items[at];
    if (i < 0 || at - i > MOST_BETWEEN) return -1;
    const Command *product = &f->list->items[i];
    const CommandInfo *a = &product->info, *b = &launch->info;
    const GemmCommand *g = &product->gemm;
    if (a->rank != b->rank || a->micro != b->micro || a->task != b->task || a->chunk != b->chunk) {
        return -1;
    }
    bool same = product->stream == launch->stream && f->value_of[i] == value;
    bool simple = g->layout.batch == 1 && g->product && matmul_accumulator(g->product) < 0 &&
                  g->product->phase == node->phase;
    return same && simple ? i : -1;
}

static bool is_candidate(const Command *command) {
    const Node *node = command->info.node;
    if (command->kind != COMMAND_LAUNCH || !command->launch.generated || !node) return false;
    if (node->phase == PHASE_UPDATE) return false;
    return node->op == OP_FUSED || OPS[node->op].flags & ELEMENTWISE_BIT;
}

/* Later products first: what they take in has come before them. */
static int fold_launch(Folder *f, int at) {
    const Node *node = f->list->items[at].info.node;
    Reader reader = {.node = node, .at = at, .args = f->list->items[at].launch.args};
    const char *error;
    bool tried[EXPR_MAX_INPUTS] = {false}, parsed = false;
    for (;;) {
        reader.product = -1;
        for (int k = 0; k < node->n_inputs; k++) {
            int product = tried[k] ? -1 : find_product(f, node, k, at);
            if (product <= reader.product) continue;
            reader.product = product;
            reader.operand = k;
        }
        if (reader.product < 0) return 0;
        tried[reader.operand] = true;
        if (!parsed && node->op != OP_FUSED) reader.expr = expr_of_node(node);
        if (!parsed && node->op == OP_FUSED &&
            !expr_parse(node_string(node, ATTR_program), node->n_inputs, &reader.expr, &error)) {
            return 0;
        }
        parsed = true;
        if (fold_reader(f, &reader)) return 1;
    }
}

int cuda_fold_epilogues(CommandList *list, const Graph *graph, const EpilogueCheck *check,
                        Arena *arena) {
    int n_folded = 0, n_values = graph->n_nodes * MAX_OUTPUTS;
    Folder f = {.list = list, .graph = graph, .check = check, .arena = arena};
    f.uses = graph_count_uses(graph, arena);
    f.last = ARENA_ARRAY(arena, int, n_values + 1);
    f.value_of = ARENA_ARRAY(arena, int, list->count + 1);
    for (int v = 0; v < n_values; v++) f.last[v] = -1;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        if (command->kind == COMMAND_GEMM && command->gemm.product) {
            f.value_of[i] = value_index(node_value((Node *)command->gemm.product, 0));
            f.last[f.value_of[i]] = i;
        } else if (is_candidate(command)) {
            n_folded += fold_launch(&f, i);
        }
    }
    command_list_compact(list);
    return n_folded;
}

const char *epilogue_name(const GemmCommand *gemm, Arena *arena) {
    static const char *const ENDS[] = {[EPILOGUE_SUM] = "",
                                       [EPILOGUE_GELU] = "+gelu",
                                       [EPILOGUE_GELU_GRAD] = "+gelu_grad",
                                       [EPILOGUE_BIAS_GRAD] = "+bias_grad"};
    const char *end = ENDS[gemm->epilogue];
    return arena_printf(arena, "%s%s%s", gemm->bias ? "+bias" : "", gemm->c ? "+addend" : "", end);
}
