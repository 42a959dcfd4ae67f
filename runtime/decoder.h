/* Decoder: sequences that grow, on an engine whose plan is for decoding.
 *
 * Each of the plan's sequences has a length: as many positions of the caches are its own. Reading
 * takes a run of tokens of one sequence, in chunks of the plan; writing one more token of each.
 */
#ifndef RUNTIME_DECODER_H
#define RUNTIME_DECODER_H

#include "runtime/engine.h"

typedef struct Decoder {
    Engine *engine;
    int64_t sequences, context, chunk, vocab, separator;
    int64_t scored; /* positions of a sequence that are scored at once at most; 0: none can be */
    int64_t pieces, piece; /* rows of DECODE_READ_TOGETHER (0: none), and positions of each */
    bool states;           /* layers carry a state: what was read cannot be cut */
    /* Of a model that sees images: the token whose place has a vector of one (-1: there is none),
     * numbers of a sequence's pixels, and vectors of a sequence. placed: of each sequence, how many
     * such tokens its first k positions have, [sequences, context + 1]. */
    int64_t image_token, pixels, slots;
    int32_t *placed;
    float *seen;
    /* [sequences]: did it look before its first position? And will that one have it? */
    bool *looked, *looks;
    int64_t *lengths; /* [sequences] */
    int64_t *starts; /* [sequences]: where the last position's document begins, or the next one's */
    int32_t *inputs[N_DECODE_INPUTS];
    float *logits, **behind; /* [pieces, vocab], [pieces]: where a row's logits belong */
    double read_seconds, write_seconds, look_seconds;
    int64_t n_read, n_written; /* tokens, of all sequences */
    int64_t n_looked;          /* sequences */
} Decoder;

/* Tokens that a sequence of the caches begins with. */
typedef struct HeldTokens {
    int32_t *tokens; /* [context], `count` of them */
    int64_t count;
} HeldTokens;
/* How many of the `n` tokens they are, from the first on. */
int64_t held_tokens_common(const HeldTokens *held, const int32_t *tokens, int64_t n);
/* Where the document begins that the position behind these tokens is of. */
int64_t decoder_find_start(const Decoder *decoder, const int32_t *tokens, int64_t n);

/* Owned by the arena; all sequences are empty. */
Decoder *decoder_create(Engine *engine, const Plan *plan, Arena *arena);

/* `count` more tokens of a sequence, one at least, as many as its context still has at most; logits
 * [vocab] behind the last. */
bool decoder_read(Decoder *decoder, int64_t sequence, const int32_t *tokens, int64_t count,
                  float *out_logits, Diag *diag);

typedef struct DecoderRead {
    int64_t sequence;
    const int32_t *tokens; /* [count] */
    int64_t count;
    int64_t few;   /* how many of the last are read few at a time, as decoder_count_few has it */
    float *logits; /* [vocab]: behind the last */
} DecoderRead;
/* What the model sees of a sequence's images, [patches, pixel] of as many as it may have: tokens
 * that stand for them have it from then on, until the sequence is cleared; without it they stand
 * for nothing. */
bool decoder_look(Decoder *decoder, int64_t sequence, const int32_t *pixels, Diag *diag);
/* Of `count` tokens that are read at once, how many are read few at a time. */
int64_t decoder_count_few(const Decoder *decoder, int64_t count);
/* Tokens of several sequences, no two of them one: with the bits that decoder_read gives each, in
 * less time, as what is not long enough for a chunk of its own shares one. */
bool decoder_read_all(Decoder *decoder, const DecoderRead *reads, int64_t n, Diag *diag);

/* One more token of every sequence, logits [sequences, vocab] behind it; -1: the sequence has ended
 * or is full, its logits are of no use. */
bool decoder_write(Decoder *decoder, const int32_t *tokens, float *out_logits, Diag *diag);

/* counts[s] more tokens of each sequence, from none to `scored`, which fit its context; logits
 * [sequences, scored, vocab] behind each. */
bool decoder_score(Decoder *decoder, const int32_t *const *tokens, const int64_t *counts,
                   float *out_logits, Diag *diag);

static inline bool decoder_is_full(const Decoder *decoder, int64_t sequence) {
    return decoder->lengths[sequence] == decoder->context;
}

/* A sequence becomes as another (or itself) was behind its first `count` positions, when its
 * `starts` was `start`. False: it cannot, as layers carry a state, and the other has gone on since.
 */
bool decoder_copy_first(Decoder *decoder, int64_t from, int64_t to, int64_t count, int64_t start);
/* A sequence becomes as another is; and an empty one. */
void decoder_copy(Decoder *decoder, int64_t from, int64_t to);
void decoder_clear(Decoder *decoder, int64_t sequence);
/* Forgets what is behind the first `length` positions; all, where documents are told apart: where
 * the last of them begins is not kept, or where layers carry a state, which has them all in it.
 * Returns how many are left. */
int64_t decoder_cut(Decoder *decoder, int64_t sequence, int64_t length);

#endif
