/* What is done to text before it is divided into words: the normalizers of tokenizer.json, as steps
 * that each change what the one before made. A step that changes nothing makes no copy. */
#ifndef RUNTIME_TOKENIZER_NORMALIZE_H
#define RUNTIME_TOKENIZER_NORMALIZE_H

#include "runtime/tokenizer/charsmap.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/sentencepiece_text.h"

typedef enum NormalKind {
    NORMAL_FORM,          /* a normalization form of Unicode (UAX #15), by utf8proc */
    NORMAL_CHARACTERS,    /* each character by itself, by `change` */
    NORMAL_STRIP,         /* no white space at the ends */
    NORMAL_PREPEND,       /* `text` before what begins a document or follows a special token */
    NORMAL_REPLACE,       /* `text` in the place of each `byte`, or match of `pattern` */
    NORMAL_PRECOMPILED,   /* by a charsmap */
    NORMAL_SENTENCEPIECE, /* by all of SentencePiece's own rules */
} NormalKind;

/* Unicode's. That text is in form C, as most is, is found out about without a copy. */
typedef enum NormalForm { NORMAL_FORM_C, NORMAL_FORM_D, NORMAL_FORM_KC, NORMAL_FORM_KD } NormalForm;

/* What becomes of a character: how many characters, which are in out. */
enum { CHANGED_MOST = 3 };
typedef int CharacterChange(uint32_t character, uint32_t out[CHANGED_MOST]);

typedef struct NormalStep {
    NormalKind kind;
    NormalForm form;
    CharacterChange *change;
    bool left, right; /* of NORMAL_STRIP: which ends */
    Pattern *pattern; /* owned; NULL: `byte` */
    char byte;
    const char *text;
    const Charsmap *charsmap;
    SentencePieceText *rules; /* owned */
} NormalStep;

enum { MAX_NORMAL_STEPS = 16 };
typedef struct Normalizer {
    NormalStep items[MAX_NORMAL_STEPS];
    int count;
    const char *names; /* of the steps, as files call them; NULL: there are none */
} Normalizer;
void normalizer_release(Normalizer *normalizer);

typedef struct NormalBuffer {
    unsigned char *bytes;
    size_t length, capacity;
    size_t most; /* bytes; 0: any number */
    bool full;   /* something did not fit, and is left out */
} NormalBuffer;

/* Room that is used again; of one thread, zeroed at first. */
typedef struct NormalText {
    NormalBuffer buffers[2]; /* what a step reads, and what it writes */
    PatternSpace *patterns;
    bool grew; /* why the last call failed: the text became too long */
} NormalText;
void normal_text_release(NormalText *room);
void normal_buffer_put(NormalBuffer *out, const void *bytes, size_t length);

/* Valid UTF-8 -> *out_text [*out_length]: the text itself, or what `room` holds until the next
 * call. begins: NORMAL_PREPEND counts. False: a pattern gave up, or the text has grown to more than
 * NORMAL_GROWTH times its length and NORMAL_MORE_BYTES: no file that was learned from text does so,
 * and sixteen steps that each write 1 KiB for a byte would take all memory. */
enum { NORMAL_GROWTH = 64, NORMAL_MORE_BYTES = 1 << 20 };
bool normalize(const Normalizer *normalizer, const unsigned char *text, size_t length, bool begins,
               NormalText *room, const unsigned char **out_text, size_t *out_length);

#endif
