/* Learning by rewards, from pairs, and from a teacher, of answers on the fake of CUDA's libraries:
 * the program itself, its main included, in forked processes, beside the same run on the CPU.
 * Training's engine and the one that writes answers share the device.
 *
 * Steps are SGD's: AdamW makes of a gradient that is almost nothing, and another one on each
 * device, a step of full length, after which answers would be other ones.
 *
 * Catches: numbers of labels that are staged in another's place, weights that the writer does not
 * get, or gets a step late, a reference that is scored by the weights as they are, and weights that
 * are not what they were after it. */
#ifdef HAVE_CUDA
#define main perilune_main
#include "frontend/main.c"
#undef main

#include "runtime/cuda/driver/device.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>

enum { MOST_ARGS = 64, MOST_STEPS = 8, DEFECTIVE = 99 };

static char folder[] = "/tmp/rollout_cuda_XXXXXX";

static const char *file_in(const char *name) {
    static char paths[8][256];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(file_in(name), "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) BUG("cannot write %s", name);
}

/* In the forked process: its exit code. */
static int run_program(bool cuda, int argc, const char **argv) {
    int out = open(file_in("said"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    setenv("GOMP_SPINCOUNT", "2000", 1); /* or main starts itself again */
    if (cuda) cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true, .seed = 3}));
    int status = perilune_main(argc, (char **)argv);
    for (int i = 0; cuda && i < fake_cuda_n_defects(); i++) {
        printf("DEFECT %s\n", fake_cuda_defect(i));
    }
    fflush(stdout);
    return cuda && fake_cuda_n_defects() ? DEFECTIVE : status;
}

static void run_words(bool cuda, const char *words) {
    static char said[1 << 14];
    char copy[2048];
    const char *argv[MOST_ARGS] = {"perilune"};
    int argc = 1, how;
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok(copy, " "); word && argc < MOST_ARGS; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) exit(run_program(cuda, argc, argv));
    waitpid(child, &how, 0);
    FILE *file = fopen(file_in("said"), "r");
    size_t length = file ? fread(said, 1, sizeof(said) - 1, file) : 0;
    said[length] = '\0';
    if (file) fclose(file);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_DONE, "%s: %s", copy, said);
}

static void run(bool cuda, const char *options) {
    char words[2048];
    snprintf(words, sizeof(words), "%s --device %s", options, cuda ? "cuda" : "cpu");
    run_words(cuda, words);
}

/* Each step's number of this name; how many steps there are. */
static int read_log(const char *name, const char *key, double out[MOST_STEPS]) {
    static char line[1 << 14];
    char wanted[64];
    int n = 0;
    snprintf(wanted, sizeof(wanted), "\"%s\":", key);
    FILE *file = fopen(file_in(name), "r");
    while (file && n < MOST_STEPS && fgets(line, sizeof(line), file)) {
        const char *at = strstr(line, wanted);
        if (at) out[n++] = atof(at + strlen(wanted));
    }
    if (file) fclose(file);
    return n;
}

static void compare(const char *key, double most) {
    double cpu[MOST_STEPS], cuda[MOST_STEPS];
    int n = read_log("cpu.jsonl", key, cpu), n_cuda = read_log("cuda.jsonl", key, cuda);
    CHECK(n > 0 && n == n_cuda, "%s: %d and %d steps", key, n, n_cuda);
    for (int i = 0; i < n && i < n_cuda; i++) {
        CHECK(fabs(cpu[i] - cuda[i]) <= most * (1 + fabs(cpu[i])), "%s of step %d: %g, on CUDA %g",
              key, i + 1, cpu[i], cuda[i]);
    }
}

#define TINY                                                                                       \
    "models/llama.lua --set layers=1 --set seq=16 --set model=16 --set heads=2 --set kv_heads=1 "  \
    "--set ffn=16 --set vocab=257 --micro-batch 4 --precision f32 "

static void check_run(const char *name, const char *options, bool pairs) {
    char text[1024];
    check_begin(name);
    for (int cuda = 0; cuda < 2; cuda++) {
        snprintf(text, sizeof(text),
                 "train " TINY "--load %s --data %s --reward %s --stop ! --global-batch 8 "
                 "--answers 4 --length 5 --steps %d --set optimizer=sgd --lr 0.3 --warmup 0 "
                 "--val-fraction 0.5 "
                 "--log %s %s",
                 file_in("base"), file_in("prompts.jsonl"), file_in("judge.lua"), pairs ? 4 : 3,
                 file_in(cuda ? "cuda.jsonl" : "cpu.jsonl"), options);
        run(cuda, text);
    }
    compare("reward", 1e-6); /* the same answers */
    compare("loss", 1e-4);
    compare("grad_norm", 1e-3);
    compare(pairs ? "reward_margin" : "entropy", 1e-4);
    if (pairs) compare("ties", 1e-6);
    if (pairs) compare("kl", 1e-4);
    compare("val_reward", 1e-6);
    check_end();
}

/* Prompts with completions: every other row is written, and a teacher in the plan. */
static void check_student(const char *name) {
    char text[1024];
    check_begin(name);
    for (int cuda = 0; cuda < 2; cuda++) {
        snprintf(text, sizeof(text),
                 "train " TINY "--set masked=true --load %s --data %s --tokenizer %s --eot auto "
                 "--teacher models/llama.lua --teacher-load %s --distill jsd --on-policy 0.5 "
                 "--global-batch 8 --length 5 --steps 3 --set optimizer=sgd --lr 0.3 --warmup 0 "
                 "--val-fraction 0.5 "
                 "--log %s",
                 file_in("student"), file_in("given.jsonl"), file_in("tok.json"),
                 file_in("teacher"), file_in(cuda ? "cuda.jsonl" : "cpu.jsonl"));
        run(cuda, text);
    }
    compare("answer_tokens", 1e-6);
    compare("loss", 1e-4);
    compare("grad_norm", 1e-3);
    compare("kl", 1e-4);
    compare("val_kl", 1e-4);
    check_end();
}

static void make_student(void) {
    char text[1024], given[1024] = "";
    for (int i = 0; i < 8; i++) {
        char line[64];
        snprintf(line, sizeof(line), "{\"prompt\": \"%c%d=\", \"completion\": \"%d\"}\n", 'a' + i,
                 i, i);
        strcat(given, line);
    }
    check_begin("a student and its teacher");
    write_file("given.jsonl", given);
    snprintf(text, sizeof(text),
             "tokenizer train %s --vocab 257 -o %s --special-token <|endoftext|>",
             file_in("given.jsonl"), file_in("tok.json"));
    run_words(false, text);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "train " TINY "--set masked=true --data %s --tokenizer %s --eot auto --pack "
                 "--steps %d --global-batch 4 --val-fraction 0 --save %s --quiet",
                 file_in("given.jsonl"), file_in("tok.json"), 4 + 8 * i,
                 file_in(i ? "teacher" : "student"));
        run(false, text);
    }
    check_end();
}

int main(void) {
    char text[512], prompts[1024] = "", base[2048];
    if (!mkdtemp(folder)) BUG("no folder");
    for (int i = 0; i < 8; i++) {
        char line[64];
        snprintf(line, sizeof(line), "{\"prompt\": \"%c%d=\", \"n\": %d}\n", 'a' + i, i, i);
        strcat(prompts, line);
    }
    for (size_t i = 0; i < sizeof(base); i++) base[i] = "tide low 0123=ab"[i * i % 23 % 16];
    base[sizeof(base) - 1] = '\0';
    write_file("base.txt", base);
    write_file("prompts.jsonl", prompts);
    write_file("judge.lua", "return function(line)\n"
                            "  return line.n * 0.01 + (line.text:byte(1) or 0) % 7\n"
                            "end\n");
    check_begin("a base");
    snprintf(text, sizeof(text),
             "train " TINY "--data %s --steps 2 --global-batch 4 --save %s --quiet",
             file_in("base.txt"), file_in("base"));
    run(false, text);
    check_end();
    check_run("rewards on CUDA: the answers and losses of the CPU", "--set policy=grpo", false);
    check_run("with a reference and two steps a rollout",
              "--set policy=dapo --set kl=0.5 --rollout-steps 2", false);
    check_run("pairs of own answers on CUDA, and a reference that is renewed",
              "--set preference=dpo --set online=true --renew-reference 2", true);
    make_student();
    check_student("a student that writes on CUDA: the answers and losses of the CPU");
    int status = check_report();
    snprintf(text, sizeof(text), "rm -rf %s", folder);
    return system(text) == 0 ? status : 1;
}
#else
#include <stdio.h>
int main(void) {
    puts("skip rewards on CUDA: built without CUDA's headers");
    return 0;
}
#endif
