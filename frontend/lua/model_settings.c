#include "frontend/lua/model_settings.h"

#include "ir/base/strbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *setting_type_name(SettingType type) {
    static const char *const NAMES[] = {"a whole number", "a number", "true or false", "a text"};
    return NAMES[type];
}

Setting *settings_find(const SettingTable *table, const char *name) {
    for (int i = 0; i < table->count; i++) {
        if (strcmp(table->items[i].name, name) == 0) return &table->items[i];
    }
    return NULL;
}

Setting *settings_add(SettingTable *table, const char *name, SettingType type, bool is_axis) {
    Setting setting = {.name = arena_strdup(table->arena, name),
                       .type = type,
                       .is_axis = is_axis,
                       .is_settable = true};
    ARENA_PUSH(table->arena, table->items, table->count, table->capacity, setting);
    return &table->items[table->count - 1];
}

static bool check_range(const Setting *setting, const char *what, SourceLoc loc, Diag *diag) {
    if (setting->is_axis && (setting->integer < 1 || setting->integer > MAX_AXIS_SIZE)) {
        diag_error(diag, loc, "%s: axis '%s' must have 1 to %d positions, not %" PRId64, what,
                   setting->name, MAX_AXIS_SIZE, setting->integer);
        return false;
    }
    if (setting->is_count && setting->integer < 1) {
        diag_error(diag, loc, "%s: '%s' must be at least 1", what, setting->name);
        return false;
    }
    if (setting->type == SETTING_NUMBER && !isfinite(setting->number)) {
        diag_error(diag, loc, "%s: '%s' must be a finite number", what, setting->name);
        return false;
    }
    return true;
}

bool setting_assign(Setting *setting, const Setting *value, const char *what, SourceLoc loc,
                    Diag *diag) {
    bool fraction = setting->type == SETTING_INTEGER && value->type == SETTING_NUMBER;
    bool widens = setting->type == SETTING_NUMBER && value->type == SETTING_INTEGER;
    if (value->type != setting->type && !widens) {
        diag_error(diag, loc, "%s: '%s' must be %s, not %s", what, setting->name,
                   setting_type_name(setting->type),
                   fraction ? "one with a point" : setting_type_name(value->type));
        return false;
    }
    switch (setting->type) {
    case SETTING_INTEGER: setting->integer = value->integer; break;
    case SETTING_NUMBER: setting->number = widens ? (double)value->integer : value->number; break;
    case SETTING_BOOLEAN: setting->boolean = value->boolean; break;
    case SETTING_STRING: setting->text = value->text; break;
    }
    setting->has_value = true;
    return check_range(setting, what, loc, diag);
}

bool setting_parse(Setting *setting, const char *text, const char *what, SourceLoc loc, Diag *diag,
                   Arena *arena) {
    Setting value = *setting;
    char *end = NULL;
    bool fits = text[0] != '\0' && strchr(" \t\n\v\f\r", text[0]) == NULL;
    errno = 0;
    switch (setting->type) {
    case SETTING_INTEGER: value.integer = strtoll(text, &end, 10); break;
    case SETTING_NUMBER: value.number = strtod(text, &end); break;
    case SETTING_BOOLEAN:
        value.boolean = strcmp(text, "true") == 0;
        fits = value.boolean || strcmp(text, "false") == 0;
        break;
    case SETTING_STRING:
        value.text = arena_strdup(arena, text);
        fits = true;
        break;
    }
    if (end && (*end != '\0' || (errno == ERANGE && setting->type == SETTING_INTEGER)))
        fits = false;
    if (!fits) {
        diag_error(diag, loc, "%s: '%s' must be %s", what, setting->name,
                   setting_type_name(setting->type));
        return false;
    }
    return setting_assign(setting, &value, what, loc, diag);
}

void settings_report_unknown(const SettingTable *table, const char *name, const char *what,
                             SourceLoc loc, Diag *diag) {
    diag_error(diag, loc, "%s: the model has no setting '%s'; it has: %s", what, name,
               settings_names(table, false));
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const Setting *)a)->name, ((const Setting *)b)->name);
}

static void add_missing(SettingTable *table, const char *name, const char *base) {
    const Setting *from = settings_find(table, base);
    if (from && from->is_axis && !settings_find(table, name)) {
        settings_add(table, name, SETTING_INTEGER, true);
    }
}

void settings_add_derived(SettingTable *table) {
    add_missing(table, "ffn", "model");
    add_missing(table, "head", "heads");
    add_missing(table, "kv_heads", "heads");
    add_missing(table, "group", "heads");
    Setting *group = settings_find(table, "group");
    if (group) group->is_settable = false;
    if (table->count) {
        qsort(table->items, (size_t)table->count, sizeof(Setting), compare_names);
    }
}

/* *out = a / b; both must have values. */
static bool divide(Setting *out, const Setting *a, const Setting *b, const char *advice,
                   SourceLoc loc, Diag *diag) {
    if (a->integer % b->integer != 0) {
        diag_error(diag, loc, "%s %" PRId64 " is not a multiple of %s %" PRId64 "%s", a->name,
                   a->integer, b->name, b->integer, advice);
        return false;
    }
    out->integer = a->integer / b->integer;
    out->has_value = true;
    return true;
}

bool settings_derive(SettingTable *table, SourceLoc loc, Diag *diag) {
    Setting *model = settings_find(table, "model"), *heads = settings_find(table, "heads");
    Setting *head = settings_find(table, "head"), *kv_heads = settings_find(table, "kv_heads");
    Setting *ffn = settings_find(table, "ffn"), *group = settings_find(table, "group");
    if (model && model->is_axis && ffn && !ffn->has_value) {
        ffn->integer = 4 * model->integer;
        ffn->has_value = true;
    }
    const Setting *nope = settings_find(table, "nope"), *rope = settings_find(table, "rope");
    if (heads && heads->is_axis && !head->has_value && nope && nope->is_axis && rope &&
        rope->is_axis) {
        /* Parts of a head without and with rotary positions (nn.mla). */
        head->integer = nope->integer + rope->integer;
        head->has_value = true;
    }
    if (heads && heads->is_axis) {
        if (!kv_heads->has_value) {
            kv_heads->integer = heads->integer;
            kv_heads->has_value = true;
        }
        if (!divide(group, heads, kv_heads, "", loc, diag)) return false;
        if (!head->has_value && model && model->is_axis &&
            !divide(head, model, heads, "; change one, or set head", loc, diag)) {
            return false;
        }
    }
    for (int i = 0; i < table->count; i++) {
        if (table->items[i].has_value) continue;
        diag_error(diag, loc, "setting '%s' has no value", table->items[i].name);
        return false;
    }
    return true;
}

const char *settings_names(const SettingTable *table, bool all) {
    const char *names = "";
    for (int i = 0; i < table->count; i++) {
        if (!all && !table->items[i].is_settable) continue;
        names =
            arena_printf(table->arena, "%s%s%s", names, names[0] ? ", " : "", table->items[i].name);
    }
    return names;
}

const char *setting_text(const Setting *setting, Arena *arena) {
    char number[40];
    switch (setting->type) {
    case SETTING_INTEGER: return arena_printf(arena, "%" PRId64, setting->integer);
    case SETTING_BOOLEAN: return setting->boolean ? "true" : "false";
    case SETTING_STRING: return arena_strdup(arena, setting->text);
    case SETTING_NUMBER: break;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof(number), "%.*g", digits, setting->number);
        if (strtod(number, NULL) == setting->number) break;
    }
    return arena_strdup(arena, number);
}

const char *settings_text(const SettingTable *table, Arena *arena) {
    StrBuf lines = strbuf_create();
    for (int i = 0; i < table->count; i++) {
        const Setting *setting = &table->items[i];
        if (!setting->is_settable || !setting->has_value) continue;
        const char *value = setting_text(setting, arena);
        if (strchr(value, '\n')) continue; /* no line; what nobody has is not worth an escape */
        strbuf_printf(&lines, "%s=%s\n", setting->name, value);
    }
    const char *text = arena_strdup(arena, lines.text);
    strbuf_destroy(&lines);
    return text;
}
