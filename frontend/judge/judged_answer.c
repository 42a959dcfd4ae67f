#include "frontend/judge/judge.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Without the end of its object, and without such fields, of which there are n. */
static void put_record(StrBuf *out, const json_t *record, const char *const *ours, size_t n) {
    json_t *line = json_copy((json_t *)record); /* which is not changed */
    for (size_t i = 0; i < n; i++) json_object_del(line, ours[i]);
    const bool has_more = json_object_size(line) > 0;
    char *given = json_dumps(line, JSON_ENSURE_ASCII);
    json_decref(line);
    if (!given) memory_exhausted(0);
    strbuf_put_bytes(out, given, strlen(given) - 1);
    free(given);
    if (has_more) strbuf_put(out, ", ");
}

static void put_answer(StrBuf *out, const JudgedAnswer *answer) {
    strbuf_put(out, "\"text\": ");
    json_put_bytes(out, answer->text, answer->length);
    strbuf_printf(out, ", \"tokens\": %" PRId64 ", \"ended\": %s}", answer->n_tokens,
                  answer->ended ? "true" : "false");
}

/* In ASCII: a program's idea of encodings does not matter. */
void judged_answer_put(StrBuf *out, const JudgedAnswer *answer) {
    static const char *const OURS[] = {"text", "tokens", "ended"};
    put_record(out, answer->record, OURS, sizeof(OURS) / sizeof(OURS[0]));
    put_answer(out, answer);
    strbuf_put(out, "\n");
}

void judged_pair_put(StrBuf *out, const JudgedPair *pair) {
    static const char *const OURS[] = {"a", "b"};
    put_record(out, pair->a.record, OURS, sizeof(OURS) / sizeof(OURS[0]));
    strbuf_put(out, "\"a\": {");
    put_answer(out, &pair->a);
    strbuf_put(out, ", \"b\": {");
    put_answer(out, &pair->b);
    strbuf_put(out, "}\n");
}
