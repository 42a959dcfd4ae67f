/* `generate` filling in: the text to be written lies between a prompt and a suffix, and the model,
 * which learned so (train --fim), writes it behind both. */
#ifndef FRONTEND_COMMANDS_GENERATE_FILL_H
#define FRONTEND_COMMANDS_GENERATE_FILL_H

#include "frontend/commands/generate_engine.h"
#include "frontend/commands/generate_text.h"

/* Options that make no sense together are refused. False: reported. */
bool generate_fill_check(const CliArgs *args, Diag *diag);

typedef struct FillAsked {
    const char *prefix, *suffix;
    size_t n_prefix, n_suffix;
    SourceLoc loc;
    const char *where;
} FillAsked;
/* The text begins with what lies around its middle. False: reported. */
bool generate_fill_prompt(const GenerateEngine *engine, const FillAsked *asked, GenerateText *text,
                          Diag *diag);

/* So many tokens of `length` fit behind such a prompt, which may not leave the context. */
int64_t generate_fill_length(const GenerateEngine *engine, const GenerateText *text,
                             int64_t length);

#endif
