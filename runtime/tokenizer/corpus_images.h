/* Images in lines of data: where they are named, in
 *
 *   - parts of what a message says: {"type": "image", "image": "x.jpg"} (or "path", or "url"), or
 *     {"type": "image_url", "image_url": {"url": ...}};
 *   - "image" or "images" beside messages or texts, a name or a list of names, in the order of
 *     their places: parts without a name of their own, and "<image>" in a text; where there are no
 *     places, in front of what is said first.
 *
 * Names become numbers of a store (runtime/data/image_store.h), each place one token. */
#ifndef RUNTIME_TOKENIZER_CORPUS_IMAGES_H
#define RUNTIME_TOKENIZER_CORPUS_IMAGES_H

#include "ir/base/json.h"
#include "runtime/data/image_store.h"
#include "runtime/tokenizer/chat.h"

#define CORPUS_IMAGE_PLACE "<image>"

typedef struct CorpusImages {
    ImageStore *store;
    uint32_t token;       /* that stands for an image */
    const char *spelling; /* of it */
    bool parts;           /* the chat template tells of images in parts of what is said */
} CorpusImages;

/* chat: NULL, or one whose template is asked whether it tells of images. */
CorpusImages corpus_images_of(ImageStore *store, const Tokenizer *tokenizer, uint32_t token,
                              const Chat *chat, Arena *arena);

/* Of one line: numbers in the order of their places. */
typedef struct ImageNumbers {
    int64_t *items; /* from malloc */
    size_t count, capacity;
} ImageNumbers;

/* "image" and "images" of the line's object. False: reported at `loc`. */
bool corpus_images_take(const CorpusImages *images, const json_t *object, ImageNumbers *out,
                        SourceLoc loc, Diag *diag);
/* Messages, with a place for each image: parts, where the template knows them, else "<image>" in
 * texts. NULL: reported at `loc`. */
json_t *corpus_images_take_chat(const CorpusImages *images, const json_t *object,
                                const json_t *messages, ImageNumbers *out, SourceLoc loc,
                                Diag *diag);

/* Before token_run_begin: spelled places are tokens. */
void corpus_images_begin(const CorpusImages *images, TokenRun *run);
/* Strings of which neither has a place (`more` may be NULL) get all of them in front. images NULL:
 * nothing is done. */
bool corpus_images_put_places(const CorpusImages *images, const ImageNumbers *numbers,
                              TokenRun *run, const json_t *text, const json_t *more);
/* Behind the document: the numbers, and how many. False: there are more places, or fewer. */
bool corpus_images_end(const CorpusImages *images, const ImageNumbers *numbers, TokenRun *run,
                       SourceLoc loc);

#endif
