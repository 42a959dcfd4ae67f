#include "ir/expr.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void expr_print(StrBuf *out, const Expr *expr) {
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        bool required;
        strbuf_printf(out, "%st%d=%s(", n ? " " : "", n, OPS[ins->op].name);
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            int operand = ins->operands[i];
            strbuf_printf(out, "%s%c%d", i ? "," : "", operand < 0 ? 'i' : 't',
                          operand < 0 ? ~operand : operand);
        }
        if (op_has_attr(ins->op, ATTR_value, &required)) {
            if (OPS[ins->op].min_inputs) strbuf_put(out, ",");
            if (ins->number) {
                strbuf_printf(out, "value=n%d", ins->number - 1);
            } else {
                strbuf_printf(out, "value=%.17g", ins->imm);
            }
        }
        if (op_has_attr(ins->op, ATTR_p, &required)) {
            strbuf_printf(out, ",p=%.17g,key=%" PRId64, ins->imm, ins->key);
        }
        if (ins->count > 1) {
            strbuf_printf(out, ",first=%" PRId64 ",count=%" PRId64, ins->first, ins->count);
        }
        strbuf_put(out, ")");
    }
    strbuf_put(out, " ->");
    for (int i = 0; i < expr->n_outputs; i++) strbuf_printf(out, " t%d", expr->outputs[i]);
}

Expr expr_of_node(const Node *node) {
    Expr expr = {.n_inputs = node->n_inputs, .n_instructions = 1, .n_outputs = 1};
    ExprInstruction *ins = &expr.instructions[0];
    ins->op = node->op;
    for (int i = 0; i < node->n_inputs; i++) ins->operands[i] = ~i;
    ins->imm = node_float(node, ATTR_value, node_float(node, ATTR_p, 0));
    ins->key = node_int(node, ATTR_key, 0);
    ins->first = node->op == OP_DROPOUT ? node_int(node, ATTR_first, 0) : 0;
    ins->count = node->op == OP_DROPOUT ? node_int(node, ATTR_count, 0) : 0;
    return expr;
}

ExprLane expr_lane(const Expr *expr) {
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        if (ins->count > 1) return (ExprLane){ins->first, ins->count};
    }
    return (ExprLane){0, 1};
}

bool expr_lane_fits(int64_t first, int64_t count) {
    return first >= 0 && first < count && count <= EXPR_MOST_LANES;
}

int expr_infer_dtypes(const Expr *expr, const DType *inputs, DType *out_registers) {
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        DType first = DTYPE_F32;
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            int from = ins->operands[i];
            DType dtype = from < 0 ? inputs[~from] : out_registers[from];
            if (i && dtype != first && !op_reads_integers(ins->op)) return n;
            first = dtype;
        }
        if (op_reads_integers(ins->op)) first = DTYPE_F32;
        out_registers[n] = op_is_cast(ins->op) ? op_cast_dtype(ins->op) : first;
    }
    return -1;
}

static bool parse_number(const char **at, int limit, int *out) {
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    long value = strtol(*at, &end, 10);
    if (value < 0 || value >= limit) return false;
    *at = end;
    *out = (int)value;
    return true;
}

static bool skip(const char **at, const char *text) {
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0) return false;
    *at += length;
    return true;
}

/* All dropouts of a program are for the same rows. */
static bool parse_lane(const char **at, const Expr *before, ExprInstruction *ins) {
    int first = 0, count = 0;
    if (skip(at, ",first=")) {
        if (!parse_number(at, EXPR_MOST_LANES, &first) || !skip(at, ",count=")) return false;
        if (!parse_number(at, EXPR_MOST_LANES + 1, &count) || count < 2) return false;
        if (!expr_lane_fits(first, count)) return false;
    }
    ins->first = first, ins->count = count;
    for (int n = 0; n < before->n_instructions; n++) {
        const ExprInstruction *other = &before->instructions[n];
        if (other->op != OP_DROPOUT) continue;
        if (other->first != first || other->count != count) return false;
    }
    return true;
}

/* A number, or with a rule n and which of its numbers it is. */
static bool parse_immediate(const char **at, int n_numbers, ExprInstruction *ins) {
    char *end;
    if (n_numbers && skip(at, "n")) {
        if (!parse_number(at, n_numbers, &ins->number)) return false;
        ins->number++;
        return true;
    }
    ins->imm = strtod(*at, &end);
    if (end == *at || (n_numbers && !isfinite(ins->imm))) return false;
    *at = end;
    return true;
}

/* Dropout draws by the elements' numbers, which a rule does not know. */
static bool may_have(int op, bool rule) {
    if (op < 0) return false;
    if (op == OP_CONST) return rule;
    return OPS[op].flags & ELEMENTWISE_BIT && !(rule && op == OP_DROPOUT);
}

static bool parse_instruction(const char **at, int n_numbers, Expr *expr) {
    ExprInstruction *ins = &expr->instructions[expr->n_instructions];
    int number, length = 0;
    bool required;
    if (!skip(at, "t") || !parse_number(at, EXPR_MAX_INSTRUCTIONS, &number)) return false;
    if (number != expr->n_instructions || !skip(at, "=")) return false;
    while (isalnum((unsigned char)(*at)[length]) || (*at)[length] == '_') length++;
    int op = op_find(*at, length);
    if (!may_have(op, n_numbers > 0)) return false;
    ins->op = (OpKind)op;
    *at += length;
    if (!skip(at, "(")) return false;
    for (int i = 0; i < OPS[op].min_inputs; i++) {
        if (i && !skip(at, ",")) return false;
        if (skip(at, "i")) {
            if (!parse_number(at, expr->n_inputs, &number)) return false;
            ins->operands[i] = ~number;
        } else if (skip(at, "t")) {
            if (!parse_number(at, expr->n_instructions, &ins->operands[i])) return false;
        } else {
            return false;
        }
    }
    char *end;
    if (op_has_attr(ins->op, ATTR_value, &required)) {
        if (OPS[op].min_inputs && !skip(at, ",")) return false;
        if (!skip(at, "value=") || !parse_immediate(at, n_numbers, ins)) return false;
    }
    if (op_has_attr(ins->op, ATTR_p, &required)) {
        if (!skip(at, ",p=")) return false;
        ins->imm = strtod(*at, &end);
        if (end == *at || !(ins->imm >= 0 && ins->imm < 1)) return false;
        *at = end;
        if (!skip(at, ",key=")) return false;
        ins->key = strtoll(*at, &end, 10);
        if (end == *at) return false;
        *at = end;
        if (!parse_lane(at, expr, ins)) return false;
    }
    expr->n_instructions++;
    return skip(at, ")");
}

static bool parse(const char *text, int n_inputs, int n_numbers, Expr *out,
                  const char **out_error) {
    const char *at = text;
    *out = (Expr){.n_inputs = n_inputs};
    *out_error = NULL;
    if (n_inputs > EXPR_MAX_INPUTS) *out_error = "too many operands";
    while (!*out_error && !skip(&at, "->")) {
        if (out->n_instructions == EXPR_MAX_INSTRUCTIONS)
            *out_error = "too many instructions";
        else if (!parse_instruction(&at, n_numbers, out))
            *out_error = "a bad instruction";
        else if (!skip(&at, " "))
            *out_error = "instructions must be separated by one space";
    }
    while (!*out_error && *at) {
        if (out->n_outputs == MAX_OUTPUTS)
            *out_error = "too many results";
        else if (!skip(&at, " t") ||
                 !parse_number(&at, out->n_instructions, &out->outputs[out->n_outputs++])) {
            *out_error = "a bad result";
        }
    }
    if (!*out_error && out->n_outputs == 0) *out_error = "no result";
    return !*out_error;
}

bool expr_parse(const char *text, int n_inputs, Expr *out, const char **out_error) {
    return parse(text, n_inputs, 0, out, out_error);
}

bool expr_parse_rule(const char *text, int n_inputs, int n_numbers, Expr *out,
                     const char **out_error) {
    return parse(text, n_inputs, n_numbers, out, out_error);
}
