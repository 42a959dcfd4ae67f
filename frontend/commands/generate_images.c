#include "frontend/commands/generate_images.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool text_images_equal(const TextImages *a, const TextImages *b) {
    if (!a || !b) return a == b;
    return a->store == b->store && a->count == b->count &&
           memcmp(a->numbers, b->numbers, (size_t)a->count * sizeof(*a->numbers)) == 0;
}

bool text_images_read(const TextImages *images, int64_t n_pixels, int32_t *out, Diag *diag) {
    memset(out, 0, (size_t)n_pixels * sizeof(*out));
    if (!images) return true;
    ImageWanted *wanted = calloc((size_t)images->count, sizeof(*wanted));
    if (!wanted) BUG("out of memory");
    for (int64_t i = 0; i < images->count; i++) {
        wanted[i] = (ImageWanted){images->numbers[i], images->grids[i], out};
        out += image_grid_parts(images->grids[i]) * image_numbers(images->rule);
    }
    bool good = image_store_read(images->store, images->rule, wanted, images->count, diag);
    free(wanted);
    return good;
}

bool generate_images_begin(const CliArgs *args, const Plan *plan, const Node *share,
                           int64_t context, GenerateText *text, const GenerateChat *chat,
                           GenerateImages *out, Diag *diag) {
    const bool given = cli_given(args, OPT_PICTURE), folder = cli_given(args, OPT_IMAGES);
    const char *why = NULL;
    *out = (GenerateImages){.arena = args->arena, .context = context};
    if (!plan_images(plan, share, &out->rule, diag)) return false;
    if (out->rule.images == 0) {
        if (given || folder) {
            diag_error(diag, NO_LOC, "--%s: the model sees no images", given ? "image" : "images");
        }
        return !given && !folder;
    }
    if (given && !cli_given(args, OPT_PROMPT)) {
        why = "--image: needs --prompt TEXT, what is asked of it";
    } else if (folder && !cli_given(args, OPT_PROMPTS) && !cli_given(args, OPT_PROBLEMS)) {
        why = "--images: is of --prompts FILE; --image names files as they are";
    } else if (given && !text->tokenizer) {
        why = "--image: needs --tokenizer FILE, which knows the token that stands for it";
    }
    if (why) {
        diag_error(diag, NO_LOC, "%s", why);
        return false;
    }
    text->image_token = (uint32_t)out->rule.token;
    if (!text->tokenizer) return true; /* texts without images */
    out->texts = image_texts_create(&out->rule, text->tokenizer, plan->vocab);
    out->sees = true;
    out->store = image_store_create(cli_text(args, OPT_IMAGES, NULL));
    out->corpus = corpus_images_of(out->store, text->tokenizer, text->image_token,
                                   chat->messages ? &chat->chat : NULL, args->arena);
    return true;
}

void generate_images_release(GenerateImages *images) {
    image_store_destroy(images->store);
    image_texts_destroy(images->texts);
    images->store = NULL;
    images->texts = NULL;
}

static bool has_parts(const json_t *messages) {
    const json_t *message;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message) {
        if (json_is_array(json_object_get(message, "content"))) return true;
    }
    return false;
}

bool generate_images_are_in(const GenerateImages *images, const json_t *object,
                            const json_t *messages) {
    return images->sees && (json_object_get(object, "image") || json_object_get(object, "images") ||
                            has_parts(messages));
}

json_t *generate_images_given(const CliArgs *args) {
    const CliValue *given = &args->values[OPT_PICTURE];
    if (!cli_given(args, OPT_PICTURE)) return NULL;
    json_t *list = json_array();
    for (int i = 0; i < given->n_list; i++) {
        json_array_append_new(list, json_stringn_nocheck(given->list[i], strlen(given->list[i])));
    }
    return json_pack("{s:o}", "images", list);
}

/* --- prompts --- */

/* The text's tokens, a place of each image among them. */
static bool encode_text(const GenerateImages *images, const ImagePrompt *prompt,
                        ImageNumbers *numbers, GenerateText *text, Diag *diag) {
    if (!corpus_images_take(&images->corpus, prompt->object, numbers, prompt->loc, diag)) {
        return false;
    }
    Encoder *encoder = encoder_create(text->tokenizer);
    TokenMarks marks = {0};
    TokenRun run = {.encoder = encoder,
                    .tokens = &text->tokens,
                    .marks = &marks,
                    .with_special = text->special,
                    .where = prompt->where,
                    .diag = diag};
    json_t *said = json_stringn_nocheck(prompt->said, prompt->length);
    corpus_images_begin(&images->corpus, &run);
    token_run_begin(&run);
    bool good = corpus_images_put_places(&images->corpus, numbers, &run, said, NULL) &&
                token_run_text(&run, prompt->said, prompt->length, false);
    good = token_run_end(&run, good);
    json_decref(said);
    token_marks_release(&marks);
    encoder_destroy(encoder);
    strbuf_put_bytes(&text->text, prompt->said, prompt->length);
    text->n_prompt = text->text.length;
    return good;
}

static bool encode_chat(const GenerateImages *images, const GenerateChat *chat,
                        const ImagePrompt *prompt, ImageNumbers *numbers, GenerateText *text,
                        Diag *diag) {
    TokenList tokens = {0};
    json_t *own =
        generate_chat_messages(chat->messages, prompt->messages, prompt->said, prompt->length);
    json_t *kept =
        corpus_images_take_chat(&images->corpus, prompt->object, own, numbers, prompt->loc, diag);
    bool good =
        kept && generate_chat_encode_places(&chat->chat, &images->corpus, kept, prompt->object,
                                            text->tokenizer, prompt->loc, &tokens, diag);
    json_decref(kept);
    json_decref(own);
    generate_chat_begin_answer(text, tokens);
    return good;
}

/* Each place becomes what stands for its image. False: reported. */
static bool expand(const GenerateImages *images, const TextImages *own, const TokenList *from,
                   TokenList *out, Diag *diag) {
    int64_t n_seen = 0;
    for (size_t i = 0; i < from->count; i++) {
        if (from->items[i] != (uint32_t)images->rule.token) {
            token_list_add(out, from->items[i]);
            continue;
        }
        const TokenList *tokens = image_texts_of(images->texts, own->grids[n_seen++], diag);
        if (!tokens) return false;
        for (size_t k = 0; k < tokens->count; k++) token_list_add(out, tokens->items[k]);
    }
    return true;
}

static bool check_places(const GenerateImages *images, const ImageNumbers *numbers,
                         const GenerateText *text, SourceLoc loc, Diag *diag) {
    size_t n_places = 0;
    for (size_t i = 0; i < text->tokens.count; i++) {
        n_places += text->tokens.items[i] == (uint32_t)images->rule.token;
    }
    if (n_places == numbers->count) return true;
    diag_error(diag, loc, "%zu images, and %zu places for them in the text", numbers->count,
               n_places);
    return false;
}

/* How they are split, which their sides say. NULL: reported. */
static const TextImages *take_images(const GenerateImages *images, const ImageNumbers *numbers,
                                     SourceLoc loc, Diag *diag) {
    const ImageRule *rule = &images->rule;
    int64_t n_parts = 0;
    /* Those that are not split are checked when all are known, by all threads at once. */
    if (rule->split != IMAGE_WHOLE && !image_store_check(images->store, rule, NULL, NULL, diag)) {
        return NULL;
    }
    TextImages *own = ARENA_NEW(images->arena, TextImages);
    int64_t *items = ARENA_ARRAY(images->arena, int64_t, numbers->count + 1);
    ImageGrid *grids = ARENA_ARRAY(images->arena, ImageGrid, numbers->count + 1);
    for (size_t i = 0; i < numbers->count; i++) {
        items[i] = numbers->items[i];
        grids[i] = rule->split == IMAGE_WHOLE ? (ImageGrid){0, 0}
                                              : image_store_grid(images->store, rule, items[i]);
        n_parts += image_grid_parts(grids[i]);
    }
    *own = (TextImages){images->store, rule, items, grids, (int64_t)numbers->count};
    if (n_parts <= rule->images) return own;
    diag_error(diag, loc, "%" PRId64 " %s; the model sees %" PRId64 " at most: --set images=%s",
               n_parts, image_rule_parts(rule), rule->images,
               rule->split == IMAGE_EDGE    ? ", or a smaller image_edge="
               : rule->split == IMAGE_RATIO ? ", or a smaller most_tiles="
                                            : "");
    return NULL;
}

bool generate_images_prompt(const GenerateImages *images, const GenerateChat *chat,
                            const ImagePrompt *prompt, GenerateText *text, Diag *diag) {
    ImageNumbers numbers = {0};
    TokenList expanded = {0};
    const bool chats = chat->messages != NULL;
    bool good = chats ? encode_chat(images, chat, prompt, &numbers, text, diag)
                      : encode_text(images, prompt, &numbers, text, diag);
    good = good && check_places(images, &numbers, text, prompt->loc, diag);
    const TextImages *own = good ? take_images(images, &numbers, prompt->loc, diag) : NULL;
    free(numbers.items);
    if (!own || !expand(images, own, &text->tokens, &expanded, diag)) {
        token_list_release(&expanded);
        return false;
    }
    token_list_release(&text->tokens);
    text->tokens = expanded;
    text->n_prompt_tokens = expanded.count;
    text->images = own->count ? own : NULL;
    if ((int64_t)expanded.count < images->context) return true;
    diag_error(diag, prompt->loc,
               "%zu tokens, with those that stand for images; the context has %" PRId64
               ": --context N, or --set seq=N",
               expanded.count, images->context);
    return false;
}

bool generate_images_check(const GenerateImages *images, Diag *diag) {
    return !images->store || image_store_check(images->store, &images->rule, NULL, NULL, diag);
}
