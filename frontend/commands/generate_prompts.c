#include "frontend/commands/generate_prompts.h"

#include "frontend/commands/generate_diffusion.h"
#include "frontend/commands/generate_fill.h"
#include "frontend/commands/judge_args.h"
#include "frontend/json_lines.h"
#include "frontend/progress_line.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <string.h>

bool generate_prompts_check(const CliArgs *args, Diag *diag) {
    if (!cli_given(args, OPT_PROMPTS) && judge_is_given(args)) {
        diag_error(diag, NO_LOC, "generate: rewards are said of the texts of --prompts FILE.jsonl");
        return false;
    }
    if (!judge_check_args(args, diag)) return false;
    if (!cli_given(args, OPT_PROMPTS)) {
        if (!cli_given(args, OPT_SIDE_BY_SIDE)) return true;
        diag_error(diag, NO_LOC, "--side-by-side: is for --prompts; --samples of one prompt are");
        return false;
    }
    if (cli_given(args, OPT_PROMPT)) {
        diag_error(diag, NO_LOC, "--prompts and --prompt: give one of them");
        return false;
    }
    if (!cli_given(args, OPT_JSON)) return true;
    diag_error(diag, NO_LOC, "--json: with --prompts every text is a line of JSON as it is");
    return false;
}

void generate_prompts_add(GeneratePrompts *prompts, const PromptLine *line) {
    if (prompts->n_lines == prompts->capacity) {
        int capacity = prompts->capacity ? 2 * prompts->capacity : 64;
        PromptLine *lines = realloc(prompts->lines, (size_t)capacity * sizeof(PromptLine));
        if (!lines) BUG("out of memory");
        prompts->lines = lines;
        prompts->capacity = capacity;
    }
    prompts->lines[prompts->n_lines++] = *line;
}

static bool add_line(void *user, json_t *object, SourceLoc loc, int n_lines) {
    const PromptLine line = {.object = json_incref(object), .loc = loc};
    (void)n_lines;
    generate_prompts_add(user, &line);
    return true;
}

bool generate_prompts_read(const CliArgs *args, GeneratePrompts *out, Diag *diag) {
    const char *path = cli_text(args, OPT_PROMPTS, NULL);
    *out = (GeneratePrompts){.path = path, .n_samples = (int)cli_int(args, OPT_SAMPLES, 1)};
    if (!path) return true;
    if (!json_lines_each(path, add_line, out, diag)) return false;
    if (out->n_lines > 0) return true;
    diag_error(diag, (SourceLoc){path, 0}, "has no prompt");
    return false;
}

void generate_prompts_release(GeneratePrompts *prompts) {
    for (int i = 0; i < prompts->n_lines; i++) {
        if (prompts->lines[i].begin.borrows) generate_text_release(&prompts->lines[i].begin);
        json_decref(prompts->lines[i].object);
    }
    free(prompts->lines);
}

static int64_t count_texts(const GeneratePrompts *prompts) {
    return (int64_t)prompts->n_lines * prompts->n_samples;
}

int generate_prompts_slots(const GeneratePrompts *prompts, const CliArgs *args) {
    int64_t slots = cli_int(args, OPT_SIDE_BY_SIDE, WRITER_SIDE_BY_SIDE), n = count_texts(prompts);
    return (int)(slots < n ? slots : n);
}

/* --- prompts as tokens --- */

static bool encode_line(PromptLine *line, const GenerateEngine *engine, const GenerateChat *chat,
                        const GenerateImages *images, const GenerateText *base, const char *path,
                        Diag *diag) {
    const json_t *prompt = json_object_get(line->object, "prompt");
    const json_t *messages = json_object_get(line->object, "messages");
    const bool chats = chat->messages != NULL;
    char where[512];
    if (chats && json_is_array(prompt) && !messages) { /* as training has it */
        messages = prompt;
        prompt = NULL;
    }
    snprintf(where, sizeof(where), "%s:%d", path, line->loc.line);
    if (chats ? json_is_string(prompt) == json_is_array(messages) : !json_is_string(prompt)) {
        diag_error(diag, line->loc, "no object with a string 'prompt'%s",
                   chats                   ? " or a list 'messages'"
                   : json_is_array(prompt) ? "; messages need --chat"
                                           : "");
        return false;
    }
    line->begin = generate_text_fork(base);
    const char *text = json_string_value(prompt);
    const size_t length = json_string_length(prompt);
    const json_t *suffix = json_object_get(line->object, "suffix");
    const bool fills = !chats && json_is_string(suffix);
    if (generate_images_are_in(images, line->object, messages)) {
        if (fills) {
            diag_error(diag, line->loc, "'suffix': texts with images are not filled in");
            return false;
        }
        const ImagePrompt asked = {.object = line->object,
                                   .messages = prompt ? NULL : messages,
                                   .said = text,
                                   .length = length,
                                   .loc = line->loc,
                                   .where = where};
        return generate_images_prompt(images, chat, &asked, &line->begin, diag);
    }
    if (fills) {
        const FillAsked asked = {.prefix = text,
                                 .n_prefix = length,
                                 .suffix = json_string_value(suffix),
                                 .n_suffix = json_string_length(suffix),
                                 .loc = line->loc,
                                 .where = where};
        return generate_fill_prompt(engine, &asked, &line->begin, diag);
    }
    if (chats) {
        if (!generate_chat_prompt(chat, prompt ? NULL : messages, line->object, text, length,
                                  line->loc, &line->begin, diag)) {
            return false;
        }
    } else if (!generate_text_prompt(&line->begin, text, length, where, diag) ||
               !generate_engine_check_prompt(engine, &line->begin, where, diag)) {
        return false;
    }
    if (!generate_text_check_blind(&line->begin, &line->begin.tokens, line->loc, diag)) {
        return false;
    }
    if (engine->source) generate_text_answer(&line->begin, (uint32_t)engine->eos);
    if (!chats || (int64_t)line->begin.n_prompt_tokens < engine->context) return true;
    diag_error(diag, line->loc,
               "%zu tokens, the answer's beginning included; the context has %" PRId64,
               line->begin.n_prompt_tokens, engine->context);
    return false;
}

bool generate_prompts_encode(GeneratePrompts *prompts, const GenerateEngine *engine,
                             const GenerateChat *chat, const GenerateImages *images,
                             const GenerateText *base, Diag *diag) {
    for (int i = 0; i < prompts->n_lines; i++) {
        if (!encode_line(&prompts->lines[i], engine, chat, images, base, prompts->path, diag)) {
            return false;
        }
    }
    return generate_images_check(images, diag);
}

uint64_t generate_prompts_digest(uint64_t digest, const GeneratePrompts *prompts) {
    for (int i = 0; i < prompts->n_lines; i++) {
        digest = token_list_digest(digest, &prompts->lines[i].begin.tokens);
    }
    return digest;
}

/* --- texts --- */

/* What is written, text by text. */
typedef struct Writing {
    GeneratePrompts *prompts;
    const CliArgs *args;
    const GenerateEngine *engine;
    int64_t length;
    ProgressLine *shown; /* NULL: nobody asks */
    Diag *diag;
    int64_t n_put;
    char **done;  /* [count_texts]: lines that wait for those before them */
    bool streams; /* to standard output, as they come */
    bool puts;    /* the others' texts are as this process' are */
    StrBuf out;
} Writing;

static GenerateText begin_text(void *user, int64_t task, uint64_t *state) {
    const Writing *w = user;
    *state = generate_writer_seed(w->args, task % w->prompts->n_samples);
    return generate_text_fork(&w->prompts->lines[task / w->prompts->n_samples].begin);
}

static int64_t most_tokens(void *user, int64_t task) {
    const Writing *w = user;
    const PromptLine *line = &w->prompts->lines[task / w->prompts->n_samples];
    return generate_fill_length(w->engine, &line->begin, w->length);
}

/* The prompt's line, and what became of it. */
static char *format_line(const Writing *w, int64_t task, const GenerateText *text, bool ended,
                         float reward) {
    static const char *const OURS[] = {"text", "tokens", "ended", "sample", "reward"};
    json_t *object = json_copy(w->prompts->lines[task / w->prompts->n_samples].object);
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) json_object_del(object, OURS[i]);
    char *given = json_dumps(object, 0);
    json_decref(object);
    if (!given) BUG("out of memory");
    StrBuf out = strbuf_create();
    strbuf_put_bytes(&out, given, strlen(given) - 1); /* without its end */
    free(given);
    if (w->prompts->n_samples > 1) {
        strbuf_printf(&out, ", \"sample\": %" PRId64, task % w->prompts->n_samples + 1);
    }
    strbuf_put(&out, ", \"text\": ");
    json_put_bytes(&out, text->text.text + text->n_prompt, text->text.length - text->n_prompt);
    strbuf_printf(&out, ", \"tokens\": %zu, \"ended\": %s",
                  text->tokens.count - text->n_prompt_tokens, ended ? "true" : "false");
    if (w->prompts->judge) strbuf_printf(&out, ", \"reward\": %.7g", (double)reward);
    strbuf_put(&out, "}\n");
    return out.text;
}

/* Lines of which none is missing before them. */
static bool put_lines(Writing *w) {
    for (; w->n_put < count_texts(w->prompts) && w->done[w->n_put]; w->n_put++) {
        char *line = w->done[w->n_put];
        if (!w->streams) {
            strbuf_put(&w->out, line);
        } else if (fputs(line, stdout) < 0 || fflush(stdout) != 0) {
            diag_error(w->diag, NO_LOC, "standard output cannot be written");
            return false;
        }
        free(line);
        w->done[w->n_put] = NULL;
    }
    return true;
}

static bool judge(const Writing *w, int64_t task, const GenerateText *text, bool ended,
                  float *out_reward) {
    const JudgedAnswer answer = {
        .record = w->prompts->lines[task / w->prompts->n_samples].object,
        .text = text->text.text + text->n_prompt,
        .length = text->text.length - text->n_prompt,
        .n_tokens = (int64_t)(text->tokens.count - text->n_prompt_tokens),
        .ended = ended,
        .asked = text->tokens.items,
        .n_asked = (int64_t)text->n_prompt_tokens,
        .tokens = text->tokens.items + text->n_prompt_tokens,
    };
    return judge_answers(w->prompts->judge, &answer, 1, out_reward, w->diag);
}

static bool end_text(void *user, int64_t task, const GenerateText *text, bool ended) {
    Writing *w = user;
    const int64_t n = count_texts(w->prompts);
    float reward = 0;
    if (!w->puts) return true;
    if (w->prompts->judge && !judge(w, task, text, ended, &reward)) return false;
    w->prompts->reward += (double)reward / (double)n;
    w->done[task] = format_line(w, task, text, ended, reward);
    return put_lines(w);
}

static void tell_text(void *user, int64_t n_written, int64_t n) {
    Writing *w = user;
    if (w->shown) progress_line_show(w->shown, (int)n_written, (int)n, w->prompts->path);
}

bool generate_prompts_write(GeneratePrompts *prompts, GenerateWriter *writer, const CliArgs *args,
                            int64_t length, bool says, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, "-");
    ProgressLine line = progress_line_start("texts");
    Writing w = {.prompts = prompts,
                 .args = args,
                 .engine = &writer->engine,
                 .length = length,
                 .shown = says ? &line : NULL,
                 .diag = diag,
                 .done = calloc((size_t)count_texts(prompts), sizeof(char *)),
                 .streams = strcmp(path, "-") == 0,
                 .puts = writer->engine.options.rank == 0,
                 .out = strbuf_create()};
    if (!w.done) BUG("out of memory");
    const WriterTasks tasks = {count_texts(prompts), &w,       begin_text,
                               most_tokens,          end_text, tell_text};
    bool good = writer->engine.diffuses ? generate_diffusion_tasks(writer, args, &tasks, diag)
                                        : generate_tasks_together(writer, &tasks, diag);
    if (says) progress_line_end(&line);
    if (good && w.puts && !w.streams) good = cli_write(path, &w.out, diag);
    for (int64_t i = 0; i < count_texts(prompts); i++) free(w.done[i]);
    free(w.done);
    strbuf_destroy(&w.out);
    return good;
}
