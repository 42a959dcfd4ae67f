#include "frontend/lua/lua_compiled.h"

#include <lauxlib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 16 };

typedef struct Compiled {
    const char *text;
    char *code; /* whole once it is in the table; for as long as the process lives */
    size_t length, capacity;
} Compiled;

static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static Compiled table[MOST_TEXTS];
static int n_compiled;

static int append(lua_State *lua, const void *piece, size_t length, void *to) {
    Compiled *compiled = to;
    (void)lua;
    if (compiled->length + length > compiled->capacity) {
        size_t capacity = 2 * (compiled->length + length);
        char *code = realloc(compiled->code, capacity);
        if (!code) return 1;
        compiled->code = code;
        compiled->capacity = capacity;
    }
    memcpy(compiled->code + compiled->length, piece, length);
    compiled->length += length;
    return 0;
}

static Compiled find(const char *text) {
    Compiled found = {0};
    pthread_mutex_lock(&changing);
    for (int i = 0; i < n_compiled && !found.text; i++) {
        if (table[i].text == text) found = table[i];
    }
    pthread_mutex_unlock(&changing);
    return found;
}

/* Of two threads that compiled the same the first one's stays. */
static void keep(Compiled *made) {
    bool known = false;
    pthread_mutex_lock(&changing);
    for (int i = 0; i < n_compiled; i++) known |= table[i].text == made->text;
    bool kept = !known && n_compiled < MOST_TEXTS;
    if (kept) table[n_compiled++] = *made;
    pthread_mutex_unlock(&changing);
    if (!kept) free(made->code);
}

int lua_compiled_load(lua_State *lua, const char *text, size_t length, const char *source) {
    Compiled compiled = find(text);
    if (compiled.text) return luaL_loadbufferx(lua, compiled.code, compiled.length, source, "b");
    int status = luaL_loadbufferx(lua, text, length, source, "t");
    if (status != LUA_OK) return status;
    compiled.text = text;
    if (lua_dump(lua, append, &compiled, 0) == 0) {
        keep(&compiled);
    } else {
        free(compiled.code);
    }
    return LUA_OK;
}
