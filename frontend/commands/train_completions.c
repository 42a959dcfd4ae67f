#include "frontend/commands/train_completions.h"

#include "frontend/commands/completion_tokens.h"

#include <stdlib.h>
#include <string.h>

static bool is_answer(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static const json_t *last_of(const json_t *messages) {
    const size_t n = json_array_size(messages);
    return n > 0 ? json_array_get(messages, n - 1) : NULL;
}

bool train_completion_is_there(const json_t *record) {
    if (json_object_get(record, "prompt")) return json_object_get(record, "completion") != NULL;
    return is_answer(last_of(json_object_get(record, "messages")));
}

json_t *train_completion_asked(const json_t *messages) {
    const size_t n = json_array_size(messages);
    if (!is_answer(last_of(messages))) return NULL;
    json_t *asked = json_array();
    for (size_t i = 0; asked && i + 1 < n; i++) {
        if (json_array_append(asked, json_array_get(messages, i)) != 0) BUG("out of memory");
    }
    if (!asked) BUG("out of memory");
    return asked;
}

/* What the text and the prompt have alike is asked, whatever of it counts as fine-tuning sees it:
 * answers earlier in a conversation. */
static void set_row(TrainPrompt *prompt, const CompletionTokens *told, int64_t seq, bool *out_cut) {
    const size_t count = told->count;
    const TokenList *asked = &prompt->begin.tokens;
    size_t n_asked = 0;
    while (n_asked < count && n_asked < asked->count &&
           asked->items[n_asked] == told->items[n_asked]) {
        n_asked++;
    }
    *out_cut = count > (size_t)seq;
    prompt->n_row = *out_cut ? seq : (int64_t)count;
    prompt->row = calloc((size_t)prompt->n_row + 1, sizeof(*prompt->row));
    prompt->is_label = calloc((size_t)prompt->n_row + 1, 1);
    if (!prompt->row || !prompt->is_label) BUG("out of memory");
    for (int64_t i = 0; i < prompt->n_row; i++) {
        prompt->row[i] = told->items[i];
        prompt->is_label[i] = (size_t)i >= n_asked && completion_tokens_count(told, (size_t)i);
    }
}

/* The line as fine-tuning's data have it: what else it says is whoever's. */
static json_t *copy_record(const json_t *record) {
    json_t *own = json_copy((json_t *)(uintptr_t)record);
    if (!own) BUG("out of memory");
    json_object_del(own, "text");
    json_object_del(own, "conversations");
    return own;
}

bool train_completion_encode(const CorpusOptions *how, const Tokenizer *tokenizer, int64_t seq,
                             TrainPrompt *prompt, bool *out_cut, Diag *diag) {
    CompletionTokens told;
    Encoder *encoder = encoder_create(tokenizer);
    json_t *record = copy_record(prompt->record);
    bool good = completion_tokens_encode(how, encoder, record, prompt->loc, &told, diag);
    if (good) set_row(prompt, &told, seq, out_cut);
    completion_tokens_release(&told);
    json_decref(record);
    encoder_destroy(encoder);
    if (!good) return false;
    if (memchr(prompt->is_label, 1, (size_t)prompt->n_row)) return true;
    diag_error(diag, prompt->loc, "nothing of its completion counts in a row of %lld tokens",
               (long long)seq);
    return false;
}
