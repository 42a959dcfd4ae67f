#include "frontend/commands/generate_fill.h"

#include "runtime/tokenizer/fill_middle.h"

#include <inttypes.h>
#include <string.h>

bool generate_fill_check(const CliArgs *args, Diag *diag) {
    static const struct {
        CliOption option;
        const char *why;
    } NOT_WITH[] = {{OPT_PROMPTS, "lines of --prompts have their own, as 'suffix'"},
                    {OPT_CHAT, "a conversation has no middle"},
                    {OPT_PICTURE, "texts with images are not filled in"}};
    for (size_t i = 0; i < sizeof(NOT_WITH) / sizeof(NOT_WITH[0]); i++) {
        if (!cli_given(args, OPT_SUFFIX) || !cli_given(args, NOT_WITH[i].option)) continue;
        diag_error(diag, NO_LOC, "--suffix and --%s: %s", CLI_OPTIONS[NOT_WITH[i].option].name,
                   NOT_WITH[i].why);
        return false;
    }
    const bool fills = cli_given(args, OPT_SUFFIX) || cli_given(args, OPT_PROMPTS);
    if (!cli_given(args, OPT_FIM_TOKENS) || fills) return true;
    diag_error(diag, NO_LOC,
               "--fim-tokens: is for a --suffix, or lines of --prompts that have one");
    return false;
}

/* Why nothing can be filled in; NULL: it can. */
static const char *refuse(const GenerateEngine *engine, const GenerateText *text) {
    if (engine->source) return "the model has an encoder: it fills in what its prompt hides";
    if (engine->diffuses) return "the model writes by diffusion, behind a prompt";
    if (!text->tokenizer) return "filling in needs --tokenizer FILE, which has tokens for it";
    return NULL;
}

bool generate_fill_prompt(const GenerateEngine *engine, const FillAsked *asked, GenerateText *text,
                          Diag *diag) {
    FillMiddle how = {0};
    const char *why = refuse(engine, text);
    if (why) {
        diag_error(diag, asked->loc, "%s%s", asked->loc.file ? "'suffix': " : "--suffix: ", why);
        return false;
    }
    if (!fill_middle_find(text->tokenizer, text->fim_tokens, &how, diag)) return false;
    Encoder *encoder = encoder_create(text->tokenizer);
    bool good = fill_middle_ask(&how, encoder, asked->prefix, asked->n_prefix, asked->suffix,
                                asked->n_suffix, text->special, &text->tokens, asked->where, diag);
    encoder_destroy(encoder);
    if (!good) return false;
    strbuf_put_bytes(&text->text, asked->prefix, asked->n_prefix);
    text->n_prompt = text->text.length;
    text->n_prompt_tokens = text->tokens.count;
    text->fills = true;
    if ((int64_t)text->n_prompt_tokens < engine->context) return true;
    diag_error(diag, asked->loc,
               "%s: prompt and suffix have %zu tokens, and what is between them needs some; the "
               "context has %" PRId64,
               asked->where, text->n_prompt_tokens, engine->context);
    return false;
}

int64_t generate_fill_length(const GenerateEngine *engine, const GenerateText *text,
                             int64_t length) {
    const int64_t left = engine->context - (int64_t)text->n_prompt_tokens;
    return text->fills && left < length ? left : length;
}
