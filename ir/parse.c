/* Reads the text that print.c writes. The text is untrusted: every mistake is an error with its
 * line; types that an op infers are compared with the ones stated. */
#include "ir/op.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 4096 };

typedef struct Parser {
    const char *at;
    int line;
    const char *file;
    Graph *graph;
    Diag *diag;
    bool failed;
    Arena *work;
    /* Of one node, which graph_add copies; large plans have hundreds of thousands. */
    Value *operands;
    int n_operands, operand_capacity;
    char (*texts)[MAX_TEXT]; /* [N_ATTRS + 1]: of attributes and of the file */
    const char *last_file;   /* the name of the last node's, which most share */
} Parser;

enum { MAX_NODES = 2000000, MAX_OPERANDS = 1000000 };

static SourceLoc here(const Parser *p) {
    return (SourceLoc){p->file, p->line};
}

static bool fail(Parser *p, const char *what) {
    int shown = (int)strcspn(p->at, "\r\n");
    if (shown > 20) shown = 20;
    if (!p->failed && shown > 0) {
        diag_error(p->diag, here(p), "%s, at '%.*s'", what, shown, p->at);
    } else if (!p->failed) {
        diag_error(p->diag, here(p), "%s", what); /* at the line's end */
    }
    p->failed = true;
    return false;
}

static void skip_space(Parser *p) {
    for (;; p->at++) {
        if (*p->at == '\n') {
            p->line++;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
    }
}

/* Spaces on this line only: what follows a node may stop at the line's end. */
static void skip_blanks(Parser *p) {
    while (*p->at == ' ' || *p->at == '\t') p->at++;
}

static bool accept(Parser *p, const char *text) {
    size_t length = strlen(text);
    if (strncmp(p->at, text, length) != 0) return false;
    p->at += length;
    return true;
}

static bool expect(Parser *p, const char *text) {
    char what[64];
    skip_space(p);
    if (accept(p, text)) return true;
    snprintf(what, sizeof(what), "expected '%s'", text);
    return fail(p, what);
}

static int word_length(const Parser *p) {
    int length = 0;
    while (isalnum((unsigned char)p->at[length]) || p->at[length] == '_') {
        if (++length > MAX_TEXT) break;
    }
    return length;
}

static bool parse_int(Parser *p, int64_t least, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*p->at) && *p->at != '-') return fail(p, "expected a whole number");
    long long value = strtoll(p->at, &end, 10);
    if (end == p->at || errno || value < least || value > most) {
        return fail(p, "number out of range");
    }
    p->at = end;
    *out = value;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* NULL: no such text. */
static const char *parse_quoted(Parser *p, char text[MAX_TEXT]) {
    int length = 0;
    if (!accept(p, "\"")) {
        fail(p, "expected a quoted text");
        return NULL;
    }
    while (*p->at && *p->at != '"' && *p->at != '\n' && length < MAX_TEXT - 1) {
        if (*p->at != '\\') {
            text[length++] = *p->at++;
            continue;
        }
        int high = hex_digit(p->at[1]), low = high < 0 ? -1 : hex_digit(p->at[2]);
        if (low < 0 || high * 16 + low == 0) {
            fail(p, "bad escape in a quoted text");
            return NULL;
        }
        text[length++] = (char)(high * 16 + low);
        p->at += 3;
    }
    if (!accept(p, "\"")) {
        fail(p, "a quoted text does not end");
        return NULL;
    }
    text[length] = '\0';
    return text;
}

static bool parse_axis(Parser *p, int *out) {
    int length = word_length(p);
    *out = graph_axis(p->graph, p->at, length);
    if (*out < 0) return fail(p, "expected an axis name (or there are too many axes)");
    p->at += length;
    return true;
}

static bool parse_mesh_axis(Parser *p, int *out) {
    int length = word_length(p);
    *out = mesh_axis_find(p->at, length);
    if (*out < 0) {
        return fail(p,
                    "expected a mesh axis (t, c, e, d, r, p, ct, te, dc, de, dec, rd, rde, h, th)");
    }
    p->at += length;
    return true;
}

static bool parse_partial(Parser *p, Sharding *sharding) {
    static const char *const NAMES[] = {"sum(", "max(", "lse("};
    int kind = 0;
    while (kind < 3 && !accept(p, NAMES[kind])) kind++;
    if (kind == 3) return fail(p, "expected sum(, max( or lse(");
    sharding->reduce = (uint8_t)kind;
    do {
        int axis;
        if (!parse_mesh_axis(p, &axis)) return false;
        sharding->partial |= (uint8_t)(1 << axis);
    } while (accept(p, ","));
    return accept(p, ")") || fail(p, "expected ')'");
}

/* f32[batch=4/d, seq=64]~sum(t) */
static bool parse_type(Parser *p, Type *type, Sharding *sharding) {
    int length = word_length(p);
    int dtype = dtype_find(p->at, length);
    *type = (Type){0};
    *sharding = sharding_none();
    if (dtype < 0) return fail(p, "expected a type (f32, i32, bf16, f16, fp8, nf4, int8)");
    type->dtype = (DType)dtype;
    p->at += length;
    if (!accept(p, "[")) return fail(p, "expected '['");
    while (!accept(p, "]")) {
        int i = type->rank, axis;
        if (i == MAX_RANK) return fail(p, "too many axes");
        if (i && !accept(p, ", ")) return fail(p, "expected ', ' or ']'");
        if (!parse_axis(p, &axis)) return false;
        if (type_find_axis(type, axis) >= 0) return fail(p, "an axis is there twice");
        if (!accept(p, "=")) return fail(p, "expected '='");
        if (!parse_int(p, 1, INT64_C(1) << 40, &type->dims[i])) return false;
        type->axes[i] = axis;
        type->rank++;
        if (accept(p, "/")) {
            int mesh;
            if (!parse_mesh_axis(p, &mesh)) return false;
            sharding->mesh[i] = (int8_t)mesh;
        }
    }
    return !accept(p, "~") || parse_partial(p, sharding);
}

static bool parse_attr(Parser *p, Attr *attr, char text[MAX_TEXT]) {
    int length = word_length(p);
    int key = attr_find(p->at, length);
    if (key < 0) return fail(p, "unknown attribute");
    p->at += length;
    *attr = (Attr){.key = (AttrKey)key};
    if (!accept(p, "=")) return fail(p, "expected '='");
    switch (ATTRS[key].kind) {
    case ATTR_INT: return parse_int(p, INT64_MIN, INT64_MAX, &attr->i);
    case ATTR_FLOAT: {
        char *end;
        attr->f = strtod(p->at, &end);
        if (end == p->at || end - p->at > 40) return fail(p, "expected a number");
        p->at = end;
        return true;
    }
    case ATTR_STRING: return (attr->s = parse_quoted(p, text)) != NULL;
    case ATTR_AXIS: return parse_axis(p, &attr->axis);
    case ATTR_AXES:
        if (!accept(p, "[")) return fail(p, "expected '['");
        while (!accept(p, "]")) {
            if (attr->axes.count == MAX_RANK) return fail(p, "too many axes");
            if (attr->axes.count && !accept(p, ", ")) return fail(p, "expected ', ' or ']'");
            if (!parse_axis(p, &attr->axes.items[attr->axes.count++])) return false;
        }
        return true;
    }
    return false;
}

static bool parse_operands(Parser *p) {
    p->n_operands = 0;
    if (!accept(p, "(")) return fail(p, "expected '('");
    while (!accept(p, ")")) {
        int64_t id, output = 0;
        if (p->n_operands && !accept(p, ", ")) return fail(p, "expected ', ' or ')'");
        if (p->n_operands == MAX_OPERANDS) return fail(p, "too many operands");
        if (!accept(p, "%")) return fail(p, "expected '%'");
        if (!parse_int(p, 0, INT_MAX, &id)) return false;
        if (accept(p, ".") && !parse_int(p, 0, MAX_OUTPUTS - 1, &output)) return false;
        if (id >= p->graph->n_nodes || output >= p->graph->nodes[id]->n_outputs) {
            return fail(p, "an operand that is not defined above");
        }
        Value value = node_value(p->graph->nodes[id], (int)output);
        ARENA_PUSH(p->work, p->operands, p->n_operands, p->operand_capacity, value);
    }
    return true;
}

/* %3 = or %3:2 = ; sets how many results are claimed. */
static bool parse_results(Parser *p, int *out_count) {
    int64_t id, count = 1;
    *out_count = 0;
    if (!accept(p, "%")) return true;
    if (!parse_int(p, 0, INT_MAX, &id)) return false;
    if (accept(p, ":") && !parse_int(p, 2, MAX_OUTPUTS, &count)) return false;
    if (id != p->graph->n_nodes) return fail(p, "results must be numbered in order");
    *out_count = (int)count;
    return accept(p, " = ") || fail(p, "expected ' = '");
}

static bool parse_trailer(Parser *p, NodeSpec *spec) {
    int64_t number;
    skip_blanks(p);
    spec->block = NO_BLOCK;
    if (accept(p, "@b")) {
        if (!parse_int(p, 0, 1000000, &number)) return false;
        spec->block = (int)number;
        skip_blanks(p);
    }
    if (*p->at == 'c' && isdigit((unsigned char)p->at[1])) {
        p->at++;
        if (!parse_int(p, 0, 1000, &number)) return false;
        spec->chunk = (int)number;
        skip_blanks(p);
    }
    if (*p->at == '"') {
        const char *file = parse_quoted(p, p->texts[N_ATTRS]);
        if (!file) return false;
        if (!p->last_file || strcmp(file, p->last_file) != 0) {
            p->last_file = arena_strdup(p->graph->arena, file);
        }
        spec->loc.file = p->last_file;
        if (!accept(p, ":")) return fail(p, "expected ':' and a line number");
        if (!parse_int(p, 0, INT_MAX, &number)) return false;
        spec->loc.line = (int)number;
        skip_blanks(p);
    }
    return *p->at == '\n' || *p->at == '\0' || fail(p, "unexpected text after a node");
}

static bool parse_node(Parser *p, Phase phase) {
    NodeSpec spec = {.phase = phase};
    Attr attrs[N_ATTRS];
    Type types[MAX_OUTPUTS];
    Sharding shardings[MAX_OUTPUTS];
    int n_results;
    if (p->graph->n_nodes == MAX_NODES) return fail(p, "too many nodes");
    if (!parse_results(p, &n_results)) return false;
    int length = word_length(p), op = op_find(p->at, length);
    if (op < 0) return fail(p, "unknown op");
    p->at += length;
    if (!parse_operands(p)) return false;
    if (accept(p, " {")) {
        do {
            if (spec.n_attrs == N_ATTRS) return fail(p, "too many attributes");
            if (!parse_attr(p, &attrs[spec.n_attrs], p->texts[spec.n_attrs])) return false;
            spec.n_attrs++;
        } while (accept(p, ", "));
        if (!accept(p, "}")) return fail(p, "expected ', ' or '}'");
    }
    for (int i = 0; i < n_results; i++) {
        if (!accept(p, i ? ", " : " : ")) return fail(p, "expected a type for each result");
        if (!parse_type(p, &types[i], &shardings[i])) return false;
    }
    if (!parse_trailer(p, &spec)) return false;
    if ((OPS[op].flags & TYPED) && n_results < 1) return fail(p, "the op needs a result");
    spec.op = (OpKind)op;
    spec.inputs = p->operands;
    spec.n_inputs = p->n_operands;
    spec.attrs = attrs;
    spec.type = &types[0];
    spec.n_outputs = n_results;
    int errors = diag_error_count(p->diag);
    Node *node = graph_add(p->graph, &spec, p->diag);
    if (!node) {
        if (diag_error_count(p->diag) == errors) return fail(p, "the op rejects its operands");
        diag_note(p->diag, here(p), "in this line");
        p->failed = true;
        return false;
    }
    bool same = node->n_outputs == n_results;
    for (int i = 0; same && i < n_results; i++) same = type_equal(&node->types[i], &types[i]);
    if (!same) return fail(p, "the types stated are not the ones that the op gives");
    memcpy(node->shardings, shardings, sizeof(Sharding) * (size_t)n_results);
    return true;
}

static bool parse_mesh(Parser *p) {
    if (!expect(p, "mesh(")) return false;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        int64_t size;
        p->graph->mesh.size[axis] = 1;
        if (axis == MESH_C && strncmp(p->at, ", c=", 4) != 0)
            continue; /* there where they divide */
        if (axis == MESH_E && strncmp(p->at, ", e=", 4) != 0) continue;
        if (axis == MESH_R && strncmp(p->at, ", r=", 4) != 0) continue;
        if (axis && !expect(p, ",")) return false;
        if (!expect(p, mesh_axis_name(axis)) || !expect(p, "=")) return false;
        if (!parse_int(p, 1, 1 << 20, &size)) return false;
        p->graph->mesh.size[axis] = (int)size;
    }
    if (!expect(p, ")")) return false;
    int64_t multiple = 0;
    if (accept(p, " vocab_multiple=") && !parse_int(p, 2, MAX_VOCAB_MULTIPLE, &multiple)) {
        return false;
    }
    p->graph->mesh.vocab_multiple = (int)multiple;
    return true;
}

Graph *graph_parse(Arena *arena, const char *file, const char **cursor, int *line, Diag *diag) {
    Parser p = {.at = *cursor, .line = *line, .file = file, .diag = diag};
    int phase = -1;
    p.graph = graph_create(arena, "");
    p.work = arena_create();
    p.texts = arena_alloc(p.work, sizeof(*p.texts) * (N_ATTRS + 1));
    if (expect(&p, "graph")) {
        skip_space(&p);
        const char *name = parse_quoted(&p, p.texts[0]);
        p.graph->name = arena_strdup(arena, name);
        if (name && parse_mesh(&p)) expect(&p, "{");
    }
    while (!p.failed) {
        skip_space(&p);
        if (accept(&p, "}")) break;
        if (accept(&p, "forward:")) {
            phase = PHASE_FORWARD;
        } else if (accept(&p, "backward:")) {
            phase = PHASE_BACKWARD;
        } else if (accept(&p, "weights:")) {
            phase = PHASE_WEIGHTS;
        } else if (accept(&p, "update:")) {
            phase = PHASE_UPDATE;
        } else if (phase < 0 || !*p.at) {
            fail(&p, *p.at ? "expected 'forward:', 'backward:', 'weights:' or 'update:'"
                           : "the graph does not end");
        } else {
            parse_node(&p, (Phase)phase);
        }
    }
    arena_destroy(p.work);
    *cursor = p.at;
    *line = p.line;
    return p.failed ? NULL : p.graph;
}
