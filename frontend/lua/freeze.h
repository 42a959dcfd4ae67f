/* Which parameters are frozen: kept as they are made or loaded, with no gradient, no state of an
 * optimizer and no update.
 *
 * Said of one where it is made (`frozen = 1`), or by patterns of logical names, one after the
 * other, of which the last that fits a name counts: "wte, blocks.*.attn.*" freezes, "!blocks.3.*"
 * trains again. `*` stands for any text, `?` for one character.
 */
#ifndef FRONTEND_LUA_FREEZE_H
#define FRONTEND_LUA_FREEZE_H

#include "ir/graph.h"

/* One text of patterns, from m:freeze or --set freeze=. */
typedef struct FreezeRule {
    const char *patterns;
    const char *what; /* how it was said: begins an error */
    SourceLoc loc;
} FreezeRule;

/* Sets the attribute of every parameter that the rule's patterns fit. False, reported: a pattern
 * that is none, or that fits no parameter. */
bool freeze_apply(Graph *graph, const FreezeRule *rule, Diag *diag);

void freeze_set(Graph *graph, Node *param, bool frozen);

#endif
