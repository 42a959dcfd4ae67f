/* Text files -> tokens, or counts of words, by several threads; the result does not depend on how
 * many. Files are mapped, or read in blocks where they are packed (gzip, Zstandard); what is in
 * work at a time is bounded, but for single documents, whose words and lines of JSON must fit into
 * memory.
 *
 * A document is a file; or, with a separator, what lies between two; or each line's object: a
 * "text", a "prompt" and its "completion", or the "messages" of a conversation. Files have lines if
 * their names end in .jsonl, or in .json (before .gz or .zst) where they begin so; in those that
 * begin as an array of objects each of them is one; and so is each row of a Parquet file. Empty
 * ones are passed over. A folder stands for its files in the order of their names. With each token
 * comes whether it counts as a label (what is answered does, what is asked does not) and whether it
 * begins a document (token_mask.h).
 */
#ifndef RUNTIME_TOKENIZER_CORPUS_H
#define RUNTIME_TOKENIZER_CORPUS_H

#include "ir/class_names.h"
#include "runtime/tokenizer/encoder.h"

/* What a text of a group is, the number that is its last token, the only one that counts: 0 a
 * query, 1 what answers it, from 2 on others that do not. With CORPUS_ANY_TEXTS also a text by
 * itself, and two whose likeness is known, with a document between that has this number, the bits
 * of an f32, and its role only. */
enum { CORPUS_MOST_TEXTS = 64, CORPUS_TEXT, CORPUS_FIRST, CORPUS_LIKENESS, CORPUS_SECOND };
enum { CORPUS_ANY_TEXTS = -1 };

typedef struct CorpusOptions {
    const char *const *paths;
    int n_paths;
    bool reads_input;        /* paths may be pipes, "-" standard input */
    const char *separator;   /* NULL: none */
    const char *field;       /* of lines of JSON; NULL: whichever of the known ones there is */
    const struct Chat *chat; /* of conversations; NULL: none, and `no_chat` says why */
    const char *no_chat;
    bool preferences;    /* lines are pairs of answers: each is two documents, chosen, rejected */
    bool unpaired;       /* lines are answers with a label, which says whether they are desirable:
                            TOKEN_WANTED; or such pairs, chosen ones being so */
    const char *classes; /* lines are texts with one of these (ir/class_names.h): the number of
                            its class is a text's last token, the only one that counts */
    int n_classes;       /* how many they are */
    ClassLabels labels;  /* more than a class each: class_label_words in its place */
    bool class_may_lack; /* a text without one has the number that follows theirs */
    bool each;           /* a text without a token is refused: what is said of each has its place */
    const struct CorpusImages *images; /* lines may have images (corpus_images.h): behind each
                            document the numbers of its images, and how many they are; or NULL */
    int texts; /* lines are groups of so many texts that belong together, each one a
                  document; CORPUS_ANY_TEXTS: whatever they are; 0: they are not */
    const char *query_prefix, *passage_prefix; /* what such texts begin with; NULL: nothing more */
    int between;       /* with classes: how many of `last` are between the two texts of a pair */
    bool with_special; /* special tokens in the text are tokens */
    const struct FillMiddle *fim; /* of plain texts some are cut (fill_middle.h); NULL: none */
    uint32_t first, last;         /* tokens around each document; NO_TOKEN: none */
    int n_threads;
    /* Now and then, and at the end; may be NULL. bytes_all 0: not known. */
    void (*progress)(void *user, int64_t bytes_done, int64_t bytes_all);
    void *progress_user;
} CorpusOptions;

typedef struct CorpusTotals {
    int64_t n_documents, n_bytes, n_tokens;
    int64_t n_special;    /* first and last ones among the tokens, but for those of chats, and those
                             of documents that were cut */
    int64_t n_unanswered; /* conversations in which nothing counts */
    int64_t n_counted;    /* tokens that count */
    int64_t n_filled;     /* documents that were cut to learn filling in */
} CorpusTotals;

/* Takes tokens in order, with the marks of each; false ends the work, reported. */
typedef bool TokenTaker(void *user, const uint32_t *tokens, const unsigned char *marks,
                        size_t count, Diag *diag);
bool corpus_encode(const Tokenizer *tokenizer, const CorpusOptions *options, TokenTaker *take,
                   void *user, CorpusTotals *out, Diag *diag);

/* Adds to `counts`. Where they would take more than most_bytes, the rarest words are forgotten:
 * *out_pruned says how often a word may have been seen and be forgotten. */
bool corpus_count(const Tokenizer *tokenizer, const CorpusOptions *options, size_t most_bytes,
                  WordCounts *counts, int64_t *out_pruned, CorpusTotals *out, Diag *diag);

#endif
