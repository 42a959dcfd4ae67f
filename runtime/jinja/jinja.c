#include "runtime/jinja/jinja.h"

#include "ir/base/memory.h"
#include "runtime/jinja/run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 400 }; /* calls of C within each other are about twice as many */

/* --- variables --- */

JinjaScope *jinja_push(Jinja *jinja, JinjaScope *parent) {
    JinjaScope *scope = jinja_alloc(jinja, sizeof(*scope));
    *scope = (JinjaScope){.parent = parent};
    return scope;
}

static JinjaVariable *find(const JinjaScope *scope, const char *name) {
    for (int i = 0; i < scope->count; i++) {
        if (scope->variables[i].name == name) return &scope->variables[i];
    }
    return NULL;
}

void jinja_assign(Jinja *jinja, JinjaScope *scope, const char *name, JinjaValue value) {
    JinjaVariable *there = find(scope, name);
    if (there) {
        there->value = value;
        return;
    }
    if (!jinja_step(jinja, 1 + (size_t)scope->count / 8)) return;
    if (scope->count == scope->capacity) {
        int capacity = scope->capacity ? 2 * scope->capacity : 4;
        JinjaVariable *variables = jinja_alloc(jinja, (size_t)capacity * sizeof(*variables));
        if (scope->count) {
            memcpy(variables, scope->variables, (size_t)scope->count * sizeof(*variables));
        }
        scope->variables = variables;
        scope->capacity = capacity;
    }
    scope->variables[scope->count++] = (JinjaVariable){name, value};
}

JinjaValue jinja_resolve(Jinja *jinja, const char *name) {
    for (const JinjaScope *scope = jinja->scope; scope; scope = scope->parent) {
        const JinjaVariable *variable = find(scope, name);
        if (variable) return variable->value;
        jinja->n_steps += scope->count / 8;
    }
    const JinjaBuiltin *global = jinja_find_global(name);
    return global ? JINJA_VALUE(JINJA_FUNCTION, function, global) : jinja_undefined(name);
}

bool jinja_enter(Jinja *jinja) {
    if (++jinja->depth > MOST_DEPTH) jinja_fail(jinja, "it is nested too deeply");
    return !jinja->failed;
}

/* --- what is said from outside --- */

static const char *interned(const JinjaTemplate *template, const char *name) {
    for (int i = 0; i < template->n_slots; i++) {
        if (template->names[i] && strcmp(template->names[i], name) == 0) return template->names[i];
    }
    return NULL;
}

/* One that the template does not name is none. */
static void set_global(Jinja *jinja, const char *name, JinjaValue value) {
    const char *known = interned(jinja->template, name);
    if (known) jinja_assign(jinja, &jinja->globals, known, value);
}

void jinja_set_json(Jinja *jinja, const char *name, const json_t *value, bool said) {
    if (!interned(jinja->template, name)) return;
    set_global(jinja, name, value ? jinja_from_json(jinja, value, said) : jinja_none());
}

void jinja_set_text(Jinja *jinja, const char *name, const char *text) {
    set_global(jinja, name, jinja_text(jinja, text));
}

void jinja_set_bool(Jinja *jinja, const char *name, bool value) {
    set_global(jinja, name, jinja_bool(value));
}

static bool is_word(const JinjaString *text) {
    for (size_t i = 0; i < text->length; i++) {
        unsigned char c = (unsigned char)text->text[i];
        if (!isalnum(c) && c != '_' && c != '-') return false;
    }
    return true;
}

void jinja_set_unsaid(Jinja *jinja, const char *name, const char *key) {
    const char *known = interned(jinja->template, name);
    const JinjaVariable *variable = known ? find(&jinja->globals, known) : NULL;
    if (!variable || variable->value.kind != JINJA_LIST) return;
    for (size_t i = 0; i < variable->value.list->count; i++) {
        JinjaValue item = variable->value.list->items[i];
        JinjaDict *dict = item.kind == JINJA_DICT ? item.dict : NULL;
        for (size_t k = 0; dict && k < dict->count; k++) {
            JinjaValue *value = &dict->entries[k].value;
            if (!jinja_is_text(dict->entries[k].key, key) || value->kind != JINJA_STRING ||
                !is_word(value->string)) {
                continue;
            }
            *value = jinja_bytes(jinja, value->string->text, value->string->length, 0);
        }
    }
}

void jinja_set_length(Jinja *jinja, const char *name, size_t n) {
    const char *known = interned(jinja->template, name);
    JinjaVariable *variable = known ? find(&jinja->globals, known) : NULL;
    if (variable && variable->value.kind == JINJA_LIST) variable->value.list->count = n;
}

Jinja *jinja_open(const JinjaTemplate *template, time_t now) {
    Jinja *jinja = memory_zeroed(1, sizeof(*jinja));
    jinja->template = template;
    jinja->now = now;
    return jinja;
}

/* Down to what was there when `block`, of which so much was used, was the last. */
static void free_blocks(Jinja *jinja, JinjaBlock *block, size_t used) {
    while (jinja->blocks != block) {
        JinjaBlock *last = jinja->blocks;
        jinja->blocks = last->before;
        free(last);
    }
    if (block) block->used = used;
}

void jinja_close(Jinja *jinja) {
    if (!jinja) return;
    free_blocks(jinja, NULL, 0);
    free(jinja);
}

const char *jinja_error(const Jinja *jinja) {
    return jinja->error;
}

/* --- all --- */

static JinjaText copy_text(const JinjaBuilder *from) {
    JinjaText out = {.text = memory_alloc(from->length + 1),
                     .marks = memory_alloc(from->length + 1),
                     .length = from->length};
    if (from->length) {
        memcpy(out.text, from->text, from->length);
        memcpy(out.marks, from->marks, from->length);
    }
    out.text[out.length] = '\0';
    return out;
}

bool jinja_render(Jinja *jinja, JinjaText *out) {
    JinjaBlock *block = jinja->blocks;
    size_t used = block ? block->used : 0, n_bytes = jinja->n_bytes;
    *out = (JinjaText){0};
    jinja->text = (JinjaBuilder){0};
    jinja->breaks = jinja->continues = false;
    jinja->mark = 0;
    jinja->out = &jinja->text;
    jinja->scope = jinja_push(jinja, &jinja->globals);
    jinja_run(jinja, jinja->template->root);
    if (!jinja->failed) *out = copy_text(&jinja->text);
    free_blocks(jinja, block, used);
    bool good = !jinja->failed;
    jinja->n_bytes = n_bytes;
    jinja->failed = false;
    jinja->n_steps = 0;
    jinja->depth = 0;
    return good;
}

void jinja_text_release(JinjaText *text) {
    free(text->text);
    free(text->marks);
    *text = (JinjaText){0};
}
