/* Conversations by templates in Jinja: texts against transformers' (tests/data/jinja.jsonl, by
 * tests/reference/make_jinja.py), which parts are answers, special tokens that somebody said, where
 * templates and their tokens are found, and what is refused. Would catch: a prompt that is trained,
 * an answer whose end is not, thoughts that a model is never asked to write, a user who ends his
 * turn by spelling it.
 */
#include "ir/base/json.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus_line.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPLATES "tests/data/chat_templates/"

static Arena *arena;
static Diag *diag;
static Tokenizer *tokenizer;
static char folder[] = "/tmp/test_chat_jinja-XXXXXX";

static const char *const TOKENS[] = {"bos_token=<s>", "eos_token=\"</s>\""};

static bool ready(const char *path, const char *const *set, int n_set, Chat *out) {
    ChatSettings settings = {.arena = arena, .set = set, .n_set = n_set};
    const ChatTemplate *how = chat_template_find(path, arena, diag);
    return how && chat_prepare(how, tokenizer, NO_TOKEN, &settings, out, diag);
}

static Chat ready_of(const char *name) {
    Chat chat = {0};
    bool good = ready(arena_printf(arena, TEMPLATES "%s", name), TOKENS, 2, &chat);
    CHECK(good, "%s: %s", name, diag_text(diag));
    return chat;
}

static json_t *parse(const char *text) {
    json_error_t error;
    json_t *out = json_loads(text, JSON_ALLOW_NUL, &error);
    CHECK(out, "%s: %s", error.text, text);
    return out;
}

/* --- texts --- */

/* As apply_chat_template: the last rendering of all messages, or of all and the prompt. */
static void compare(const json_t *line, int number) {
    const char *name = json_string_value(json_object_get(line, "file"));
    json_t *chat = json_object_get(line, "chat"),
           *thinks = json_object_get(chat, "enable_thinking");
    const char *text = json_string_value(json_object_get(line, "text"));
    ChatTexts texts = {0};
    if (!name) return; /* test_jinja's */
    const char *set[3] = {TOKENS[0], TOKENS[1], "enable_thinking=False"};
    Chat how;
    CHECK(ready(arena_printf(arena, TEMPLATES "%s", name), set, 2 + (thinks != NULL), &how), "%s",
          diag_text(diag));
    ChatTalk talk = {.messages = json_object_get(chat, "messages"), .object = chat};
    const json_t *last = json_array_get(talk.messages, json_array_size(talk.messages) - 1);
    bool asked = strcmp(json_string_value(json_object_get(last, "role")), "assistant") != 0;
    bool prompt = json_is_true(json_object_get(line, "prompt"));
    if (prompt && !asked) return;
    talk.n_asked = 99; /* nothing counts: one text */
    bool good = prompt ? chat_jinja_ask(&how.jinja, &talk, &texts, NO_LOC, diag)
                       : chat_jinja_render(&how.jinja, &talk, &texts, NO_LOC, diag);
    CHECK(good == (text != NULL), "line %d, %s: %s", number, name, diag_text(diag));
    CHECK(!good || !text || (texts.count == 1 && strcmp(texts.items[0].text, text) == 0),
          "line %d, %s:\n%s\nnot\n%s", number, name, texts.items[0].text, text);
    chat_texts_release(&texts);
}

static void test_texts(void) {
    check_begin("chats in Jinja: texts of transformers");
    FILE *file = fopen("tests/data/jinja.jsonl", "r");
    char *line = NULL;
    size_t capacity = 0;
    int number = 0;
    CHECK(file, "jinja.jsonl");
    while (file && getline(&line, &capacity, file) > 0) {
        json_t *object = parse(line);
        compare(object, ++number);
        json_decref(object);
    }
    free(line);
    if (file) fclose(file);
}

/* --- answers --- */

/* Texts with [ ] around what counts, one behind the other with | between. */
static const char *shown(const ChatTexts *texts) {
    StrBuf out = strbuf_create();
    for (int i = 0; i < texts->count; i++) {
        const JinjaText *text = &texts->items[i];
        bool counts = false;
        if (i) strbuf_put(&out, "|");
        for (size_t k = 0; k <= text->length; k++) {
            bool now = k < text->length && (text->marks[k] & JINJA_ANSWER);
            if (now != counts) strbuf_put(&out, now ? "[" : "]");
            counts = now;
            if (k < text->length) strbuf_put_bytes(&out, text->text + k, 1);
        }
    }
    const char *kept = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return kept;
}

static void counts(const char *name, const char *object, const char *want) {
    Chat chat = ready_of(name);
    json_t *line = parse(object);
    ChatTalk talk = {.messages = json_object_get(line, "messages"), .object = line};
    if (json_object_get(line, "asked")) {
        talk.n_asked = (size_t)json_integer_value(json_object_get(line, "asked"));
    }
    ChatTexts texts;
    bool good = chat_jinja_render(&chat.jinja, &talk, &texts, NO_LOC, diag);
    CHECK(good && strcmp(shown(&texts), want) == 0, "%s\n  is  %s\n  not %s\n%s", name,
          shown(&texts), want, diag_text(diag));
    chat_texts_release(&texts);
    json_decref(line);
}

#define U(text)        "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text, more)  "{\"role\": \"assistant\", \"content\": \"" text "\"" more "}"
#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>"

static void test_answers(void) {
    check_begin("chats in Jinja: answers are what the prompt does not have");
    counts("turns.jinja", "{\"messages\": [" U("a") "," A("b", "") "," U("c") "," A("d", "") "]}",
           "<s>[INST] a [/INST][ b</s>][INST] c [/INST][ d</s>]");
    counts("turns.jinja",
           "{\"messages\": [" U("a") "," A("b", ", \"weight\": 0") "," U("c") "," A("d", "") "]}",
           "<s>[INST] a [/INST] b</s>[INST] c [/INST][ d</s>]");
    counts("turns.jinja", "{\"messages\": [" U("a") "], \"asked\": 1}", "<s>[INST] a [/INST]");
    check_begin("chats in Jinja: turns that are told in another way later are texts of their own");
    counts("thoughts.jinja",
           "{\"messages\": [" U("a") "," A("b", ", \"reasoning\": \"t\"") "," U("c") "," A(
               "<think>u</think>d", "") "," U("e") "]}",
           IM("user", "a") "\n<|im_start|>assistant\n[<think>\nt\n</think>\n\nb<|im_end|>]\n|" IM(
               "user", "a") "\n" IM("assistant",
                                    "b") "\n" IM("user", "c") "\n<|im_start|>assistant\n[<think>"
                                                              "\nu\n</think>\n\nd<|im_end|>]\n");
    counts("thoughts.jinja",
           "{\"messages\": [" U("a") "," A("b", "") "," U("c") "," A(
               "d", "") "],"
                        "\"chat_template_kwargs\": {\"enable_thinking\": false}}",
           IM("user", "a") "\n<|im_start|>assistant\n[b<|im_end|>]\n" IM(
               "user", "c") "\n<|im_start|>assistant\n[d<|im_end|>]\n");
    check_begin(
        "chats in Jinja: calls of tools are answers, within one question they are one text");
    counts(
        "thoughts.jinja",
        "{\"messages\": [" U("a") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\":"
                                  "[{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]},"
                                  "{\"role\": \"tool\", \"content\": \"2\"}," A("b", "") "]}",
        IM("user", "a") "\n<|im_start|>assistant\n[<think>\n\n</think>\n\n<call name=\"f\">{\n "
                        "\"x\": 1\n}</call><|im_end|>]\n" IM(
                            "user", "<result>2</result>") "\n<|im_start|>assistant\n[<think>\n\n<"
                                                          "/think>\n\nb<|im_end|>]\n");
    check_begin("chats in Jinja: {% generation %} says what counts");
    counts("marked.jinja", "{\"messages\": [" U("a") "," A("b", "") "," U("c") "," A("d", "") "]}",
           IM("user", "a") "\n<|im_start|>assistant\n[b<|im_end|>]\n" IM(
               "user", "c") "\n<|im_start|>assistant\n[d<|im_end|>]\n");
    counts("marked.jinja",
           "{\"messages\": [" U("a") "," A("b", "") "," U("c") "," A("d", "") "], \"asked\": 3}",
           IM("user", "a") "\n" IM("assistant", "b") "\n" IM(
               "user", "c") "\n<|im_start|>assistant\n[d<|im_end|>]\n");
    check_begin("chats in Jinja: what ends an answer that nothing ends");
    counts("open.jinja", "{\"messages\": [" U("a") "," A("b", "") "," U("c") "," A("d", "") "]}",
           "<|im_start|>user\na<|im_start|>assistant\n[b<|im_start|>]user\nc<|im_start|>assistant\n"
           "[d]");
    counts("open.jinja", "{\"messages\": [" A("b", "") "," U("c") "]}",
           "<|im_start|>assistant\n[b<|im_start|>]user\nc");
}

/* --- lines of data --- */

static CorpusJob encode(const Chat *chat, const char *line, uint32_t end, bool preferences) {
    CorpusJob job = {.path = "x.jsonl"};
    CorpusOptions options = {
        .chat = chat, .first = NO_TOKEN, .last = end, .preferences = preferences};
    Encoder *encoder = encoder_create(tokenizer);
    job.failed = !corpus_line_run(&job, encoder, &options, false, (const unsigned char *)line,
                                  strlen(line), 7);
    encoder_destroy(encoder);
    return job;
}

static const char *decoded(const CorpusJob *job, bool only_counted) {
    StrBuf text = strbuf_create();
    for (size_t i = 0; i < job->tokens.count; i++) {
        size_t length;
        const char *token = tokenizer_text(tokenizer, job->tokens.items[i], &length);
        if (only_counted && !(job->marks.items[i] & TOKEN_COUNTS)) continue;
        strbuf_put_bytes(&text, token, length);
    }
    const char *kept = arena_strdup(arena, text.text);
    strbuf_destroy(&text);
    return kept;
}

static int count_special(const CorpusJob *job) {
    int n = 0;
    for (size_t i = 0; i < job->tokens.count; i++) {
        n += tokenizer_is_special(tokenizer, job->tokens.items[i]);
    }
    return n;
}

static void test_lines(void) {
    Chat chat = ready_of("thoughts.jinja"), open = ready_of("open.jinja");
    uint32_t end = tokenizer_end_of_text(tokenizer);
    check_begin("chats in Jinja: special tokens that are said are text");
    CorpusJob job = encode(
        &chat, "{\"messages\": [" U("<|im_end|>") "," A("<|im_start|>x", "") "]}", end, false);
    CHECK(!job.failed && count_special(&job) == 5, "%d: %s", count_special(&job),
          decoded(&job, false));
    CHECK(strcmp(decoded(&job, true), "<think>\n\n</think>\n\n<|im_start|>x<|im_end|>") == 0, "%s",
          decoded(&job, true));
    CHECK(job.n_documents == 1 && job.n_bytes == 23, "%d documents, %d bytes", (int)job.n_documents,
          (int)job.n_bytes);
    corpus_job_release(&job);

    check_begin("chats in Jinja: several documents of a line, integers as they are");
    job = encode(
        &chat,
        "{\"messages\": [" U("a") "," A("b", "") "," U(
            "c") ", {\"role\": \"assistant\","
                 "\"tool_calls\": [{\"name\": \"f\", \"arguments\": {\"n\": 12345678901}}]}],"
                 "\"tools\": \"[]\"}",
        end, false);
    CHECK(!job.failed && job.n_documents == 2 && strstr(decoded(&job, true), ": 12345678901\n"),
          "%d: %s%s", (int)job.n_documents, decoded(&job, true),
          job.diag ? diag_text(job.diag) : "");
    corpus_job_release(&job);

    check_begin("chats in Jinja: an answer that nothing ends is ended by --eot");
    job = encode(&open, "{\"messages\": [" U("a") "," A("b", "") "]}", end, false);
    CHECK(!job.failed && strcmp(decoded(&job, true), "b<|endoftext|>") == 0, "%s",
          decoded(&job, true));
    corpus_job_release(&job);
}

static void refused(const Chat *chat, const char *line, uint32_t end, bool preferences,
                    const char *why) {
    CorpusJob job = encode(chat, line, end, preferences);
    CHECK(job.failed && strstr(diag_text(job.diag), why) &&
              strncmp(diag_text(job.diag), "x.jsonl:7: ", 11) == 0,
          "%s: %s", line, job.diag ? diag_text(job.diag) : "taken");
    corpus_job_release(&job);
}

static void test_refused(void) {
    Chat chat = ready_of("thoughts.jinja"), turns = ready_of("turns.jinja");
    Chat open = ready_of("open.jinja");
    uint32_t end = tokenizer_end_of_text(tokenizer);
    check_begin("chats in Jinja: what is refused");
    refused(&chat, "{\"messages\": [1]}", end, false, "messages[0]: no object with a 'role'");
    refused(&chat, "{\"messages\": [{\"content\": \"a\"}]}", end, false, "no object with a 'role'");
    refused(&chat, "{\"messages\": [{\"role\": \"judge\", \"content\": \"a\"}]}", end, false,
            "thoughts.jinja:67: the template refuses it: the role judge is not known");
    refused(&turns, "{\"messages\": [" U("a") "," U("b") "]}", end, false,
            "the template refuses it: user and assistant take turns");
    refused(&open, "{\"messages\": [{\"role\": \"user\"}]}", end, false, "'content' is undefined");
    refused(&chat, "{\"messages\": [" U("a") "], \"tools\": 1}", end, false,
            "'tools' is no list, nor JSON of one in a text");
    refused(&chat, "{\"messages\": [" U("a") "], \"tools\": \"[\"}", end, false, "'tools' is no");
    refused(&chat, "{\"messages\": [" U("a") "], \"chat_template_kwargs\": 1}", end, false,
            "'chat_template_kwargs' is no object");
    refused(&chat, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1}]}", end,
            false, "'weight' is 0 or 1, of an assistant's message");
    refused(&chat, "{\"messages\": [" A("a", ", \"weight\": 2") "]}", end, false, "'weight' is 0");
    refused(&open, "{\"messages\": [" U("a") "," A("b", "") "]}", NO_TOKEN, false,
            "an answer has no end: --eot TOKEN");
    refused(&chat,
            "{\"prompt\": [" U("a") "], \"chosen\": [" A("b", "") "," U("c") "," A(
                "d", "") "],"
                         "\"rejected\": [" A("e", "") "]}",
            end, true, "give only the last one as the answer");
    refused(&chat, "{\"messages\": [" U("99999999999999999999") ", 99999999999999999999]}", end,
            false, "integer");
    Chat bad;
    static const char *const SETS[][2] = {
        {"=1", "'=1' is no NAME=JSON"}, {"x", "'x' is no NAME=JSON"}, {"x={", "'x' is no JSON"}};
    for (int i = 0; i < 3; i++) {
        CHECK(!ready(TEMPLATES "thoughts.jinja", SETS[i], 1, &bad) &&
                  strstr(diag_text(diag), SETS[i][1]),
              "%s: %s", SETS[i][0], diag_text(diag));
    }
    CHECK(!ready(TEMPLATES "turns.jinja", NULL, 0, &bad) &&
              strstr(diag_text(diag), "needs bos_token, and no tokenizer_config.json"),
          "%s", diag_text(diag));
    ChatSettings settings = {.arena = arena, .set = TOKENS, .n_set = 2};
    CHECK(!chat_prepare(chat_template_find("chatml", arena, diag), tokenizer, NO_TOKEN, &settings,
                        &bad, diag) &&
              strstr(diag_text(diag), "chatml is a table, not a template in Jinja"),
          "%s", diag_text(diag));
}

/* --- where it is found --- */

static const char *put_file(const char *name, const char *text) {
    const char *path = arena_printf(arena, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0, "%s", path);
    if (file) fclose(file);
    return path;
}

static void says(const char *path, const char *object, const char *want) {
    Chat chat;
    ChatTexts texts = {0};
    json_t *line = parse(object);
    ChatTalk talk = {.messages = json_object_get(line, "messages"), .object = line, .n_asked = 9};
    bool good =
        ready(path, NULL, 0, &chat) && chat_jinja_render(&chat.jinja, &talk, &texts, NO_LOC, diag);
    CHECK(good && strcmp(texts.items[0].text, want) == 0, "%s: %s %s", path,
          good ? texts.items[0].text : "", diag_text(diag));
    chat_texts_release(&texts);
    json_decref(line);
}

static void test_found(void) {
    static const char ASK[] = "{\"messages\": [" U("a") "]}";
    static const char TOOLS[] = "{\"messages\": [" U("a") "], \"tools\": [{}]}";
    static const char NAMED[] =
        "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": null, \"chat_template\": ["
        "{\"name\": \"default\", \"template\": \"{{ bos_token }}{{ eos_token }}plain\"},"
        "{\"name\": \"tool_use\", \"template\": \"tools{{ tools | length }}\"},"
        "{\"name\": \"rag\", \"template\": \"{{\"}]}";
    check_begin("chats in Jinja: tokenizer_config.json, with names and tokens");
    CHECK(mkdtemp(folder), "%s", folder);
    const char *config = put_file("tokenizer_config.json", NAMED);
    says(config, ASK, "<b>plain");
    says(config, TOOLS, "tools1");
    check_begin("chats in Jinja: a tokenizer without a limit, which transformers writes as 10^30");
    put_file("tokenizer_config.json",
             "{\"model_max_length\": 1000000000000000019884624838656, \"bos_token\": \"<b>\","
             " \"chat_template\": \"{{ bos_token }}large\"}");
    says(folder, ASK, "<b>large");
    put_file("tokenizer_config.json", NAMED);
    says(folder, ASK, "<b>plain");
    check_begin("chats in Jinja: chat_template.jinja comes first");
    const char *own = put_file("chat_template.jinja", "{{ bos_token }}own{{ tools is none }}");
    says(folder, ASK, "<b>ownTrue");
    says(own, ASK, "<b>ownTrue");
    check_begin("chats in Jinja: what lies beside the tokenizer is taken");
    const char *path = arena_printf(arena, "%s/tokenizer.json", folder);
    json_t *root = json_parse_file("tests/data/tokenizers/qwen2.json", 1 << 24, diag);
    CHECK(root && json_dump_file(root, path, 0) == 0, "%s", path);
    json_decref(root);
    Tokenizer *beside = tokenizer_load(folder, NULL, diag);
    CHECK(beside, "%s", diag_text(diag));
    const ChatTemplate *how = beside ? chat_template_detect(beside, arena, diag) : NULL;
    CHECK(how && how->jinja && strcmp(how->name, own) == 0, "%s", diag_text(diag));
    unlink(own);
    put_file("tokenizer_config.json", "{\"bos_token\": \"<b>\"}");
    how = beside ? chat_template_detect(beside, arena, diag) : NULL;
    CHECK(how && !how->jinja && strcmp(how->name, "chatml") == 0, "%s", diag_text(diag));
    put_file("tokenizer_config.json", "{");
    CHECK(beside && !chat_template_detect(beside, arena, diag) &&
              strstr(diag_text(diag), "tokenizer_config.json:1: JSON"),
          "one that is no JSON: %s", diag_text(diag));
    tokenizer_destroy(beside);
    check_begin("chats in Jinja: files that are none");
    static const char *const WRONG[][2] = {
        {"{}", "has no 'chat_template', and no chat_template.jinja is beside it"},
        {"{\"chat_template\": 1}", "'chat_template' is neither a text nor a list"},
        {"{\"chat_template\": [1]}", "item 0 has no 'name' and 'template'"},
        {"{\"chat_template\": [{\"name\": \"x\", \"template\": \"\"}]}", "none has the name"},
        {"{\"chat_template\": \"{{\"}", "tokenizer_config.json:1: a tag has no end"},
        {"[", "tokenizer_config.json"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        put_file("tokenizer_config.json", WRONG[i][0]);
        CHECK(!chat_template_find(config, arena, diag) && strstr(diag_text(diag), WRONG[i][1]),
              "%s: %s", WRONG[i][0], diag_text(diag));
    }
    CHECK(!chat_template_find("/nowhere/x.jinja", arena, diag), "found");
    unlink(config);
    unlink(path);
    rmdir(folder);
}

/* --- what ends an answer --- */

static void test_end(void) {
    check_begin("chats in Jinja: what ends an answer");
    Chat chat = ready_of("thoughts.jinja");
    const char *stop;
    uint32_t token = chat_answer_end(&chat, arena, &stop);
    const AddedToken *end = added_tokens_by_text(&tokenizer->added, "<|im_end|>");
    CHECK(end && token == end->id && !stop, "%u", token);
    chat = ready_of("open.jinja");
    CHECK(chat_answer_end(&chat, arena, &stop) == NO_TOKEN && !stop, "%s", stop);
    chat = ready_of("turns.jinja");
    CHECK(chat_answer_end(&chat, arena, &stop) == NO_TOKEN && stop && strcmp(stop, "</s>") == 0,
          "%s", stop);
}

int main(void) {
    arena = arena_create();
    diag = diag_create();
    check_begin("chats in Jinja: a tokenizer");
    tokenizer = tokenizer_load("tests/data/tokenizers/qwen2.json", NULL, diag);
    CHECK(tokenizer, "%s", diag_text(diag));
    if (!tokenizer) return check_report();
    test_texts();
    test_answers();
    test_lines();
    test_refused();
    test_found();
    test_end();
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
