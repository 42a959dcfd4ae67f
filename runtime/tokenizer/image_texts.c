#include "runtime/tokenizer/image_texts.h"

#include "runtime/tokenizer/token_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    ImageGrid grid;
    TokenList tokens;
} Entry;

struct ImageTexts {
    const ImageRule *rule;
    const Tokenizer *tokenizer;
    int64_t vocab;
    Entry **entries; /* [count]: those that were asked for */
    int count;
};

/* One text: tokens, one of them for each part's placeholders. */
typedef struct Writer {
    const ImageRule *rule;
    TokenRun *run; /* NULL: there is no tokenizer */
    TokenList *out;
    Diag *diag;
} Writer;

static bool put_token(Writer *w, int32_t token) {
    if (w->run) return token_run_token(w->run, (uint32_t)token, false);
    token_list_add(w->out, (uint32_t)token);
    return true;
}

static bool put_text(Writer *w, const char *text) {
    if (text[0] == '\0') return true;
    if (w->run) return token_run_text(w->run, text, strlen(text), false);
    diag_error(w->diag, NO_LOC, "--tokenizer FILE is needed: '%s' stands around images", text);
    return false;
}

static bool put_around(Writer *w, const ImageAround *around) {
    bool good = put_text(w, around->text);
    for (int i = 0; good && i < around->n; i++) good = put_token(w, around->tokens[i]);
    return good;
}

/* TILE with the tile's row and column in it, from 1 on. */
static bool put_tile_text(Writer *w, const char *tile, int row, int column) {
    static const char *const NAMES[] = {"{row}", "{column}"};
    StrBuf text = strbuf_create();
    while (*tile) {
        int which = 0;
        while (which < 2 && strncmp(tile, NAMES[which], strlen(NAMES[which])) != 0) which++;
        if (which == 2) {
            strbuf_put_bytes(&text, tile++, 1);
            continue;
        }
        strbuf_printf(&text, "%d", which == 0 ? row : column);
        tile += strlen(NAMES[which]);
    }
    bool good = put_text(w, text.text ? text.text : "");
    strbuf_destroy(&text);
    return good;
}

static bool put_edge(Writer *w, ImageGrid grid) {
    bool good = true;
    for (int row = 1; row <= grid.rows; row++) {
        for (int column = 1; good && column <= grid.columns; column++) {
            good = put_tile_text(w, w->rule->tile, row, column) && put_token(w, w->rule->token);
        }
        good = good && put_text(w, w->rule->line);
    }
    if (grid.rows > 0) good = good && put_text(w, w->rule->line);
    return good && put_around(w, &w->rule->before) && put_token(w, w->rule->token) &&
           put_around(w, &w->rule->after);
}

static bool put_ratio(Writer *w, ImageGrid grid) {
    bool good = put_around(w, &w->rule->before);
    const int64_t n = image_grid_parts(grid);
    for (int64_t i = 0; good && i < n; i++) good = put_token(w, w->rule->token);
    return good && put_around(w, &w->rule->after);
}

static bool put_image(Writer *w, ImageGrid grid) {
    return w->rule->split == IMAGE_RATIO ? put_ratio(w, grid) : put_edge(w, grid);
}

static bool encode(const ImageTexts *texts, ImageGrid grid, TokenList *out, Diag *diag) {
    Writer w = {.rule = texts->rule, .out = out, .diag = diag};
    if (!texts->tokenizer) return put_image(&w, grid);
    Encoder *encoder = encoder_create(texts->tokenizer);
    TokenMarks marks = {0};
    TokenRun run = {.encoder = encoder,
                    .tokens = out,
                    .marks = &marks,
                    .with_special = true,
                    .where = "what stands around images",
                    .diag = diag};
    w.run = &run;
    token_run_begin(&run);
    bool good = token_run_end(&run, put_image(&w, grid));
    token_marks_release(&marks);
    encoder_destroy(encoder);
    return good;
}

/* A text that begins, or ends, with what is no token of its own would melt into its neighbours, and
 * not be what the model knows. */
static bool check_end(const ImageTexts *texts, uint32_t token, const char *text, const char *what,
                      Diag *diag) {
    if (text[0] == '\0' || added_tokens_by_id(&texts->tokenizer->added, token)) return true;
    diag_error(diag, NO_LOC,
               "%s, as the model says, but the tokenizer has no token of its own there: '%s'; "
               "another tokenizer, or --set image_before=, image_after= and image_tile=",
               what, text);
    return false;
}

static bool check(const ImageTexts *texts, ImageGrid grid, const TokenList *tokens, Diag *diag) {
    const ImageRule *rule = texts->rule;
    const bool tiles = rule->split == IMAGE_EDGE && grid.rows > 0;
    for (size_t i = 0; i < tokens->count; i++) {
        if (tokens->items[i] < texts->vocab) continue;
        diag_error(diag, NO_LOC,
                   "token %" PRIu32 " stands around images, and the model's vocabulary has %" PRId64
                   ": --set vocab=%" PRIu32 " or more",
                   tokens->items[i], texts->vocab, tokens->items[i] + 1);
        return false;
    }
    return check_end(texts, tokens->items[0], tiles ? rule->tile : rule->before.text,
                     "what stands for an image begins with a special token", diag) &&
           check_end(texts, tokens->items[tokens->count - 1], rule->after.text,
                     "what stands for an image ends with a special token", diag);
}

/* Each part's token becomes all of its placeholders. */
static void expand(const ImageRule *rule, TokenList *tokens) {
    TokenList out = {0};
    for (size_t i = 0; i < tokens->count; i++) {
        const int64_t n = tokens->items[i] == (uint32_t)rule->token ? rule->tokens : 1;
        for (int64_t k = 0; k < n; k++) token_list_add(&out, tokens->items[i]);
    }
    token_list_release(tokens);
    *tokens = out;
}

/* A text around images that has the placeholder would be taken for a part. */
static bool check_parts(const ImageRule *rule, ImageGrid grid, const TokenList *tokens,
                        Diag *diag) {
    int64_t n = 0;
    for (size_t i = 0; i < tokens->count; i++) n += tokens->items[i] == (uint32_t)rule->token;
    if (n == image_grid_parts(grid)) return true;
    diag_error(diag, NO_LOC, "what stands around images has image_token, %" PRId32 ", itself",
               rule->token);
    return false;
}

/* What stands for it, a token for each part. False: reported. */
static bool make(const ImageTexts *texts, ImageGrid grid, TokenList *out, Diag *diag) {
    if (encode(texts, grid, out, diag) && check_parts(texts->rule, grid, out, diag) &&
        check(texts, grid, out, diag)) {
        return true;
    }
    token_list_release(out);
    return false;
}

/* Of an image that is split, whether there is one or not. */
static bool check_split(const ImageTexts *texts, Diag *diag) {
    TokenList tokens = {0};
    if (texts->rule->split == IMAGE_WHOLE) return true;
    const bool good = make(texts, (ImageGrid){1, 2}, &tokens, diag);
    token_list_release(&tokens);
    return good;
}

const TokenList *image_texts_of(ImageTexts *texts, ImageGrid grid, Diag *diag) {
    for (int i = 0; i < texts->count; i++) {
        const Entry *entry = texts->entries[i];
        if (entry->grid.rows == grid.rows && entry->grid.columns == grid.columns) {
            return &entry->tokens;
        }
    }
    TokenList tokens = {0};
    if (texts->count == 0 && !check_split(texts, diag)) return NULL;
    if (!make(texts, grid, &tokens, diag)) return NULL;
    expand(texts->rule, &tokens);
    texts->entries =
        memory_grow(texts->entries, (size_t)(texts->count + 1) * sizeof(*texts->entries));
    Entry *entry = texts->entries[texts->count++] = memory_alloc(sizeof(*entry));
    *entry = (Entry){grid, tokens};
    return &entry->tokens;
}

ImageTexts *image_texts_create(const ImageRule *rule, const Tokenizer *tokenizer, int64_t vocab) {
    ImageTexts *texts = memory_zeroed(1, sizeof(*texts));
    *texts = (ImageTexts){.rule = rule, .tokenizer = tokenizer, .vocab = vocab};
    return texts;
}

void image_texts_destroy(ImageTexts *texts) {
    if (!texts) return;
    for (int i = 0; i < texts->count; i++) {
        token_list_release(&texts->entries[i]->tokens);
        free(texts->entries[i]);
    }
    free(texts->entries);
    free(texts);
}
