#include "frontend/commands/choice_tokens.h"

#include "frontend/commands/completion_tokens.h"
#include "frontend/commands/generate_chat.h"
#include "ir/base/strbuf.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/token_run.h"

#include <string.h>

static bool encode_part(Encoder *encoder, TokenRun *run, const char *text, size_t length,
                        bool counts) {
    if (encoder) return token_run_text(run, text, length, counts);
    for (size_t i = 0; i < length; i++) token_list_add(run->tokens, (unsigned char)text[i]);
    return true;
}

/* Of the prompt, without white space at its end. */
static size_t count_solid(const char *text, size_t length) {
    size_t solid = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character;
        const int n = utf8_read((const unsigned char *)text + at, length - at, &character);
        at += n > 0 ? (size_t)n : 1;
        if (n == 0 || !utf8_is_space(character)) solid = at;
    }
    return solid;
}

static bool encode_text(const ChoiceTexts *how, Encoder *encoder, const Choice *choice,
                        TokenList *out, int64_t *out_first, Diag *diag) {
    TokenMarks marks = {0};
    TokenRun run = {.encoder = encoder,
                    .tokens = out,
                    .marks = &marks,
                    .where = choice->loc.file,
                    .diag = diag};
    const char *prompt = json_string_value(choice->prompt);
    const size_t length = json_string_length(choice->prompt);
    const size_t solid = choice->moves_space ? count_solid(prompt, length) : length;
    StrBuf text = strbuf_create();
    strbuf_put_bytes(&text, prompt + solid, length - solid);
    strbuf_put(&text, choice->delimiter);
    strbuf_put_bytes(&text, json_string_value(choice->text), json_string_length(choice->text));
    if (how->first != NO_TOKEN) token_list_add(out, how->first);
    if (encoder) token_run_begin(&run);
    if (how->first != NO_TOKEN) run.place = TEXT_FOLLOWS;
    bool good =
        encode_part(encoder, &run, prompt, solid, false) && (!encoder || token_run_close(&run));
    *out_first = (int64_t)out->count;
    good = good && encode_part(encoder, &run, text.text, text.length, true);
    if (encoder) good = token_run_end(&run, good);
    token_marks_release(&marks);
    strbuf_destroy(&text);
    return good;
}

/* Of a chat without the space that parts it from a prompt. */
const char *choice_text(const ChoiceTexts *how, const json_t *text, size_t *out_length) {
    const char *bytes = json_string_value(text);
    const size_t n = json_string_length(text), space = how->chat && n > 0 && bytes[0] == ' ';
    *out_length = n - space;
    return bytes + space;
}

/* The line as fine-tuning's data have a conversation; what else it says is the template's. */
static json_t *make_record(const ChoiceTexts *how, const Choice *choice) {
    static const char *const OTHERS[] = {"text", "messages", "conversations", "ctx"};
    const json_t *prompt = choice->prompt;
    size_t n;
    const char *said = choice_text(how, choice->text, &n);
    json_t *record =
        choice->object ? json_copy((json_t *)(uintptr_t)choice->object) : json_object();
    json_t *asked = generate_chat_messages(how->system, json_is_array(prompt) ? prompt : NULL,
                                           json_string_value(prompt), json_string_length(prompt));
    json_t *answer = json_pack("[{s:s, s:s%}]", "role", "assistant", "content", said, n);
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        json_object_del(record, OTHERS[i]);
    }
    if (!answer || json_object_set_new(record, "prompt", asked) != 0 ||
        json_object_set_new(record, "completion", answer) != 0) {
        BUG("out of memory");
    }
    return record;
}

/* The choice as an answer: from the first token that counts as a label to the last. */
static bool encode_answer(const ChoiceTexts *how, Encoder *encoder, const Choice *choice,
                          TokenList *out, int64_t *out_first, Diag *diag) {
    CompletionTokens told;
    json_t *record = make_record(how, choice);
    bool good = completion_tokens_encode(how->chat, encoder, record, choice->loc, &told, diag);
    size_t first = 0, end = told.count;
    while (end > 0 && !completion_tokens_count(&told, end - 1)) end--;
    while (first < end && !completion_tokens_count(&told, first)) first++;
    for (size_t i = 0; good && i < end; i++) token_list_add(out, told.items[i]);
    *out_first = (int64_t)first;
    completion_tokens_release(&told);
    json_decref(record);
    return good;
}

bool choice_encode(const ChoiceTexts *how, Encoder *encoder, const Choice *choice, TokenList *out,
                   int64_t *out_first, Diag *diag) {
    size_t n;
    if (!how->chat) return encode_text(how, encoder, choice, out, out_first, diag);
    choice_text(how, choice->text, &n);
    if (n > 0) return encode_answer(how, encoder, choice, out, out_first, diag);
    diag_error(diag, choice->loc, "choice %d is empty", choice->number);
    return false;
}
