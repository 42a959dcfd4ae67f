#include "frontend/commands/evaluate_problems.h"

#include "frontend/commands/choices_args.h"
#include "frontend/commands/evaluate_problems_tell.h"
#include "frontend/commands/generate_open.h"
#include "frontend/commands/generate_tasks.h"
#include "frontend/commands/train_alike.h"
#include "frontend/progress_line.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LENGTH = 256 }; /* max_gen_toks of lm-evaluation-harness */

typedef struct Solving {
    CliArgs *args;
    Diag *diag;
    ChoicesWay way;
    int64_t length;     /* tokens of an answer at most */
    uint32_t first;     /* before each prompt; NO_TOKEN: none */
    GenerateText begin; /* what all texts have in common */
    GenerateWriter writer;
    GenerateChat chat;
    GenerateImages images;
    ProblemFile *files; /* [n_files], of which n_read are to be released */
    int n_files, n_read;
    int failure; /* exit code when preparing fails */
} Solving;

/* --- options --- */

/* What is only of answers in writing. */
static const CliOption OF_WRITING[] = {
    OPT_LENGTH,  OPT_TEMPERATURE,        OPT_TOP_K,   OPT_TOP_P,        OPT_MIN_P,
    OPT_STOP,    OPT_REPETITION_PENALTY, OPT_SAMPLES, OPT_SIDE_BY_SIDE, OPT_POSITIONS,
    OPT_NO_CACHE};

/* And of choices by themselves, which have caches, too. */
static bool is_of_caches(CliOption option) {
    return option == OPT_SIDE_BY_SIDE || option == OPT_POSITIONS || option == OPT_NO_CACHE;
}

bool evaluate_problems_check_absent(const CliArgs *args, Diag *diag) {
    const bool caches = cli_given(args, OPT_CHOICES) && !cli_given(args, OPT_DATA);
    for (size_t i = 0; i < sizeof(OF_WRITING) / sizeof(OF_WRITING[0]); i++) {
        if (!cli_given(args, OF_WRITING[i]) || (caches && is_of_caches(OF_WRITING[i]))) continue;
        diag_error(diag, NO_LOC, "evaluate: --%s: is for --problems, which are answered in writing",
                   CLI_OPTIONS[OF_WRITING[i]].name);
        return false;
    }
    return true;
}

static bool check_options(const Solving *s) {
    static const CliOption OTHERS[] = {
        OPT_DATA,         OPT_CHOICES,        OPT_PACK,         OPT_PACK_LONG,
        OPT_SEPARATOR,    OPT_FIELD,          OPT_EOT,          OPT_TOKEN_BYTES,
        OPT_TEACHER_LOAD, OPT_REFERENCE_LOAD, OPT_QUERY_PREFIX, OPT_PASSAGE_PREFIX,
        OPT_VECTORS,      OPT_STORE_LOGITS,   OPT_STORE_TOP,    OPT_STORE_DTYPE};
    const CliArgs *args = s->args;
    const bool chat = cli_given(args, OPT_CHAT);
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cli_given(args, OTHERS[i])) continue;
        diag_error(s->diag, NO_LOC,
                   "evaluate: --%s: is not for --problems; evaluate them by themselves",
                   CLI_OPTIONS[OTHERS[i]].name);
        return false;
    }
    const char *why = NULL;
    if (!cli_given(args, OPT_LOAD)) {
        why = "which weights? give --load FILE";
    } else if (chat && cli_given(args, OPT_BOS)) {
        why = "--bos: a chat begins as its template says";
    } else if (cli_given(args, OPT_BOS) && !cli_given(args, OPT_TOKENIZER)) {
        why = "--bos: needs --tokenizer FILE";
    } else if (cli_int(args, OPT_SAMPLES, 1) > 1 && cli_real(args, OPT_TEMPERATURE, 0) == 0) {
        why = "--samples: the likeliest answer is always the same; give --temperature X";
    }
    if (why) diag_error(s->diag, NO_LOC, "evaluate: %s", why);
    return !why && generate_chat_check(args, s->diag);
}

/* --- preparing --- */

static bool read_files(Solving *s) {
    const CliValue *paths = &s->args->values[OPT_PROBLEMS];
    const bool chat = cli_given(s->args, OPT_CHAT);
    const int n_samples = (int)cli_int(s->args, OPT_SAMPLES, 1);
    s->files = ARENA_ARRAY(s->args->arena, ProblemFile, paths->n_list);
    s->n_files = paths->n_list;
    for (int i = 0; i < s->n_files; i++) {
        s->n_read++;
        if (!problem_file_read(&s->files[i], paths->list[i], &s->way, chat, n_samples,
                               s->args->arena, s->diag)) {
            return false;
        }
    }
    return true;
}

static bool is_first(const Solving *s) {
    return s->writer.engine.options.rank == 0;
}

static bool says(const Solving *s) {
    return is_first(s) && !cli_given(s->args, OPT_QUIET);
}

/* Texts side by side: as many as the largest file has use for. */
static int count_slots(const Solving *s) {
    int most = 1;
    for (int i = 0; i < s->n_files; i++) {
        const int n = generate_prompts_slots(&s->files[i].prompts, s->args);
        most = n > most ? n : most;
    }
    return most;
}

static bool check_engine(const Solving *s) {
    const GenerateEngine *engine = &s->writer.engine;
    if (engine->options.control && !engine->plan->context) {
        diag_error(s->diag, NO_LOC, "evaluate: --problems by several processes need caches: %s",
                   engine->obstacle.what);
        return false;
    }
    if (engine->source && (cli_given(s->args, OPT_CHAT) || cli_given(s->args, OPT_BOS))) {
        diag_error(s->diag, NO_LOC,
                   "evaluate: --%s: the model has an encoder, which reads each prompt as it is",
                   cli_given(s->args, OPT_CHAT) ? "chat" : "bos");
        return false;
    }
    if (engine->source || cli_given(s->args, OPT_CHAT) || s->length < engine->context) return true;
    diag_error(s->diag, NO_LOC,
               "evaluate: --length: %" PRId64
               " tokens of an answer leave no room for its prompt, as the context has %" PRId64
               "; give fewer",
               s->length, engine->context);
    return false;
}

/* A stop that is a special token is none of the text: it ends an answer by itself. */
static void add_stops(const Solving *s, const ProblemFile *file, GenerateText *base) {
    int n = 0;
    while (file->stops[n]) n++;
    const char **stops = ARENA_ARRAY(s->args->arena, const char *, base->n_stops + n + 1);
    for (int i = 0; i < base->n_stops; i++) stops[i] = base->stops[i];
    for (int i = 0; i < n; i++) {
        stops[base->n_stops + i] = file->stops[i];
        const AddedToken *token =
            base->tokenizer ? added_tokens_by_text(&base->tokenizer->added, file->stops[i]) : NULL;
        const bool ends = token && token->special && token->id != base->end;
        if (ends && base->answer_end == NO_TOKEN) base->answer_end = token->id;
    }
    base->stops = stops;
    base->n_stops += n;
}

static void insert_first(TokenList *tokens, uint32_t token) {
    token_list_add(tokens, token);
    memmove(tokens->items + 1, tokens->items, (tokens->count - 1) * sizeof(*tokens->items));
    tokens->items[0] = token;
}

/* What is left of the context. False, reported: nothing is. */
static bool limit_answer(const Solving *s, ProblemFile *file, int i) {
    const int64_t context = s->writer.engine.context;
    const PromptLine *line = &file->prompts.lines[i];
    const int64_t n = (int64_t)line->begin.n_prompt_tokens, room = context - n;
    int64_t *most = &file->problems[i].most;
    if (*most > room) *most = room;
    if (room > 0) return true;
    diag_error(s->diag, line->loc,
               "%" PRId64 " tokens, with --bos; the context has %" PRId64
               ": --context N, or --set seq=N",
               n, context);
    return false;
}

/* Room for the answer. Chats, and texts with images, lose nothing of their front. */
static bool fit_prompt(const Solving *s, ProblemFile *file, int i) {
    const GenerateEngine *engine = &s->writer.engine;
    GenerateText *text = &file->prompts.lines[i].begin;
    int64_t *most = &file->problems[i].most;
    *most = s->length;
    if (engine->source) {
        if (*most > engine->context) *most = engine->context;
        return true;
    }
    if (cli_given(s->args, OPT_CHAT)) return limit_answer(s, file, i);
    if (s->first != NO_TOKEN) insert_first(&text->tokens, s->first);
    if (text->images) {
        text->n_prompt_tokens = text->tokens.count;
        return limit_answer(s, file, i);
    }
    const size_t room = (size_t)(engine->context - s->length), n = text->tokens.count;
    const size_t cut = n > room ? n - room : 0;
    memmove(text->tokens.items, text->tokens.items + cut, (n - cut) * sizeof(*text->tokens.items));
    text->tokens.count = text->n_prompt_tokens = n - cut;
    file->n_cut += cut > 0;
    return true;
}

static bool encode_file(const Solving *s, ProblemFile *file) {
    GenerateText base = s->begin; /* whose parts are s->begin's */
    add_stops(s, file, &base);
    if (!generate_prompts_encode(&file->prompts, &s->writer.engine, &s->chat, &s->images, &base,
                                 s->diag)) {
        return false;
    }
    for (int i = 0; i < file->prompts.n_lines; i++) {
        if (!fit_prompt(s, file, i)) return false;
    }
    return true;
}

static bool encode(Solving *s) {
    const GenerateEngine *engine = &s->writer.engine;
    ChoiceTexts texts;
    if (!generate_text_begin(s->args, engine->plan->vocab, &s->begin, s->diag) ||
        !choices_args_texts(s->args, s->begin.tokenizer, &texts, s->diag) ||
        !generate_chat_begin(s->args, &s->begin, &s->chat, s->diag) ||
        !generate_images_begin(s->args, engine->plan, engine->images, engine->context, &s->begin,
                               &s->chat, &s->images, s->diag)) {
        return false;
    }
    s->first = texts.first;
    uint64_t digest = 0;
    for (int i = 0; i < s->n_files; i++) {
        if (!encode_file(s, &s->files[i])) return false;
        digest = generate_prompts_digest(digest, &s->files[i].prompts);
    }
    return train_alike_texts(s->args, digest, &engine->options, s->diag);
}

static bool prepare(Solving *s) {
    CliArgs *args = s->args;
    GenerateWriter *writer = &s->writer;
    if (!check_options(s) || !choices_args_way(args, &s->way, s->diag) || !read_files(s)) {
        return false;
    }
    s->length = cli_int(args, OPT_LENGTH, DEFAULT_LENGTH);
    writer->n_texts = count_slots(s);
    s->failure = generate_engine_open(args, writer->n_texts, &writer->engine, s->diag);
    if (s->failure != EXIT_DONE) return false;
    s->failure = EXIT_USAGE;
    if (!check_engine(s) || !encode(s) || (is_first(s) && !cli_try_outputs(args, s->diag)) ||
        !generate_engine_start(&writer->engine, args, s->diag)) {
        return false;
    }
    if (says(s)) generate_engine_note_windows(&writer->engine);
    generate_writer_start(writer, args, &s->begin);
    writer->sampler.options.temperature = cli_real(args, OPT_TEMPERATURE, 0);
    return true;
}

/* --- writing --- */

/* A file's answers, as they are written. */
typedef struct Answering {
    const Solving *solving;
    ProblemFile *file;
    ProgressLine *shown; /* NULL: nobody asks */
    int64_t n;
    char **lines; /* [n]: of predictions; NULL: not asked for */
} Answering;

static GenerateText begin_text(void *user, int64_t task, uint64_t *state) {
    const Answering *a = user;
    const GeneratePrompts *prompts = &a->file->prompts;
    *state = generate_writer_seed(a->solving->args, task % prompts->n_samples);
    return generate_text_fork(&prompts->lines[task / prompts->n_samples].begin);
}

static int64_t most_tokens(void *user, int64_t task) {
    const Answering *a = user;
    return a->file->problems[task / a->file->prompts.n_samples].most;
}

static void put_asked(StrBuf *out, const ProblemFile *file, int64_t task) {
    const GeneratePrompts *prompts = &file->prompts;
    const PromptLine *line = &prompts->lines[task / prompts->n_samples];
    const json_t *messages = json_object_get(line->object, "messages");
    const json_t *asked = messages ? messages : json_object_get(line->object, "prompt");
    const AnswerText right = file->problems[task / prompts->n_samples].right;
    char *text = json_dumps(asked, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    if (!text) BUG("out of memory");
    strbuf_put(out, "{\"path\": ");
    json_put_text(out, file->path);
    strbuf_printf(out, ", \"line\": %d, \"task\": \"%s\"", line->loc.line, file->task);
    if (prompts->n_samples > 1) {
        strbuf_printf(out, ", \"sample\": %" PRId64, task % prompts->n_samples + 1);
    }
    strbuf_printf(out, ", \"%s\": %s, \"answer\": ", messages ? "messages" : "prompt", text);
    json_put_bytes(out, right.text, right.length);
    free(text);
}

/* What was written, and what is made of it. */
static char *make_line(const Answering *a, int64_t task, AnswerText written, int64_t n_tokens,
                       bool ended, const AnswerText *extracted, const bool *right) {
    StrBuf out = strbuf_create();
    put_asked(&out, a->file, task);
    strbuf_put(&out, ", \"text\": ");
    json_put_bytes(&out, written.text, written.length);
    strbuf_printf(&out, ", \"tokens\": %" PRId64 ", \"ended\": %s", n_tokens,
                  ended ? "true" : "false");
    for (int f = 0; f < a->file->n_filters; f++) {
        const char *name = answer_filter_name(a->file->filters[f]);
        strbuf_printf(&out,
                      "%s\"%s\": {\"right\": %s, \"extracted\": ", f ? ", " : ", \"filters\": {",
                      name, right[f] ? "true" : "false");
        if (extracted[f].text) {
            json_put_bytes(&out, extracted[f].text, extracted[f].length);
        } else {
            strbuf_put(&out, "null");
        }
        strbuf_put(&out, "}");
    }
    strbuf_put(&out, "}}\n");
    return out.text;
}

static bool end_text(void *user, int64_t task, const GenerateText *text, bool ended) {
    Answering *a = user;
    ProblemFile *file = a->file;
    Problem *problem = &file->problems[task / file->prompts.n_samples];
    const AnswerText written = {text->text.text + text->n_prompt,
                                text->text.length - text->n_prompt};
    const int64_t n_tokens = (int64_t)(text->tokens.count - text->n_prompt_tokens);
    AnswerText extracted[PROBLEM_MOST_FILTERS];
    bool right[PROBLEM_MOST_FILTERS];
    for (int f = 0; f < file->n_filters; f++) {
        extracted[f] = answer_extract(file->filters[f], written);
        right[f] = answer_is_right(file->filters[f], extracted[f], problem->right);
        problem->n_right[f] += right[f];
    }
    file->n_unended += !ended;
    file->n_tokens += n_tokens;
    if (a->lines) a->lines[task] = make_line(a, task, written, n_tokens, ended, extracted, right);
    return true;
}

static void tell_answer(void *user, int64_t n_written, int64_t n) {
    const Answering *a = user;
    if (a->shown) progress_line_show(a->shown, (int)n_written, (int)n, a->file->path);
}

static bool solve_file(Solving *s, ProblemFile *file) {
    ProgressLine line = progress_line_start("answers");
    Answering a = {.solving = s,
                   .file = file,
                   .shown = says(s) ? &line : NULL,
                   .n = (int64_t)file->prompts.n_lines * file->prompts.n_samples};
    if (s->way.predicts) {
        a.lines = calloc((size_t)a.n, sizeof(char *));
        if (!a.lines) BUG("out of memory");
    }
    const WriterTasks tasks = {a.n, &a, begin_text, most_tokens, end_text, tell_answer};
    bool good = generate_tasks_together(&s->writer, &tasks, s->diag);
    file->seconds = progress_line_end(&line);
    for (int64_t i = 0; a.lines && i < a.n; i++) {
        if (good) strbuf_put(&file->predictions, a.lines[i]);
        free(a.lines[i]);
    }
    free(a.lines);
    return good;
}

static bool solve(Solving *s) {
    for (int i = 0; i < s->n_files; i++) {
        if (!solve_file(s, &s->files[i])) return false;
    }
    return true;
}

/* --- what is told --- */

static bool tell(const Solving *s) {
    StrBuf out = strbuf_create(), lines = strbuf_create();
    const bool json = cli_given(s->args, OPT_JSON);
    const char *chat = s->chat.messages ? s->chat.chat.how->name : "";
    const char *predictions = cli_text(s->args, OPT_PREDICTIONS, NULL);
    const char *path = cli_text(s->args, OPT_OUTPUT, "-");
    /* One thing at most goes to standard output: what was asked to. */
    const bool silent = predictions && strcmp(predictions, "-") == 0 && strcmp(path, "-") == 0;
    for (int i = 0; i < s->n_files; i++) {
        const ProblemFile *file = &s->files[i];
        if (json) {
            strbuf_put(&out, i ? ", " : "{\"problems\": [");
            evaluate_problems_put_json(&out, file, s->way.n_shots, chat);
        } else {
            evaluate_problems_put(&out, file, s->way.n_shots, s->length, chat);
        }
        strbuf_put_bytes(&lines, file->predictions.text, file->predictions.length);
    }
    if (json) strbuf_put(&out, "]}\n");
    const bool written = (silent || cli_write(path, &out, s->diag)) &&
                         (!predictions || cli_write(predictions, &lines, s->diag));
    strbuf_destroy(&lines);
    strbuf_destroy(&out);
    return written;
}

int evaluate_problems(CliArgs *args) {
    Solving s = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&s)) {
        status = s.failure;
    } else if (!solve(&s) || (is_first(&s) && !tell(&s))) {
        status = EXIT_FAILED;
    }
    if (status != EXIT_DONE) engine_args_explain(&s.writer.engine.options, s.diag);
    cli_fail(s.diag, status);
    generate_writer_release(&s.writer);
    for (int i = 0; i < s.n_read; i++) problem_file_release(&s.files[i]);
    generate_text_release(&s.begin);
    generate_chat_release(&s.chat);
    generate_images_release(&s.images);
    if (!generate_engine_release(&s.writer.engine, status == EXIT_DONE)) status = EXIT_FAILED;
    diag_destroy(s.diag);
    return status;
}
