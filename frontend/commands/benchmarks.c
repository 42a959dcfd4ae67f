#include "frontend/commands/benchmarks.h"

#include "ir/base/memory.h"
#include "runtime/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 6, MOST_PROMPTS = 2, MOST_TEMPLATES = 5, MOST_STOPS = 4 };

typedef enum FieldKind {
    FIELD_TEXT,
    FIELD_TEXTS,  /* a list of them */
    FIELD_LISTS,  /* {"text": [...], "label": [...]}, of the same length */
    FIELD_ANSWER, /* a text, a number or true and false */
} FieldKind;

typedef struct Field {
    const char *name;
    FieldKind kind;
    size_t count; /* of texts; 0: two or more */
} Field;

struct Benchmark {
    const char *name;
    Field fields[MOST_FIELDS]; /* that rows have, those of tests and examples alike */
    const char *trouble;       /* what is wrong with a row whose fields are right, or nothing */
    const char *told_by;       /* another one, by which they are recognised; NULL: none */
    const char *intro;         /* a line before everything; NULL: none */
    const char *prompts[MOST_PROMPTS];    /* two: each is a choice's */
    const char *choices[MOST_TEMPLATES];  /* or else */
    const char *list, *label_list, *each; /* where texts are, and labels; what `choice` becomes */
    const char *answer;    /* a label, a number from 0, or a choice's text: the first that fits */
    const char *group;     /* the field that tells subjects apart; NULL: none */
    const char *delimiter; /* between prompt and choice; NULL: a space */
    void (*tidy)(const char *text, size_t length, StrBuf *out); /* of prompts and choices */
    bool takes_first, is_greedy, is_normed;
    const AnswerFilter *filters;   /* of an answer that is written; NULL: it is chosen */
    const char *stops[MOST_STOPS]; /* likewise, texts that end it; the last one is NULL */
    bool in_box;                   /* likewise, the right one is in the \boxed{} of its text */
};

static const AnswerFilter OF_GSM8K[] = {ANSWER_HASHES, ANSWER_NUMBER, N_ANSWER_FILTERS};
static const AnswerFilter OF_MATH[] = {ANSWER_BOXED, ANSWER_DOLLARS, N_ANSWER_FILTERS};

static void tidy_hellaswag(const char *text, size_t length, StrBuf *out);

/* lm_eval/tasks/NAME/, version 0.4.13; in the order in which rows are looked at. Where a row has
 * two spaces before a choice (copa), so has the harness: its delimiter, and the choice's own. */
static const Benchmark BENCHMARKS[] = {
    /* HellaSwag (Zellers et al. 2019) */
    {.name = "hellaswag",
     .fields = {{"ctx_a", FIELD_TEXT, 0},
                {"ctx_b", FIELD_TEXT, 0},
                {"activity_label", FIELD_TEXT, 0},
                {"endings", FIELD_TEXTS, 0},
                {"label", FIELD_ANSWER, 0}},
     .prompts = {"{{(activity_label + ': ' + ctx_a + ' ' + ctx_b.capitalize()).strip()}}"},
     .list = "endings",
     .each = "{{choice.strip()}}",
     .answer = "{{label}}",
     .tidy = tidy_hellaswag,
     .is_normed = true},
    /* CommonsenseQA (Talmor et al. 2019) */
    {.name = "commonsense_qa",
     .fields = {{"question", FIELD_TEXT, 0},
                {"choices", FIELD_LISTS, 5},
                {"answerKey", FIELD_ANSWER, 0}},
     .told_by = "question_concept",
     .prompts = {"Question: {{question.strip()}}\nA. {{choices['text'][0]}}\n"
                 "B. {{choices['text'][1]}}\nC. {{choices['text'][2]}}\n"
                 "D. {{choices['text'][3]}}\nE. {{choices['text'][4]}}\nAnswer:"},
     .choices = {"A", "B", "C", "D", "E"},
     .answer = "{{answerKey}}"},
    /* ARC, easy and challenge (Clark et al. 2018) */
    {.name = "arc",
     .fields = {{"question", FIELD_TEXT, 0},
                {"choices", FIELD_LISTS, 0},
                {"answerKey", FIELD_ANSWER, 0}},
     .prompts = {"Question: {{question}}\nAnswer:"},
     .list = "text",
     .label_list = "label",
     .answer = "{{answerKey}}",
     .is_normed = true},
    /* OpenBookQA (Mihaylov et al. 2018) */
    {.name = "openbookqa",
     .fields = {{"question_stem", FIELD_TEXT, 0},
                {"choices", FIELD_LISTS, 0},
                {"answerKey", FIELD_ANSWER, 0}},
     .prompts = {"{{question_stem}}"},
     .list = "text",
     .label_list = "label",
     .answer = "{{answerKey.lstrip()}}",
     .is_normed = true},
    /* MMLU (Hendrycks et al. 2021) */
    {.name = "mmlu",
     .fields = {{"question", FIELD_TEXT, 0},
                {"choices", FIELD_TEXTS, 4},
                {"answer", FIELD_ANSWER, 0}},
     .intro = "The following are multiple choice questions (with answers)"
              "{% if subject %} about {{subject.replace('_', ' ')}}{% endif %}.",
     .prompts = {"{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\n"
                 "C. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:"},
     .trouble = "{% if subject and subject is not string %}'subject' is no text{% endif %}",
     .choices = {"A", "B", "C", "D"},
     .answer = "{{answer}}",
     .group = "subject",
     .takes_first = true},
    /* PIQA (Bisk et al. 2020) */
    {.name = "piqa",
     .fields = {{"goal", FIELD_TEXT, 0},
                {"sol1", FIELD_TEXT, 0},
                {"sol2", FIELD_TEXT, 0},
                {"label", FIELD_ANSWER, 0}},
     .prompts = {"Question: {{goal}}\nAnswer:"},
     .choices = {"{{sol1}}", "{{sol2}}"},
     .answer = "{{label}}",
     .is_normed = true},
    /* WinoGrande (Sakaguchi et al. 2020); scored is what follows either option (Trinh & Le 2018) */
    {.name = "winogrande",
     .fields = {{"sentence", FIELD_TEXT, 0},
                {"option1", FIELD_TEXT, 0},
                {"option2", FIELD_TEXT, 0},
                {"answer", FIELD_ANSWER, 0}},
     .prompts = {"{{sentence.split('_', 1)[0] + option1}}",
                 "{{sentence.split('_', 1)[0] + option2}}"},
     .trouble = "{% if '_' not in sentence %}'sentence' has no gap, _{% endif %}",
     .choices = {"{{sentence.split('_', 1)[1].strip()}}"},
     .answer = "{{answer|int - 1}}"},
    /* BoolQ (Clark et al. 2019), as super_glue has it and as boolq has it */
    {.name = "boolq",
     .fields = {{"passage", FIELD_TEXT, 0},
                {"question", FIELD_TEXT, 0},
                {"label", FIELD_ANSWER, 0}},
     .prompts = {"{{passage}}\nQuestion: {{question}}?\nAnswer:"},
     .choices = {"no", "yes"},
     .answer = "{{label}}"},
    {.name = "boolq",
     .fields = {{"passage", FIELD_TEXT, 0},
                {"question", FIELD_TEXT, 0},
                {"answer", FIELD_ANSWER, 0}},
     .prompts = {"{{passage}}\nQuestion: {{question}}?\nAnswer:"},
     .choices = {"no", "yes"},
     .answer = "{{answer|int}}"},
    /* SciQ (Welbl et al. 2017) */
    {.name = "sciq",
     .fields = {{"question", FIELD_TEXT, 0},
                {"support", FIELD_TEXT, 0},
                {"distractor1", FIELD_TEXT, 0},
                {"distractor2", FIELD_TEXT, 0},
                {"distractor3", FIELD_TEXT, 0},
                {"correct_answer", FIELD_TEXT, 0}},
     .prompts = {"{{support.lstrip()}}\nQuestion: {{question}}\nAnswer:"},
     .choices = {"{{distractor1}}", "{{distractor2}}", "{{distractor3}}", "{{correct_answer}}"},
     .answer = "3",
     .is_normed = true},
    /* COPA (Roemmele et al. 2011) */
    {.name = "copa",
     .fields = {{"premise", FIELD_TEXT, 0},
                {"question", FIELD_TEXT, 0},
                {"choice1", FIELD_TEXT, 0},
                {"choice2", FIELD_TEXT, 0},
                {"label", FIELD_ANSWER, 0}},
     .prompts = {"{{premise.strip()[:-1] + ' ' + "
                 "{'cause': 'because', 'effect': 'therefore'}[question]}}"},
     .trouble = "{% if question not in ['cause', 'effect'] %}"
                "'question' is neither cause nor effect{% endif %}",
     .choices = {"{{' ' + choice1[:1].lower() + choice1[1:]}}",
                 "{{' ' + choice2[:1].lower() + choice2[1:]}}"},
     .answer = "{{label}}"},
    /* LAMBADA (Paperno et al. 2016): the last word */
    {.name = "lambada",
     .fields = {{"text", FIELD_TEXT, 0}},
     .prompts = {"{{text.split(' ')[:-1]|join(' ')}}"},
     .choices = {"{{' ' + text.split(' ')[-1]}}"},
     .answer = "0",
     .delimiter = "",
     .is_greedy = true},
    /* MATH (Hendrycks et al. 2021) as hendrycks_math has it, whose answer is in the solution, and
     * rows that have it alone */
    {.name = "math",
     .fields = {{"problem", FIELD_TEXT, 0}, {"solution", FIELD_TEXT, 0}},
     .prompts = {"Problem: {{problem}}\nAnswer:"},
     .choices = {"{{solution}}"},
     .answer = "0",
     .filters = OF_MATH,
     .stops = {"Problem:"},
     .in_box = true},
    {.name = "math",
     .fields = {{"problem", FIELD_TEXT, 0}, {"answer", FIELD_ANSWER, 0}},
     .prompts = {"Problem: {{problem}}\nAnswer:"},
     .choices = {"{{answer}}"},
     .answer = "0",
     .filters = OF_MATH,
     .stops = {"Problem:"}},
    /* GSM8K (Cobbe et al. 2021) */
    {.name = "gsm8k",
     .fields = {{"question", FIELD_TEXT, 0}, {"answer", FIELD_ANSWER, 0}},
     .prompts = {"Question: {{question}}\nAnswer:"},
     .choices = {"{{answer}}"},
     .answer = "0",
     .filters = OF_GSM8K,
     .stops = {"Question:", "</s>", "<|im_end|>"}},
};
enum { N_BENCHMARKS = sizeof(BENCHMARKS) / sizeof(BENCHMARKS[0]) };

/* --- the table --- */

const char *benchmark_name(const Benchmark *benchmark) {
    return benchmark->name;
}

bool benchmark_is_greedy(const Benchmark *benchmark) {
    return benchmark->is_greedy;
}

bool benchmark_is_normed(const Benchmark *benchmark) {
    return benchmark->is_normed;
}

const AnswerFilter *benchmark_filters(const Benchmark *benchmark) {
    return benchmark->filters;
}

const char *const *benchmark_stops(const Benchmark *benchmark) {
    return benchmark->stops;
}

bool benchmark_takes_first(const Benchmark *benchmark) {
    return benchmark->takes_first;
}

const Benchmark *benchmark_by_name(const char *name) {
    for (int i = 0; i < N_BENCHMARKS; i++) {
        if (strcmp(BENCHMARKS[i].name, name) == 0) return &BENCHMARKS[i];
    }
    return NULL;
}

static void put_fields(StrBuf *out, const Benchmark *benchmark) {
    strbuf_put(out, " (");
    for (int i = 0; i < MOST_FIELDS && benchmark->fields[i].name; i++) {
        strbuf_printf(out, "%s%s", i ? ", " : "", benchmark->fields[i].name);
    }
    if (benchmark->told_by) strbuf_printf(out, ", %s", benchmark->told_by);
    strbuf_put(out, ")");
}

const char *benchmark_names(Arena *arena, bool fields) {
    StrBuf out = strbuf_create();
    strbuf_put(&out, fields ? BENCHMARK_OWN " (prompt, choices, answer)" : BENCHMARK_OWN);
    for (int i = 0; i < N_BENCHMARKS; i++) {
        const bool again = i > 0 && strcmp(BENCHMARKS[i].name, BENCHMARKS[i - 1].name) == 0;
        if (again && !fields) continue;
        strbuf_printf(&out, ", %s", BENCHMARKS[i].name);
        if (fields) put_fields(&out, &BENCHMARKS[i]);
    }
    const char *text = arena_strndup(arena, out.text, out.length);
    strbuf_destroy(&out);
    return text;
}

/* The first that a row lacks; NULL: none. */
static const char *find_lacking(const Benchmark *benchmark, const json_t *row) {
    for (int i = 0; i < MOST_FIELDS && benchmark->fields[i].name; i++) {
        if (!json_object_get(row, benchmark->fields[i].name)) return benchmark->fields[i].name;
    }
    return NULL;
}

static bool is_own(const json_t *row) {
    return json_object_get(row, "prompt") || json_object_get(row, "messages") ||
           (json_object_get(row, "ctx") && !json_object_get(row, "ctx_a"));
}

static void report_unknown(const json_t *row, SourceLoc loc, Diag *diag) {
    enum { MOST_TOLD = 12 };
    Arena *arena = arena_create();
    StrBuf has = strbuf_create();
    const char *name;
    json_t *value;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)row, name, value) {
        if (++n <= MOST_TOLD) strbuf_printf(&has, "%s%.40s", n > 1 ? ", " : "", name);
    }
    diag_error(diag, loc, "is no row of a benchmark known here: it has %s%s; known are %s",
               n ? has.text : "no fields", n > MOST_TOLD ? ", ..." : "",
               benchmark_names(arena, true));
    strbuf_destroy(&has);
    arena_destroy(arena);
}

bool benchmark_find(const json_t *row, const char *name, SourceLoc loc, const Benchmark **out,
                    Diag *diag) {
    *out = NULL;
    if (name ? strcmp(name, BENCHMARK_OWN) == 0 : is_own(row)) return true;
    for (int i = 0; i < N_BENCHMARKS; i++) {
        const Benchmark *benchmark = &BENCHMARKS[i];
        if (name && strcmp(benchmark->name, name) != 0) continue;
        *out = benchmark;
        const bool told = name || !benchmark->told_by || json_object_get(row, benchmark->told_by);
        if (told && !find_lacking(benchmark, row)) return true;
    }
    if (!name) {
        report_unknown(row, loc, diag);
    } else {
        diag_error(diag, loc, "%s: no object with a '%s'", name, find_lacking(*out, row));
    }
    return false;
}

/* --- what the harness' functions do --- */

/* Brackets are artifacts of WikiHow: " [title]" is a sentence's end, and what else is in them goes,
 * as by re.sub("\\[.*?\\]", ""). Two spaces in a row become one, of three two. */
static void tidy_hellaswag(const char *text, size_t length, StrBuf *out) {
    static const char TITLE[] = " [title]";
    const size_t n_title = sizeof(TITLE) - 1;
    StrBuf titled = strbuf_create(), plain = strbuf_create();
    for (size_t i = 0; i < length; i++) {
        const bool is_title = length - i >= n_title && memcmp(text + i, TITLE, n_title) == 0;
        strbuf_put_bytes(&titled, is_title ? ". " : text + i, is_title ? 2 : 1);
        if (is_title) i += n_title - 1;
    }
    for (size_t i = 0; i < titled.length; i++) {
        const char *from = titled.text + i;
        const size_t left = titled.length - i;
        const char *close = *from == '[' ? memchr(from, ']', left) : NULL;
        const bool in_line = close && !memchr(from, '\n', (size_t)(close - from));
        if (in_line) i += (size_t)(close - from);
        if (!in_line) strbuf_put_bytes(&plain, from, 1);
    }
    for (size_t i = 0; i < plain.length; i++) {
        strbuf_put_bytes(out, plain.text + i, 1);
        i += plain.text[i] == ' ' && i + 1 < plain.length && plain.text[i + 1] == ' ';
    }
    strbuf_destroy(&titled);
    strbuf_destroy(&plain);
}

/* --- templates --- */

struct BenchmarkReader {
    const Benchmark *benchmark;
    const JinjaTemplate *trouble, *intro, *each; /* or NULL */
    const JinjaTemplate *answer;
    const JinjaTemplate *prompts[MOST_PROMPTS], *choices[MOST_TEMPLATES];
    int n_prompts, n_templates;
};

static const JinjaTemplate *parse(Arena *arena, const Benchmark *benchmark, const char *source) {
    if (!source) return NULL;
    Diag *diag = diag_create();
    const JinjaTemplate *parsed = jinja_parse(arena, benchmark->name, source, strlen(source), diag);
    if (!parsed) BUG("%s", diag_text(diag));
    diag_destroy(diag);
    return parsed;
}

const BenchmarkReader *benchmark_open(Arena *arena, const Benchmark *benchmark) {
    BenchmarkReader *r = ARENA_NEW(arena, BenchmarkReader);
    *r = (BenchmarkReader){.benchmark = benchmark,
                           .trouble = parse(arena, benchmark, benchmark->trouble),
                           .intro = parse(arena, benchmark, benchmark->intro),
                           .each = parse(arena, benchmark, benchmark->each),
                           .answer = parse(arena, benchmark, benchmark->answer)};
    while (r->n_prompts < MOST_PROMPTS && benchmark->prompts[r->n_prompts]) {
        r->prompts[r->n_prompts] = parse(arena, benchmark, benchmark->prompts[r->n_prompts]);
        r->n_prompts++;
    }
    while (r->n_templates < MOST_TEMPLATES && benchmark->choices[r->n_templates]) {
        r->choices[r->n_templates] = parse(arena, benchmark, benchmark->choices[r->n_templates]);
        r->n_templates++;
    }
    return r;
}

/* A row of a reader's, being read. */
typedef struct Reading {
    const BenchmarkReader *reader;
    const json_t *row;
    SourceLoc loc;
    Diag *diag;
} Reading;

/* False: reported. *out is released by the caller. */
static bool render(const Reading *r, const JinjaTemplate *template, const json_t *choice,
                   JinjaText *out) {
    const char *name;
    json_t *value;
    Jinja *jinja = jinja_open(template, 0);
    json_object_foreach((json_t *)(uintptr_t)r->row, name, value) {
        jinja_set_json(jinja, name, value, false);
    }
    if (choice) jinja_set_json(jinja, "choice", choice, false);
    const bool good = jinja_render(jinja, out);
    if (!good) {
        diag_error(r->diag, r->loc, "%s: %s", r->reader->benchmark->name, jinja_error(jinja));
    }
    jinja_close(jinja);
    return good;
}

static json_t *text_of(const char *text, size_t length) {
    json_t *json = json_stringn(text, length);
    if (!json) BUG("out of memory, or text that is not UTF-8");
    return json;
}

static void append(json_t *list, json_t *text) {
    if (json_array_append_new(list, text) != 0) BUG("out of memory");
}

static bool add_rendered(const Reading *r, const JinjaTemplate *template, const json_t *choice,
                         json_t *list) {
    JinjaText text;
    bool good = render(r, template, choice, &text);
    if (good && r->reader->benchmark->tidy) {
        StrBuf tidy = strbuf_create();
        r->reader->benchmark->tidy(text.text, text.length, &tidy);
        append(list, text_of(tidy.text, tidy.length));
        strbuf_destroy(&tidy);
    } else if (good) {
        append(list, text_of(text.text, text.length));
    }
    jinja_text_release(&text);
    return good;
}

/* --- rows --- */

static bool are_texts(const json_t *list, size_t count) {
    const size_t n = json_array_size(list);
    if (count ? n != count : n < 2 || n > BENCHMARK_MOST_CHOICES) return false;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_string(json_array_get(list, i))) return false;
    }
    return true;
}

static bool is_kind(const Field *field, const json_t *value) {
    const json_t *texts = json_object_get(value, "text"), *labels = json_object_get(value, "label");
    switch (field->kind) {
    case FIELD_TEXT: return json_is_string(value);
    case FIELD_TEXTS: return are_texts(value, field->count);
    case FIELD_LISTS:
        return are_texts(texts, field->count) && are_texts(labels, json_array_size(texts));
    case FIELD_ANSWER:
        return json_is_string(value) || json_is_integer(value) || json_is_boolean(value);
    }
    return false;
}

/* False: reported. */
static bool check_fields(const Reading *r) {
    static const char *const KINDS[] = {"text", "list of texts",
                                        "object with lists of texts, 'text' and 'label',",
                                        "text, whole number or truth value"};
    const Benchmark *benchmark = r->reader->benchmark;
    const char *lacking = find_lacking(benchmark, r->row);
    if (lacking) {
        diag_error(r->diag, r->loc, "%s: no object with a '%s'", benchmark->name, lacking);
        return false;
    }
    for (int i = 0; i < MOST_FIELDS && benchmark->fields[i].name; i++) {
        const Field *field = &benchmark->fields[i];
        if (is_kind(field, json_object_get(r->row, field->name))) continue;
        const bool lists = field->kind == FIELD_TEXTS || field->kind == FIELD_LISTS;
        char count[40];
        if (field->count) {
            snprintf(count, sizeof(count), " of %zu", field->count);
        } else {
            snprintf(count, sizeof(count), " of 2 to %d", BENCHMARK_MOST_CHOICES);
        }
        diag_error(r->diag, r->loc, "%s: '%s' is no %s%s", benchmark->name, field->name,
                   KINDS[field->kind], lists ? count : "");
        return false;
    }
    return true;
}

/* False: reported. */
static bool check_row(const Reading *r) {
    JinjaText trouble;
    if (!check_fields(r)) return false;
    if (!r->reader->trouble) return true;
    bool good = render(r, r->reader->trouble, NULL, &trouble);
    if (good && trouble.length > 0) {
        diag_error(r->diag, r->loc, "%s: %s", r->reader->benchmark->name, trouble.text);
        good = false;
    }
    jinja_text_release(&trouble);
    return good;
}

/* The field with texts, or the list of it by that name. */
static const json_t *list_of(const Reading *r, const char *name) {
    const Benchmark *benchmark = r->reader->benchmark;
    for (int i = 0; i < MOST_FIELDS && benchmark->fields[i].name; i++) {
        const Field *field = &benchmark->fields[i];
        const json_t *value = json_object_get(r->row, field->name);
        if (field->kind == FIELD_LISTS) return json_object_get(value, name);
    }
    return json_object_get(r->row, name);
}

static int find_text(const json_t *list, const char *text) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return (int)i;
    }
    return -1;
}

/* False: reported. */
static bool read_answer(const Reading *r, BenchmarkItem *item) {
    const Benchmark *benchmark = r->reader->benchmark;
    JinjaText text;
    if (!render(r, r->reader->answer, NULL, &text)) {
        jinja_text_release(&text);
        return false;
    }
    const char *said = text.text;
    item->answer = -1;
    if (benchmark->label_list) {
        item->answer = find_text(list_of(r, benchmark->label_list), said);
    } else if (text.length > 0 && text.length < 4 && strspn(said, "0123456789") == text.length) {
        item->answer = atoi(said) < item->n_choices ? atoi(said) : -1;
    } else {
        item->answer = find_text(item->choices, said);
    }
    if (item->answer < 0) {
        diag_error(r->diag, r->loc,
                   "%s: the answer%s%.20s%s is none of the %d choices; answers of some benchmarks' "
                   "test split are not published, those of its validation split are",
                   benchmark->name, text.length ? " '" : "", said, text.length ? "'" : "",
                   item->n_choices);
    }
    jinja_text_release(&text);
    return item->answer >= 0;
}

static bool read_texts(const Reading *r, BenchmarkItem *item) {
    const BenchmarkReader *reader = r->reader;
    const json_t *list = reader->benchmark->list ? list_of(r, reader->benchmark->list) : NULL;
    for (int i = 0; i < reader->n_prompts; i++) {
        if (!add_rendered(r, reader->prompts[i], NULL, item->prompts)) return false;
    }
    for (int i = 0; i < reader->n_templates; i++) {
        if (!add_rendered(r, reader->choices[i], NULL, item->choices)) return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *choice = json_array_get(list, i);
        if (!reader->each) {
            append(item->choices, json_incref(choice));
        } else if (!add_rendered(r, reader->each, choice, item->choices)) {
            return false;
        }
    }
    const size_t n = json_array_size(item->choices);
    item->n_choices = (int)(n > 1 ? n : json_array_size(item->prompts));
    return true;
}

/* The text with the right answer becomes that. False: there is none; reported. */
static bool take_out_answer(const Reading *r, BenchmarkItem *item) {
    const json_t *whole = json_array_get(item->choices, 0);
    const AnswerText text = {json_string_value(whole), json_string_length(whole)};
    const AnswerText answer = answer_extract(ANSWER_BOXED, text);
    if (!answer.text) {
        diag_error(r->diag, r->loc, "%s: the solution has no answer in a \\boxed{}",
                   r->reader->benchmark->name);
        return false;
    }
    if (json_array_set_new(item->choices, 0, text_of(answer.text, answer.length)) != 0) {
        BUG("out of memory");
    }
    return true;
}

bool benchmark_read(const BenchmarkReader *reader, const json_t *row, SourceLoc loc,
                    BenchmarkItem *out, Diag *diag) {
    const Reading r = {.reader = reader, .row = row, .loc = loc, .diag = diag};
    const Benchmark *benchmark = reader->benchmark;
    *out = (BenchmarkItem){.prompts = json_array(),
                           .choices = json_array(),
                           .delimiter = benchmark->delimiter ? benchmark->delimiter : " ",
                           .parting = " ",
                           .intro = strbuf_create()};
    if (!check_row(&r) || !read_texts(&r, out) || !read_answer(&r, out)) return false;
    if (benchmark->in_box && !take_out_answer(&r, out)) return false;
    if (benchmark->group) out->group = json_string_value(json_object_get(row, benchmark->group));
    if (!reader->intro) return true;
    JinjaText intro;
    const bool good = render(&r, reader->intro, NULL, &intro);
    if (good) {
        strbuf_put_bytes(&out->intro, intro.text, intro.length);
        strbuf_put(&out->intro, "\n\n");
    }
    jinja_text_release(&intro);
    return good;
}

void benchmark_release(BenchmarkItem *item) {
    json_decref(item->prompts);
    json_decref(item->choices);
    strbuf_destroy(&item->intro);
    *item = (BenchmarkItem){0};
}

const json_t *benchmark_prompt(const BenchmarkItem *item, int choice) {
    return json_array_get(item->prompts, json_array_size(item->prompts) > 1 ? (size_t)choice : 0);
}

const json_t *benchmark_choice(const BenchmarkItem *item, int choice) {
    return json_array_get(item->choices, json_array_size(item->choices) > 1 ? (size_t)choice : 0);
}

/* The blank line is the harness' fewshot_delimiter. */
void benchmark_put_example(const BenchmarkItem *item, StrBuf *out) {
    const json_t *prompt = benchmark_prompt(item, item->answer);
    const json_t *choice = benchmark_choice(item, item->answer);
    strbuf_put_bytes(out, json_string_value(prompt), json_string_length(prompt));
    strbuf_put(out, item->parting);
    strbuf_put_bytes(out, json_string_value(choice), json_string_length(choice));
    strbuf_put(out, "\n\n");
}
