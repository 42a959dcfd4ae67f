/* Once training runs, nothing asks for memory: every malloc and mmap of six steps is counted here,
 * by who called. The program's own must be none. oneDNN's matrix products take working memory in
 * each call and give it back; that is counted apart, and printed, because it cannot grow.
 */
#define _GNU_SOURCE /* dladdr */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

enum { STEPS = 6, WARM_UP = 2 }; /* in the first steps oneDNN compiles its kernels */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void) {
    printf("skip no memory is asked for once training runs: the sanitizer owns malloc\n");
    return 0;
}

#else

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool is_counting;
static atomic_long n_own, n_library;
static _Atomic(void *) first_own; /* where the first of ours was called */

/* A call from libstdc++ or libgomp is oneDNN's doing: nothing else here uses the one, and the other
 * allocates when a team grows. Whatever else calls, libc included, does so for us. */
static void count_call(void *caller) {
    static const char *const LIBRARIES[] = {"libdnnl", "libstdc++", "libgomp"};
    Dl_info info;
    if (!is_counting) return;
    if (dladdr(caller, &info) && info.dli_fname) {
        for (size_t i = 0; i < sizeof(LIBRARIES) / sizeof(LIBRARIES[0]); i++) {
            if (!strstr(info.dli_fname, LIBRARIES[i])) continue;
            n_library++;
            return;
        }
    }
    if (n_own++ == 0) first_own = caller;
}

/* These take the place of libc's, which keeps the real ones under other names too. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
    count_call(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    count_call(__builtin_return_address(0));
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    count_call(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count_call(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count_call(__builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    count_call(__builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    count_call(__builtin_return_address(0));
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset); // NOLINT
}

static const ModelSetting TINY[] = {
    {"layers", "4"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"vocab", "61"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };

static const Layout LAYOUTS[] = {
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},        {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},        {1, 1, 2, 2, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, {2, 2, 2, 2, 1, "1f1b", true, NULL, 0},
    {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},        {4, 2, 1, 1, 1, "gpipe", false, NULL, 0},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

/* Batches lie ready, so that nothing but engine_step runs while calls are counted. */
static void count_steps(Run *run) {
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    StepResult result;
    bool done = true;
    fill_batch(run->plan, WARM_UP, tokens, labels);
    n_own = n_library = 0;
    is_counting = true;
    for (int step = 0; step < STEPS && done; step++) {
        done =
            engine_step(run->engine, WARM_UP + 1 + step, tokens, labels, 1e-3, &result, run->diag);
    }
    is_counting = false;
    CHECK(done, "%s", diag_text(run->diag));
}

static void check_layout(const char *model, const Layout *layout) {
    char name[96], path[64];
    Run run;
    snprintf(name, sizeof(name), "no memory is asked for: %s: t=%d d=%d p=%d %s%s", model,
             layout->t, layout->d, layout->p, layout->schedule,
             layout->sequence_parallel ? " seq" : "");
    snprintf(path, sizeof(path), "models/%s.lua", model);
    check_begin(name);
    bool ready = run_plan(&run, path, TINY, N_TINY, layout, 16, false) && run_start(&run) &&
                 run_steps(&run, WARM_UP, 1e-3);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        count_steps(&run);
        Dl_info info = {0};
        if (n_own) dladdr(first_own, &info);
        CHECK(n_own == 0, "%ld calls in %d steps, the first from %s in %s", (long)n_own, STEPS,
              info.dli_sname ? info.dli_sname : "a static function",
              info.dli_fname ? info.dli_fname : "?");
        printf("oneDNN, by itself: %ld calls a step\n", (long)n_library / STEPS);
    }
    run_close(&run);
    check_end();
}

/* GPT-2 124M on d ranks: bytes by class of the first stage. */
static bool class_bytes(DType precision, int t, int d, int zero, int64_t *out, int64_t *out_arena) {
    static const ModelSetting SIZE[] = {{"size", "124m"}};
    const Layout layout = {t, d, 1, 1, 1, "1f1b", false, NULL, 0};
    Run run;
    run_zero = zero;
    bool done = run_plan_for(&run, "models/gpt.lua", SIZE, 1, &layout, 16, false, false, precision);
    run_zero = 0;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        plan_class_bytes(run.plan, 0, out);
        *out_arena = run.plan->stages[0].arena_bytes;
    }
    run_close(&run);
    return done;
}

/* Bytes per parameter with d ranks: state 8/d; parameter 4, or with bf16 a copy of 2 and 4/d;
 * gradient 4, of which the shards reuse what has been reduced, but for the first ones. With stage 2
 * the gradient is 4/d, with stage 3 parameter and copy are divided, too. In bf16 the table of
 * positions, which has no copy, stays whole. */
static void check_divided(DType precision, int t, int d, int zero) {
    char name[100];
    int64_t whole[N_BUFFER_CLASSES], part[N_BUFFER_CLASSES], arena, less;
    snprintf(name, sizeof(name), "124M, %s, t=%d d=%d: a rank keeps 1/d of what ZeRO-%d divides",
             dtype_name(precision), t, d, zero);
    check_begin(name);
    if (!class_bytes(precision, t, d, 0, whole, &arena)) return;
    if (!class_bytes(precision, t, d, zero, part, &less)) return;
    double state = (double)whole[CLASS_OPTIMIZER], copy = precision == DTYPE_F32 ? 0 : 2;
    double param = precision == DTYPE_F32 ? state / 2 : state / 8 * (2 + 4.0 / d);
    double table = precision == DTYPE_F32 ? 0 : 1024.0 * 768 * 4, more = table - table / d;
    if (zero == ZERO_PARAMETERS) param = state / 8 * (4 + copy) / d + more;
    double gradient = (double)whole[CLASS_GRADIENT];
    if (zero > ZERO_OPTIMIZER) gradient = gradient / d + more;
    CHECK(fabs((double)part[CLASS_OPTIMIZER] / (state / d + 2 * more) - 1) < 0.02,
          "%lld of %.0f bytes", (long long)part[CLASS_OPTIMIZER], state);
    CHECK(fabs((double)part[CLASS_PARAMETER] / param - 1) < 0.02, "parameters: %lld, not %.0f",
          (long long)part[CLASS_PARAMETER], param);
    CHECK(fabs((double)whole[CLASS_PARAMETER] / (state / 8 * (4 + copy)) - 1) < 0.02,
          "parameters of the whole: %lld", (long long)whole[CLASS_PARAMETER]);
    CHECK((double)part[CLASS_GRADIENT] < 1.02 * gradient, "gradients: %lld, before %lld",
          (long long)part[CLASS_GRADIENT], (long long)whole[CLASS_GRADIENT]);
    double saved = state * (1 - 1.0 / d) + (double)(whole[CLASS_PARAMETER] - part[CLASS_PARAMETER]);
    CHECK((double)(arena - less) > 0.95 * saved, "the arena shrinks by %lld, the state by %.0f",
          (long long)(arena - less), saved);
    check_end();
}

/* Does the count see anything at all? */
static void check_counter(void) {
    check_begin("calls of malloc, calloc, realloc and their like are seen");
    n_own = 0;
    is_counting = true;
    void *volatile a = malloc(7);
    void *volatile b = calloc(3, 5);
    a = realloc(a, 70000);
    void *volatile c = aligned_alloc(64, 128);
    char *volatile d = strdup("from inside libc");
    is_counting = false;
    CHECK(n_own == 5, "%ld of 5", (long)n_own);
    free(a), free(b), free(c), free(d);
}

int main(void) {
    check_counter();
    for (int zero = ZERO_OPTIMIZER; zero < N_ZERO_STAGES; zero++) {
        check_divided(DTYPE_F32, 1, 4, zero);
        check_divided(DTYPE_BF16, 1, 4, zero);
        check_divided(DTYPE_BF16, 2, 8, zero);
    }
    for (int l = 0; l < N_LAYOUTS; l++) check_layout("gpt", &LAYOUTS[l]);
    for (int l = 0; l < N_LAYOUTS; l++) {
        if (LAYOUTS[l].t <= 2) check_layout("llama", &LAYOUTS[l]);
    }
    return check_report();
}

#endif
