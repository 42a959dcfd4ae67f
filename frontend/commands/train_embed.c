#include "frontend/commands/train_embed.h"

#include "ir/base/memory.h"
#include "ir/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool train_embed_of(const Plan *plan, const Node *share, TrainEmbed *out, Diag *diag) {
    *out = (TrainEmbed){0};
    if (!share || !node_attr(share, ATTR_groups)) return true;
    const int64_t groups = node_int(share, ATTR_groups, 0), count = node_int(share, ATTR_count, 0);
    const int64_t length = node_int(share, ATTR_length, 0), pad = node_int(share, ATTR_pad, -1);
    const bool first = node_int(share, ATTR_first, 0) != 0;
    const Node *documents = NULL;
    for (int n = 0; n < plan->programs[0].graph->n_nodes; n++) {
        if (node_tells_documents(plan->programs[0].graph->nodes[n])) {
            documents = plan->programs[0].graph->nodes[n];
        }
    }
    *out = (TrainEmbed){.reads = true,
                        .first = first,
                        .how = {.seq = (size_t)plan->seq,
                                .groups = (size_t)groups,
                                .count = (size_t)count,
                                .length = (size_t)length,
                                .pad = (uint32_t)pad,
                                .last = documents && !node_int(documents, ATTR_apart, 0)}};
    if (count >= 2 && count <= CORPUS_MOST_TEXTS && groups >= 1 && groups <= plan->seq / count &&
        groups * count <= plan->vocab && groups * count <= UINT16_MAX && length >= 1 &&
        length < plan->seq && pad >= 0 && pad < plan->vocab) {
        return true;
    }
    diag_error(diag, share->loc,
               "label_share: %" PRId64 " groups of %" PRId64 " texts of %" PRId64
               " tokens, with the token %" PRId64 " behind each: must be at least 1 and 2, fit "
               "into rows of %" PRId64 ", and be no more than the %" PRId64 " tokens, one of these",
               groups, count, length, pad, plan->seq, plan->vocab);
    return false;
}

bool train_embed_check_options(const TrainEmbed *embed, const CliArgs *args, const char *path,
                               bool plain, Diag *diag) {
    static const CliOption PREFIXES[] = {OPT_QUERY_PREFIX, OPT_PASSAGE_PREFIX};
    for (int i = 0; !embed->reads && i < 2; i++) {
        if (!cli_given(args, PREFIXES[i])) continue;
        diag_error(diag, NO_LOC, "--%s: is of plans whose texts get vectors (--set embedding=)",
                   CLI_OPTIONS[PREFIXES[i]].name);
        return false;
    }
    if (!embed->reads) return true;
    const char *why = NULL;
    if (plain) {
        why = "the plan's model makes vectors of texts: they are lines of .jsonl, or rows of "
              "Parquet, with 'query' and 'positive', which --tokenizer FILE takes apart";
    } else if (cli_given(args, OPT_SEPARATOR)) {
        why = "--separator: texts for vectors are lines of .jsonl, or rows of Parquet";
    } else if (cli_given(args, OPT_PACK)) {
        why = "--pack: texts for vectors are packed already, so many pairs in a row";
    }
    if (why) diag_error(diag, (SourceLoc){path, 0}, "%s", why);
    return !why;
}

void train_embed_options(const TrainEmbed *embed, const CliArgs *args, bool any,
                         CorpusOptions *out) {
    if (!embed->reads) return;
    out->texts = any ? CORPUS_ANY_TEXTS : (int)embed->how.count;
    out->query_prefix = cli_text(args, OPT_QUERY_PREFIX, NULL);
    out->passage_prefix = cli_text(args, OPT_PASSAGE_PREFIX, NULL);
}

bool train_embed_rows(TrainEmbed *embed, TokenBuffer *buffer, Diag *diag) {
    EmbedTotals totals;
    if (embed->how.groups * (embed->how.count - 1) < 2) {
        diag_error(diag, NO_LOC,
                   "a row has one pair, whose answer is compared with no other text: plan with a "
                   "larger --set embed_group=, or --set embed_negatives=");
        return false;
    }
    EmbedPool *pool = memory_zeroed(1, sizeof(*pool));
    embed->pools[embed->n_pools++] = pool;
    if (!embed_rows(buffer, &embed->how, pool, &totals, diag)) return false;
    embed_add_totals(&embed->totals, &totals);
    return true;
}

EmbedPool *train_embed_pool(TrainEmbed *embed, int64_t n_rows) {
    if (!embed->reads || embed->n_pools == 0) return NULL;
    EmbedPool *pool = embed->pools[embed->n_pools - 1];
    embed_use_rows(pool, n_rows, &embed->totals);
    return pool;
}

void train_embed_release(TrainEmbed *embed) {
    for (int i = 0; i < embed->n_pools; i++) {
        embed_release(embed->pools[i]);
        free(embed->pools[i]);
    }
    embed->n_pools = 0;
}

void train_embed_print(const TrainEmbed *embed) {
    const EmbedTotals *t = &embed->totals;
    if (!embed->reads || t->n_rows == 0) return;
    printf("texts   %" PRId64 " groups of %zu, %.1f tokens a text in the mean; %zu groups a row, "
           "%" PRId64 " rows: %.1f %% full\n",
           t->n_groups, embed->how.count, (double)t->n_tokens / (double)t->n_texts,
           embed->how.groups, t->n_rows,
           100 * (double)t->n_kept / ((double)t->n_rows * (double)embed->how.seq));
    if (t->n_cut > 0) {
        printf("        %" PRId64 " texts lose their end: longer than %zu tokens, or the longest "
               "of a full row\n",
               t->n_cut, embed->how.length);
    }
    if (t->n_short > 0) {
        printf("        %" PRId64 " rows have fewer groups: the last, or where texts would be "
               "there twice\n",
               t->n_short);
    }
    if (t->n_torn > 0) {
        printf("        %" PRId64 " groups have a negative that is their query or answer, too: "
               "they learn nothing good\n",
               t->n_torn);
    }
    if (t->n_shared > 0) {
        printf("        %" PRId64 " of %" PRId64 " groups of validation have a query or an answer "
               "that is learned from, too: --val FILE has others\n",
               t->n_shared, t->n_apart);
    }
}
