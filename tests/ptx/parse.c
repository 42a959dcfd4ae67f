/* PTX text into kernels. Functions are copied in where they are called. */
#include "tests/ptx/module.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 256, MOST_DEPTH = 32, NAME_BYTES = 192 };

/* %r<1077> is 1077 registers; p of `.reg .pred p` one, and so is a parameter of a call. */
typedef struct Name {
    char text[NAME_BYTES];
    int first, count;
    bool numbered;
} Name;

typedef struct Symbol {
    char text[NAME_BYTES];
    int64_t offset; /* in shared memory; -1: dynamic, behind the rest */
} Symbol;

typedef struct Label {
    char text[NAME_BYTES];
    int at;
} Label;

typedef struct Function {
    char name[NAME_BYTES];
    char params[8][NAME_BYTES];
    char result[NAME_BYTES];
    int n_params;
    const char *body;
    int line;
} Function;

/* Of an entry that is not wanted: from its head to behind its body. */
typedef struct Skip {
    const char *from, *to;
    int lines;
} Skip;

typedef struct File {
    const char *path, *text;
    Skip *skips; /* in the order of the text, as far as it was read */
    int n_skips, skip_capacity;
} File;

/* Where a kernel is. */
typedef struct Entry {
    const char *name; /* ends at a parenthesis */
    size_t length;
    int file;
} Entry;

struct PtxModule {
    Arena *arena;
    File *files;
    int n_files, file_capacity;
    Entry *entries;
    int n_entries, entry_capacity;
    PtxKernel **kernels; /* that were asked for */
    int n_kernels, capacity;
};

typedef struct Parser {
    PtxModule *module;
    File *file;
    int next_skip;                  /* in it */
    const char *path, *at, *wanted; /* the kernel */
    int line;
    Diag *diag;
    PtxKernel *kernel;
    Name names[MOST_NAMES];
    int n_names, scopes[MOST_DEPTH], depth;
    Symbol *symbols;
    int n_symbols, symbol_capacity;
    int module_shared_bytes, module_shared_align;
    Label *labels, *uses;
    int n_labels, label_capacity, n_uses, use_capacity;
    Function functions[8];
    int n_functions;
    int return_label; /* within a function: its number; else -1 */
    int n_calls;
    bool failed;
} Parser;

PtxModule *ptx_module_create(Arena *arena) {
    PtxModule *module = ARENA_NEW(arena, PtxModule);
    module->arena = arena;
    return module;
}

void ptx_module_add(PtxModule *module, const char *path, const char *text) {
    static const char BEGIN[] = ".entry ";
    for (const char *at = text; (at = strstr(at, BEGIN));) {
        at += sizeof BEGIN - 1;
        Entry entry = {at, strcspn(at, "(\n"), module->n_files};
        if (at[entry.length] == '(')
            ARENA_PUSH(module->arena, module->entries, module->n_entries, module->entry_capacity,
                       entry);
    }
    File file = {.path = path, .text = text};
    ARENA_PUSH(module->arena, module->files, module->n_files, module->file_capacity, file);
}

static bool fail(Parser *p, const char *what, const char *name) {
    if (!p->failed) diag_error(p->diag, (SourceLoc){p->path, p->line}, "%s%s", what, name);
    return !(p->failed = true);
}

/* Text */

static void skip_space(Parser *p) {
    for (;; p->at++) {
        if (p->at[0] == '/' && p->at[1] == '/') {
            while (*p->at && *p->at != '\n') p->at++;
        }
        if (*p->at == '\n') p->line++;
        if (!*p->at || !isspace((unsigned char)*p->at)) return;
    }
}

static bool take(Parser *p, char c) {
    skip_space(p);
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static bool expect(Parser *p, char c) {
    char name[] = {c, '\0'};
    return take(p, c) || fail(p, "expected ", name);
}

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || strchr("_$%.:", c);
}

/* Letters, digits, _ $ %, and dots within; "" if there is none. */
static void take_name(Parser *p, char *out) {
    skip_space(p);
    int n = 0;
    while (*p->at && is_name_char(*p->at) && n < NAME_BYTES - 1) {
        if (*p->at == ':' && p->at[1] != ':' && (n == 0 || out[n - 1] != ':'))
            break; /* a label's */
        out[n++] = *p->at++;
    }
    out[n] = '\0';
}

static int64_t take_int(Parser *p) {
    skip_space(p);
    char *end;
    bool negative = take(p, '-');
    uint64_t value = strtoull(p->at, &end, 0);
    if (end == p->at) fail(p, "expected a number", "");
    if (*end == 'U') end++;
    p->at = end;
    return negative ? -(int64_t)value : (int64_t)value;
}

/* Registers and symbols */

static int add_name(Parser *p, const char *text, int count, bool numbered) {
    if (p->n_names == MOST_NAMES) return fail(p, "too many names", ""), 0;
    Name *name = &p->names[p->n_names++];
    snprintf(name->text, sizeof name->text, "%s", text);
    *name = (Name){.first = p->kernel->n_registers, .count = count, .numbered = numbered};
    snprintf(name->text, sizeof name->text, "%s", text);
    p->kernel->n_registers += count;
    return name->first;
}

static const Name *find_name(const Parser *p, const char *text, int *out_register) {
    for (int i = p->n_names - 1; i >= 0; i--) {
        const Name *name = &p->names[i];
        if (!name->numbered) {
            if (strcmp(name->text, text) != 0) continue;
            *out_register = name->first;
            return name;
        }
        size_t length = strlen(name->text);
        if (strncmp(name->text, text, length) != 0 || !isdigit((unsigned char)text[length]))
            continue;
        char *end;
        long number = strtol(text + length, &end, 10);
        if (*end || number >= name->count) continue;
        *out_register = name->first + (int)number;
        return name;
    }
    return NULL;
}

static const Symbol *find_symbol(const Parser *p, const char *text) {
    for (int i = p->n_symbols - 1; i >= 0; i--) {
        if (strcmp(p->symbols[i].text, text) == 0) return &p->symbols[i];
    }
    return NULL;
}

static const Function *find_function(const Parser *p, const char *text) {
    for (int i = 0; i < p->n_functions; i++) {
        if (strcmp(p->functions[i].name, text) == 0) return &p->functions[i];
    }
    return NULL;
}

/* Directives */

/* .reg .pred %p<313>, q; */
static bool parse_registers(Parser *p) {
    char word[NAME_BYTES];
    take_name(p, word); /* the type */
    do {
        take_name(p, word);
        if (take(p, '<')) {
            add_name(p, word, (int)take_int(p), true);
            expect(p, '>');
        } else {
            add_name(p, word, 1, false);
        }
    } while (!p->failed && take(p, ','));
    return expect(p, ';');
}

/* .shared .align 4 .b8 name[1024]; extern: name[], behind all others. */
static bool parse_shared(Parser *p, bool external) {
    char word[NAME_BYTES];
    int align = 4, element = 1;
    Symbol symbol = {.offset = -1};
    for (take_name(p, word); word[0] == '.'; take_name(p, word)) {
        if (strcmp(word, ".align") == 0)
            align = (int)take_int(p);
        else if (word[1] && isdigit((unsigned char)word[2]))
            element = atoi(word + 2) / 8;
    }
    memcpy(symbol.text, word, sizeof word);
    int64_t count = 1;
    if (take(p, '[')) {
        count = external ? 0 : take_int(p);
        expect(p, ']');
    }
    int *bytes = p->kernel ? &p->kernel->static_shared_bytes : &p->module_shared_bytes;
    int *most = p->kernel ? &p->kernel->shared_align : &p->module_shared_align;
    if (align > *most) *most = align;
    if (!external) {
        symbol.offset = (*bytes + align - 1) / align * align;
        *bytes = (int)(symbol.offset + count * element);
    }
    ARENA_PUSH(p->module->arena, p->symbols, p->n_symbols, p->symbol_capacity, symbol);
    return expect(p, ';');
}

/* .align 8 .b8 name[96], of a kernel or a function: the name; its bytes. */
static int parse_param(Parser *p, char *out_name) {
    int element = 8;
    int64_t count = 1;
    take_name(p, out_name); /* .param */
    for (take_name(p, out_name); out_name[0] == '.'; take_name(p, out_name)) {
        if (strcmp(out_name, ".align") == 0)
            take_int(p);
        else if (isdigit((unsigned char)out_name[2]))
            element = atoi(out_name + 2) / 8;
    }
    if (take(p, '[')) {
        count = take_int(p);
        expect(p, ']');
    }
    return (int)count * element;
}

static void skip_statement(Parser *p) {
    while (*p->at && *p->at != ';') {
        if (*p->at++ == '\n') p->line++;
    }
    if (*p->at) p->at++;
}

/* Operands */

static int push_list(Parser *p, int item) {
    PtxKernel *k = p->kernel;
    ARENA_PUSH(p->module->arena, k->lists, k->n_lists, k->list_capacity, item);
    return k->n_lists - 1;
}

static bool parse_special(const char *word, Operand *out) {
    static const char *const NAMES[] = {
        "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
        "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(NAMES[i], word) != 0) continue;
        *out = (Operand){.kind = OPERAND_SPECIAL, .number = (int64_t)i};
        return true;
    }
    return false;
}

/* A register, a symbol's address, a place within the kernel's argument. */
static bool parse_name_operand(Parser *p, const char *word, Operand *out) {
    const Symbol *symbol;
    if (parse_special(word, out)) return true;
    if (find_name(p, word, &out->reg)) {
        out->kind = OPERAND_REGISTER;
        out->second = -1;
        return true;
    }
    if ((symbol = find_symbol(p, word))) {
        *out = (Operand){.kind = OPERAND_NUMBER, .number = symbol->offset};
        if (symbol->offset < 0) {
            PtxKernel *k = p->kernel;
            int align = k->shared_align;
            out->number = (k->static_shared_bytes + align - 1) / align * align;
        }
        return true;
    }
    if (word[0] == '$') {
        Label use = {.at = p->kernel->n_instructions};
        snprintf(use.text, sizeof use.text, "%s@%d", word, p->return_label);
        ARENA_PUSH(p->module->arena, p->uses, p->n_uses, p->use_capacity, use);
        out->kind = OPERAND_LABEL;
        return true;
    }
    /* The kernel's argument. */
    size_t length = strlen(p->kernel->name);
    if (strncmp(word, p->kernel->name, length) == 0 && strcmp(word + length, "_param_0") == 0) {
        *out = (Operand){.kind = OPERAND_NUMBER, .number = 0};
        return true;
    }
    return fail(p, "not known: ", word);
}

static bool parse_number(Parser *p, Operand *out) {
    out->kind = OPERAND_NUMBER;
    if (p->at[0] == '0' && (p->at[1] == 'f' || p->at[1] == 'd' || p->at[1] == 'F')) {
        char *end;
        out->number = (int64_t)strtoull(p->at + 2, &end, 16);
        p->at = end;
        return true;
    }
    out->number = take_int(p);
    return !p->failed;
}

static bool parse_operand(Parser *p, Operand *out) {
    char word[NAME_BYTES];
    *out = (Operand){.reg = -1};
    skip_space(p);
    if (take(p, '!')) out->negated = true;
    if (take(p, '{')) {
        int n = 0, first = -1;
        do {
            Operand item;
            if (!parse_operand(p, &item)) return false;
            int at = push_list(p, item.kind == OPERAND_REGISTER ? item.reg : -1 - (int)item.number);
            if (n++ == 0) first = at;
        } while (take(p, ','));
        *out = (Operand){.kind = OPERAND_LIST, .reg = first, .second = n};
        return expect(p, '}');
    }
    if (take(p, '[')) {
        Operand base;
        skip_space(p);
        bool named = isalpha((unsigned char)*p->at) || *p->at == '_'; /* a call's parameter */
        if (!parse_operand(p, &base)) return false;
        *out = (Operand){.kind = OPERAND_MEMORY, .reg = -1, .second = named};
        if (base.kind == OPERAND_REGISTER)
            out->reg = base.reg;
        else
            out->number = base.number;
        if (take(p, '+')) out->number += take_int(p);
        return expect(p, ']');
    }
    if (isdigit((unsigned char)*p->at) || *p->at == '-') return parse_number(p, out);
    take_name(p, word);
    bool negated = out->negated;
    if (!parse_name_operand(p, word, out)) return false;
    out->negated = negated;
    if (out->kind == OPERAND_REGISTER && take(p, '|')) {
        take_name(p, word);
        if (!find_name(p, word, &out->second)) return fail(p, "not known: ", word);
    }
    return true;
}

/* Statements */

static Instruction *push_instruction(Parser *p, Instruction instruction) {
    PtxKernel *k = p->kernel;
    instruction.line = p->line;
    ARENA_PUSH(p->module->arena, k->code, k->n_instructions, k->code_capacity, instruction);
    return &k->code[k->n_instructions - 1];
}

static void add_label(Parser *p, const char *name) {
    Label label = {.at = p->kernel->n_instructions};
    snprintf(label.text, sizeof label.text, "%s@%d", name, p->return_label);
    ARENA_PUSH(p->module->arena, p->labels, p->n_labels, p->label_capacity, label);
}

static void push_move(Parser *p, int to, int from) {
    Operand a = {.kind = OPERAND_REGISTER, .reg = to, .second = -1}, b = a;
    b.reg = from;
    push_instruction(p, (Instruction){.op = PTX_mov,
                                      .type = {'b', 64, false},
                                      .guard = -1,
                                      .n_operands = 2,
                                      .operands = {a, b}});
}

static bool parse_body(Parser *p);

/* call.uni (retval0), f, (param0, param1); with parameters as registers of the caller's. */
static bool parse_call(Parser *p) {
    char word[NAME_BYTES], result[NAME_BYTES], args[8][NAME_BYTES];
    int n_args = 0, from[8], to;
    expect(p, '(');
    take_name(p, result);
    expect(p, ')');
    expect(p, ',');
    take_name(p, word);
    const Function *function = find_function(p, word);
    if (!function) return fail(p, "no function ", word);
    expect(p, ',');
    expect(p, '(');
    do {
        take_name(p, args[n_args++]);
    } while (n_args < 8 && take(p, ','));
    expect(p, ')');
    expect(p, ';');
    for (int i = 0; i < n_args; i++) {
        if (!find_name(p, args[i], &from[i])) return fail(p, "not known: ", args[i]);
    }
    if (!find_name(p, result, &to)) return fail(p, "not known: ", result);
    const char *after = p->at;
    int line = p->line, label = p->return_label, n_names = p->n_names, value;
    p->return_label = ++p->n_calls;
    for (int i = 0; i < n_args; i++) {
        push_move(p, add_name(p, function->params[i], 1, false), from[i]);
    }
    value = add_name(p, function->result, 1, false);
    p->at = function->body;
    p->line = function->line;
    if (!parse_body(p)) return false;
    add_label(p, "$return");
    p->return_label = label;
    p->at = after;
    p->line = line;
    p->n_names = n_names;
    push_move(p, to, value);
    return !p->failed;
}

/* ld.param and st.param of a call's parameters are moves between registers. */
static void settle_param(Instruction *i) {
    Operand *memory = &i->operands[i->op == PTX_ld];
    if (i->space != SPACE_PARAM || memory->reg < 0 || !memory->second) return;
    memory->kind = OPERAND_REGISTER;
    memory->second = -1;
    i->op = PTX_mov;
}

static bool parse_instruction(Parser *p) {
    char word[NAME_BYTES];
    Instruction i = {.guard = -1, .line = p->line};
    if (take(p, '@')) {
        i.guard_negated = take(p, '!');
        take_name(p, word);
        if (!find_name(p, word, &i.guard)) return fail(p, "not known: ", word);
    }
    take_name(p, word);
    if (strcmp(word, "call.uni") == 0) return parse_call(p);
    if (!ptx_decode(word, strlen(word), &i, (SourceLoc){p->path, p->line}, p->diag))
        return !(p->failed = true);
    if (!take(p, ';')) {
        do {
            if (i.n_operands == MOST_OPERANDS) return fail(p, "too many operands", "");
            if (!parse_operand(p, &i.operands[i.n_operands++])) return false;
        } while (take(p, ','));
        if (!expect(p, ';')) return false;
    }
    if (i.op == PTX_ret && p->return_label >= 0) {
        i.op = PTX_bra;
        i.n_operands = 1;
        parse_name_operand(p, "$return", &i.operands[0]);
    }
    settle_param(&i);
    p->kernel->uses_wgmma |= i.op == PTX_wgmma;
    p->kernel->uses_bulk |= i.bulk;
    push_instruction(p, i);
    return true;
}

static bool parse_directive(Parser *p) {
    char word[NAME_BYTES];
    take_name(p, word);
    if (strcmp(word, ".reg") == 0) return parse_registers(p);
    if (strcmp(word, ".shared") == 0) return parse_shared(p, false);
    if (strcmp(word, ".param") == 0) { /* of a call */
        take_name(p, word);
        take_name(p, word);
        add_name(p, word, 1, false);
        return expect(p, ';');
    }
    if (strcmp(word, ".pragma") == 0) return skip_statement(p), true;
    return fail(p, "not known: ", word);
}

/* From { to its }. */
static bool parse_body(Parser *p) {
    int depth = 0, scopes[MOST_DEPTH];
    if (!expect(p, '{')) return false;
    scopes[depth++] = p->n_names;
    while (depth > 0 && !p->failed) {
        skip_space(p);
        if (take(p, '{')) {
            if (depth == MOST_DEPTH) return fail(p, "nested too deep", "");
            scopes[depth++] = p->n_names;
        } else if (take(p, '}')) {
            p->n_names = scopes[--depth];
        } else if (*p->at == '.') {
            parse_directive(p);
        } else if (*p->at == '$') {
            char word[NAME_BYTES];
            take_name(p, word);
            expect(p, ':');
            add_label(p, word);
        } else if (*p->at) {
            parse_instruction(p);
        } else {
            return fail(p, "ends within a function", "");
        }
    }
    return !p->failed;
}

static bool settle_labels(Parser *p) {
    for (int u = 0; u < p->n_uses; u++) {
        Instruction *i = &p->kernel->code[p->uses[u].at];
        int at = -1;
        for (int l = 0; l < p->n_labels; l++) {
            if (strcmp(p->labels[l].text, p->uses[u].text) == 0) at = p->labels[l].at;
        }
        if (at < 0) return fail(p, "no label ", p->uses[u].text);
        i->operands[0].number = at;
    }
    p->n_uses = p->n_labels = 0;
    return true;
}

/* After .entry name: ( .param ... ) .maxntid 256, 1, 1 { body } */
static bool parse_entry(Parser *p) {
    char word[NAME_BYTES];
    PtxKernel *kernel = ARENA_NEW(p->module->arena, PtxKernel);
    *kernel = (PtxKernel){.name = p->wanted,
                          .path = p->path,
                          .static_shared_bytes = p->module_shared_bytes,
                          .shared_align = p->module_shared_align,
                          .max_threads = 1024};
    p->kernel = kernel;
    expect(p, '(');
    kernel->param_bytes = parse_param(p, word);
    expect(p, ')');
    for (skip_space(p); *p->at == '.' && !p->failed; skip_space(p)) {
        take_name(p, word);
        int n = (int)take_int(p);
        if (strcmp(word, ".maxntid") == 0) kernel->max_threads = n;
        while (take(p, ',')) take_int(p);
    }
    if (!parse_body(p) || !settle_labels(p)) return false;
    push_instruction(p, (Instruction){.op = PTX_ret, .guard = -1});
    ARENA_PUSH(p->module->arena, p->module->kernels, p->module->n_kernels, p->module->capacity,
               kernel);
    return true;
}

static void skip_body(Parser *p) {
    int depth = 0;
    do {
        if (*p->at == '{') depth++;
        if (*p->at == '}') depth--;
        if (*p->at == '\n') p->line++;
        if (!*p->at) {
            fail(p, "ends within a function", "");
            return;
        }
        p->at++;
    } while (depth > 0);
}

/* Of a kernel that is not wanted; what was skipped once is not looked at again. */
static void skip_entry(Parser *p) {
    File *file = p->file;
    int k = p->next_skip++;
    if (k < file->n_skips && file->skips[k].from == p->at) {
        p->at = file->skips[k].to;
        p->line += file->skips[k].lines;
        return;
    }
    Skip skip = {.from = p->at, .lines = -p->line};
    while (*p->at && *p->at != '{') p->at++;
    skip_body(p);
    skip.to = p->at;
    skip.lines += p->line;
    if (k == file->n_skips && !p->failed)
        ARENA_PUSH(p->module->arena, file->skips, file->n_skips, file->skip_capacity, skip);
}

/* .func (.param .b64 result) name (.param .b64 a, ...) { body }, or ; for a declaration. */
static bool parse_function(Parser *p) {
    Function function = {0};
    expect(p, '(');
    parse_param(p, function.result);
    expect(p, ')');
    take_name(p, function.name);
    expect(p, '(');
    do {
        parse_param(p, function.params[function.n_params++]);
    } while (function.n_params < 8 && take(p, ','));
    expect(p, ')');
    if (take(p, ';')) return true;
    skip_space(p);
    function.body = p->at;
    function.line = p->line;
    skip_body(p);
    if (find_function(p, function.name)) return true;
    if (p->n_functions == 8) return fail(p, "too many functions", "");
    p->functions[p->n_functions++] = function;
    return !p->failed;
}

/* Once for the functions, which may follow their callers, and again for the kernels. */
static bool parse_module(Parser *p, bool kernels) {
    char word[NAME_BYTES];
    while (!p->failed) {
        bool external = false;
        skip_space(p);
        if (!*p->at) break;
        take_name(p, word);
        while (strcmp(word, ".visible") == 0 || strcmp(word, ".weak") == 0 ||
               strcmp(word, ".extern") == 0) {
            external |= strcmp(word, ".extern") == 0;
            take_name(p, word);
        }
        if (strcmp(word, ".version") == 0 || strcmp(word, ".target") == 0 ||
            strcmp(word, ".address_size") == 0) {
            while (*p->at && *p->at != '\n') p->at++;
        } else if (strcmp(word, ".shared") == 0) {
            if (kernels)
                parse_shared(p, external);
            else
                skip_statement(p);
        } else if (strcmp(word, ".func") == 0) {
            parse_function(p);
        } else if (strcmp(word, ".entry") == 0) {
            take_name(p, word);
            if (kernels && strcmp(word, p->wanted) == 0) {
                return parse_entry(p);
            }
            skip_entry(p);
        } else {
            fail(p, "not known: ", word);
        }
    }
    return !p->failed;
}

static const PtxKernel *parse_kernel(PtxModule *module, File *file, const char *name, Diag *diag) {
    Parser *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (Parser){.module = module,
                  .file = file,
                  .path = file->path,
                  .at = file->text,
                  .line = 1,
                  .diag = diag,
                  .wanted = arena_printf(module->arena, "%s", name),
                  .module_shared_align = 16,
                  .return_label = -1};
    int n = module->n_kernels;
    bool good = parse_module(p, false);
    p->at = file->text;
    p->line = 1;
    p->next_skip = 0;
    good = good && parse_module(p, true) && module->n_kernels > n;
    free(p);
    return good ? module->kernels[n] : NULL;
}

const PtxKernel *ptx_module_find(PtxModule *module, const char *name, Diag *diag) {
    for (int i = 0; i < module->n_kernels; i++) {
        if (strcmp(module->kernels[i]->name, name) == 0) return module->kernels[i];
    }
    const size_t length = strlen(name);
    for (int i = 0; i < module->n_entries; i++) {
        const Entry *entry = &module->entries[i];
        if (entry->length == length && memcmp(entry->name, name, length) == 0)
            return parse_kernel(module, &module->files[entry->file], name, diag);
    }
    diag_error(diag, (SourceLoc){name, 0}, "is in no file of PTX");
    return NULL;
}
