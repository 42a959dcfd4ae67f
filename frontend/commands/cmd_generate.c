/* perilune generate: text from trained weights, token by token; a token is a byte unless there is a
 * tokenizer. Several continuations of one prompt are written side by side; or, with --chat, answers
 * in a conversation. */
#include "frontend/commands/generate_chat.h"
#include "frontend/commands/generate_engine.h"
#include "frontend/commands/sampler.h"
#include "frontend/units.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_LENGTH = 500 };

typedef struct Generation {
    CliArgs *args;
    Diag *diag;
    GenerateEngine engine;
    Sampler sampler;
    GenerateChat chat;
    int n_texts;
    GenerateText *texts;
    uint64_t *states; /* of the texts' random numbers */
    bool *live;       /* texts that have not ended */
    float *logits;    /* [n_texts, vocab] */
    int failure;      /* exit code when preparing fails */
} Generation;

static bool says(const Generation *gen) {
    return gen->engine.options.rank == 0 && !cli_given(gen->args, OPT_QUIET);
}

/* What it takes, or why every token computes the whole context. */
static void say_engine(const Generation *gen) {
    const Plan *plan = gen->engine.plan;
    const Program *program = plan->programs;
    const DecodeObstacle *obstacle = &gen->engine.obstacle;
    char all[32], weights[32], caches[32];
    if (!says(gen)) return;
    if (!plan->context) {
        fprintf(stderr, "note: every token computes its whole context again: ");
        if (obstacle->loc.file) fprintf(stderr, "%s:%d: ", obstacle->loc.file, obstacle->loc.line);
        fprintf(stderr, "%s\n", obstacle->what);
        return;
    }
    units_format_bytes(all, sizeof(all), plan->stages->arena_bytes);
    units_format_bytes(weights, sizeof(weights), program->class_bytes[CLASS_PARAMETER]);
    units_format_bytes(caches, sizeof(caches), program->class_bytes[CLASS_OPTIMIZER]);
    fprintf(stderr, "memory  %s planned: weights %s, caches %s for %d x %" PRId64 " positions\n",
            all, weights, caches, gen->n_texts, gen->engine.context);
}

static bool is_conversation(const Generation *gen) {
    return cli_given(gen->args, OPT_CHAT) && !cli_given(gen->args, OPT_PROMPT);
}

static bool ask(Generation *gen, const char *question) {
    size_t kept;
    bool good =
        generate_chat_ask(&gen->chat, question, gen->engine.context, gen->texts, &kept, gen->diag);
    if (good) generate_engine_turn(&gen->engine, kept);
    return good;
}

/* The first text: the prompt; or what an encoder, or a chat, makes of it. */
static bool begin_text(Generation *gen, int64_t vocab) {
    const CliArgs *args = gen->args;
    const bool chats = cli_given(args, OPT_CHAT);
    const char *question = cli_text(args, OPT_PROMPT, NULL);
    if (!generate_text_begin(args, vocab, &gen->texts[0], gen->diag) ||
        !generate_engine_check_prompt(&gen->engine, &gen->texts[0], gen->diag) ||
        !generate_chat_begin(args, &gen->texts[0], &gen->chat, gen->diag)) {
        return false;
    }
    if (gen->engine.source && chats) {
        diag_error(gen->diag, NO_LOC,
                   "--chat: the model has an encoder, which reads one prompt: give it as --prompt");
        return false;
    }
    if (is_conversation(gen) && gen->engine.options.control) {
        diag_error(gen->diag, NO_LOC,
                   "--chat: a conversation is for one process; give each question as --prompt");
        return false;
    }
    if (gen->engine.source) generate_text_answer(&gen->texts[0], (uint32_t)gen->engine.eos);
    return !chats || !question || ask(gen, question);
}

static bool prepare(Generation *gen) {
    CliArgs *args = gen->args;
    if (!cli_given(args, OPT_LOAD)) {
        diag_error(gen->diag, NO_LOC, "generate: which weights? give --load FILE");
        return false;
    }
    if (!generate_chat_check(args, gen->diag)) return false;
    gen->n_texts = (int)cli_int(args, OPT_SAMPLES, 1);
    gen->failure = generate_engine_open(args, gen->n_texts, &gen->engine, gen->diag);
    if (gen->failure != EXIT_DONE) return false;
    gen->failure = EXIT_USAGE;
    const int64_t vocab = gen->engine.plan->vocab;
    gen->texts = ARENA_ARRAY(args->arena, GenerateText, gen->n_texts);
    if (!begin_text(gen, vocab)) return false;
    if (gen->engine.options.rank == 0 && !cli_try_outputs(args, gen->diag)) return false;
    if (!generate_engine_start(&gen->engine, args, gen->diag)) return false;
    say_engine(gen);
    for (int i = 1; i < gen->n_texts; i++) gen->texts[i] = generate_text_fork(&gen->texts[0]);
    gen->sampler = sampler_create(args, gen->texts[0].n_choices);
    gen->states = ARENA_ARRAY(args->arena, uint64_t, gen->n_texts);
    gen->live = ARENA_ARRAY(args->arena, bool, gen->n_texts);
    gen->logits = ARENA_ARRAY(args->arena, float, gen->n_texts *vocab);
    for (int i = 0; i < gen->n_texts; i++) {
        gen->states[i] = (uint64_t)cli_int(args, OPT_SEED, 1) + (uint64_t)i;
    }
    return true;
}

/* One more token of each text that has not ended. */
static bool add_tokens(Generation *gen) {
    const int64_t vocab = gen->engine.plan->vocab;
    if (!generate_engine_logits(&gen->engine, gen->texts, gen->live, gen->logits, gen->diag)) {
        return false;
    }
    for (int i = 0; i < gen->n_texts; i++) {
        if (!gen->live[i]) continue;
        int token =
            sampler_choose(&gen->sampler, &gen->states[i], &gen->texts[i], gen->logits + i * vocab);
        if (token < 0) {
            diag_error(gen->diag, NO_LOC,
                       "generate: the model's output is not finite; wrong weights?");
            return false;
        }
        gen->live[i] = generate_text_add(&gen->texts[i], token);
    }
    return true;
}

/* What can be shown of a text so far. */
static bool show(Generation *gen, GenerateText *text, bool all) {
    const char *bytes;
    size_t length = generate_text_show(text, all, &bytes);
    if (fwrite(bytes, 1, length, stdout) == length && fflush(stdout) == 0) return true;
    diag_error(gen->diag, NO_LOC, "standard output cannot be written");
    return false;
}

static bool any_live(const Generation *gen) {
    for (int i = 0; i < gen->n_texts; i++) {
        if (gen->live[i]) return true;
    }
    return false;
}

/* Tokens per second, 0 where nothing was measured. */
typedef struct Speed {
    int64_t n_read, n_written;
    double read, written;
} Speed;

static Speed measure(const Generation *gen) {
    const Decoder *decoder = gen->engine.decoder;
    Speed speed = {.n_written = gen->engine.n_windows};
    if (!decoder) {
        if (gen->engine.seconds > 0) speed.written = (double)speed.n_written / gen->engine.seconds;
        return speed;
    }
    speed = (Speed){.n_read = decoder->n_read, .n_written = decoder->n_written};
    if (decoder->read_seconds > 0) speed.read = (double)speed.n_read / decoder->read_seconds;
    if (decoder->write_seconds > 0) {
        speed.written = (double)speed.n_written / decoder->write_seconds;
    }
    return speed;
}

static void say_speed(const Generation *gen) {
    Speed speed = measure(gen);
    if (!says(gen)) return;
    if (gen->engine.n_restarts) {
        fprintf(stderr,
                "context %" PRId64 " positions were full %" PRId64 " time%s: the last %" PRId64
                " of a text were read again\n",
                gen->engine.context, gen->engine.n_restarts, gen->engine.n_restarts == 1 ? "" : "s",
                gen->engine.context / 2);
    }
    if (gen->chat.n_forgotten) {
        fprintf(stderr,
                "context %" PRId64 " positions: the oldest %" PRId64
                " question%s forgotten for the others\n",
                gen->engine.context, gen->chat.n_forgotten,
                gen->chat.n_forgotten == 1 ? " was" : "s were");
    }
    if (speed.n_read) {
        fprintf(stderr, "read    %" PRId64 " tokens, %.1f tokens/s\n", speed.n_read, speed.read);
    }
    fprintf(stderr, "wrote   %" PRId64 " tokens, %.1f tokens/s\n", speed.n_written, speed.written);
}

static void put_json(const Generation *gen, StrBuf *out) {
    Speed speed = measure(gen);
    strbuf_put(out, "{\"samples\": [");
    for (int i = 0; i < gen->n_texts; i++) {
        const GenerateText *text = &gen->texts[i];
        strbuf_put(out, i ? ", {\"text\": " : "{\"text\": ");
        json_put_bytes(out, text->text.text + text->n_prompt, text->text.length - text->n_prompt);
        strbuf_printf(out, ", \"tokens\": %zu, \"ended\": %s}",
                      text->tokens.count - text->n_prompt_tokens, gen->live[i] ? "false" : "true");
    }
    strbuf_put(out, "], \"prompt\": ");
    json_put_text(out, cli_text(gen->args, OPT_PROMPT, ""));
    strbuf_printf(out,
                  ", \"prompt_tokens\": %zu, \"context\": %" PRId64 ", \"cached\": %s"
                  ", \"memory_bytes\": %" PRId64 ", \"read_tokens\": %" PRId64
                  ", \"read_tokens_per_s\": %.6g, \"written_tokens\": %" PRId64
                  ", \"written_tokens_per_s\": %.6g}\n",
                  gen->texts[0].n_prompt_tokens, gen->engine.context,
                  gen->engine.decoder ? "true" : "false", engine_arena_bytes(gen->engine.engine),
                  speed.n_read, speed.read, speed.n_written, speed.written);
}

/* All texts, numbered where there are several. */
static void put_texts(const Generation *gen, StrBuf *out) {
    for (int i = 0; i < gen->n_texts; i++) {
        if (gen->n_texts > 1) strbuf_printf(out, "--- %d ---\n", i + 1);
        strbuf_put_bytes(out, gen->texts[i].text.text, gen->texts[i].text.length);
        strbuf_put(out, "\n");
    }
}

/* Tokens until all texts have ended; `live`: the one there is appears as it comes. */
static bool write_texts(Generation *gen, bool live) {
    int64_t length = cli_int(gen->args, OPT_LENGTH, DEFAULT_LENGTH);
    /* A decoder's positions do not move. */
    if (gen->engine.source && length > gen->engine.context) length = gen->engine.context;
    for (int i = 0; i < gen->n_texts; i++) gen->live[i] = true;
    if (live && !show(gen, gen->texts, false)) return false;
    for (int64_t i = 0; i < length && any_live(gen); i++) {
        if (!add_tokens(gen)) return false;
        if (live && !show(gen, gen->texts, false)) return false;
    }
    return true;
}

static bool end_line(Generation *gen) {
    strbuf_put(&gen->texts->text, "\n");
    return show(gen, gen->texts, true);
}

/* Each line of standard input that says something is answered. */
static bool converse(Generation *gen) {
    char *line = NULL;
    size_t room = 0;
    bool asks = says(gen) && isatty(STDIN_FILENO), good = true;
    for (;;) {
        if (asks) fputs("> ", stderr);
        ssize_t length = getline(&line, &room, stdin);
        if (length < 0) break;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        if (length == 0) continue;
        good = ask(gen, line) && write_texts(gen, true);
        if (!good) break;
        generate_chat_answered(&gen->chat, gen->texts);
        if (!(good = end_line(gen))) break;
    }
    free(line);
    return good;
}

/* On standard output one text appears as it comes; what else is written is written at the end. */
static bool generate(Generation *gen) {
    const char *path = cli_text(gen->args, OPT_OUTPUT, "-");
    bool first = gen->engine.options.rank == 0; /* the others compute, and say nothing */
    bool json = cli_given(gen->args, OPT_JSON);
    bool live = first && strcmp(path, "-") == 0 && gen->n_texts == 1 && !json;
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

int cmd_generate(CliArgs *args) {
    Generation gen = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&gen)) {
        status = gen.failure;
    } else if (is_conversation(&gen) ? !converse(&gen) : !generate(&gen)) {
        status = EXIT_FAILED;
    } else {
        say_speed(&gen);
    }
    cli_fail(gen.diag, status);
    for (int i = gen.n_texts - 1; gen.texts && i >= 0; i--) {
        if (i == 0 || gen.texts[i].borrows) generate_text_release(&gen.texts[i]);
    }
    generate_chat_release(&gen.chat);
    if (!generate_engine_release(&gen.engine, status == EXIT_DONE)) status = EXIT_FAILED;
    diag_destroy(gen.diag);
    return status;
}
