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
        wanted[i] = (ImageWanted){images->numbers[i], out + i * image_numbers(images->rule)};
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
    out->sees = true;
    out->store = image_store_create(cli_text(args, OPT_IMAGES, NULL));
    out->corpus = corpus_images_of(out->store, text->tokenizer, text->image_token,
                                   chat->messages ? &chat->chat : NULL, args->arena);
    return true;
}

void generate_images_release(GenerateImages *images) {
    image_store_destroy(images->store);
    images->store = NULL;
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

/* Each place becomes what stands for an image. */
static TokenList expand(const ImageRule *rule, const TokenList *from) {
    TokenList out = {0};
    for (size_t i = 0; i < from->count; i++) {
        const bool place = from->items[i] == (uint32_t)rule->token;
        if (!place) token_list_add(&out, from->items[i]);
        const int64_t n = place ? image_rule_length(rule) : 0;
        for (int64_t k = 0; k < n; k++) token_list_add(&out, (uint32_t)image_rule_token(rule, k));
    }
    return out;
}

static bool check_places(const GenerateImages *images, const ImageNumbers *numbers,
                         const GenerateText *text, SourceLoc loc, Diag *diag) {
    size_t n_places = 0;
    for (size_t i = 0; i < text->tokens.count; i++) {
        n_places += text->tokens.items[i] == (uint32_t)images->rule.token;
    }
    if (n_places != numbers->count) {
        diag_error(diag, loc, "%zu images, and %zu places for them in the text", numbers->count,
                   n_places);
    } else if (numbers->count > (size_t)images->rule.images) {
        diag_error(diag, loc,
                   "%zu images; the model sees %" PRId64 " at most: --set images=", numbers->count,
                   images->rule.images);
    } else {
        return true;
    }
    return false;
}

bool generate_images_prompt(const GenerateImages *images, const GenerateChat *chat,
                            const ImagePrompt *prompt, GenerateText *text, Diag *diag) {
    ImageNumbers numbers = {0};
    const bool chats = chat->messages != NULL;
    bool good = chats ? encode_chat(images, chat, prompt, &numbers, text, diag)
                      : encode_text(images, prompt, &numbers, text, diag);
    good = good && check_places(images, &numbers, text, prompt->loc, diag);
    if (good) {
        const TokenList expanded = expand(&images->rule, &text->tokens);
        token_list_release(&text->tokens);
        text->tokens = expanded;
        text->n_prompt_tokens = expanded.count;
        TextImages *own = ARENA_NEW(images->arena, TextImages);
        int64_t *items = ARENA_ARRAY(images->arena, int64_t, numbers.count + 1);
        if (numbers.count) memcpy(items, numbers.items, numbers.count * sizeof(*items));
        *own = (TextImages){images->store, &images->rule, items, (int64_t)numbers.count};
        text->images = numbers.count ? own : NULL;
        if ((int64_t)expanded.count >= images->context) {
            diag_error(diag, prompt->loc,
                       "%zu tokens, with those that stand for images; the context has %" PRId64
                       ": --context N, or --set seq=N",
                       expanded.count, images->context);
            good = false;
        }
    }
    free(numbers.items);
    return good;
}

bool generate_images_check(const GenerateImages *images, Diag *diag) {
    return !images->store || image_store_check(images->store, NULL, NULL, diag);
}
