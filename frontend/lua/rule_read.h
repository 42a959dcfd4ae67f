/* Optimizers that are formulas in Lua: those of the library, by name, and a model's own. Everything
 * here may raise; mistakes are reported.
 */
#ifndef FRONTEND_LUA_RULE_READ_H
#define FRONTEND_LUA_RULE_READ_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "planner/options.h"

#include <lua.h>

enum { RULE_MOST_OWN = 32 };

/* Numbers of a formula beside the recipe's: the table's, and what --set says. */
typedef struct OwnNumbers {
    int count;
    const char *names[RULE_MOST_OWN];
    double values[RULE_MOST_OWN];
} OwnNumbers;

/* NULL: it has none of the name. */
double *own_number_find(OwnNumbers *numbers, const char *name);
/* ", a, b"; "": there are none. */
const char *own_number_names(const OwnNumbers *numbers, Arena *arena);
/* At most RULE_MOST_OWN: false where there is no room. */
bool own_number_add(OwnNumbers *numbers, const char *name, double value);

/* Pushes the library's rule of the name. False: there is none, and nothing is pushed. */
bool rule_push(lua_State *lua, const char *name);
/* All of them, with commas between. */
const char *rule_names(lua_State *lua);
/* Numbers that the rule at `index` has by itself. */
void rule_read_numbers(lua_State *lua, int index, OwnNumbers *out);
/* Runs the formula of the table at `index` (`update`, `states`, `squares`) on symbols and fills
 * recipe->rule. loc: of mistakes in the table. */
void rule_read(lua_State *lua, int index, const OwnNumbers *numbers, TrainingRecipe *recipe,
               SourceLoc loc);

#endif
