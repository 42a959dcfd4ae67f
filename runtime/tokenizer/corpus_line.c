#include "runtime/tokenizer/corpus_line.h"

#include "ir/base/memory.h"
#include "ir/class_names.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus_images.h"
#include "runtime/tokenizer/corpus_labels.h"
#include "runtime/tokenizer/line_text.h"
#include "runtime/tokenizer/token_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Line {
    CorpusJob *job;
    Encoder *encoder;
    const CorpusOptions *options;
    bool counts; /* words are counted */
    ImageNumbers *images;
    const json_t *object;
    SourceLoc loc;
    char where[512];
    Diag *diag;
} Line;

static bool run_image_text(const Line *line, const json_t *text);

static bool run_text(const Line *line, const json_t *text, const char *field) {
    if (!json_is_string(text)) {
        diag_error(line->diag, line->loc, "no object with a string '%s' (--field names another)",
                   field);
        return false;
    }
    if (line->options->images) return run_image_text(line, text);
    return corpus_job_run_document(line->job, line->encoder, line->options, line->counts,
                                   (const unsigned char *)json_string_value(text),
                                   json_string_length(text), line->where);
}

static bool count_words(const Line *line, const char *text, size_t length) {
    EncoderOutput out = {.counts = &line->job->counts, .weight = 1};
    line->job->n_bytes += (int64_t)length;
    return encoder_encode(line->encoder, (const unsigned char *)text, length,
                          line->options->with_special, &out, line->where, line->diag);
}

static TokenRun begin_run(const Line *line) {
    TokenRun run = {.encoder = line->encoder,
                    .tokens = &line->job->tokens,
                    .marks = &line->job->marks,
                    .with_special = line->options->with_special,
                    .where = line->where,
                    .diag = line->diag};
    if (line->options->images) corpus_images_begin(line->options->images, &run);
    token_run_begin(&run);
    return run;
}

static bool end_run(const Line *line, TokenRun *run, bool good) {
    const CorpusImages *images = line->options->images;
    if (good && images) good = corpus_images_end(images, line->images, run, line->loc);
    return token_run_end(run, good);
}

static bool run_image_text(const Line *line, const json_t *text) {
    const CorpusOptions *options = line->options;
    const size_t length = json_string_length(text);
    if (!corpus_images_take(options->images, line->object, line->images, line->loc, line->diag)) {
        return false;
    }
    TokenRun run = begin_run(line);
    bool good = (options->first == NO_TOKEN || token_run_token(&run, options->first, false)) &&
                corpus_images_put_places(options->images, line->images, &run, text, NULL) &&
                token_run_text(&run, json_string_value(text), length, true) &&
                (options->last == NO_TOKEN || token_run_token(&run, options->last, true));
    line->job->n_documents++;
    line->job->n_special += (options->first != NO_TOKEN) + (options->last != NO_TOKEN);
    line->job->n_bytes += (int64_t)length;
    return end_run(line, &run, good);
}

/* --- prompt and completion --- */

static bool run_pair(const Line *line, const json_t *prompt, const json_t *completion) {
    const CorpusOptions *options = line->options;
    if (!json_is_string(prompt) || !json_is_string(completion)) {
        diag_error(line->diag, line->loc, "'%s' is no string",
                   json_is_string(prompt) ? "completion" : "prompt");
        return false;
    }
    size_t asked = json_string_length(prompt), answered = json_string_length(completion);
    line->job->n_documents++;
    if (line->counts) {
        return count_words(line, json_string_value(prompt), asked) &&
               count_words(line, json_string_value(completion), answered);
    }
    if (options->last == NO_TOKEN) {
        diag_error(line->diag, line->loc,
                   "a completion must end: --eot TOKEN (or auto) says with which token");
        return false;
    }
    if (options->images &&
        !corpus_images_take(options->images, line->object, line->images, line->loc, line->diag)) {
        return false;
    }
    TokenRun run = begin_run(line);
    bool good = (options->first == NO_TOKEN || token_run_token(&run, options->first, false)) &&
                corpus_images_put_places(options->images, line->images, &run, prompt, completion) &&
                token_run_text(&run, json_string_value(prompt), asked, false) &&
                token_run_text(&run, json_string_value(completion), answered, true) &&
                token_run_token(&run, options->last, true);
    line->job->n_special += (options->first != NO_TOKEN) + 1;
    line->job->n_bytes += (int64_t)(asked + answered);
    return end_run(line, &run, good);
}

/* --- conversations --- */

/* A text, or the texts of a list of parts; what has none, as calls of tools, has no words. */
static bool count_content(const Line *line, const json_t *content) {
    const json_t *part;
    size_t i;
    if (json_is_string(content)) {
        return count_words(line, json_string_value(content), json_string_length(content));
    }
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (json_is_string(text) && !count_content(line, text)) return false;
    }
    return true;
}

static bool count_said(const Line *line, const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        if (!content) content = json_object_get(message, "value");
        if (!json_is_object(message)) {
            diag_error(line->diag, line->loc, "messages[%zu]: no object", i);
            return false;
        }
        if (!count_content(line, content)) return false;
    }
    return true;
}

/* What is after the last answer is not the model's to say, but where nothing ends that. */
static bool put_end(TokenRun *run, uint32_t end, bool counts) {
    const TokenList *tokens = run->tokens;
    if (end == NO_TOKEN) return true;
    if (!token_run_close(run)) return false;
    bool is_there = tokens->count > run->first && tokens->items[tokens->count - 1] == end;
    return is_there || token_run_token(run, end, counts);
}

static bool counts_anything(const TokenMarks *marks, size_t from) {
    for (size_t i = from; i < marks->count; i++) {
        if (marks->items[i] & TOKEN_COUNTS) return true;
    }
    return false;
}

/* Why it cannot be encoded; NULL: it can. */
static const char *refuse_chat(const CorpusOptions *options) {
    if (!options->chat) return options->no_chat;
    if (options->with_special) return "--special: what is said in a chat is text";
    return options->first != NO_TOKEN ? "--bos: a chat begins as its template says" : NULL;
}

static bool run_one_text(const Line *line, const JinjaText *text) {
    const Chat *chat = line->options->chat;
    bool open = chat_text_is_open(&chat->jinja, text);
    if (open && line->options->last == NO_TOKEN) {
        diag_error(
            line->diag, line->loc,
            "with the chat template %s an answer has no end: --eot TOKEN (or auto) says with "
            "which token it ends",
            chat->how->name);
        return false;
    }
    TokenRun run = begin_run(line);
    bool good = chat_encode_text(chat, text, &run, &line->job->n_bytes) &&
                put_end(&run, line->options->last, open);
    return end_run(line, &run, good);
}

/* By a template in Jinja, which may make several texts of it. */
static bool run_rendered(const Line *line, const json_t *messages, size_t n_asked) {
    CorpusJob *job = line->job;
    const Chat *chat = line->options->chat;
    const ChatTalk talk = {.messages = messages,
                           .object = line->object,
                           .n_asked = n_asked,
                           .one = line->options->preferences};
    ChatTexts texts;
    bool good = chat_jinja_render(&chat->jinja, &talk, &texts, line->loc, line->diag);
    size_t first = job->marks.count;
    for (int i = 0; good && i < texts.count; i++) good = run_one_text(line, &texts.items[i]);
    job->n_documents += texts.count - (texts.count > 0);
    job->n_unanswered += !counts_anything(&job->marks, first);
    chat_texts_release(&texts);
    return good;
}

/* n_asked: messages of which nothing counts. */
static bool encode_chat(const Line *line, const json_t *messages, size_t n_asked) {
    CorpusJob *job = line->job;
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        diag_error(line->diag, line->loc, "a conversation is a list of messages, not empty");
        return false;
    }
    job->n_documents++;
    if (line->counts) return count_said(line, messages);
    const char *why = refuse_chat(line->options);
    if (why) {
        diag_error(line->diag, line->loc, "%s", why);
        return false;
    }
    if (chat_is_jinja(line->options->chat)) return run_rendered(line, messages, n_asked);
    TokenRun run = begin_run(line);
    int64_t n_bytes = 0;
    bool good = chat_encode(line->options->chat, messages, n_asked, &run, &n_bytes, line->loc,
                            line->diag) &&
                put_end(&run, line->options->last, false);
    good = end_run(line, &run, good);
    job->n_bytes += n_bytes;
    job->n_unanswered += !counts_anything(&job->marks, run.first);
    return good;
}

static bool run_chat(const Line *line, const json_t *messages, size_t n_asked) {
    const CorpusImages *images = line->options->images;
    if (!images) return encode_chat(line, messages, n_asked);
    json_t *kept = corpus_images_take_chat(images, line->object, messages, line->images, line->loc,
                                           line->diag);
    bool good = kept && encode_chat(line, kept, n_asked);
    json_decref(kept);
    return good;
}

/* A prompt and a completion that are messages, too. */
static bool run_chat_pair(const Line *line, const json_t *prompt, const json_t *completion) {
    json_t *all = json_array();
    if (!all || json_array_extend(all, (json_t *)prompt) != 0 ||
        json_array_extend(all, (json_t *)completion) != 0) {
        memory_exhausted(0);
    }
    bool good = run_chat(line, all, json_array_size(prompt));
    json_decref(all);
    return good;
}

/* --- two answers, one preferred --- */

static bool run_answer(const Line *line, const json_t *prompt, const json_t *answer,
                       const char *name) {
    size_t said = 0;
    bool jinja = line->options->chat && chat_is_jinja(line->options->chat);
    if (json_is_array(answer)) {
        size_t n = json_array_size(answer);
        if (jinja || line->counts) { /* which may be a call of a tool */
            said = n;
        } else if (n > 0 && !chat_content(answer, n - 1, &said, line->loc, line->diag)) {
            return false;
        }
    } else {
        said = json_string_length(answer);
    }
    if (said == 0) {
        diag_error(line->diag, line->loc, "'%s' is empty", name);
        return false;
    }
    return json_is_array(answer) ? run_chat_pair(line, prompt, answer)
                                 : run_pair(line, prompt, answer);
}

/* An answer that is desirable: its document's first token says so. */
static bool run_wanted(const Line *line, const json_t *prompt, const json_t *answer,
                       const char *name) {
    const size_t first = line->job->marks.count;
    if (!run_answer(line, prompt, answer, name)) return false;
    if (first < line->job->marks.count) line->job->marks.items[first] |= TOKEN_WANTED;
    return true;
}

static bool run_answers(const Line *line, const json_t *prompt, const json_t *chosen,
                        const json_t *rejected) {
    return run_wanted(line, prompt, chosen, "chosen") &&
           run_answer(line, prompt, rejected, "rejected");
}

static json_t *slice(const json_t *array, size_t first, size_t end) {
    json_t *part = json_array();
    for (size_t i = first; part && i < end; i++) {
        if (json_array_append(part, json_array_get(array, i)) != 0) memory_exhausted(0);
    }
    if (!part) memory_exhausted(0);
    return part;
}

/* Conversations that begin alike: that beginning is the prompt. A `prompt` beside them, as
 * UltraFeedback's files have it, has to be its last message. */
static bool run_conversations(const Line *line, const json_t *prompt, const json_t *chosen,
                              const json_t *rejected) {
    size_t n = 0, of_chosen = json_array_size(chosen), of_rejected = json_array_size(rejected);
    while (n < of_chosen && n < of_rejected &&
           json_equal(json_array_get(chosen, n), json_array_get(rejected, n))) {
        n++;
    }
    while (n > 0 && (n == of_chosen || n == of_rejected)) n--; /* twice the same answer */
    const json_t *last = json_object_get(json_array_get(chosen, n ? n - 1 : 0), "content");
    if (n == 0 || (prompt && !json_equal(last, prompt))) {
        diag_error(line->diag, line->loc,
                   n ? "'prompt' is not the last message that 'chosen' and 'rejected' share"
                     : "'chosen' and 'rejected' share no message that would be their prompt");
        return false;
    }
    json_t *asked = slice(chosen, 0, n), *first = slice(chosen, n, of_chosen),
           *second = slice(rejected, n, of_rejected);
    bool good = run_answers(line, asked, first, second);
    json_decref(asked);
    json_decref(first);
    json_decref(second);
    return good;
}

/* Texts that begin alike: that beginning, but for a space at its end and half a character, is the
 * prompt. */
static bool run_shared_text(const Line *line, const json_t *chosen, const json_t *rejected) {
    const char *a = json_string_value(chosen), *b = json_string_value(rejected);
    size_t of_a = json_string_length(chosen), of_b = json_string_length(rejected), n = 0;
    while (n < of_a && n < of_b && a[n] == b[n]) n++;
    while (n > 0 && n < of_a && ((unsigned char)a[n] & 0xc0) == 0x80) n--;
    if (n > 0 && a[n - 1] == ' ') n--;
    if (n == 0 || n == of_a || n == of_b) {
        diag_error(line->diag, line->loc,
                   n ? "'chosen' and 'rejected' are one the beginning of the other: give 'prompt'"
                     : "'chosen' and 'rejected' share no beginning that would be their prompt");
        return false;
    }
    json_t *asked = json_stringn(a, n), *first = json_stringn(a + n, of_a - n),
           *second = json_stringn(b + n, of_b - n);
    if (!asked || !first || !second) memory_exhausted(0);
    bool good = run_answers(line, asked, first, second);
    json_decref(asked);
    json_decref(first);
    json_decref(second);
    return good;
}

static bool run_preference(const Line *line) {
    const json_t *prompt = json_object_get(line->object, "prompt");
    const json_t *chosen = json_object_get(line->object, "chosen");
    const json_t *rejected = json_object_get(line->object, "rejected");
    bool texts = json_is_string(chosen) && json_is_string(rejected);
    bool chats = json_is_array(chosen) && json_is_array(rejected);
    if (json_is_null(prompt)) prompt = NULL;
    if (!texts && !chats) {
        diag_error(
            line->diag, line->loc,
            "no object with 'chosen' and 'rejected', both texts or both lists of messages, as "
            "pairs of answers have them beside 'prompt'");
        return false;
    }
    if (prompt && !json_is_string(prompt) && !(chats && json_is_array(prompt))) {
        diag_error(line->diag, line->loc,
                   "'prompt' is neither a text nor, with lists of messages "
                   "as answers, a list of messages");
        return false;
    }
    if (chats && json_is_array(prompt)) return run_answers(line, prompt, chosen, rejected);
    if (chats) return run_conversations(line, prompt, chosen, rejected);
    return prompt ? run_answers(line, prompt, chosen, rejected)
                  : run_shared_text(line, chosen, rejected);
}

/* --- answers by themselves, desirable or not --- */

/* -1: it is neither, reported. */
static int read_wanted(const Line *line) {
    const json_t *label = json_object_get(line->object, "label");
    if (json_is_boolean(label)) return json_is_true(label);
    double value = json_is_number(label) ? json_number_value(label) : -1;
    if (value == 0 || value == 1) return (int)value;
    diag_error(line->diag, line->loc,
               label ? "'label', whether the answer is desirable, is neither true nor false"
                     : "no object with 'label', true or false, beside 'prompt' and 'completion'; "
                       "nor one with 'chosen' and 'rejected'");
    return -1;
}

static bool run_labelled_answer(const Line *line, const json_t *prompt, const json_t *answer,
                                const char *name) {
    int wanted = read_wanted(line);
    if (wanted < 0) return false;
    return (wanted ? run_wanted : run_answer)(line, prompt, answer, name);
}

/* A conversation, whose last message is the answer. */
static bool run_labelled_chat(const Line *line, const json_t *messages) {
    const size_t n = json_array_size(messages);
    if (n < 2) {
        diag_error(line->diag, line->loc,
                   "a conversation with a label is a list of a prompt's messages and an answer");
        return false;
    }
    json_t *asked = slice(messages, 0, n - 1), *answer = slice(messages, n - 1, n);
    bool good = run_labelled_answer(line, asked, answer, "messages");
    json_decref(asked);
    json_decref(answer);
    return good;
}

static bool run_unpaired(const Line *line) {
    const json_t *messages = json_object_get(line->object, "messages");
    if (!messages) messages = json_object_get(line->object, "conversations");
    const json_t *prompt = json_object_get(line->object, "prompt");
    const bool named = json_object_get(line->object, "completion") != NULL;
    const char *name = named ? "completion" : "answer";
    const json_t *answer = json_object_get(line->object, name);
    if (json_object_get(line->object, "chosen")) return run_preference(line);
    if (json_is_array(messages) && !prompt) return run_labelled_chat(line, messages);
    bool texts = json_is_string(prompt) && json_is_string(answer);
    bool chats = json_is_array(prompt) && json_is_array(answer);
    if (texts || chats) return run_labelled_answer(line, prompt, answer, name);
    diag_error(line->diag, line->loc,
               "no object with 'prompt' and 'completion', both texts or both lists of messages, "
               "and 'label'; nor one with 'messages' and 'label', or a pair of answers");
    return false;
}

/* --- texts of classes --- */

const char *const CORPUS_CLASS_KEYS[] = {"text",      "text_pair", "sentence",   "sentence1",
                                         "sentence2", "premise",   "hypothesis", "question",
                                         "question1", "question2", NULL};

/* Of what is told of: a text, or two of which it is told how they belong together. */
static const char *const TEXT_KEYS[][2] = {
    {"text", "text_pair"},      {"sentence1", "sentence2"}, {"premise", "hypothesis"},
    {"question1", "question2"}, {"question", "sentence"},   {"sentence", NULL},
};

/* False: there is no text; reported. *out_pair NULL: there is one. */
static bool find_texts(const Line *line, const json_t **out_text, const json_t **out_pair) {
    const char *field = line->options->field;
    *out_pair = NULL;
    *out_text = field ? json_object_get(line->object, field) : NULL;
    for (size_t i = 0; !field && !*out_text && i < sizeof(TEXT_KEYS) / sizeof(TEXT_KEYS[0]); i++) {
        const char *second = TEXT_KEYS[i][1];
        *out_text = json_object_get(line->object, TEXT_KEYS[i][0]);
        *out_pair = *out_text && second ? json_object_get(line->object, second) : NULL;
        /* `question` and `sentence` alone are other things than a pair of them. */
        if (*out_text && second && i > 0 && !*out_pair) *out_text = NULL;
    }
    if (json_is_null(*out_pair)) *out_pair = NULL;
    if (json_is_string(*out_text) && (!*out_pair || json_is_string(*out_pair))) return true;
    diag_error(line->diag, line->loc, "no object with a string '%s'%s", field ? field : "text",
               field ? ""
                     : " (or 'sentence'), perhaps with 'text_pair', or 'sentence1' with "
                       "'sentence2', 'premise' with 'hypothesis'; --field names another");
    return false;
}

/* A token before, between or behind texts. */
static bool put_around(TokenRun *run, uint32_t token) {
    if (token == NO_TOKEN) return true;
    if (!token_run_token(run, token, false)) return false;
    token_run_mark_last(run, TOKEN_AROUND);
    return true;
}

static bool put_texts(const Line *line, TokenRun *run, const json_t *text, const json_t *pair) {
    const CorpusOptions *options = line->options;
    if (!put_around(run, options->first) ||
        !token_run_text(run, json_string_value(text), json_string_length(text), false) ||
        !token_run_begin_text(run)) {
        return false;
    }
    size_t second = run->tokens->count;
    for (int i = 0; pair && i < options->between; i++) {
        if (!put_around(run, options->last)) return false;
    }
    if (pair && !(token_run_begin_text(run) &&
                  token_run_text(run, json_string_value(pair), json_string_length(pair), false))) {
        return false;
    }
    if (!token_run_begin_text(run) || !put_around(run, options->last)) return false;
    if (pair && second < run->tokens->count) run->marks->items[second] |= TOKEN_SECOND;
    return true;
}

/* A class, or sets or numbers. */
static bool read_labels(const Line *line, uint32_t words[1 + CLASS_MOST], int *out_n) {
    const CorpusOptions *options = line->options;
    *out_n = 1;
    if (options->labels == CLASS_ONE) {
        const int class = corpus_read_class(line->object, options, line->loc, line->diag);
        words[0] = (uint32_t) class;
        return class >= 0;
    }
    *out_n = class_label_words(options->labels, options->n_classes);
    return corpus_read_labels(line->object, options, words, line->loc, line->diag);
}

static bool run_labelled(const Line *line) {
    const json_t *text, *pair;
    if (!find_texts(line, &text, &pair)) return false;
    uint32_t words[1 + CLASS_MOST];
    int n_words;
    if (!read_labels(line, words, &n_words)) return false;
    TokenRun run = begin_run(line);
    size_t begin = run.tokens->count;
    bool good = put_texts(line, &run, text, pair);
    if (good && run.tokens->count == begin) {
        good = corpus_job_may_be_empty(line->job, line->options, line->where);
    }
    for (int i = 0; good && i < n_words; i++) good = token_run_number(&run, words[i], true);
    line->job->n_documents++;
    for (size_t i = begin; i < run.tokens->count; i++) {
        line->job->n_special += (run.marks->items[i] & (TOKEN_AROUND | TOKEN_COUNTS)) != 0;
    }
    line->job->n_bytes +=
        (int64_t)(json_string_length(text) + (pair ? json_string_length(pair) : 0));
    return token_run_end(&run, good);
}

/* --- texts that belong together --- */

const char *const CORPUS_TEXTS_KEYS[] = {"query",     "anchor",    "positive",  "pos",   "negative",
                                         "negatives", "neg",       "sentence1", "score", "label",
                                         "text",      "sentence2", "sentence",  NULL};

static bool put_text(const Line *line, const json_t *text, const char *prefix, uint32_t role) {
    const CorpusOptions *options = line->options;
    if (!json_is_string(text)) {
        diag_error(line->diag, line->loc, "%s is no text",
                   role == 0              ? "the query"
                   : role == 1            ? "what answers the query"
                   : role < CORPUS_TEXT   ? "a negative"
                   : role == CORPUS_TEXT  ? "what is to have a vector"
                   : role == CORPUS_FIRST ? "'sentence1'"
                                          : "'sentence2'");
        return false;
    }
    TokenRun run = begin_run(line);
    const size_t begin = run.tokens->count, length = json_string_length(text);
    bool good = put_around(&run, options->first) &&
                (!prefix || token_run_text(&run, prefix, strlen(prefix), false)) &&
                token_run_text(&run, json_string_value(text), length, false) &&
                token_run_begin_text(&run) && put_around(&run, options->last);
    if (good && run.tokens->count == begin) {
        diag_error(line->diag, line->loc, "a text without a token: it has no vector");
        good = false;
    }
    for (size_t i = begin; good && i < run.tokens->count; i++) {
        line->job->n_special += (run.marks->items[i] & TOKEN_AROUND) != 0;
    }
    good = good && token_run_number(&run, role, true);
    line->job->n_documents++;
    line->job->n_special++;
    line->job->n_bytes += (int64_t)length;
    return token_run_end(&run, good);
}

/* Texts that are no answers: one, or a list, or one by one with numbers in their names. */
static json_t *list_negatives(const Line *line) {
    static const char *const KEYS[] = {"negative", "negatives", "neg"};
    json_t *all = json_array(), *value;
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        value = json_object_get(line->object, KEYS[i]);
        if (json_is_array(value)) {
            json_array_extend(all, value);
        } else if (value && !json_is_null(value)) {
            json_array_append(all, value);
        }
    }
    for (int i = 1; i <= CORPUS_MOST_TEXTS; i++) {
        char key[24];
        snprintf(key, sizeof(key), "negative_%d", i);
        value = json_object_get(line->object, key);
        if (value && !json_is_null(value)) json_array_append(all, value);
    }
    return all;
}

static bool put_group(const Line *line, const json_t *query, const json_t *answer,
                      const json_t *negatives) {
    const CorpusOptions *options = line->options;
    const json_t *negative;
    size_t i;
    if (!put_text(line, query, options->query_prefix, 0) ||
        !put_text(line, answer, options->passage_prefix, 1)) {
        return false;
    }
    json_array_foreach(negatives, i, negative) {
        if (!put_text(line, negative, options->passage_prefix, (uint32_t)i + 2)) return false;
    }
    return true;
}

/* Several answers to a query are as many groups, each with all that are none. */
static bool run_group(const Line *line, const json_t *query, const json_t *answer) {
    const int texts = line->options->texts;
    json_t *negatives = list_negatives(line);
    const size_t n = json_array_size(negatives), most = CORPUS_MOST_TEXTS - 2;
    bool good = texts == CORPUS_ANY_TEXTS ? n <= most : n == (size_t)texts - 2;
    if (!good && (texts == CORPUS_ANY_TEXTS || n > most)) {
        diag_error(line->diag, line->loc, "%zu negatives; at most %zu", n, most);
    } else if (!good) {
        diag_error(line->diag, line->loc,
                   "%zu negative%s, and the plan's groups have %d: plan with --set "
                   "embed_negatives=%zu",
                   n, n == 1 ? "" : "s", texts - 2, n);
    }
    if (good && json_array_size(answer) == 0 && json_is_array(answer)) {
        diag_error(line->diag, line->loc, "no text answers the query: the list is empty");
        good = false;
    }
    if (good && !json_is_array(answer)) good = put_group(line, query, answer, negatives);
    for (size_t i = 0; good && i < json_array_size(answer); i++) {
        good = put_group(line, query, json_array_get(answer, i), negatives);
    }
    json_decref(negatives);
    return good;
}

/* Two texts and how alike they are. */
static bool run_likeness(const Line *line, const json_t *first, const json_t *second,
                         const json_t *score) {
    float likeness = (float)json_number_value(score);
    uint32_t bits;
    memcpy(&bits, &likeness, sizeof(bits));
    if (!isfinite(likeness)) {
        diag_error(line->diag, line->loc, "the score is too large");
        return false;
    }
    if (!put_text(line, first, NULL, CORPUS_FIRST)) return false;
    TokenRun run = begin_run(line);
    bool good = token_run_number(&run, bits, true) && token_run_number(&run, CORPUS_LIKENESS, true);
    return token_run_end(&run, good) && put_text(line, second, NULL, CORPUS_SECOND);
}

static bool run_texts(const Line *line) {
    const json_t *object = line->object, *query = json_object_get(object, "query");
    const json_t *answer = json_object_get(object, "positive"), *text;
    const json_t *first = json_object_get(object, "sentence1");
    const json_t *second = json_object_get(object, "sentence2");
    const json_t *score = json_object_get(object, "score");
    const bool any = line->options->texts == CORPUS_ANY_TEXTS;
    if (!query) query = json_object_get(object, "anchor");
    if (!answer) answer = json_object_get(object, "pos");
    if (query && answer) return run_group(line, query, answer);
    if (!score) score = json_object_get(object, "label");
    if (json_is_null(score)) score = NULL;
    if (first && second && !score) return run_group(line, first, second);
    if (any && first && second && json_is_number(score)) {
        return run_likeness(line, first, second, score);
    }
    text = json_object_get(object, line->options->field ? line->options->field : "text");
    if (!text && !line->options->field) text = json_object_get(object, "sentence");
    if (any && text) return put_text(line, text, line->options->passage_prefix, CORPUS_TEXT);
    diag_error(line->diag, line->loc,
               any ? "no object with 'query' and 'positive', 'sentence1' and 'sentence2' "
                     "with a number 'score', or 'text'"
               : first && second ? "'sentence1' and 'sentence2' with a score: texts to learn from "
                                   "belong together, and have none"
                                 : "no object with 'query' (or 'anchor') and 'positive', or with "
                                   "'sentence1' and 'sentence2'");
    return false;
}

/* --- which of them it is --- */

static bool run_field(const Line *line, const char *field) {
    const json_t *value = json_object_get(line->object, field);
    return json_is_array(value) ? run_chat(line, value, 0) : run_text(line, value, field);
}

static bool run_object(const Line *line) {
    const json_t *text = json_object_get(line->object, "text");
    const json_t *messages = json_object_get(line->object, "messages");
    if (!messages) messages = json_object_get(line->object, "conversations");
    bool is_pair =
        json_object_get(line->object, "prompt") && json_object_get(line->object, "completion");
    bool answers = json_object_get(line->object, "chosen") != NULL; /* words are words */
    if (line->options->unpaired) return run_unpaired(line);
    if (line->options->preferences || (line->counts && answers && !line->options->field)) {
        return run_preference(line);
    }
    if (line->options->classes && !line->counts) return run_labelled(line);
    if (line->options->texts && !line->counts) return run_texts(line);
    if (line->options->field) return run_field(line, line->options->field);
    int n_kinds = (text != NULL) + (messages != NULL) + is_pair;
    if (n_kinds != 1) {
        diag_error(line->diag, line->loc,
                   n_kinds ? "more than one of 'text', 'messages', and 'prompt' with 'completion': "
                             "--field says which"
                           : "no object with 'text', 'messages', or 'prompt' and 'completion' "
                             "(--field names another)");
        return false;
    }
    if (text) return run_text(line, text, "text");
    if (messages) return run_chat(line, messages, 0);
    const json_t *prompt = json_object_get(line->object, "prompt");
    const json_t *completion = json_object_get(line->object, "completion");
    bool are_chats = json_is_array(prompt) && json_is_array(completion);
    return are_chats ? run_chat_pair(line, prompt, completion) : run_pair(line, prompt, completion);
}

static bool is_blank(const unsigned char *line, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!strchr(" \t\r", line[i]) || line[i] == '\0') return false;
    }
    return true;
}

bool corpus_object_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts,
                       const json_t *object, int64_t number) {
    Line line = {.job = job,
                 .encoder = encoder,
                 .options = options,
                 .counts = counts,
                 .object = object,
                 .loc = {job->path, (int)number},
                 .diag = corpus_job_diag(job)};
    ImageNumbers images = {0};
    line.images = &images;
    snprintf(line.where, sizeof(line.where), "%s:%" PRId64, job->path, number);
    bool good = run_object(&line);
    free(images.items);
    return good;
}

/* A text and nothing else. False: the line is to be taken apart. */
static bool find_text(CorpusJob *job, const CorpusOptions *options, const unsigned char *line,
                      size_t length, const unsigned char **out_text, size_t *out_length) {
    static const char *const OTHERS[] = {"messages", "conversations", "completion", "chosen"};
    const char *field = options->field ? options->field : "text";
    size_t n_others = options->field ? 0 : sizeof(OTHERS) / sizeof(OTHERS[0]);
    if (options->preferences || options->unpaired || options->classes || options->texts ||
        options->images) {
        return false;
    }
    return line_text_find(line, length, field, OTHERS, n_others, &job->room, out_text, out_length);
}

/* Templates in Jinja write numbers as they are; others look at none that has many digits. */
static json_t *parse_line(const unsigned char *text, size_t length, const CorpusOptions *options,
                          json_error_t *out_error) {
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    bool exact = options->chat && chat_is_jinja(options->chat);
    if (!exact) flags |= JSON_DECODE_INT_AS_REAL;
    return json_loadb((const char *)text, length, flags, out_error);
}

bool corpus_line_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts,
                     const unsigned char *text, size_t length, int64_t number) {
    json_error_t error;
    const unsigned char *found;
    size_t n_found;
    if (is_blank(text, length)) return true;
    if (find_text(job, options, text, length, &found, &n_found)) {
        char where[512];
        snprintf(where, sizeof(where), "%s:%" PRId64, job->path, number);
        return corpus_job_run_document(job, encoder, options, counts, found, n_found, where);
    }
    json_t *object = parse_line(text, length, options, &error);
    if (!object) {
        /* An object of an array may have several lines. */
        SourceLoc loc = {job->path, (int)number + error.line - 1};
        diag_error(corpus_job_diag(job), loc, "JSON: %s (column %d)", error.text, error.column);
        return false;
    }
    bool good = corpus_object_run(job, encoder, options, counts, object, number);
    json_decref(object);
    return good;
}
