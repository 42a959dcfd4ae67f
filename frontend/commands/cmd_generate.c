/* perilune generate: text from trained weights, token by token; a token is a byte unless there is a
 * tokenizer. Several continuations of one prompt, or those of a file of prompts, are written side
 * by side; or, with --chat, answers in a conversation. */
#include "frontend/commands/generate_chat.h"
#include "frontend/commands/generate_diffusion.h"
#include "frontend/commands/generate_fill.h"
#include "frontend/commands/generate_open.h"
#include "frontend/commands/generate_prompts.h"
#include "frontend/commands/generate_writer.h"
#include "frontend/commands/judge_args.h"
#include "frontend/commands/train_alike.h"
#include "frontend/units.h"
#include "ir/base/json.h"
#include "runtime/launch/control.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_LENGTH = 500 };

typedef struct Generation {
    CliArgs *args;
    Diag *diag;
    GenerateText begin; /* what all texts begin as, or have in common */
    GenerateWriter writer;
    GenerateChat chat;
    GenerateImages images;
    GeneratePrompts prompts;
    GenerateDiffusion diffusion; /* where the engine writes so */
    int failure;                 /* exit code when preparing fails */
} Generation;

static bool says(const Generation *gen) {
    return gen->writer.engine.options.rank == 0 && !cli_given(gen->args, OPT_QUIET);
}

/* What it takes, or why every token computes the whole context. */
static void say_engine(const Generation *gen) {
    const Plan *plan = gen->writer.engine.plan;
    const Program *program = plan->programs;
    char all[32], weights[32], caches[32];
    if (!says(gen)) return;
    generate_engine_note_windows(&gen->writer.engine);
    if (!plan->context) return;
    units_format_bytes(all, sizeof(all), plan->stages->arena_bytes);
    units_format_bytes(weights, sizeof(weights), program->class_bytes[CLASS_PARAMETER]);
    units_format_bytes(caches, sizeof(caches), program->class_bytes[CLASS_OPTIMIZER]);
    const int n_ranks = mesh_rank_count(&plan->mesh);
    fprintf(stderr,
            "memory  %s planned%s%s: weights %s, caches %s for %d x %" PRId64 " positions\n", all,
            gen->writer.engine.options.device == DEVICE_CUDA ? " on the GPU" : "",
            n_ranks > 1 ? ", of each rank" : "", weights, caches, gen->writer.n_texts,
            gen->writer.engine.context);
}

static bool is_conversation(const Generation *gen) {
    return cli_given(gen->args, OPT_CHAT) && !cli_given(gen->args, OPT_PROMPT) &&
           !gen->prompts.path;
}

/* The text's next question, in a conversation. */
static bool ask(Generation *gen, const char *question, GenerateText *text) {
    GenerateEngine *engine = &gen->writer.engine;
    size_t kept;
    bool good = generate_chat_ask(&gen->chat, question, engine->context, text, &kept, gen->diag);
    if (good && text != &gen->begin) generate_engine_turn(engine, kept);
    return good;
}

static bool check_chat(const Generation *gen) {
    const GenerateEngine *engine = &gen->writer.engine;
    if (engine->source && cli_given(gen->args, OPT_CHAT)) {
        diag_error(gen->diag, NO_LOC,
                   "--chat: the model has an encoder, which reads one prompt: give it as --prompt");
        return false;
    }
    bool many = is_conversation(gen) || gen->prompts.path;
    if (!many || !engine->options.control || engine->plan->context) return true;
    diag_error(gen->diag, NO_LOC, "%s by several processes needs caches: %s",
               gen->prompts.path ? "--prompts" : "--chat: a conversation", engine->obstacle.what);
    return false;
}

/* The prompt with --image's. */
static bool begin_seeing(Generation *gen, const char *prompt) {
    json_t *object = generate_images_given(gen->args);
    const ImagePrompt asked = {.object = object,
                               .said = prompt,
                               .length = strlen(prompt),
                               .loc = NO_LOC,
                               .where = "--prompt"};
    bool good = generate_images_prompt(&gen->images, &gen->chat, &asked, &gen->begin, gen->diag) &&
                generate_images_check(&gen->images, gen->diag);
    json_decref(object);
    return good;
}

/* --bos, in front of every prompt. */
static bool begin_with(const Generation *gen, GenerateText *text) {
    const char *name = cli_text(gen->args, OPT_BOS, NULL);
    if (!name) return true;
    const char *why = cli_given(gen->args, OPT_CHAT) ? "a chat begins as its template says"
                      : gen->writer.engine.source    ? "an encoder reads prompts as they are"
                                                     : NULL;
    if (why) {
        diag_error(gen->diag, NO_LOC, "--bos: %s", why);
        return false;
    }
    const uint32_t token = tokenizer_find_added(text->tokenizer, name, "bos", gen->diag);
    token_list_add(&text->tokens, token);
    return token != NO_TOKEN;
}

/* --prompt and --suffix, with what is to be written between them. */
static bool begin_filling(Generation *gen, const char *prompt) {
    const char *suffix = cli_text(gen->args, OPT_SUFFIX, "");
    const FillAsked asked = {.prefix = prompt,
                             .n_prefix = strlen(prompt),
                             .suffix = suffix,
                             .n_suffix = strlen(suffix),
                             .loc = NO_LOC,
                             .where = "--prompt"};
    return generate_fill_prompt(&gen->writer.engine, &asked, &gen->begin, gen->diag);
}

/* The prompt; or what an encoder, or a chat, makes of it. */
static bool begin_text(Generation *gen) {
    const CliArgs *args = gen->args;
    const GenerateEngine *engine = &gen->writer.engine;
    const char *prompt = cli_text(args, OPT_PROMPT, "");
    GenerateText *text = &gen->begin;
    if (!generate_text_begin(args, engine->plan->vocab, text, gen->diag) ||
        !begin_with(gen, text) || !generate_chat_begin(args, text, &gen->chat, gen->diag) ||
        !check_chat(gen) ||
        !generate_images_begin(args, engine->plan, engine->images, engine->context, text,
                               &gen->chat, &gen->images, gen->diag)) {
        return false;
    }
    if (gen->prompts.path) {
        return generate_prompts_encode(&gen->prompts, engine, &gen->chat, &gen->images, text,
                                       gen->diag);
    }
    if (cli_given(args, OPT_PICTURE)) return begin_seeing(gen, prompt);
    if (cli_given(args, OPT_SUFFIX)) return begin_filling(gen, prompt);
    if (cli_given(args, OPT_CHAT)) {
        return is_conversation(gen) || ask(gen, prompt, text);
    }
    if (!generate_text_prompt(text, prompt, strlen(prompt), "--prompt", gen->diag) ||
        !generate_engine_check_prompt(engine, text, "--prompt", gen->diag) ||
        !generate_text_check_blind(text, &text->tokens, (SourceLoc){"--prompt", 0}, gen->diag)) {
        return false;
    }
    if (engine->source) generate_text_answer(text, (uint32_t)engine->eos);
    return true;
}

/* A prompt that is longer than the context goes on from its end. */
static void say_cut(const Generation *gen) {
    const GenerateEngine *engine = &gen->writer.engine;
    const int64_t n = (int64_t)gen->begin.n_prompt_tokens;
    if (!says(gen) || engine->source || engine->diffuses || n <= engine->context) return;
    fprintf(stderr,
            "prompt  %" PRId64 " tokens, more than the context's %" PRId64
            ": only the last ones are read\n",
            n, engine->context);
}

/* Of what --prompts' texts are worth, where somebody is to say it. */
static bool open_judge(Generation *gen) {
    const GenerateEngine *engine = &gen->writer.engine;
    const uint32_t pad = gen->begin.end == NO_TOKEN ? 0 : gen->begin.end;
    const JudgedModel of = {engine->plan->vocab, pad, 2, &engine->options};
    int64_t bytes;
    if (!judge_is_given(gen->args) || engine->options.rank > 0) return true;
    gen->prompts.judge = judge_from_args(gen->args, &of, &bytes, gen->diag);
    return gen->prompts.judge != NULL;
}

/* What the texts have now is the prompt. */
static bool begin_diffusion(Generation *gen) {
    return generate_diffusion_begin(&gen->diffusion, &gen->writer, gen->args, gen->diag);
}

static bool prepare(Generation *gen) {
    CliArgs *args = gen->args;
    GenerateWriter *writer = &gen->writer;
    if (!cli_given(args, OPT_LOAD)) {
        diag_error(gen->diag, NO_LOC, "generate: which weights? give --load FILE");
        return false;
    }
    if (!generate_chat_check(args, gen->diag) || !generate_fill_check(args, gen->diag) ||
        !generate_prompts_check(args, gen->diag) ||
        !generate_prompts_read(args, &gen->prompts, gen->diag)) {
        return false;
    }
    writer->n_texts = gen->prompts.path ? generate_prompts_slots(&gen->prompts, args)
                                        : (int)cli_int(args, OPT_SAMPLES, 1);
    gen->failure = generate_engine_open(args, writer->n_texts, &writer->engine, gen->diag);
    if (gen->failure != EXIT_DONE) return false;
    gen->failure = EXIT_USAGE;
    if (!generate_diffusion_check(args, writer->engine.diffuses, gen->diag) || !begin_text(gen)) {
        return false;
    }
    if (gen->prompts.path && !train_alike_texts(args, generate_prompts_digest(0, &gen->prompts),
                                                &writer->engine.options, gen->diag)) {
        return false;
    }
    say_cut(gen);
    if (writer->engine.options.rank == 0 && !cli_try_outputs(args, gen->diag)) return false;
    if (!generate_engine_start(&writer->engine, args, gen->diag)) return false;
    say_engine(gen);
    generate_writer_start(writer, args, &gen->begin);
    if (writer->engine.diffuses && !is_conversation(gen) && !gen->prompts.path &&
        !begin_diffusion(gen))
        return false;
    return open_judge(gen);
}

/* What can be shown of a text so far; the first process does. */
static bool show(Generation *gen, GenerateText *text, bool all) {
    const char *bytes;
    size_t length = generate_text_show(text, all, &bytes);
    if (gen->writer.engine.options.rank > 0) return true;
    if (fwrite(bytes, 1, length, stdout) == length && fflush(stdout) == 0) return true;
    diag_error(gen->diag, NO_LOC, "standard output cannot be written");
    return false;
}

/* Tokens per second, 0 where nothing was measured. With caches, what follows the prompt comes of
 * reading it: the first token is written in no time. */
typedef struct Speed {
    int64_t n_read, n_written;
    double read, written;
} Speed;

static Speed measure(const Generation *gen) {
    const Decoder *decoder = gen->writer.engine.decoder;
    const GenerateEngine *engine = &gen->writer.engine;
    Speed speed = {.n_written = gen->writer.n_written};
    if (engine->diffuses) {
        if (engine->seconds > 0) speed.written = (double)speed.n_written / engine->seconds;
        return speed;
    }
    if (!decoder) {
        if (engine->seconds > 0) speed.written = (double)engine->n_windows / engine->seconds;
        return speed;
    }
    speed.n_read = decoder->n_read;
    if (decoder->read_seconds > 0) speed.read = (double)speed.n_read / decoder->read_seconds;
    if (decoder->write_seconds > 0) {
        speed.written = (double)decoder->n_written / decoder->write_seconds;
    }
    return speed;
}

static void say_speed(const Generation *gen) {
    Speed speed = measure(gen);
    if (!says(gen)) return;
    if (gen->writer.engine.n_restarts) {
        fprintf(stderr,
                "context %" PRId64 " positions were full %" PRId64 " time%s: the last %" PRId64
                " of a text were read again\n",
                gen->writer.engine.context, gen->writer.engine.n_restarts,
                gen->writer.engine.n_restarts == 1 ? "" : "s", gen->writer.engine.context / 2);
    }
    if (gen->chat.n_forgotten) {
        fprintf(stderr,
                "context %" PRId64 " positions: the oldest %" PRId64
                " question%s forgotten for the others\n",
                gen->writer.engine.context, gen->chat.n_forgotten,
                gen->chat.n_forgotten == 1 ? " was" : "s were");
    }
    const Decoder *decoder = gen->writer.engine.decoder;
    if (decoder && decoder->n_looked) {
        fprintf(stderr, "saw     images of %" PRId64 " text%s in %.2f s\n", decoder->n_looked,
                decoder->n_looked == 1 ? "" : "s", decoder->look_seconds);
    }
    if (speed.n_read) {
        fprintf(stderr, "read    %" PRId64 " tokens, %.1f tokens/s\n", speed.n_read, speed.read);
    }
    if (gen->prompts.judge) fprintf(stderr, "reward  %.4f in the mean\n", gen->prompts.reward);
    fprintf(stderr, "wrote   %" PRId64 " token%s", speed.n_written,
            speed.n_written == 1 ? "" : "s");
    if (gen->writer.engine.diffuses) {
        fprintf(stderr, " in %" PRId64 " passes", gen->writer.engine.n_windows);
    }
    if (speed.written > 0) fprintf(stderr, ", %.1f tokens/s", speed.written);
    fputc('\n', stderr);
}

static void put_json(const Generation *gen, StrBuf *out) {
    Speed speed = measure(gen);
    strbuf_put(out, "{\"samples\": [");
    for (int i = 0; i < gen->writer.n_texts; i++) {
        const GenerateText *text = &gen->writer.texts[i];
        strbuf_put(out, i ? ", {\"text\": " : "{\"text\": ");
        json_put_bytes(out, text->text.text + text->n_prompt, text->text.length - text->n_prompt);
        strbuf_printf(out, ", \"tokens\": %zu, \"ended\": %s}",
                      text->tokens.count - text->n_prompt_tokens,
                      gen->writer.live[i] ? "false" : "true");
    }
    strbuf_put(out, "], \"prompt\": ");
    json_put_text(out, cli_text(gen->args, OPT_PROMPT, ""));
    if (cli_given(gen->args, OPT_SUFFIX)) {
        strbuf_put(out, ", \"suffix\": ");
        json_put_text(out, cli_text(gen->args, OPT_SUFFIX, ""));
    }
    strbuf_printf(out,
                  ", \"prompt_tokens\": %zu, \"context\": %" PRId64 ", \"cached\": %s"
                  ", \"memory_bytes\": %" PRId64 ", \"read_tokens\": %" PRId64
                  ", \"read_tokens_per_s\": %.6g, \"written_tokens\": %" PRId64
                  ", \"written_tokens_per_s\": %.6g",
                  gen->writer.texts[0].n_prompt_tokens, gen->writer.engine.context,
                  gen->writer.engine.decoder ? "true" : "false",
                  engine_arena_bytes(gen->writer.engine.engine), speed.n_read, speed.read,
                  speed.n_written, speed.written);
    if (gen->writer.engine.diffuses) {
        strbuf_printf(out, ", \"passes\": %" PRId64, gen->writer.engine.n_windows);
    }
    strbuf_put(out, "}\n");
}

/* All texts, numbered where there are several. */
static void put_texts(const Generation *gen, StrBuf *out) {
    for (int i = 0; i < gen->writer.n_texts; i++) {
        if (gen->writer.n_texts > 1) strbuf_printf(out, "--- %d ---\n", i + 1);
        strbuf_put_bytes(out, gen->writer.texts[i].text.text, gen->writer.texts[i].text.length);
        strbuf_put(out, cli_text(gen->args, OPT_SUFFIX, ""));
        strbuf_put(out, "\n");
    }
}

/* Tokens of a text, at most. A decoder's positions do not move. */
static int64_t find_length(const Generation *gen) {
    const GenerateEngine *engine = &gen->writer.engine;
    int64_t length = cli_int(gen->args, OPT_LENGTH, DEFAULT_LENGTH);
    if (engine->source && length > engine->context) return engine->context;
    return generate_fill_length(engine, &gen->begin, length);
}

/* Blocks of all texts, shown as they come. */
static bool write_diffusion(Generation *gen, bool live) {
    while (!generate_diffusion_is_done(&gen->diffusion)) {
        if (!generate_diffusion_write(&gen->diffusion, gen->diag)) return false;
        if (live && !show(gen, gen->writer.texts, false)) return false;
    }
    return true;
}

/* Tokens until all texts have ended; `live`: the one there is appears as it comes. */
static bool write_texts(Generation *gen, bool live) {
    GenerateWriter *writer = &gen->writer;
    const int64_t length = find_length(gen);
    for (int i = 0; i < writer->n_texts; i++) writer->live[i] = true;
    if (live && !show(gen, writer->texts, false)) return false;
    if (writer->engine.diffuses) return write_diffusion(gen, live);
    for (int64_t i = 0; i < length && generate_writer_is_live(writer); i++) {
        if (!generate_writer_add(writer, gen->diag)) return false;
        if (live && !show(gen, writer->texts, false)) return false;
    }
    return true;
}

static bool end_line(Generation *gen) {
    strbuf_put(&gen->writer.texts->text, cli_text(gen->args, OPT_SUFFIX, ""));
    strbuf_put(&gen->writer.texts->text, "\n");
    return show(gen, gen->writer.texts, true);
}

/* On a terminal somebody is there who can ask otherwise. False: said why. */
static bool ask_again(Generation *gen, const char *question) {
    Diag *outer = gen->diag;
    gen->diag = diag_create();
    bool good = ask(gen, question, gen->writer.texts);
    if (!good && gen->writer.engine.options.rank == 0) diag_print(gen->diag, stderr);
    diag_destroy(gen->diag);
    gen->diag = outer;
    return good;
}

/* What is asked next, which the first process reads: its length, -1 at the end. */
static int64_t read_question(bool asks, char **line, size_t *room) {
    for (;;) {
        if (asks) fputs("> ", stderr);
        ssize_t length = getline(line, room, stdin);
        if (length < 0) return -1;
        while (length > 0 && ((*line)[length - 1] == '\n' || (*line)[length - 1] == '\r')) {
            (*line)[--length] = '\0';
        }
        if (length > 0) return length;
    }
}

/* The same on every process. False: the job has failed; reported. */
static bool share_question(Generation *gen, bool asks, char **line, size_t *room,
                           int64_t *out_length) {
    const EngineOptions *options = &gen->writer.engine.options;
    const char *why = "no question came from the first process";
    if (options->rank == 0) *out_length = read_question(asks, line, room);
    if (!options->control) return true;
    bool met = control_await(options->control) && /* who asks may take any time */
               control_broadcast(options->control, 0, out_length, sizeof(*out_length));
    if (met && *out_length < 0) return true;
    if (met && options->rank > 0) {
        *line = realloc(*line, (size_t)*out_length + 1);
        if (!*line) BUG("out of memory");
        (*line)[*out_length] = '\0';
    }
    if (met && control_share(options->control, 0, *line, (size_t)*out_length)) return true;
    control_failed(options->control, &why);
    diag_error(gen->diag, NO_LOC, "%s", why);
    return false;
}

/* Each line of standard input that says something is answered. */
static bool converse(Generation *gen) {
    const bool reads = says(gen) && isatty(STDIN_FILENO);
    const bool asks = engine_args_agree(&gen->writer.engine.options, reads);
    char *line = NULL;
    size_t room = 0;
    int64_t length;
    bool good = true;
    for (;;) {
        good = share_question(gen, asks, &line, &room, &length);
        if (!good || length < 0) break;
        if (asks && !ask_again(gen, line)) continue;
        good = (asks || ask(gen, line, gen->writer.texts)) &&
               (!gen->writer.engine.diffuses || begin_diffusion(gen)) && write_texts(gen, true);
        if (!good) break;
        generate_chat_answered(&gen->chat, gen->writer.texts);
        if (!(good = end_line(gen))) break;
    }
    free(line);
    return good;
}

/* On standard output one text appears as it comes; what else is written is written at the end. */
static bool generate(Generation *gen) {
    const char *path = cli_text(gen->args, OPT_OUTPUT, "-");
    bool first = gen->writer.engine.options.rank == 0; /* the others compute, and say nothing */
    bool json = cli_given(gen->args, OPT_JSON);
    bool live = first && strcmp(path, "-") == 0 && gen->writer.n_texts == 1 && !json;
    if (!write_texts(gen, live)) return false;
    if (live) return end_line(gen);
    if (!first) return true;
    StrBuf out = strbuf_create();
    if (json)
        put_json(gen, &out);
    else
        put_texts(gen, &out);
    bool written = cli_write(path, &out, gen->diag);
    strbuf_destroy(&out);
    return written;
}

static bool write_all(Generation *gen) {
    if (is_conversation(gen)) return converse(gen);
    if (!gen->prompts.path) return generate(gen);
    return generate_prompts_write(&gen->prompts, &gen->writer, gen->args, find_length(gen),
                                  says(gen), gen->diag);
}

int cmd_generate(CliArgs *args) {
    Generation gen = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&gen)) {
        status = gen.failure;
    } else if (!write_all(&gen)) {
        status = EXIT_FAILED;
    } else {
        say_speed(&gen);
    }
    if (status != EXIT_DONE) engine_args_explain(&gen.writer.engine.options, gen.diag);
    cli_fail(gen.diag, status);
    judge_close(gen.prompts.judge);
    generate_writer_release(&gen.writer);
    generate_prompts_release(&gen.prompts);
    generate_text_release(&gen.begin);
    generate_chat_release(&gen.chat);
    generate_images_release(&gen.images);
    if (!generate_engine_release(&gen.writer.engine, status == EXIT_DONE)) status = EXIT_FAILED;
    diag_destroy(gen.diag);
    return status;
}
