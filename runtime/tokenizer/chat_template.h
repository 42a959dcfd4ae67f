/* How a conversation becomes one text: what stands before and after what each role says. Named ones
 * are shipped; others are read from a file of JSON:
 *
 *   {"tokens": ["<|im_start|>", "<|im_end|>"],
 *    "system": {"before": "<|im_start|>system\n", "after": "<|im_end|>\n"},
 *    "user": {"before": "<|im_start|>user\n", "after": "<|im_end|>\n"},
 *    "assistant": {"before": "<|im_start|>assistant\n", "after": "<|im_end|>", "rest": "\n"}}
 *
 * `tokens` are the special tokens of these texts, which the tokenizer must have; in what people say
 * nothing is one. An answer and what is `after` it count; what is before it and its `rest` do not.
 * Others: "begin", before all; "default_system", said where no one says anything else;
 * "system_in_user": true, the system's part stands within the first user's, before what that says;
 * "trim": true, no white space around what is said; "alternate": true, user and assistant take
 * turns; of the assistant "lead", before the answer and counted with it. {end} stands for the token
 * that ends a text.
 *
 * Or it is a template in Jinja, as models have them (chat_jinja.h).
 */
#ifndef RUNTIME_TOKENIZER_CHAT_TEMPLATE_H
#define RUNTIME_TOKENIZER_CHAT_TEMPLATE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "runtime/tokenizer/tokenizer.h"

enum { CHAT_MOST_TOKENS = 8 };
#define CHAT_END "{end}"

typedef struct ChatTemplate {
    const char *name;
    const struct ChatJinja *jinja;        /* then this alone; else NULL */
    const char *tokens[CHAT_MOST_TOKENS]; /* NULL past the last */
    const char *begin;
    const char *system_before, *system_after; /* NULL: no one is the system */
    const char *user_before, *user_after;
    const char *answer_before, *answer_lead, *answer_after, *answer_rest;
    const char *default_system; /* NULL: none */
    bool system_in_user, trim, alternate;
    bool trims_together; /* the system's part and what the user says after it, as one */
} ChatTemplate;

/* By a name, or read from a file: a path with a slash, or one that ends in .json or .jinja, or a
 * folder. Reports and returns NULL. Kept in `arena`, or static. */
const ChatTemplate *chat_template_find(const char *name, Arena *arena, Diag *diag);
bool chat_template_is_path(const char *name);

/* The one that lies beside the tokenizer's file; else the one whose special tokens the tokenizer
 * has, if that says it all; else reports those that there are, and returns NULL. */
const ChatTemplate *chat_template_detect(const Tokenizer *tokenizer, Arena *arena, Diag *diag);

#endif
