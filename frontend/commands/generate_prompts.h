/* A file of prompts for `generate`: texts for all of them, as many side by side as there are slots;
 * where one ends the next begins. Each text is what it would be alone.
 *
 * A line is an object with a string "prompt", and maybe a "suffix" that the text leads to, or, with
 * --chat, alternatively a list "messages" whose last one is the user's. Every text becomes a line
 * with all that its prompt's line has, and "text", "tokens", "ended" and, of several, "sample".
 */
#ifndef FRONTEND_COMMANDS_GENERATE_PROMPTS_H
#define FRONTEND_COMMANDS_GENERATE_PROMPTS_H

#include "frontend/commands/generate_chat.h"
#include "frontend/commands/generate_writer.h"
#include "frontend/judge/judge.h"

#include <jansson.h>

typedef struct PromptLine {
    json_t *object;
    SourceLoc loc;
    GenerateText begin; /* what its texts begin as */
} PromptLine;

typedef struct GeneratePrompts {
    const char *path; /* NULL: there are none */
    PromptLine *lines;
    int n_lines, capacity;
    int n_samples; /* of each */
    Judge *judge;  /* of texts, not its own; NULL: none */
    double reward; /* of all texts in the mean */
} GeneratePrompts;

/* Options that make no sense together are refused. False: reported. */
bool generate_prompts_check(const CliArgs *args, Diag *diag);
/* One more, whose object is theirs then. */
void generate_prompts_add(GeneratePrompts *prompts, const PromptLine *line);
/* Does nothing without --prompts. False: reported. Released either way. */
bool generate_prompts_read(const CliArgs *args, GeneratePrompts *out, Diag *diag);
void generate_prompts_release(GeneratePrompts *prompts);
/* Texts side by side. */
int generate_prompts_slots(const GeneratePrompts *prompts, const CliArgs *args);
/* Every line as tokens; base has what all texts have in common. False: reported. */
bool generate_prompts_encode(GeneratePrompts *prompts, const GenerateEngine *engine,
                             const GenerateChat *chat, const GenerateImages *images,
                             const GenerateText *base, Diag *diag);
/* Of all tokens of all lines, behind those of `digest`. */
uint64_t generate_prompts_digest(uint64_t digest, const GeneratePrompts *prompts);

/* Writes all texts of `length` tokens at most to where --output says, in the file's order; on
 * standard output each as soon as those before it are there. `says`: how far it is goes to stderr.
 * False: reported. */
bool generate_prompts_write(GeneratePrompts *prompts, GenerateWriter *writer, const CliArgs *args,
                            int64_t length, bool says, Diag *diag);

#endif
