#include "frontend/judge/judge.h"
#include "ir/base/memory.h"
#include "runtime/tokenizer/utf8.h"

#include <stdlib.h>

/* A byte that is no UTF-8 becomes the character of its number, as json_put_bytes has it. */
static json_t *text_json(const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    StrBuf valid = strbuf_create();
    for (size_t at = 0; at < length;) {
        size_t n = utf8_valid_bytes(bytes + at, length - at);
        strbuf_put_bytes(&valid, bytes + at, n);
        at += n;
        if (at == length) break;
        unsigned char character[4];
        strbuf_put_bytes(&valid, character, (size_t)utf8_write(bytes[at++], character));
    }
    json_t *json = json_stringn(valid.text, valid.length);
    strbuf_destroy(&valid);
    return json;
}

/* In ASCII: the program's idea of encodings does not matter. */
void judged_answer_put(StrBuf *out, const JudgedAnswer *answer) {
    json_t *line = json_copy((json_t *)answer->record); /* which is not changed */
    static const char *const OURS[] = {"text", "tokens", "ended", "sample"};
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) json_object_del(line, OURS[i]);
    json_object_set_new(line, "text", text_json(answer->text, answer->length));
    json_object_set_new(line, "tokens", json_integer(answer->n_tokens));
    json_object_set_new(line, "ended", json_boolean(answer->ended));
    char *text = json_dumps(line, JSON_ENSURE_ASCII);
    json_decref(line);
    if (!text) memory_exhausted(0);
    strbuf_put(out, text);
    strbuf_put(out, "\n");
    free(text);
}
