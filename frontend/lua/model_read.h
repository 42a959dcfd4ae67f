/* Reads the table that a script returns, `model{...}`, and the command line's --set into settings
 * and a training recipe.
 */
#ifndef FRONTEND_LUA_MODEL_READ_H
#define FRONTEND_LUA_MODEL_READ_H

#include "frontend/lua/freeze.h"
#include "frontend/lua/model.h"
#include "frontend/lua/model_settings.h"

#include <lua.h>

typedef struct ModelDescription {
    const char *name;
    SourceLoc loc; /* of `model{` */
    SettingTable settings;
    TrainingRecipe recipe;
    FreezeRule freeze; /* of the optimizer's table or --set; patterns NULL: none */
} ModelDescription;

/* Reads the table at `index`. May raise; mistakes are reported. */
void model_read(lua_State *lua, int index, const ModelSetting *given, int n_given,
                ModelDescription *description);

/* The names in `sizes` of the table at `index`, sorted, in the sandbox's arena; 0: it has none. */
int model_read_sizes(lua_State *lua, int index, const char ***out_names);

#endif
