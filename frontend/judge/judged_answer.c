#include "frontend/judge/judge.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In ASCII: a program's idea of encodings does not matter. */
void judged_answer_put(StrBuf *out, const JudgedAnswer *answer) {
    static const char *const OURS[] = {"text", "tokens", "ended"};
    json_t *line = json_copy((json_t *)answer->record); /* which is not changed */
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) json_object_del(line, OURS[i]);
    const bool has_more = json_object_size(line) > 0;
    char *given = json_dumps(line, JSON_ENSURE_ASCII);
    json_decref(line);
    if (!given) memory_exhausted(0);
    strbuf_put_bytes(out, given, strlen(given) - 1); /* without its end */
    free(given);
    strbuf_put(out, has_more ? ", \"text\": " : "\"text\": ");
    json_put_bytes(out, answer->text, answer->length);
    strbuf_printf(out, ", \"tokens\": %" PRId64 ", \"ended\": %s}\n", answer->n_tokens,
                  answer->ended ? "true" : "false");
}
