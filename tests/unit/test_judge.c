/* Judges of answers: what scripts and programs are shown, the rewards they give, and every way in
 * which they can fail, by its exact text.
 *
 * Would catch: a field that is lost or shown as another type, limits that add up over answers,
 * garbage that piles up, rewards in another order, pipes that block each other, a program that
 * outlives its judge or is not waited for, one that holds another's pipe, a hanging call. Of
 * answers in texts: any that lm-evaluation-harness takes out or compares otherwise
 * (make_problems.py).
 */
#define _GNU_SOURCE /* pipe2 */
#include "frontend/json_lines.h"
#include "frontend/judge/answer_match.h"
#include "frontend/judge/judge.h"
#include "ir/base/memory.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Patient where a program answers: machines may be busy. Short where it never does. */
static const double PATIENT_S = 60, SHORT_S = 0.2;

static const char RECORD[] =
    "{\"prompt\": \"2+3=\", \"sum\": 5, \"half\": 2.5, \"sample\": 7, \"text\": \"theirs\","
    " \"list\": [1, 2.0, null, [true, false]], \"deep\": {\"key\": {\"n\": -9007199254740993}},"
    " \"none\": null, \"name\": \"\\u00e9\\u0416\"}";

static json_t *record;

static JudgedAnswer answer_of(const char *text) {
    return (JudgedAnswer){
        .record = record, .text = text, .length = strlen(text), .n_tokens = 3, .ended = true};
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s cannot be written", path);
}

/* --- answers in texts --- */

static AnswerText text_of(const json_t *text) {
    return (AnswerText){json_string_value(text), json_string_length(text)};
}

/* What the reference's lines say: pairs that are the same, and texts of which no others are. */
typedef struct Extracted {
    json_t *same; /* {"number": {"A\nB": true}, "math": ...} */
    int n_texts, n_pairs;
} Extracted;

static void check_extracted(const json_t *line, SourceLoc loc) {
    const json_t *wanted = json_object_get(line, "extracted");
    const AnswerText text = text_of(json_object_get(line, "text"));
    for (int f = ANSWER_HASHES; f < N_ANSWER_FILTERS; f++) {
        const char *name = answer_filter_name((AnswerFilter)f);
        const AnswerText want = text_of(json_object_get(wanted, name));
        const AnswerText got = answer_extract((AnswerFilter)f, text);
        CHECK(!got.text == !want.text && got.length == want.length &&
                  (!got.text || memcmp(got.text, want.text, got.length) == 0),
              "line %d, %s: '%.*s' and '%.*s'", loc.line, name, (int)got.length,
              got.text ? got.text : "", (int)want.length, want.text ? want.text : "");
    }
}

static const char *pair_key(const json_t *a, const json_t *b) {
    static char key[256];
    snprintf(key, sizeof(key), "%s\x1f%s", json_string_value(a), json_string_value(b));
    return key;
}

static void check_pairs(Extracted *e, const json_t *texts, const char *kind, AnswerFilter filter) {
    const size_t n = json_array_size(texts);
    const json_t *same = json_object_get(e->same, kind);
    CHECK(n > 20, "%s: %zu texts", kind, n);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i; k < n; k++, e->n_pairs++) {
            const json_t *a = json_array_get(texts, i), *b = json_array_get(texts, k);
            const bool want = json_object_get(same, pair_key(a, b));
            CHECK(answer_is_right(filter, text_of(a), text_of(b)) == want &&
                      answer_is_right(filter, text_of(b), text_of(a)) == want,
                  "%s: '%s' and '%s' are %sthe same", kind, json_string_value(a),
                  json_string_value(b), want ? "" : "not ");
        }
    }
}

static bool check_line(void *user, json_t *line, SourceLoc loc, int n_lines) {
    static const char *const KINDS[] = {"number", "math"};
    Extracted *e = user;
    (void)n_lines;
    for (int i = 0; i < 2; i++) {
        const json_t *one = json_object_get(line, KINDS[i]);
        if (!one) continue;
        const char *key = pair_key(one, json_object_get(line, "same"));
        json_object_set_new(json_object_get(e->same, KINDS[i]), key, json_true());
    }
    if (json_object_get(line, "text")) {
        check_extracted(line, loc);
        e->n_texts++;
    }
    const json_t *numbers = json_object_get(line, "numbers"),
                 *maths = json_object_get(line, "maths");
    if (numbers) check_pairs(e, numbers, "number", ANSWER_NUMBER);
    if (maths) check_pairs(e, maths, "math", ANSWER_BOXED);
    return true;
}

static void test_answers_in_texts(void) {
    check_begin("answers in texts, as lm-evaluation-harness finds and compares them");
    Diag *diag = diag_create();
    Extracted e = {.same = json_pack("{s:{}, s:{}}", "number", "math")};
    CHECK(json_lines_each("tests/data/benchmarks/extracted.jsonl", check_line, &e, diag), "%s",
          diag_text(diag));
    CHECK(e.n_texts > 50 && e.n_pairs > 3000, "%d texts, %d pairs", e.n_texts, e.n_pairs);
    const AnswerText spaced = {" \t 1,200. \n", 11}, right = {"1200", 4}, none = {0};
    const AnswerText whole = answer_extract(ANSWER_WHOLE, spaced);
    CHECK(whole.length == 6 && answer_is_right(ANSWER_WHOLE, whole, right), "'%.*s'",
          (int)whole.length, whole.text);
    CHECK(!answer_is_right(ANSWER_WHOLE, none, right), "nothing is no answer");
    const AnswerText broken = {"\xc3 \xff\\frac\xe2\x82", 10};
    for (int f = 0; f < N_ANSWER_FILTERS; f++) {
        const AnswerText got = answer_extract((AnswerFilter)f, broken);
        if (!got.text) continue;
        CHECK(answer_is_right((AnswerFilter)f, got, got), "bytes are what they are: %s",
              answer_filter_name((AnswerFilter)f));
    }
    json_decref(e.same);
    diag_destroy(diag);
}

/* --- scripts --- */

static Judge *open_script(const char *script, Arena *arena, Diag *diag) {
    write_file("judge.lua", script);
    return judge_open_lua("judge.lua", arena, diag);
}

/* In the folder of the sources: the script that is documented. */
static void test_example(void) {
    static const char *const TEXTS[] = {" 5", "5 or 6", "6 or 5", "-5", "", "five", "5.5", "05"};
    static const float WANTED[] = {1, 1, 0, 0, 0, 0, 1, 1};
    enum { N = 8 };
    check_begin("a script: rewards of sums");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Judge *judge = judge_open_lua("tests/judge/sums.lua", arena, diag);
    JudgedAnswer answers[N];
    float rewards[N];
    for (int i = 0; i < N; i++) answers[i] = answer_of(TEXTS[i]);
    bool good = judge && judge_answers(judge, answers, N, rewards, diag);
    CHECK(good, "%s", diag_text(diag));
    for (int i = 0; good && i < N; i++) {
        CHECK(rewards[i] == WANTED[i], "'%s' gets %g", TEXTS[i], rewards[i]);
    }
    CHECK(!good || judge_answers(judge, answers, 0, NULL, diag), "none: %s", diag_text(diag));
    judge_close(judge);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_found_answers(void) {
    static const char SCRIPT[] =
        "return function(line)\n"
        "  assert(answer.find('no', 'boxed') == nil and answer.find('a 1,2 b', 'flexible-extract') "
        "== '1,2')\n"
        "  assert(answer.is_right('so \\\\boxed{1/2}', '\\\\frac12', 'boxed'))\n"
        "  assert(not answer.is_right('', '', 'strict-match') and answer.is_right(' 5', 5, "
        "'exact-match'))\n"
        "  assert(not pcall(answer.find, 'a', 'box') and not pcall(answer.find, {}, 'boxed'))\n"
        "  return answer.is_right(line.text, line.sum, 'strict-match') and 1 or 0\n"
        "end\n";
    check_begin("a script: answers in texts");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Judge *judge = open_script(SCRIPT, arena, diag);
    const JudgedAnswer answers[] = {answer_of("2 + 3 = 5\n#### 5."), answer_of("5")};
    float rewards[2] = {-1, -1};
    CHECK(judge && judge_answers(judge, answers, 2, rewards, diag), "%s", diag_text(diag));
    CHECK(rewards[0] == 1 && rewards[1] == 0, "%g, %g", rewards[0], rewards[1]);
    judge_close(judge);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_fields(void) {
    static const char SCRIPT[] =
        "local n = 0\n"
        "return function(line)\n"
        "  n = n + 1\n"
        "  assert(line.prompt == '2+3=' and line.name == 'éЖ' and line.none == nil)\n"
        "  assert(math.type(line.sum) == 'integer' and line.sum == 5)\n"
        "  assert(math.type(line.half) == 'float' and line.half == 2.5)\n"
        "  assert(line.list[1] == 1 and math.type(line.list[2]) == 'float')\n"
        "  assert(line.list[3] == nil and line.list[4][1] == true)\n"
        "  assert(line.list[4][2] == false and line.deep.key.n == -9007199254740993)\n"
        "  assert(line.sample == 7 and line.text == 'a\\0b\\xff')\n"
        "  assert(line.tokens == n and line.ended == (n == 2))\n"
        "  local keys = 0\n"
        "  for _ in pairs(line) do keys = keys + 1 end\n"
        "  assert(keys == 10, keys)\n"
        "  line.sum, line.deep.key = nil, nil\n"
        "  return n\n"
        "end\n";
    check_begin("a script: all fields, as they are; its variables stay");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Judge *judge = open_script(SCRIPT, arena, diag);
    for (int i = 1; judge && i <= 3; i++) {
        JudgedAnswer answer = {
            .record = record, .text = "a\0b\xff", .length = 4, .n_tokens = i, .ended = i == 2};
        float reward = 0;
        bool good = judge_answers(judge, &answer, 1, &reward, diag);
        CHECK(good && reward == (float)i, "answer %d: %g %s", i, reward, diag_text(diag));
    }
    CHECK(judge, "%s", diag_text(diag));
    judge_close(judge);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* More than a script may take at once of instructions (100 million) and memory (256 MB), by far
 * less than that for each. */
static void test_many(void) {
    enum { N = 100000 / VARIANT_STEP, TURNS = 600 * VARIANT_STEP, BYTES = 4096 * VARIANT_STEP };
    check_begin("a script: limits are of one answer, garbage goes");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *script =
        arena_printf(arena,
                     "return function(line)\n  local n = 0\n  for i = 1, %d do n = n + 1 end\n"
                     "  return n + #(line.text .. line.prompt)\nend\n",
                     TURNS);
    Judge *judge = open_script(script, arena, diag);
    char *text = memory_zeroed(1, BYTES + 1);
    memset(text, 'a', BYTES);
    JudgedAnswer answer = answer_of(text);
    bool good = judge != NULL;
    for (int i = 0; good && i < N; i++) {
        float reward;
        good = judge_answers(judge, &answer, 1, &reward, diag);
        CHECK(!good || reward == TURNS + BYTES + 4, "answer %d: %g", i, reward);
    }
    CHECK(good, "%s", diag_text(diag));
    judge_close(judge);
    free(text);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_script_errors(void) {
    static const struct {
        const char *script, *wanted;
    } CASES[] = {
        {"return 5",
         "judge.lua: the script must end in `return function(line) ... end`, which returns the "
         "reward of an answer (or, to compare two, `function(line, a, b)`); it returned number"},
        {"local x = 1",
         "judge.lua: the script must end in `return function(line) ... end`, which returns the "
         "reward of an answer (or, to compare two, `function(line, a, b)`); it returned nothing"},
        {"return print, print",
         "judge.lua: the script must end in `return function(line) ... end`, which returns the "
         "reward of an answer (or, to compare two, `function(line, a, b)`); it returned several "
         "values"},
        {"\nreturn function(line", "judge.lua:2: ')' expected near <eof>"},
        {"\nreturn function(line)\n  if line.sum == 5 then return end\n  return 1\nend",
         "judge.lua:2: returns nil; it must return a number, the reward"},
        {"return function(line) return line.sum == 5 end",
         "judge.lua:1: returns a boolean; it must return a number, the reward"},
        {"return function(line) return '1' end",
         "judge.lua:1: returns a string; it must return a number, the reward"},
        {"return type", "judge.lua: returns a string; it must return a number, the reward"},
        {"return function(line) return 0 / 0 end",
         "judge.lua:1: returns nan; a reward must be a finite number, of f32"},
        {"return function(line) return -math.huge end",
         "judge.lua:1: returns -inf; a reward must be a finite number, of f32"},
        {"return function(line) return 1e300 end",
         "judge.lua:1: returns 1e+300; a reward must be a finite number, of f32"},
        {"return function(line)\n  return line.total + 1\nend",
         "judge.lua:2: attempt to perform arithmetic on a nil value (field 'total')"},
        {"return function(line)\n  error('no sum')\nend", "judge.lua:2: no sum"},
        {"return function(line)\n  error({})\nend",
         "judge.lua:2: the script raised an error that is a table, not a text"},
        {"return function(line)\n  while true do end\nend",
         "judge.lua:2: the script ran for more than 100 million instructions or 20 seconds: does "
         "it loop?"},
        {"all = 'x'\nreturn function(line)\n  while true do all = all .. all end\nend",
         "judge.lua:3: the script needs more than 256 MB of memory"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[120];
        snprintf(name, sizeof(name), "a script that fails: %.90s", CASES[i].script);
        for (char *c = name; *c; c++) *c = *c == '\n' ? ' ' : *c;
        check_begin(name);
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Judge *judge = open_script(CASES[i].script, arena, diag);
        JudgedAnswer answer = answer_of("5");
        float reward;
        CHECK(!judge || !judge_answers(judge, &answer, 1, &reward, diag), "taken");
        size_t length = strlen(CASES[i].wanted);
        const char *text = diag_text(diag);
        CHECK(strncmp(text, CASES[i].wanted, length) == 0 && strcmp(text + length, "\n") == 0,
              "says %s", text);
        judge_close(judge);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* A Diag of its own for each call, and limits that begin anew after they were met. */
static void test_after_error(void) {
    check_begin("a script: after an error, in a module, too");
    Arena *arena = arena_create();
    Diag *opening = diag_create(), *failing = diag_create(), *later = diag_create();
    write_file("loops.lua", "\n\nreturn function(line)\n  while line.text == 'a' do end\n"
                            "  return line.text == 'b' and 2 or {}\nend\n");
    Judge *judge = open_script("return require('loops')", arena, opening);
    JudgedAnswer a = answer_of("a"), b = answer_of("b"), c = answer_of("c");
    float reward = 0;
    CHECK(judge && !judge_answers(judge, &a, 1, &reward, failing), "%s", diag_text(opening));
    CHECK(strstr(diag_text(failing), "loops.lua:4: the script ran for"), "%s", diag_text(failing));
    CHECK(judge && judge_answers(judge, &b, 1, &reward, later) && reward == 2, "%s",
          diag_text(later));
    CHECK(judge && !judge_answers(judge, &c, 1, &reward, later), "a table is taken");
    CHECK(strstr(diag_text(later), "loops.lua:3: returns a table"), "%s", diag_text(later));
    judge_close(judge);
    diag_destroy(opening);
    diag_destroy(failing);
    diag_destroy(later);
    arena_destroy(arena);
}

/* --- programs --- */

static void check_reaped(void) {
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a program is not waited for");
}

/* n answers with ids that become their rewards, each with a text of so many bytes. */
static bool ask(Judge *judge, int n, int bytes, Diag *diag) {
    JudgedAnswer *answers = memory_zeroed((size_t)n, sizeof(JudgedAnswer));
    float *rewards = memory_zeroed((size_t)n, sizeof(float));
    char *text = memory_zeroed(1, (size_t)bytes + 1);
    memset(text, 'a', (size_t)bytes);
    for (int i = 0; i < n; i++) {
        answers[i] = answer_of(text);
        answers[i].record = json_pack("{s:i}", "id", i);
    }
    bool good = judge_answers(judge, answers, n, rewards, diag);
    for (int i = 0; good && i < n; i++) {
        CHECK(rewards[i] == (float)i, "answer %d gets %g", i, rewards[i]);
    }
    for (int i = 0; i < n; i++) json_decref((json_t *)answers[i].record);
    free(answers);
    free(rewards);
    free(text);
    return good;
}

#define ID_OF_LINE "s/^{\"id\": \\([0-9]*\\).*/\\1"

/* Several calls; lines that together are many times what a pipe holds. */
static void test_rewards(void) {
    static const struct {
        const char *command;
        int n, bytes;
    } CASES[] = {
        {"sed -u '" ID_OF_LINE "/'", 500, 1000},
        {"sed -u '" ID_OF_LINE "                                                  \\r/'", 3000, 50},
        /* all are read before the first reward is written */
        {"while head -n 3000 > lines && [ -s lines ]; do sed '" ID_OF_LINE "/' lines; done", 3000,
         1000},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[200];
        snprintf(name, sizeof(name), "a program: %.150s", CASES[i].command);
        check_begin(name);
        Diag *diag = diag_create();
        Judge *judge = judge_open_command(CASES[i].command, PATIENT_S, diag);
        for (int call = 0; judge && call < 2; call++) {
            CHECK(ask(judge, CASES[i].n, CASES[i].bytes, diag), "%s", diag_text(diag));
        }
        CHECK(judge && ask(judge, 0, 0, diag), "%s", diag_text(diag));
        judge_close(judge);
        check_reaped();
        diag_destroy(diag);
    }
}

static void test_lines(void) {
    static const struct {
        const char *text;
        size_t length;
        const char *wanted; /* in UTF-8 */
        size_t wanted_length;
    } CASES[] = {
        {"5 \"\\\n\t", 6, "5 \"\\\n\t", 6},
        {"\xc3\xa9\xd0\x96\xf0\x9f\x8c\x99", 8, "\xc3\xa9\xd0\x96\xf0\x9f\x8c\x99", 8},
        {"a\xff\xc3", 3, "a\xc3\xbf\xc3\x83", 5},
        {"\xed\xa0\x80", 3, "\xc3\xad\xc2\xa0\xc2\x80", 6},
        {"a\0b", 3, "a\0b", 3},
        {"", 0, "", 0},
    };
    enum { N = sizeof(CASES) / sizeof(CASES[0]) };
    check_begin("a program: all fields, as they are");
    Diag *diag = diag_create();
    Judge *judge =
        judge_open_command("exec tee lines.json | sed -u 's/.*/-1.5e0/'", PATIENT_S, diag);
    JudgedAnswer answers[N];
    float rewards[N];
    for (int i = 0; i < N; i++) {
        answers[i] = (JudgedAnswer){.record = record,
                                    .text = CASES[i].text,
                                    .length = CASES[i].length,
                                    .n_tokens = i,
                                    .ended = i == 1};
    }
    CHECK(judge && judge_answers(judge, answers, N, rewards, diag), "%s", diag_text(diag));
    judge_close(judge);
    FILE *file = fopen("lines.json", "r");
    char line[1000];
    for (int i = 0; i < N; i++) {
        CHECK(rewards[i] == -1.5f, "reward %g", rewards[i]);
        bool read = file && fgets(line, sizeof(line), file);
        for (const char *c = line; read && *c; c++) CHECK((unsigned char)*c < 0x7f, "%s", line);
        json_t *shown =
            read ? json_loads(line, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL) : NULL;
        json_t *wanted = json_deep_copy(record);
        json_object_set_new(wanted, "text", json_stringn(CASES[i].wanted, CASES[i].wanted_length));
        json_object_set_new(wanted, "tokens", json_integer(i));
        json_object_set_new(wanted, "ended", json_boolean(i == 1));
        CHECK(shown && json_equal(shown, wanted), "line %d is %s", i, line);
        json_decref(shown);
        json_decref(wanted);
    }
    if (file) fclose(file);
    check_reaped();
    diag_destroy(diag);
}

/* Is that what is said of a program that has so long for a reward? `wanted` is without the time. */
static bool says(const char *command, int bytes, double timeout_s, const char *wanted,
                 char said[1000]) {
    char whole[1000], seconds[32];
    const char *mark = strchr(wanted, '@');
    snprintf(seconds, sizeof(seconds), "%g", timeout_s);
    snprintf(whole, sizeof(whole), "%.*s%s%s\n", mark ? (int)(mark - wanted) : 1000, wanted,
             mark ? seconds : "", mark ? mark + 1 : "");
    Diag *diag = diag_create();
    Judge *judge = judge_open_command(command, timeout_s, diag);
    bool taken = judge && ask(judge, 2, bytes, diag) && ask(judge, 1, 1, diag);
    const char *text = diag_text(diag), *after = strstr(text, whole);
    bool good =
        !taken && strncmp(text, "the judge \"", 11) == 0 && after && strcmp(after, whole) == 0;
    snprintf(said, 1000, "%s", taken ? "nothing" : text);
    judge_close(judge);
    check_reaped();
    diag_destroy(diag);
    return good;
}

/* Two answers, of which the last is asked for alone; what the first call says, or the second. */
static void test_program_errors(void) {
    static const struct {
        const char *command;
        int bytes; /* of an answer */
        const char *wanted;
    } CASES[] = {
        {"exit 3", 1,
         "has ended with exit code 3 after 0 of 2 rewards; what it wrote to standard error may say "
         "why"},
        {"read l; echo 0", 1,
         "has ended with exit code 0 after 1 of 2 rewards; it must go on until its standard input "
         "ends"},
        {"read l; echo 0; kill -9 $$", 1,
         "was ended by signal 9 (Killed) after 1 of 2 rewards; what it wrote to standard error may "
         "say why"},
        {"no-such-command-is-there 2>&-", 1,
         "has ended with exit code 127 after 0 of 2 rewards; is there such a command, which may be "
         "executed?"},
        {"./ 2>&-", 1,
         "has ended with exit code 126 after 0 of 2 rewards; is there such a command, which may be "
         "executed?"},
        {"read l; echo 0; read l; echo 1; exit 4", 1,
         "has ended with exit code 4 after 0 of 1 rewards; what it wrote to standard error may say "
         "why"},
        {"sleep 100", 1,
         "has given 0 of 2 rewards, and no other for @ seconds; does it flush its output after "
         "each line?"},
        {"read l; printf '0\\n1'; sleep 100", 1,
         "has given 1 of 2 rewards, and no other for @ seconds; does it flush its output after "
         "each line?"},
        {"read l; echo 0; echo 1; sleep 100", 200000,
         "has given 2 of 2 rewards, and read nothing for @ seconds; it must read all answers"},
        {"exec >&-; sleep 100", 1,
         "has closed its standard output after 0 of 2 rewards; it must go on until its standard "
         "input ends"},
        {"read l; exec <&-; echo 0; echo 1; sleep 100", 200000,
         "has closed its standard input after 0 of 1 rewards; it must go on until its standard "
         "input ends"},
        {"read l; exec <&-; echo 0; sleep 100", 200000,
         "has closed its standard input after 1 of 2 rewards; it must go on until its standard "
         "input ends"},
        {"read l; echo 0; printf 'a \\033\\377 b\\n'; cat >&2", 1,
         "writes \"a \\u001b\\u00ff b\" after 1 of 2 rewards: each line must be a finite number, "
         "the "
         "reward of an answer"},
        {"read l; echo; cat", 1,
         "writes \"\" after 0 of 2 rewards: each line must be a finite number, the reward of an "
         "answer"},
        {"read l; echo nan; cat", 1,
         "writes \"nan\" after 0 of 2 rewards: each line must be a finite number, the reward of an "
         "answer"},
        {"read l; echo 1e60; cat", 1,
         "writes \"1e60\" after 0 of 2 rewards: each line must be a finite number, the reward of "
         "an "
         "answer"},
        {"read l; echo 1 2; cat", 1,
         "writes \"1 2\" after 0 of 2 rewards: each line must be a finite number, the reward of an "
         "answer"},
        {"read l; printf '1\\0002\\n'; cat", 1,
         "writes \"1\\u00002\" after 0 of 2 rewards: each line must be a finite number, the reward "
         "of an answer"},
        {"read l; yes 1234567 | tr -d '\\n' | head -c 5000; cat >&2", 1,
         "writes \"123456712345671234567123456712345671234567123456712345671234\"... after 0 of 2 "
         "rewards: a line of thousands of bytes; each must be a number"},
        {"read l; printf '0\\n1\\n2'; cat >&2", 1,
         "writes \"2\" after 2 of 2 rewards: more lines than answers; it must write one for each"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[120], said[1000];
        snprintf(name, sizeof(name), "a program that fails: %.90s", CASES[i].command);
        check_begin(name);
        bool waits = strstr(CASES[i].command, "sleep 100") != NULL;
        bool good = says(CASES[i].command, CASES[i].bytes, waits ? SHORT_S : PATIENT_S,
                         CASES[i].wanted, said);
        /* On a busy machine it may not have come so far in so short a time. */
        if (!good && waits)
            good = says(CASES[i].command, CASES[i].bytes, 10, CASES[i].wanted, said);
        CHECK(good, "says %s", said);
    }
}

static void test_cannot_start(void) {
    check_begin("a program that cannot be started; its name is shortened");
    static const char WANTED[] = "the judge \"a command \\u0007 of a long, long name: "
                                 "01234567890123456789012345\"... cannot be "
                                 "started: Too many open files\n";
    struct rlimit before, low;
    getrlimit(RLIMIT_NOFILE, &before);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int room = 0; room < 4; room++) {
        Diag *diag = diag_create();
        low = before;
        low.rlim_cur = (rlim_t)(next + room);
        setrlimit(RLIMIT_NOFILE, &low);
        Judge *judge = judge_open_command(
            "a command \a of a long, long name: 012345678901234567890123456789", PATIENT_S, diag);
        setrlimit(RLIMIT_NOFILE, &before);
        CHECK(!judge, "started");
        CHECK(strcmp(diag_text(diag), WANTED) == 0, "says %s", diag_text(diag));
        diag_destroy(diag);
    }
    int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(after == next + 1, "files are left open: %d", after);
    close(next);
    close(after);
}

/* Until `path` is there, for a minute at most. */
static bool appears(const char *path) {
    for (int i = 0; i < 6000 && access(path, F_OK) != 0; i++) usleep(10000);
    return access(path, F_OK) == 0;
}

static void test_too_many_lines(void) {
    check_begin("a program: a line too many, between two calls");
    Diag *diag = diag_create();
    Judge *judge = judge_open_command("read l; echo 0; while [ ! -e go ]; do sleep 0.01; done\n"
                                      "echo 7; : > gone; cat",
                                      PATIENT_S, diag);
    CHECK(judge && ask(judge, 1, 1, diag), "%s", diag_text(diag));
    write_file("go", "");
    CHECK(appears("gone"), "no line");
    CHECK(judge && !ask(judge, 3, 1, diag), "taken");
    CHECK(strstr(diag_text(diag), "writes \"7\" after 0 of 3 rewards: more lines than answers"),
          "%s", diag_text(diag));
    judge_close(judge);
    check_reaped();
    diag_destroy(diag);
}

/* Its input ends though another judge was started later. */
static void test_ends_by_itself(void) {
    check_begin("a program: its input ends, beside another one");
    Diag *diag = diag_create();
    Judge *judge =
        judge_open_command("sed -u '" ID_OF_LINE "/'; sleep 0.05; : > ended", PATIENT_S, diag);
    Judge *other = judge_open_command("cat", PATIENT_S, diag);
    CHECK(judge && other && ask(judge, 5, 1, diag), "%s", diag_text(diag));
    judge_close(judge);
    CHECK(access("ended", F_OK) == 0, "was stopped");
    judge_close(other);
    check_reaped();
    diag_destroy(diag);
}

/* The program and what it started hold a pipe as long as one of them lives. */
static void test_is_stopped(void) {
    static const char *const COMMANDS[] = {
        "sleep 100",
        "trap '' TERM; sleep 100; sleep 100",
        "sleep 100 & exit 0",
    };
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++) {
        char name[120];
        snprintf(name, sizeof(name), "a program that is stopped: %s", COMMANDS[i]);
        check_begin(name);
        Diag *diag = diag_create();
        int alive[2];
        CHECK(pipe(alive) == 0, "no pipe");
        fcntl(alive[0], F_SETFD, FD_CLOEXEC);
        Judge *judge = judge_open_command(COMMANDS[i], SHORT_S, diag);
        CHECK(judge, "%s", diag_text(diag));
        judge_close(judge);
        close(alive[1]);
        struct pollfd end = {.fd = alive[0], .events = POLLIN};
        CHECK(poll(&end, 1, 30000) == 1 && (end.revents & POLLHUP), "lives on");
        close(alive[0]);
        check_reaped();
        diag_destroy(diag);
    }
    check_begin("no judge is closed");
    judge_close(NULL);
}

static void on_alarm(int number) {
    (void)number;
}

static void test_interrupts(void) {
    check_begin("a program: signals while it is waited for");
    Diag *diag = diag_create();
    struct sigaction action = {.sa_handler = on_alarm}, before;
    sigaction(SIGALRM, &action, &before);
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    Judge *judge =
        judge_open_command("read l; sleep 0.05; echo 0; sed -u '" ID_OF_LINE "/'", PATIENT_S, diag);
    setitimer(ITIMER_REAL, &often, NULL);
    CHECK(judge && ask(judge, 100, 2000, diag), "%s", diag_text(diag));
    judge_close(judge);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    check_reaped();
    diag_destroy(diag);
}

/* --- pairs --- */

/* What is said of two answers to the record, "aa" and "b", or b and aa. */
static bool compare(Judge *judge, float out[2], Diag *diag) {
    JudgedAnswer a = answer_of("aa"), b = answer_of("b");
    b.n_tokens = 4;
    b.ended = false;
    return judge && judge_pairs(judge, (JudgedPair[]){{a, b}, {b, a}}, 2, out, diag);
}

static void test_pairs_by_script(void) {
    static const char SCRIPT[] =
        "return function(line, a, b)\n"
        "  assert(line.sum == 5 and line.text == 'theirs' and line.tokens == nil)\n"
        "  assert(#a.text == 2 and a.tokens == 3 and a.ended == true or #a.text == 1)\n"
        "  assert(#b.text == 2 or b.tokens == 4 and b.ended == false)\n"
        "  return #a.text - #b.text\n"
        "end\n";
    check_begin("a script: two answers beside each other");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    float verdicts[2], reward = 0;
    Judge *judge = open_script(SCRIPT, arena, diag);
    CHECK(compare(judge, verdicts, diag) && verdicts[0] == 1 && verdicts[1] == -1, "%s",
          diag_text(diag));
    judge_close(judge);
    judge = open_script("return function(line, a)\n  if a then return a end\n  return 2\nend\n",
                        arena, diag);
    CHECK(!compare(judge, verdicts, diag), "a table is taken");
    CHECK(strstr(diag_text(diag), ":1: returns a table; it must return a number, above 0 where a "
                                  "is the better answer, below 0 where b is"),
          "%s", diag_text(diag));
    const JudgedAnswer alone = answer_of("aa");
    CHECK(judge && judge_answers(judge, &alone, 1, &reward, diag) && reward == 2, "%g", reward);
    judge_close(judge);
    /* f32 has neither of these numbers, and only their signs count. */
    judge = open_script("return function(line, a) return #a.text > 1 and 1e-300 or -1e300 end\n",
                        arena, diag);
    CHECK(compare(judge, verdicts, diag) && verdicts[0] == 1 && verdicts[1] == -1, "%g, %g",
          (double)verdicts[0], (double)verdicts[1]);
    judge_close(judge);
    judge = open_script("return function() return 0 / 0 end\n", arena, diag);
    CHECK(!compare(judge, verdicts, diag) &&
              strstr(diag_text(diag), ":1: returns nan; it must be above 0, below 0, or 0"),
          "%s", diag_text(diag));
    judge_close(judge);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_pairs_by_program(void) {
    static const char WANTED[] = "\"name\": \"\\u00E9\\u0416\", \"a\": {\"text\": \"aa\", "
                                 "\"tokens\": 3, \"ended\": true}, \"b\": {\"text\": \"b\", "
                                 "\"tokens\": 4, \"ended\": false}}\n";
    check_begin("a program: two answers beside each other");
    Diag *diag = diag_create();
    float verdicts[2];
    char line[1024] = "";
    Judge *judge = judge_open_command(
        "tee pairs | sed -u 's/.*\"a\": {\"text\": \"aa\".*/1e-300/; s/^{.*/-3/'", PATIENT_S, diag);
    CHECK(compare(judge, verdicts, diag) && verdicts[0] == 1 && verdicts[1] == -1, "%s",
          diag_text(diag));
    judge_close(judge);
    judge = judge_open_command("read line; echo nan", PATIENT_S, diag);
    CHECK(!compare(judge, verdicts, diag) &&
              strstr(diag_text(diag), "after 0 of 2 verdicts: each line must be a number, above 0 "
                                      "where a is the better answer, below 0 where b is"),
          "%s", diag_text(diag));
    judge_close(judge);
    FILE *file = fopen("pairs", "r");
    CHECK(file && fgets(line, sizeof(line), file) && strstr(line, WANTED), "%s", line);
    if (file) fclose(file);
    check_reaped();
    diag_destroy(diag);
}

int main(void) {
    char folder[] = "/tmp/perilune-judge-XXXXXX";
    record = json_loads(RECORD, 0, NULL);
    signal(SIGPIPE, SIG_IGN); /* as main does */
    test_example();
    test_answers_in_texts();
    if (!record || !mkdtemp(folder) || chdir(folder) != 0) return 1;
    test_found_answers();
    test_fields();
    test_many();
    test_script_errors();
    test_after_error();
    test_rewards();
    test_lines();
    test_program_errors();
    test_cannot_start();
    test_too_many_lines();
    test_ends_by_itself();
    test_is_stopped();
    test_interrupts();
    test_pairs_by_script();
    test_pairs_by_program();
    json_decref(record);
    char remove[sizeof(folder) + 10];
    snprintf(remove, sizeof(remove), "rm -rf %s", folder);
    return check_report() | (system(remove) != 0);
}
