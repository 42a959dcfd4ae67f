/* Text -> tokens, or -> its words and how often they come. An Encoder is one thread's; the
 * tokenizer is shared.
 *
 * Bytes that are not UTF-8 are words of their own, so that every text comes back as it was. Words
 * and their tokens are remembered in a table of fixed size.
 */
#ifndef RUNTIME_TOKENIZER_ENCODER_H
#define RUNTIME_TOKENIZER_ENCODER_H

#include "runtime/tokenizer/token_list.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/word_counts.h"

typedef struct Encoder Encoder;
Encoder *encoder_create(const Tokenizer *tokenizer);
void encoder_destroy(Encoder *encoder);
const Tokenizer *encoder_tokenizer(const Encoder *encoder);

/* Where it goes: one of the two. */
typedef struct EncoderOutput {
    TokenList *tokens;
    WordCounts *counts;
    int64_t weight; /* of a word in counts */
} EncoderOutput;

/* A whole document, appended to the output. with_special: also finds special tokens in it, others
 * that were added always. False: reported; `where` is how errors call the text. */
bool encoder_encode(Encoder *encoder, const unsigned char *text, size_t length, bool with_special,
                    const EncoderOutput *out, const char *where, Diag *diag);

/* Where a text stands: some tokenizers put a space in front of what begins. */
typedef enum TextPlace {
    TEXT_BEGINS,   /* a document */
    TEXT_FOLLOWS,  /* a special token */
    TEXT_CONTINUES /* text: no token is of both */
} TextPlace;
/* The same of a part of a document. */
bool encoder_encode_part(Encoder *encoder, TextPlace place, const unsigned char *text,
                         size_t length, bool with_special, const EncoderOutput *out,
                         const char *where, Diag *diag);

/* --- long documents, which several threads do together --- */

/* What a document is divided into before it is divided into words. */
typedef struct Segment {
    const unsigned char *text; /* NULL: `token` alone */
    size_t length;
    bool valid;     /* UTF-8, normalized */
    bool continues; /* text before it */
    uint32_t token; /* an added token */
} Segment;
/* Taken while the walk is at it; false ends the walk, and so does, reported, a normalizer. */
typedef bool SegmentTaker(void *user, const Segment *segment);
bool encoder_walk(Encoder *encoder, const unsigned char *text, size_t length, bool with_special,
                  SegmentTaker *take, void *user, const char *where, Diag *diag);
bool encoder_encode_segment(Encoder *encoder, const Segment *segment, const EncoderOutput *out,
                            const char *where, Diag *diag);

/* A stretch of a segment's text. Its first piece begins at `begin`, wherever that is; its last one
 * is the last that begins before `until`, and ends at `end`. Text behind `seen` is not looked at:
 * the pieces end before the first whose end could depend on it. */
enum { CHUNK_MARKS = 64 };
typedef struct Chunk {
    const unsigned char *text;
    size_t length; /* of the segment */
    size_t begin, until, seen, end;
    size_t marks[CHUNK_MARKS];       /* where its first pieces begin */
    size_t mark_tokens[CHUNK_MARKS]; /* tokens before them */
    int n_marks;
} Chunk;
/* Pieces depend on what follows them only, so that a chunk whose beginning was a guess is right
 * from the place on where a piece begins that began there anyway. */
bool encoder_can_chunk(const Tokenizer *tokenizer);
bool encoder_encode_chunk(Encoder *encoder, Chunk *chunk, const EncoderOutput *out,
                          const char *where, Diag *diag);

#endif
