#include "frontend/commands/train_documents.h"

#include "ir/op.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* NULL: there is none. */
static const Node *find_documents(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (node_tells_documents(graph->nodes[n])) return graph->nodes[n];
        }
    }
    return NULL;
}

int64_t train_documents_separator(const Plan *plan) {
    const Node *node = find_documents(plan);
    return node ? node_int(node, ATTR_separator, -1) : -1;
}

/* Can the command line say which token ends a document? A model of one's own may have it fixed. */
static bool has_setting(const Plan *plan) {
    static const char KEY[] = "documents=";
    for (const char *at = plan->settings; at && *at; at = strchr(at, '\n'), at += at != NULL) {
        if (strncmp(at, KEY, sizeof(KEY) - 1) == 0) return true;
    }
    return false;
}

/* What to do about it: where it is a setting, `value`; else words. */
static const char *advise(const Plan *plan, int64_t value, Arena *arena) {
    return has_setting(plan) ? arena_printf(arena, "--set documents=%" PRId64, value)
                             : "the model says which to nn.documents";
}

/* A token's text where it can be printed as it is. */
static const char *text_of(const Tokenizer *tokenizer, int64_t id, Arena *arena) {
    size_t length;
    if (!tokenizer || id >= (int64_t)tokenizer->n_ids) return NULL;
    const char *text = tokenizer_text(tokenizer, (uint32_t)id, &length);
    for (size_t i = 0; i < length; i++) {
        if (!isprint((unsigned char)text[i])) return NULL;
    }
    return length ? arena_strndup(arena, text, length) : NULL;
}

static const char *name_token(const Tokenizer *tokenizer, int64_t id, Arena *arena) {
    const char *text = text_of(tokenizer, id, arena);
    return arena_printf(arena, text ? "%" PRId64 " ('%s')" : "%" PRId64, id, text);
}

/* Of windows spread evenly over the data; where none of them has an end, of all, up to the first.
 * False: reported. */
static bool count_ends(const Dataset *data, int seq, TrainDocuments *out, Arena *arena,
                       Diag *diag) {
    enum { ENOUGH = 1 << 20 };
    int64_t n_windows = dataset_count_windows(data), n = ENOUGH / seq + 1;
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, seq), *labels = ARENA_ARRAY(arena, int32_t, seq);
    if (n > n_windows) n = n_windows;
    for (int64_t w = 0; w < n + n_windows; w++) {
        bool again = w >= n;
        int64_t at = again ? w - n : (int64_t)((double)n_windows / (double)n * (double)w);
        if (again && (out->n_ends > 0 || n == n_windows)) break;
        if (w == n) out->n_looked = 0;
        if (!dataset_window(data, at, tokens, labels, diag)) return false;
        for (int i = 0; i < seq; i++) {
            bool is_end = tokens[i] == out->separator;
            bool is_padding = is_end && i > 0 && tokens[i - 1] == out->separator;
            if (is_padding && (out->apart || dataset_is_masked(data))) continue;
            out->n_ends += is_end;
            out->n_looked += !(is_end && out->apart);
        }
    }
    return true;
}

bool train_documents_check(const TrainText *text, const CliArgs *args, const Plan *plan,
                           const char *path, const Dataset *data, TrainDocuments *out, Diag *diag) {
    const Tokenizer *tokenizer = text->tokenizer;
    const char *eot = cli_text(args, OPT_EOT, NULL);
    TrainDocuments sum = *out;
    const Node *node = find_documents(plan);
    *out = (TrainDocuments){.separator = -1};
    if (!node) return true;
    out->separator = node_int(node, ATTR_separator, -1);
    out->apart = node_int(node, ATTR_apart, 0) != 0;
    out->text = text_of(tokenizer, out->separator, args->arena);
    const char *name = name_token(tokenizer, out->separator, args->arena);
    uint32_t known = NO_TOKEN;
    if (tokenizer && eot) known = tokenizer_find_added(tokenizer, eot, "eot", diag);
    if (tokenizer && !eot) known = tokenizer_end_of_text(tokenizer);
    if (eot && known != (uint32_t)out->separator) {
        diag_error(diag, NO_LOC,
                   "documents end with the token %s in the plan, and by --eot with %s: %s%s", name,
                   name_token(tokenizer, known, args->arena), has_setting(plan) ? "plan with " : "",
                   advise(plan, known, args->arena));
        return false;
    }
    if (!count_ends(data, (int)plan->seq, out, args->arena, diag)) return false;
    if (out->n_ends > 0) {
        out->n_looked += sum.n_looked;
        out->n_ends += sum.n_ends;
        return true;
    }
    diag_error(diag, (SourceLoc){path, 0},
               "no document ends: the token %s, which the plan keeps documents apart by, is not "
               "among %" PRId64 " looked at%s",
               name, out->n_looked,
               has_setting(plan) ? "; --set documents=-1 has attention see whole sequences" : "");
    if (known == (uint32_t)out->separator && !eot) {
        diag_note(diag, NO_LOC, "--eot auto puts it after every document of text");
    } else if (known != NO_TOKEN && known != (uint32_t)out->separator) {
        diag_note(diag, NO_LOC, "in this tokenizer %s ends a text: %s",
                  name_token(tokenizer, known, args->arena), advise(plan, known, args->arena));
    }
    return false;
}

void train_documents_print(const TrainDocuments *documents) {
    if (documents->separator < 0) return;
    printf("within  documents, %s token %" PRId64,
           documents->apart ? "between which stands" : "which end with", documents->separator);
    if (documents->text) printf(" ('%s')", documents->text);
    printf(": %.1f tokens in the mean\n", (double)documents->n_looked / (double)documents->n_ends);
}
