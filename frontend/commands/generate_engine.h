/* What `generate` gets its logits from: a plan for decoding where the model allows it, else whole
 * windows of tokens through a plan for training, which a line says.
 */
#ifndef FRONTEND_COMMANDS_GENERATE_ENGINE_H
#define FRONTEND_COMMANDS_GENERATE_ENGINE_H

#include "frontend/commands/engine_args.h"
#include "frontend/commands/generate_images.h"
#include "planner/decode/decode.h"
#include "runtime/decoder.h"

/* The prompt that was read last, for other texts that begin with it, with the same bits. */
typedef struct ReadPrompt {
    uint32_t *tokens; /* [context], `count` of them used; 0: none */
    size_t count;
    int64_t start; /* of the last position's document, or the next one's */
    float *logits; /* [vocab]: behind it */
    bool *holds;   /* [n_texts]: does a text's cache begin with it? */
    const TextImages *images;
} ReadPrompt;

typedef struct GenerateEngine {
    Plan *plan;
    EngineOptions options;
    Engine *engine;
    Decoder *decoder;        /* NULL: whole windows */
    DecodeObstacle obstacle; /* why */
    int n_texts;
    bool apart;         /* texts begin one by one, not all alike at once */
    int64_t context;    /* positions that a token looks back on at most, itself included */
    int64_t n_restarts; /* of texts that had filled their context */
    ReadPrompt prompt;
    /* [n_texts]: what a text's caches begin with that was read many tokens at a time: also once it
     * has ended. */
    HeldTokens *held;
    const TextImages **seen;     /* [n_texts]: the images that a text's cache was read with */
    const Node *images;          /* what the loss says of images; NULL: the model sees none */
    int32_t *pixels;             /* of a text's images; of whole windows within `tokens`, */
    const TextImages *in_tokens; /* which has these */
    DecoderRead *reads;          /* [n_texts]: of a round */
    bool *waits;                 /* [n_texts]: is it to be read? */
    bool *begins;                /* [n_texts]: from its beginning on, which others may share? */
    size_t *firsts;  /* [n_texts]: a text's token that is at the first position of its cache */
    int32_t *tokens; /* with a decoder [n_texts], else [forward_batch, context] */
    float *windows;  /* f32[forward_batch, context, vocab] */
    double seconds;  /* of whole windows, and how many */
    int64_t n_windows;
    /* Of a model with an encoder, which reads the prompt: how many tokens of it; 0: there is none.
     * What its decoder begins with, and what ends and fills up the prompt. */
    int64_t source;
    int32_t start, eos, pad;
    /* Of a model that writes by diffusion, which generate_diffusion.h has do so: the token that
     * hides one, and whether a token's logits are at the position before it. */
    bool diffuses, shifted;
    int32_t mask;
} GenerateEngine;

/* On stderr, why there are no caches, where there are none. */
void generate_engine_note_windows(const GenerateEngine *engine);
/* False, reported: the model cannot read so long a prompt. */
bool generate_engine_check_prompt(const GenerateEngine *engine, const GenerateText *text,
                                  const char *where, Diag *diag);
/* Takes the memory and loads the weights, which --load and --load-trained name. */
bool generate_engine_start(GenerateEngine *engine, const CliArgs *args, Diag *diag);
/* The same, and leaves the weights to the caller. */
bool generate_engine_create(GenerateEngine *engine, Arena *arena, Diag *diag);
/* `good`: as engine_args_release has it, and gives. */
bool generate_engine_release(GenerateEngine *engine, bool good);

/* The weights have changed: what was read is of no use to other texts. */
void generate_engine_forget(GenerateEngine *engine);
/* Text i is another one from now on, unlike those beside it. */
void generate_engine_begin(GenerateEngine *engine, int i);
/* Logits [n_texts, vocab] behind the last token of each text that is live; of the others they are
 * of no use. From call to call a live text has more tokens; unless generate_engine_begin says
 * otherwise all begin alike. */
bool generate_engine_logits(GenerateEngine *engine, const GenerateText *texts, const bool *live,
                            float *out_logits, Diag *diag);

/* Of whole windows: logits engine->windows of engine->tokens, [forward_batch, context]. */
bool generate_engine_windows(GenerateEngine *engine, Diag *diag);

/* The text, where there is but one, is another now, of which the first `kept` tokens are as they
 * were. */
void generate_engine_turn(GenerateEngine *engine, size_t kept);

#endif
