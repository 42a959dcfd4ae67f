/* Images of texts that are continued or answered: --image beside a prompt, and what lines of
 * --prompts name, as lines of data do (runtime/tokenizer/corpus_images.h). */
#ifndef FRONTEND_COMMANDS_GENERATE_IMAGES_H
#define FRONTEND_COMMANDS_GENERATE_IMAGES_H

#include "frontend/commands/generate_chat.h"
#include "planner/plan/plan.h"
#include "runtime/tokenizer/corpus_images.h"
#include "runtime/tokenizer/image_texts.h"

/* Those of one text. They are decoded when the model looks at them. */
typedef struct TextImages {
    const ImageStore *store;
    const ImageRule *rule;
    const int64_t *numbers; /* [count]: in the store */
    const ImageGrid *grids; /* [count] */
    int64_t count;
} TextImages;

/* Do texts see the same? Either may be NULL, and sees nothing then. */
bool text_images_equal(const TextImages *a, const TextImages *b);
/* Pixels [patches, pixel] of as many images as a row may have, zeros where there are fewer; images
 * may be NULL. False: reported, with the name of the one that cannot be read. */
bool text_images_read(const TextImages *images, int64_t n_pixels, int32_t *out, Diag *diag);

typedef struct GenerateImages {
    bool sees; /* does the model? */
    Arena *arena;
    int64_t context; /* tokens that a text may have with those of its images */
    ImageRule rule;
    ImageStore *store;
    ImageTexts *texts;
    CorpusImages corpus;
} GenerateImages;

/* share: what the model's loss says of images, or NULL: it sees none. False, reported: the plan has
 * another input or vocabulary, or options are given that need what is not there. Released by
 * generate_images_release, either way. */
bool generate_images_begin(const CliArgs *args, const Plan *plan, const Node *share,
                           int64_t context, GenerateText *text, const GenerateChat *chat,
                           GenerateImages *out, Diag *diag);
void generate_images_release(GenerateImages *images);

/* Does it name images, which the text then begins with? */
bool generate_images_are_in(const GenerateImages *images, const json_t *object,
                            const json_t *messages);
/* An object with those of --image, the caller's; NULL: there are none. */
json_t *generate_images_given(const CliArgs *args);

/* What a text begins with. */
typedef struct ImagePrompt {
    const json_t *object; /* names images beside the text or messages */
    const json_t *messages;
    const char *said; /* where there are no messages */
    size_t length;
    SourceLoc loc;
    const char *where; /* for errors of texts */
} ImagePrompt;
/* The text becomes the prompt, in a chat the answer's beginning, with the tokens that stand for its
 * images. False: reported at the prompt's `loc`. */
bool generate_images_prompt(const GenerateImages *images, const GenerateChat *chat,
                            const ImagePrompt *prompt, GenerateText *text, Diag *diag);
/* Are all that were named so far images? False: reported where they are named. */
bool generate_images_check(const GenerateImages *images, Diag *diag);

#endif
