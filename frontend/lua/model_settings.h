/* A model's settings: the sizes of its axes and its other scalars, each with a type.
 *
 * Values come from the model's own table, then from the row of `sizes` that was picked, then from
 * --set KEY=VALUE; what is still without a value is derived (settings_derive). A value must have
 * the type of the model's own. Texts belong to the arena.
 */
#ifndef FRONTEND_LUA_MODEL_SETTINGS_H
#define FRONTEND_LUA_MODEL_SETTINGS_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_AXIS_SIZE = INT32_MAX };

typedef enum SettingType {
    SETTING_INTEGER,
    SETTING_NUMBER,
    SETTING_BOOLEAN,
    SETTING_STRING
} SettingType;

typedef struct Setting {
    const char *name;
    SettingType type;
    bool is_axis;  /* the size of an axis: 1 or more */
    bool is_count; /* of blocks: 1 or more */
    bool has_value;
    bool is_settable; /* by a size or --set */
    bool is_read;     /* by the model's script */
    const char *own;  /* the value before any was given, as setting_text has it; NULL: none was */
    union {
        int64_t integer;
        double number;
        bool boolean;
        const char *text;
    };
} Setting;

typedef struct SettingTable {
    Arena *arena;
    int count, capacity;
    Setting *items;
} SettingTable;

const char *setting_type_name(SettingType type); /* "a whole number", ... */

Setting *settings_find(const SettingTable *table, const char *name); /* NULL: none */
/* The new setting, without a value. The pointer is good until the next one is added. */
Setting *settings_add(SettingTable *table, const char *name, SettingType type, bool is_axis);

/* Gives *setting the value, converting a whole number to a number where that is its type. `what`
 * begins the error: "--set layers=x". False: reported. */
bool setting_assign(Setting *setting, const Setting *value, const char *what, SourceLoc loc,
                    Diag *diag);
bool setting_parse(Setting *setting, const char *text, const char *what, SourceLoc loc, Diag *diag,
                   Arena *arena);

/* Reports that there is no setting `name`, with those that there are. */
void settings_report_unknown(const SettingTable *table, const char *name, const char *what,
                             SourceLoc loc, Diag *diag);

/* Sorts by name; first adds what is derived where the model declares the base: kv_heads = heads,
 * head = model / heads, group = heads / kv_heads, ffn = 4 model. False: reported. */
void settings_add_derived(SettingTable *table);
bool settings_derive(SettingTable *table, SourceLoc loc, Diag *diag);

/* The value as --set takes it; numbers in the fewest digits that read back the same. */
const char *setting_text(const Setting *setting, Arena *arena);
/* All that can be set, as lines "name=value": what a plan, and files of weights, say of the model.
 */
const char *settings_text(const SettingTable *table, Arena *arena);

/* "a, b, c": all names, or those that can be set. */
const char *settings_names(const SettingTable *table, bool all);

#endif
