/* perilune tune: a plan's matrix products and attention timed on this machine's GPU -> its device
 * section. */
#include "frontend/commands/cli.h"
#include "frontend/progress_line.h"
#include "planner/plan/plan.h"
#include "runtime/cuda/tune.h"
#include "runtime/engine.h"

#include <inttypes.h>
#include <string.h>

/* Negative: there is none. */
static void put_number(char *out, size_t size, double value, const char *unit) {
    if (value < 0) {
        snprintf(out, size, "-");
    } else {
        snprintf(out, size, "%.1f%s", value, unit);
    }
}

static void print_product(const TunedProduct *product) {
    const PlanAlgo *algo = &product->algo;
    const MatmulLayout *l = &algo->layout;
    char batch[32] = "", size[80], form[48], first[24], chosen[24], gain[24];
    if (l->batch > 1) snprintf(batch, sizeof(batch), "%" PRId64 " of ", l->batch);
    snprintf(size, sizeof(size), "%s%" PRId64 " x %" PRId64 " x %" PRId64, batch, l->m, l->n, l->k);
    snprintf(form, sizeof(form), "%c%c %s->%s%s%s", l->transpose_a ? 't' : 'n',
             l->transpose_b ? 't' : 'n', dtype_name(algo->in_dtype), dtype_name(algo->out_dtype),
             algo->accumulate ? " +=" : "", algo->epilogue ? " +" : "");
    put_number(first, sizeof(first), product->first_us, "");
    put_number(chosen, sizeof(chosen), product->chosen_us, "");
    put_number(gain, sizeof(gain),
               product->first_us > 0 && product->chosen_us > 0
                   ? 100 * (1 - product->chosen_us / product->first_us)
                   : -1,
               "%");
    printf("%-36s %-16s %7" PRId64 " %10s %10s %7s\n", size, form, product->count, first, chosen,
           gain);
}

static const char *size_of(const PlanAttention *k, char size[80]) {
    int n = snprintf(size, 80, "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64, k->batch,
                     k->seq, k->kv_heads * k->group, k->head);
    if (k->values != k->head) snprintf(size + n, 80 - (size_t)n, " / %" PRId64, k->values);
    return size;
}

static void print_attention(const TunedAttention *attention, const char *size) {
    const PlanAttention *k = &attention->kind;
    char form[128], us[N_ATTENTION_KERNELS][24];
    int length = snprintf(form, sizeof(form), "%s %s", k->backward ? "backward" : "forward",
                          dtype_name(k->dtype));
    if (k->window)
        length +=
            snprintf(form + length, sizeof(form) - (size_t)length, " window %" PRId64, k->window);
    if (k->keys != k->seq)
        length +=
            snprintf(form + length, sizeof(form) - (size_t)length, " of %" PRId64 " keys", k->keys);
    if (k->documents) snprintf(form + length, sizeof(form) - (size_t)length, " documents");
    for (int i = 0; i < N_ATTENTION_KERNELS; i++)
        put_number(us[i], sizeof(us[i]), attention->us[i], "");
    printf("%-36s %-16s %7" PRId64 " %10s %10s %10s %10s  %s\n", size, form, attention->count,
           us[ATTENTION_CUDNN], us[ATTENTION_MMA], us[ATTENTION_WGMMA], us[ATTENTION_JOINT],
           attention_kernels_word(k->kernels));
}

static void print_attentions(const TuneResult *result) {
    char size[80];
    if (result->n_attentions == 0) return;
    printf("%-36s %-16s %7s %10s %10s %10s %10s  %s\n", "attention, b x seq x heads x head", "form",
           "count", "cuDNN us", "mma us", "wgmma us", "joint us", "chosen");
    for (int i = 0; i < result->n_attentions; i++) {
        const TunedAttention *attention = &result->attentions[i];
        print_attention(attention, size_of(&attention->kind, size));
    }
    for (int i = 0; i < result->n_attentions; i++) {
        const TunedAttention *attention = &result->attentions[i];
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
            if (!attention->refused[k]) continue;
            printf("%-7s is not used for attention%s of %s: %s\n",
                   attention_kernels_word((AttentionKernels)k),
                   attention->kind.backward ? "'s gradient" : "", size_of(&attention->kind, size),
                   attention->refused[k]);
        }
    }
}

static void print_result(const TuneResult *result, const char *path, double seconds) {
    const PlanDevice *device = &result->device;
    double first = 0, chosen = 0;
    int n_changed = 0;
    printf("device  %s, %s, cuBLASLt %d.%d.%d\n", device->name, device->arch,
           (int)(device->library_version / 10000), (int)(device->library_version / 100 % 100),
           (int)(device->library_version % 100));
    printf("%-36s %-16s %7s %10s %10s %7s\n", "product, m x n x k", "form", "count", "first us",
           "chosen us", "gain");
    for (int i = 0; i < result->n_products; i++) {
        const TunedProduct *product = &result->products[i];
        print_product(product);
        n_changed += product->changed;
        if (product->first_us < 0 || product->chosen_us < 0) continue;
        first += (double)product->count * product->first_us;
        chosen += (double)product->count * product->chosen_us;
    }
    print_attentions(result);
    printf("step    %.3f ms of products by the first choices, %.3f ms by those chosen; %d of %d "
           "changed\n",
           first / 1e3, chosen / 1e3, n_changed, result->n_products);
    if (result->n_sums) {
        printf("bias    gradients are made by the product in %d of %d kinds, by a kernel in the "
               "others\n",
               result->n_sums_joined, result->n_sums);
    }
    if (result->n_gelus) {
        printf("gelu    is made by the product in %d of %d kinds, by a kernel in the others\n",
               result->n_gelus_folded, result->n_gelus);
    }
    if (result->n_joinable) {
        printf("joined  products of one operand run at once in %d of %d kinds\n", result->n_joined,
               result->n_joinable);
    }
    printf("took    %.1f s\n", seconds);
    if (device->n_algos < result->n_products) {
        printf("left    %d products were not timed: cuBLASLt chooses as training starts\n",
               result->n_products - device->n_algos);
    }
    printf("wrote   %s\n", path);
}

/* Where the tuned plan goes. */
typedef struct TunedFile {
    Plan *plan;
    const char *path;
    Diag *diag;
    bool good;
} TunedFile;

static void write_tuned(TunedFile *file, const PlanDevice *device) {
    StrBuf text = strbuf_create();
    file->plan->device = *device;
    plan_print(&text, file->plan);
    file->good = cli_write(file->path, &text, file->diag) && file->good;
    strbuf_destroy(&text);
}

/* Before kernels are tried that may never end. */
static void keep_known(void *user, const PlanDevice *device) {
    TunedFile *file = user;
    if (strcmp(file->path, "-") != 0) write_tuned(file, device);
}

static int tune(CliArgs *args, Plan *plan, const char *path, Diag *diag) {
    ProgressLine line = progress_line_start("timed");
    TunedFile file = {plan, path, diag, true};
    TuneOptions options = {.no_wgmma = cli_given(args, OPT_NO_WGMMA),
                           .progress = progress_line_show,
                           .user = &line,
                           .known = keep_known,
                           .known_user = &file};
    TuneResult result;
    bool good = cuda_tune(plan, &options, args->arena, &result, diag);
    double seconds = progress_line_end(&line);
    if (!good || !file.good) return EXIT_FAILED;
    write_tuned(&file, &result.device);
    if (file.good && strcmp(path, "-") != 0) print_result(&result, path, seconds);
    return file.good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_tune(CliArgs *args) {
    Diag *diag = diag_create();
    const char *path = cli_text(args, OPT_OUTPUT, args->operand), *why = "";
    int status = EXIT_USAGE;
    Plan *plan = plan_read(args->arena, args->operand, diag);
    if (plan && !plan->cuda) {
        diag_error(diag, (SourceLoc){args->operand, 0},
                   "is a plan for CPUs: only plans made with --device cuda can be tuned");
    } else if (plan && cli_try_path(path, diag)) {
        status = EXIT_FAILED;
        if (engine_cuda_available(&why)) {
            status = tune(args, plan, path, diag);
        } else {
            diag_error(diag, NO_LOC, "tune: %s", why);
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
