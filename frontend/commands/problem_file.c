#include "frontend/commands/problem_file.h"

#include "frontend/json_lines.h"

#include <string.h>

static const AnswerFilter OF_OWN[] = {ANSWER_WHOLE, ANSWER_NUMBER, ANSWER_BOXED, N_ANSWER_FILTERS};
static const char *const NO_STOPS[] = {NULL};

typedef struct Reading {
    ProblemFile *out;
    const ChoicesWay *way;
    bool chat;
    Arena *arena;
    Diag *diag;
    bool begun;
    const BenchmarkReader *reader; /* NULL: the file's own rows */
    BenchmarkShots shots;
    int capacity, room; /* of problems, and of the prompts' lines */
} Reading;

static json_t *borrow(const json_t *value) {
    return json_incref((json_t *)(uintptr_t)value);
}

/* A text in `arena` that is the value; text NULL: it is neither a text nor a number. */
static AnswerText text_of(Arena *arena, const json_t *value) {
    if (json_is_string(value)) {
        const size_t length = json_string_length(value);
        return (AnswerText){arena_strndup(arena, json_string_value(value), length), length};
    }
    if (!json_is_number(value)) return (AnswerText){0};
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (!text) BUG("out of memory");
    const size_t length = strlen(text);
    const AnswerText answer = {arena_strndup(arena, text, length), length};
    free(text);
    return answer;
}

/* --- rows of a file's own --- */

static const char *const IMAGES[] = {"image", "images"};

static const json_t *find_prompt(const Reading *r, const json_t *row, SourceLoc loc) {
    const json_t *prompt = json_object_get(row, "prompt");
    if (!prompt) prompt = json_object_get(row, "messages");
    const bool messages = json_is_array(prompt);
    if (messages && r->chat && r->way->n_shots > 0) {
        diag_error(r->diag, loc, "messages take no examples before them: without --shots");
        return NULL;
    }
    if (json_is_string(prompt) || (messages && r->chat)) return prompt;
    diag_error(r->diag, loc, "no object with a string 'prompt'%s",
               r->chat    ? " or a list 'messages'"
               : messages ? "; messages need --chat"
                          : "");
    return NULL;
}

/* As benchmark_read. */
static bool read_own(const Reading *r, const json_t *row, SourceLoc loc, BenchmarkItem *out) {
    *out = (BenchmarkItem){.delimiter = " ", .parting = " ", .intro = strbuf_create()};
    const json_t *prompt = find_prompt(r, row, loc);
    const json_t *judged = json_object_get(row, "reward_model");
    const json_t *answer = json_object_get(judged, "ground_truth");
    if (!answer) answer = json_object_get(row, "answer");
    const AnswerText text = text_of(r->arena, answer);
    if (!prompt) return false;
    for (int k = 0; k < 2 && r->way->n_shots > 0; k++) {
        const json_t *images = json_object_get(row, IMAGES[k]);
        if (!images || json_is_null(images)) continue;
        diag_error(r->diag, loc, "images take no examples before them: without --shots");
        return false;
    }
    if (!text.text) {
        diag_error(r->diag, loc,
                   "'answer' (or 'ground_truth' of 'reward_model') is neither a text nor a number");
        return false;
    }
    out->prompts = json_pack("[o]", borrow(prompt));
    out->choices = json_pack("[s%]", text.text, text.length);
    out->n_choices = 1;
    if (!out->prompts || !out->choices) BUG("out of memory");
    return true;
}

/* --- problems --- */

static bool read_item(const Reading *r, const json_t *row, SourceLoc loc, BenchmarkItem *out) {
    return r->reader ? benchmark_read(r->reader, row, loc, out, r->diag)
                     : read_own(r, row, loc, out);
}

static bool add_shot(void *user, json_t *row, SourceLoc loc, int n_lines) {
    Reading *r = user;
    BenchmarkItem item;
    (void)n_lines;
    bool good = read_item(r, row, loc, &item);
    if (good) benchmark_shots_add(&r->shots, &item);
    benchmark_release(&item);
    return good;
}

/* By the first row. */
static bool begin(Reading *r, const json_t *row, SourceLoc loc) {
    const ChoicesWay *way = r->way;
    ProblemFile *out = r->out;
    const Benchmark *benchmark;
    r->begun = true;
    if (!benchmark_find(row, way->task, loc, &benchmark, r->diag)) return false;
    if (benchmark && !benchmark_filters(benchmark)) {
        diag_error(r->diag, loc, "%s: its answers are chosen: give the file as --choices",
                   benchmark_name(benchmark));
        return false;
    }
    r->reader = benchmark ? benchmark_open(r->arena, benchmark) : NULL;
    out->task = benchmark ? benchmark_name(benchmark) : BENCHMARK_OWN;
    out->filters = benchmark ? benchmark_filters(benchmark) : OF_OWN;
    out->stops = benchmark ? benchmark_stops(benchmark) : NO_STOPS;
    while (out->filters[out->n_filters] != N_ANSWER_FILTERS) out->n_filters++;
    if (out->n_filters > PROBLEM_MOST_FILTERS) BUG("%d filters", out->n_filters);
    if (way->n_shots == 0) return true;
    r->shots = (BenchmarkShots){.path = way->shots_path ? way->shots_path : out->path,
                                .n_wanted = way->n_shots,
                                .seed = way->seed,
                                .arena = r->arena};
    return json_lines_each(r->shots.path, add_shot, r, r->diag);
}

/* The object that is asked: {"prompt"} with the images of rows of the file's own, or messages with
 * what a template may want besides. */
static json_t *make_line(const json_t *row, const json_t *prompt, const StrBuf *text, bool own) {
    const bool messages = json_is_array(prompt);
    json_t *line = messages ? json_copy((json_t *)(uintptr_t)row)
                            : json_pack("{s:s%}", "prompt", text->text, text->length);
    if (!line) BUG("out of memory, or text that is not UTF-8");
    for (int k = 0; !messages && own && k < 2; k++) {
        const json_t *images = json_object_get(row, IMAGES[k]);
        if (images && json_object_set_new(line, IMAGES[k], borrow(images)) != 0) {
            BUG("out of memory");
        }
    }
    if (!messages) return line;
    if (json_object_set_new(line, "messages", borrow(prompt)) != 0) BUG("out of memory");
    json_object_del(line, "prompt");
    return line;
}

static bool add_problem(Reading *r, const json_t *row, const BenchmarkItem *item, SourceLoc loc) {
    ProblemFile *out = r->out;
    const json_t *prompt = json_array_get(item->prompts, 0);
    const json_t *answer = benchmark_choice(item, 0);
    const int n = out->prompts.n_lines;
    StrBuf text = strbuf_create();
    strbuf_put_bytes(&text, item->intro.text, item->intro.length);
    bool good =
        r->way->n_shots == 0 || benchmark_shots_put(&r->shots, item, n, loc, &text, r->diag);
    if (good) {
        if (json_is_string(prompt)) {
            strbuf_put_bytes(&text, json_string_value(prompt), json_string_length(prompt));
        }
        const PromptLine line = {.object = make_line(row, prompt, &text, !r->reader), .loc = loc};
        const Problem problem = {.right = text_of(r->arena, answer)};
        int n_problems = n;
        generate_prompts_add(&out->prompts, &line);
        ARENA_PUSH(r->arena, out->problems, n_problems, r->capacity, problem);
    }
    strbuf_destroy(&text);
    return good;
}

static bool read_row(void *user, json_t *row, SourceLoc loc, int n_lines) {
    Reading *r = user;
    BenchmarkItem item;
    (void)n_lines;
    if (r->way->limit > 0 && r->out->prompts.n_lines == r->way->limit) return true;
    if (!r->begun && !begin(r, row, loc)) return false;
    bool good = read_item(r, row, loc, &item) && add_problem(r, row, &item, loc);
    benchmark_release(&item);
    return good;
}

bool problem_file_read(ProblemFile *out, const char *path, const ChoicesWay *way, bool chat,
                       int n_samples, Arena *arena, Diag *diag) {
    Reading r = {.out = out, .way = way, .chat = chat, .arena = arena, .diag = diag};
    *out = (ProblemFile){.path = path,
                         .prompts = {.path = path, .n_samples = n_samples},
                         .predictions = strbuf_create()};
    if (!json_lines_each(path, read_row, &r, diag)) return false;
    if (out->prompts.n_lines > 0) return true;
    diag_error(diag, (SourceLoc){path, 0}, "has no problem");
    return false;
}

void problem_file_release(ProblemFile *file) {
    generate_prompts_release(&file->prompts);
    strbuf_destroy(&file->predictions);
}
