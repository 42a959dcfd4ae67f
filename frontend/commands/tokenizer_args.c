#include "frontend/commands/tokenizer_args.h"

#include "ir/base/host.h"
#include "runtime/tokenizer/fill_middle.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

int tokenizer_threads(const CliArgs *args) {
    int n_cores = host_count_cores();
    int64_t most = n_cores > 256 ? 256 : n_cores;
    int64_t asked = cli_int(args, OPT_THREADS, most);
    return (int)(asked < most ? asked : most); /* each has tables of some megabytes */
}

/* NO_TOKEN where it is not given. */
static bool find_token(const CliArgs *args, const Tokenizer *tokenizer, CliOption option,
                       uint32_t *out, Diag *diag) {
    const char *name = cli_text(args, option, NULL);
    *out = NO_TOKEN;
    if (!name || !tokenizer) return true;
    *out = tokenizer_find_added(tokenizer, name, CLI_OPTIONS[option].name, diag);
    return *out != NO_TOKEN;
}

bool chat_from_args(const CliArgs *args, const Tokenizer *tokenizer, uint32_t end, Chat *out,
                    Diag *diag) {
    const char *name = cli_text(args, OPT_CHAT_TEMPLATE, NULL);
    const CliValue *set = &args->values[OPT_CHAT_SET];
    const ChatSettings settings = {.arena = args->arena,
                                   .set = (const char *const *)set->list,
                                   .n_set = set->n_list,
                                   .now = time(NULL)};
    const ChatTemplate *how = name ? chat_template_find(name, args->arena, diag)
                                   : chat_template_detect(tokenizer, args->arena, diag);
    return how && chat_prepare(how, tokenizer, end, &settings, out, diag);
}

/* A chat template that is asked for must fit; one that is guessed is asked for when there is a
 * chat.
 */
static bool find_chat(const CliArgs *args, const Tokenizer *tokenizer, CorpusOptions *out,
                      Diag *diag) {
    bool asked = cli_given(args, OPT_CHAT_TEMPLATE) || cli_given(args, OPT_CHAT_SET);
    if (!tokenizer) return true;
    Diag *why = asked ? diag : diag_create();
    Chat *chat = ARENA_NEW(args->arena, Chat);
    uint32_t end = out->last == NO_TOKEN ? tokenizer_end_of_text(tokenizer) : out->last;
    bool good = chat_from_args(args, tokenizer, end, chat, why);
    if (good) {
        out->chat = chat;
    } else if (!asked) {
        const char *text = diag_text(why);
        out->no_chat = arena_strndup(args->arena, text, strcspn(text, "\n"));
    }
    if (!asked) diag_destroy(why);
    return good || !asked;
}

bool corpus_options_from_args(const CliArgs *args, const Tokenizer *tokenizer, CorpusOptions *out,
                              Diag *diag) {
    *out = (CorpusOptions){.separator = cli_text(args, OPT_SEPARATOR, NULL),
                           .field = cli_text(args, OPT_FIELD, NULL),
                           .with_special = cli_given(args, OPT_SPECIAL),
                           .n_threads = tokenizer_threads(args)};
    if (out->separator && !*out->separator) {
        diag_error(diag, NO_LOC, "--separator: it is empty");
        return false;
    }
    return find_token(args, tokenizer, OPT_BOS, &out->first, diag) &&
           find_token(args, tokenizer, OPT_EOT, &out->last, diag) &&
           find_chat(args, tokenizer, out, diag);
}

bool fill_middle_check_args(const CliArgs *args, Diag *diag) {
    static const CliOption OF_FIM[] = {OPT_FIM_SPM, OPT_FIM_TOKENS};
    for (int i = 0; i < 2 && !cli_given(args, OPT_FIM); i++) {
        if (!cli_given(args, OF_FIM[i])) continue;
        diag_error(diag, NO_LOC, "--%s: is for --fim RATE only", CLI_OPTIONS[OF_FIM[i]].name);
        return false;
    }
    return true;
}

bool fill_middle_from_args(const CliArgs *args, const Tokenizer *tokenizer, const FillMiddle **out,
                           Diag *diag) {
    *out = NULL;
    if (!cli_given(args, OPT_FIM)) return fill_middle_check_args(args, diag);
    FillMiddle *how = ARENA_NEW(args->arena, FillMiddle);
    *how = (FillMiddle){.rate = cli_real(args, OPT_FIM, 0),
                        .spm_rate = cli_real(args, OPT_FIM_SPM, 0.5),
                        .seed = (uint64_t)cli_int(args, OPT_SEED, 1)};
    *out = how;
    return fill_middle_find(tokenizer, cli_text(args, OPT_FIM_TOKENS, NULL), how, diag);
}

bool tokenizer_from_args(const CliArgs *args, int64_t vocab, Tokenizer **out, Diag *diag) {
    static const CliOption NEED_ONE[] = {
        OPT_PATTERN, OPT_EOT,           OPT_BOS,      OPT_SEPARATOR, OPT_FIELD,      OPT_SPECIAL,
        OPT_PACK,    OPT_CHAT_TEMPLATE, OPT_CHAT_SET, OPT_FIM,       OPT_FIM_TOKENS, OPT_SUFFIX};
    const char *path = cli_text(args, OPT_TOKENIZER, NULL);
    *out = NULL;
    for (size_t i = 0; !path && i < sizeof(NEED_ONE) / sizeof(NEED_ONE[0]); i++) {
        if (!cli_given(args, NEED_ONE[i])) continue;
        diag_error(diag, NO_LOC, "--%s: is for --tokenizer FILE only",
                   CLI_OPTIONS[NEED_ONE[i]].name);
        return false;
    }
    if (!path) return true;
    Tokenizer *tokenizer = tokenizer_load(path, cli_text(args, OPT_PATTERN, NULL), diag);
    if (!tokenizer) return false;
    if ((int64_t)tokenizer->n_ids <= vocab) {
        *out = tokenizer;
        return true;
    }
    diag_error(diag, NO_LOC,
               "%s has %u tokens, the model's vocabulary only %" PRId64
               ": plan it with --set vocab=%u",
               path, tokenizer->n_ids, vocab, (tokenizer->n_ids + 63) / 64 * 64);
    tokenizer_destroy(tokenizer);
    return false;
}
