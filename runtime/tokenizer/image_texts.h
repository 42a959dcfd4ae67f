/* What stands for an image among the tokens: its placeholders with what the rule (ir/image_rule.h)
 * puts around them, texts as the tokenizer has them. An image that is split has, as in Idefics 3,
 *
 *   for each row: for each column: TILE placeholders; LINE
 *   LINE BEFORE placeholders AFTER
 *
 * (image_split edge), or, as in InternVL, BEFORE placeholders of all parts AFTER (ratio). The first
 * token and the last one are special, so neighbours do not change what is between. */
#ifndef RUNTIME_TOKENIZER_IMAGE_TEXTS_H
#define RUNTIME_TOKENIZER_IMAGE_TEXTS_H

#include "ir/image_rule.h"
#include "runtime/tokenizer/token_list.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct ImageTexts ImageTexts;

/* tokenizer: NULL where the rule has numbers alone. vocab: of the model. What is given lasts as
 * long as the texts do. */
ImageTexts *image_texts_create(const ImageRule *rule, const Tokenizer *tokenizer, int64_t vocab);
void image_texts_destroy(ImageTexts *texts); /* may be NULL */

/* Tokens of an image of that grid; they last as long as the texts do. One thread at a time. NULL,
 * reported: the tokenizer or the model lacks what the rule names, of any grid. */
const TokenList *image_texts_of(ImageTexts *texts, ImageGrid grid, Diag *diag);

#endif
