#include "frontend/lua/teacher.h"

#include "frontend/lua/freeze.h"
#include "ir/op.h"
#include "ir/teacher.h"

#include <inttypes.h>
#include <string.h>

typedef struct Joiner {
    Arena *arena;
    const Model *student, *teacher;
    Graph *out;
    Value *taught;      /* by node id and output of the teacher's: in `out` */
    Value *learned;     /* likewise of the student's */
    bool *wanted;       /* by id of the teacher's: its logits are made of it */
    bool *is_behind;    /* likewise: made of what a block makes, in no block */
    int axes[MAX_AXES]; /* of the teacher's, in `out`; -1: not asked for yet */
    Diag *diag;
} Joiner;

static bool is_named(const Node *node, OpKind op, const char *name) {
    return node->op == op && strcmp(node_string(node, ATTR_name), name) == 0;
}

static const Node *find_named(const Graph *graph, OpKind op, const char *name) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (is_named(graph->nodes[n], op, name)) return graph->nodes[n];
    }
    return NULL;
}

const Node *teacher_find_input(const Graph *graph) {
    return find_named(graph, OP_INPUT, INPUT_TEACHER);
}

/* Only errors of the script of one model and of the other can say where. */
static bool fail(const Joiner *j, const char *why) {
    diag_error(j->diag, NO_LOC, "--teacher: model '%s' cannot teach '%s': %s", j->teacher->name,
               j->student->name, why);
    return false;
}

/* --- what both have --- */

static bool is_of_both(const char *axis) {
    static const char *const BOTH[] = {"batch", "seq", "source", "vocab", "patches", "pixel"};
    for (size_t i = 0; i < sizeof(BOTH) / sizeof(BOTH[0]); i++) {
        if (strcmp(axis, BOTH[i]) == 0) return true;
    }
    return false;
}

/* The teacher's axis in the joint graph; -1: reported. */
static int map_axis(Joiner *j, int axis) {
    const char *own = j->teacher->graph->axes.names[axis];
    if (j->axes[axis] >= 0) return j->axes[axis];
    const char *name = is_of_both(own) ? own : arena_printf(j->arena, TEACHER_AXES "%s", own);
    j->axes[axis] = graph_axis(j->out, name, (int)strlen(name));
    if (j->axes[axis] < 0) {
        diag_error(j->diag, NO_LOC, "--teacher: too many axes, or too long a name: '%s'", name);
    }
    return j->axes[axis];
}

static bool map_type(Joiner *j, Type *type) {
    for (int i = 0; i < type->rank; i++) {
        type->axes[i] = map_axis(j, type->axes[i]);
        if (type->axes[i] < 0) return false;
    }
    return true;
}

static bool map_attrs(Joiner *j, const Node *node, Attr *out) {
    for (int i = 0; i < node->n_attrs; i++) {
        out[i] = node->attrs[i];
        AttrKind kind = ATTRS[out[i].key].kind;
        if (kind == ATTR_AXIS && (out[i].axis = map_axis(j, out[i].axis)) < 0) return false;
        for (int a = 0; kind == ATTR_AXES && a < out[i].axes.count; a++) {
            out[i].axes.items[a] = map_axis(j, out[i].axes.items[a]);
            if (out[i].axes.items[a] < 0) return false;
        }
    }
    return true;
}

/* --- the teacher's nodes --- */

/* An input of the data is the student's of that name. */
static bool take_input(Joiner *j, const Node *node) {
    const char *name = node_string(node, ATTR_name);
    const Node *same = find_named(j->out, OP_INPUT, name);
    Type type = node->types[0];
    if (!map_type(j, &type)) return false;
    if (!same || !type_equal(&same->types[0], &type)) {
        return fail(
            j, arena_printf(j->arena, "it reads '%s', which the student's data do not have", name));
    }
    j->taught[node->id * MAX_OUTPUTS] = node_value((Node *)same, 0);
    return true;
}

/* In front of its own name; frozen, and no longer moved by tallies. */
static void make_teachers(Joiner *j, Node *param) {
    Attr *attrs = ARENA_ARRAY(j->out->arena, Attr, param->n_attrs + 1);
    int n = 0;
    for (int i = 0; i < param->n_attrs; i++) {
        Attr attr = param->attrs[i];
        if (attr.key == ATTR_balance) continue;
        if (attr.key == ATTR_name)
            attr.s = arena_printf(j->out->arena, TEACHER_PARAMS "%s", attr.s);
        attrs[n++] = attr;
    }
    param->attrs = attrs;
    param->n_attrs = n;
    freeze_set(j->out, param, true);
}

static bool copy_teachers(Joiner *j, const Node *node) {
    Value inputs[16];
    if (node->op == OP_INPUT) return take_input(j, node);
    if (node->n_inputs > 16) return fail(j, "an op of it has too many operands");
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = j->taught[node->inputs[i].node->id * MAX_OUTPUTS + node->inputs[i].output];
    }
    if (node->op == OP_DROPOUT) { /* it is not the one that learns */
        j->taught[node->id * MAX_OUTPUTS] = inputs[0];
        return true;
    }
    Node as = *node;
    as.attrs = ARENA_ARRAY(j->arena, Attr, node->n_attrs + 1);
    if (!map_attrs(j, node, as.attrs) || !map_type(j, &as.types[0])) return false;
    if (attention_drops(&as)) as.n_attrs = attention_undropped(&as, as.attrs);
    Node *copy = graph_copy_node(j->out, &as, inputs, j->diag);
    if (!copy) return false;
    if (copy->op == OP_PARAM) make_teachers(j, copy);
    for (int o = 0; o < copy->n_outputs; o++) {
        j->taught[node->id * MAX_OUTPUTS + o] = node_value(copy, o);
    }
    return true;
}

/* What its logits are made of, and of that what comes behind its blocks. */
static void find_wanted(Joiner *j, const Node *logits) {
    const Graph *graph = j->teacher->graph;
    j->wanted[logits->inputs[0].node->id] = true;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        for (int i = 0; j->wanted[n] && i < node->n_inputs; i++) {
            j->wanted[node->inputs[i].node->id] = true;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; node->block == NO_BLOCK && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool of_block = from->block != NO_BLOCK && !(OPS[from->op].flags & LEAF);
            j->is_behind[n] |= of_block || j->is_behind[from->id];
        }
    }
}

/* Those behind its blocks, or the others. The former come where the student first reads what they
 * make: logits are larger than what they are made of. */
static bool add_teachers(Joiner *j, bool behind) {
    const Graph *graph = j->teacher->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (!j->wanted[n] || j->is_behind[n] != behind) continue;
        if (!copy_teachers(j, graph->nodes[n])) return false;
    }
    return true;
}

/* --- the student's --- */

/* A block's has the teacher's blocks before it. */
static void move_block(const Joiner *j, Node *copy) {
    if (copy->block == NO_BLOCK) return;
    copy->block += j->teacher->n_blocks;
    for (int i = 0; copy->op == OP_PARAM && i < copy->n_attrs; i++) {
        const char *name = copy->attrs[i].s, *mark;
        if (copy->attrs[i].key != ATTR_name || !(mark = strchr(name, '#'))) continue;
        copy->attrs[i] =
            attr_string(ATTR_name, arena_printf(j->out->arena, "%.*s#-%d%s", (int)(mark - name),
                                                name, j->teacher->n_blocks, mark + 1));
    }
}

static bool copy_students(Joiner *j, const Node *node) {
    Value *inputs = ARENA_ARRAY(j->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = j->learned[node->inputs[i].node->id * MAX_OUTPUTS + node->inputs[i].output];
    }
    Node *copy = graph_copy_node(j->out, node, inputs, j->diag);
    if (!copy) return false;
    move_block(j, copy);
    for (int o = 0; o < copy->n_outputs; o++) {
        j->learned[node->id * MAX_OUTPUTS + o] = node_value(copy, o);
    }
    return true;
}

static bool reads(const Node *node, const Node *of) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].node == of) return true;
    }
    return false;
}

static bool join(Joiner *j, const Node *logits) {
    const Graph *student = j->student->graph;
    const Node *asked = teacher_find_input(student);
    bool is_there = false;
    for (int n = 0; n < student->n_nodes; n++) { /* data first: the teacher reads them, too */
        const Node *node = student->nodes[n];
        if (node->op == OP_INPUT && node != asked && !copy_students(j, node)) return false;
    }
    if (!add_teachers(j, false)) return false;
    for (int n = 0; n < student->n_nodes; n++) {
        const Node *node = student->nodes[n];
        if (node->op == OP_INPUT) continue;
        if (!is_there && reads(node, asked)) {
            is_there = true;
            if (!add_teachers(j, true)) return false;
            Value from = logits->inputs[0];
            j->learned[asked->id * MAX_OUTPUTS] =
                j->taught[from.node->id * MAX_OUTPUTS + from.output];
        }
        if (!copy_students(j, node)) return false;
    }
    return true;
}

/* --- the whole --- */

static bool check(Joiner *j, const Node *logits) {
    const Model *student = j->student, *teacher = j->teacher;
    const AxisTable *axes = &student->graph->axes;
    if (teacher->vocab != student->vocab) {
        diag_error(j->diag, NO_LOC,
                   "--teacher: its vocab is %" PRId64 ", the student's %" PRId64
                   ": both need the same tokens",
                   teacher->vocab, student->vocab);
        return false;
    }
    const Type *type = logits ? value_type(logits->inputs[0]) : NULL;
    if (!type || type->rank != 3 || type->axes[2] != AXIS_VOCAB) {
        return fail(j, "its logits are not of tokens");
    }
    for (int i = 0; i < axes->count; i++) {
        if (teacher_axis_name(axes->names[i]) == axes->names[i]) continue;
        return fail(j, "names of axes that begin with '" TEACHER_AXES "' are the teacher's");
    }
    for (int n = 0; n < student->graph->n_nodes; n++) {
        const Node *node = student->graph->nodes[n];
        if (node->op != OP_PARAM || !teacher_own_name(node_string(node, ATTR_name))) continue;
        return fail(j,
                    "names of parameters that begin with '" TEACHER_PARAMS "' are the teacher's");
    }
    return true;
}

bool teacher_join(Arena *arena, Model *student, const Model *teacher, Diag *diag) {
    const Graph *of = teacher->graph;
    const Node *logits = find_named(of, OP_OUTPUT, "logits");
    Joiner j = {
        .arena = arena,
        .student = student,
        .teacher = teacher,
        .out = graph_create_like(student->graph, arena),
        .taught = ARENA_ARRAY(arena, Value, (of->n_nodes + 1) * MAX_OUTPUTS),
        .learned = ARENA_ARRAY(arena, Value, (student->graph->n_nodes + 1) * MAX_OUTPUTS),
        .wanted = ARENA_ARRAY(arena, bool, of->n_nodes + 1),
        .is_behind = ARENA_ARRAY(arena, bool, of->n_nodes + 1),
        .diag = diag,
    };
    for (int i = 0; i < MAX_AXES; i++) j.axes[i] = -1;
    if (!check(&j, logits)) return false;
    find_wanted(&j, logits);
    if (!join(&j, logits)) return false;
    student->graph = j.out;
    student->n_blocks += teacher->n_blocks;
    return true;
}

const char *teacher_settings_text(const Model *student, const Model *teacher, Arena *arena) {
    const char *own = settings_text(&student->settings, arena);
    StrBuf out = strbuf_create();
    strbuf_printf(&out, "%s" TEACHER_PARAMS "script=%s\n", own, teacher->name);
    for (const char *at = settings_text(&teacher->settings, arena); *at;) {
        size_t length = strcspn(at, "\n");
        strbuf_printf(&out, TEACHER_PARAMS "%.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
    const char *text = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return text;
}
