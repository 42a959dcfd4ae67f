/* The plan's device section: printed after the header fields, read back as untrusted text.
 *
 *   device "NVIDIA H200" sm_90 cublasLt=130100 cudnn=91900
 *   algo batch=1 m=8192 n=1600 k=1600 ta=0 tb=1 shared=0 in=bf16 out=bf16 accumulate=0 epilogue=0
 * 00..ff
 *
 *   attention backward=0 causal=1 dtype=bf16 batch=8 seq=1024 kv_heads=25 group=1 head=64
 * kernels=mma
 *
 * One algo line per product; one of fp8 says after in=fp8 tiles=N, which operand's scales are of
 * tiles (0: none's, 1: the left one's, 2: the right one's); its last word is PLAN_ALGO_BYTES in
 * hexadecimal. The bytes are the library's own; whoever hands them back to it has it check them
 * first. Then one line per attention of which there was a choice, with the kernels that were
 * fastest: cudnn, mma or wgmma; before them, one whose values have heads of another size than keys
 * says values=N, one with a sliding window window=N, one that has the keys of other ranks' queries,
 * too, keys=N, one within documents documents=1.
 */
#include "planner/plan/plan_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

enum { MAX_DEVICE_NAME = 127, MAX_ARCH = 15 };
#define MAX_PRODUCT_SIZE (INT64_C(1) << 40)

bool plan_algo_same_product(const PlanAlgo *a, const PlanAlgo *b) {
    const MatmulLayout *x = &a->layout, *y = &b->layout;
    return x->batch == y->batch && x->m == y->m && x->n == y->n && x->k == y->k &&
           x->transpose_a == y->transpose_a && x->transpose_b == y->transpose_b &&
           a->shared == b->shared && a->tiles == b->tiles && a->in_dtype == b->in_dtype &&
           a->out_dtype == b->out_dtype && a->accumulate == b->accumulate &&
           a->epilogue == b->epilogue;
}

const PlanAlgo *plan_find_algo(const PlanDevice *device, const PlanAlgo *product) {
    for (int i = 0; i < device->n_algos; i++) {
        if (plan_algo_same_product(&device->algos[i], product)) return &device->algos[i];
    }
    return NULL;
}

const char *attention_kernels_word(AttentionKernels kernels) {
    static const char *const WORDS[N_ATTENTION_KERNELS] = {[ATTENTION_CUDNN] = "cudnn",
                                                           [ATTENTION_MMA] = "mma",
                                                           [ATTENTION_WGMMA] = "wgmma",
                                                           [ATTENTION_JOINT] = "joint"};
    return WORDS[kernels];
}

bool plan_attention_same(const PlanAttention *a, const PlanAttention *b) {
    return a->backward == b->backward && a->causal == b->causal && a->dtype == b->dtype &&
           a->batch == b->batch && a->seq == b->seq && a->kv_heads == b->kv_heads &&
           a->group == b->group && a->head == b->head && a->values == b->values &&
           a->window == b->window && a->keys == b->keys && a->documents == b->documents;
}

const PlanAttention *plan_find_attention(const PlanDevice *device, const PlanAttention *kind) {
    for (int i = 0; i < device->n_attentions; i++) {
        if (plan_attention_same(&device->attentions[i], kind)) return &device->attentions[i];
    }
    return NULL;
}

int plan_count_attentions(const PlanDevice *device, AttentionKernels kernels) {
    int n = 0;
    for (int i = 0; i < device->n_attentions; i++) n += device->attentions[i].kernels == kernels;
    return n;
}

static void put_algo(StrBuf *out, const PlanAlgo *algo) {
    const MatmulLayout *l = &algo->layout;
    strbuf_printf(out,
                  "algo batch=%" PRId64 " m=%" PRId64 " n=%" PRId64 " k=%" PRId64
                  " ta=%d tb=%d shared=%d in=%s",
                  l->batch, l->m, l->n, l->k, l->transpose_a, l->transpose_b, algo->shared,
                  dtype_name(algo->in_dtype));
    if (algo->in_dtype == DTYPE_FP8) strbuf_printf(out, " tiles=%d", algo->tiles);
    strbuf_printf(out, " out=%s accumulate=%d epilogue=%d ", dtype_name(algo->out_dtype),
                  algo->accumulate, algo->epilogue);
    for (int i = 0; i < PLAN_ALGO_BYTES; i++) strbuf_printf(out, "%02x", algo->bytes[i]);
    strbuf_put(out, "\n");
}

static void put_attention(StrBuf *out, const PlanAttention *a) {
    strbuf_printf(out,
                  "attention backward=%d causal=%d dtype=%s batch=%" PRId64 " seq=%" PRId64
                  " kv_heads=%" PRId64 " group=%" PRId64 " head=%" PRId64,
                  a->backward, a->causal, dtype_name(a->dtype), a->batch, a->seq, a->kv_heads,
                  a->group, a->head);
    if (a->values != a->head) strbuf_printf(out, " values=%" PRId64, a->values);
    if (a->window) strbuf_printf(out, " window=%" PRId64, a->window);
    if (a->keys != a->seq) strbuf_printf(out, " keys=%" PRId64, a->keys);
    if (a->documents) strbuf_put(out, " documents=1");
    strbuf_printf(out, " kernels=%s\n", attention_kernels_word(a->kernels));
}

void plan_put_device(StrBuf *out, const PlanDevice *device) {
    if (!device->name) return;
    strbuf_put(out, "device ");
    plan_put_quoted(out, device->name);
    strbuf_printf(out, " %s cublasLt=%" PRId64 " cudnn=%" PRId64 "\n", device->arch,
                  device->library_version, device->attention_version);
    for (int i = 0; i < device->n_algos; i++) put_algo(out, &device->algos[i]);
    for (int i = 0; i < device->n_attentions; i++) put_attention(out, &device->attentions[i]);
}

static void read_size(PlanReader *reader, const char *name, int64_t most, int64_t *out) {
    if (plan_reader_expect(reader, name)) plan_reader_int(reader, 1, most, out);
}

static void read_bool(PlanReader *reader, const char *name, bool *out) {
    int value = 0;
    if (plan_reader_expect(reader, name)) plan_reader_int32(reader, 0, 1, &value);
    *out = value != 0;
}

static void read_dtype(PlanReader *reader, const char *name, bool fp8, DType *out) {
    if (!plan_reader_expect(reader, name)) return;
    int length = (int)strspn(reader->at, "abcdefghijklmnopqrstuvwxyz0123456789");
    int dtype = dtype_find(reader->at, length);
    bool known = dtype >= 0 && (dtype_is_float((DType)dtype) || (fp8 && dtype == DTYPE_FP8));
    if (!known) {
        plan_reader_fail(reader, "expected f32, bf16%s", fp8 ? ", f16 or fp8" : " or f16");
        return;
    }
    reader->at += length;
    *out = (DType)dtype;
}

static void read_bytes(PlanReader *reader, unsigned char out[PLAN_ALGO_BYTES]) {
    static const char DIGITS[] = "0123456789abcdef";
    if (!plan_reader_expect(reader, "")) return; /* blanks */
    if (strspn(reader->at, DIGITS) != 2 * PLAN_ALGO_BYTES) {
        plan_reader_fail(reader, "expected %d hexadecimal digits", 2 * PLAN_ALGO_BYTES);
        return;
    }
    for (int i = 0; i < PLAN_ALGO_BYTES; i++, reader->at += 2) {
        out[i] = (unsigned char)((strchr(DIGITS, reader->at[0]) - DIGITS) << 4 |
                                 (strchr(DIGITS, reader->at[1]) - DIGITS));
    }
}

/* What follows `algo `. */
static bool read_algo(PlanReader *reader, PlanAlgo *algo) {
    read_size(reader, "batch=", INT_MAX, &algo->layout.batch);
    read_size(reader, "m=", MAX_PRODUCT_SIZE, &algo->layout.m);
    read_size(reader, "n=", MAX_PRODUCT_SIZE, &algo->layout.n);
    read_size(reader, "k=", MAX_PRODUCT_SIZE, &algo->layout.k);
    read_bool(reader, "ta=", &algo->layout.transpose_a);
    read_bool(reader, "tb=", &algo->layout.transpose_b);
    read_bool(reader, "shared=", &algo->shared);
    read_dtype(reader, "in=", true, &algo->in_dtype);
    if (algo->in_dtype == DTYPE_FP8 && plan_reader_expect(reader, "tiles=")) {
        plan_reader_int32(reader, 0, 2, &algo->tiles);
    }
    read_dtype(reader, "out=", false, &algo->out_dtype);
    read_bool(reader, "accumulate=", &algo->accumulate);
    if (plan_reader_expect(reader, "epilogue=")) {
        plan_reader_int32(reader, 0, INT_MAX, &algo->epilogue);
    }
    read_bytes(reader, algo->bytes);
    return !reader->failed;
}

static bool read_names(PlanReader *reader, PlanDevice *out) {
    out->name = plan_reader_quoted(reader);
    if (!out->name) return false;
    size_t length = strlen(out->name);
    if (length < 1 || length > MAX_DEVICE_NAME) {
        return plan_reader_fail(reader, "a device's name has 1 to %d bytes", MAX_DEVICE_NAME);
    }
    plan_reader_expect(reader, ""); /* blanks */
    length = strspn(reader->at, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (length < 1 || length > MAX_ARCH) {
        return plan_reader_fail(reader, "expected the device's architecture, like sm_90");
    }
    out->arch = arena_strndup(reader->arena, reader->at, length);
    reader->at += length;
    return plan_reader_expect(reader, "cublasLt=") &&
           plan_reader_int(reader, 0, INT_MAX, &out->library_version) &&
           plan_reader_expect(reader, "cudnn=") &&
           plan_reader_int(reader, 0, INT_MAX, &out->attention_version);
}

static void read_kernels(PlanReader *reader, AttentionKernels *out) {
    if (!plan_reader_expect(reader, "kernels=")) return;
    size_t length = strspn(reader->at, "abcdefghijklmnopqrstuvwxyz");
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        const char *word = attention_kernels_word((AttentionKernels)k);
        if (strlen(word) != length || strncmp(reader->at, word, length) != 0) continue;
        reader->at += length;
        *out = (AttentionKernels)k;
        return;
    }
    plan_reader_fail(reader, "expected cudnn, mma, wgmma or joint");
}

/* What follows `attention `. */
static bool read_attention(PlanReader *reader, PlanAttention *attention) {
    read_bool(reader, "backward=", &attention->backward);
    read_bool(reader, "causal=", &attention->causal);
    read_dtype(reader, "dtype=", false, &attention->dtype);
    read_size(reader, "batch=", INT_MAX, &attention->batch);
    read_size(reader, "seq=", INT_MAX, &attention->seq);
    read_size(reader, "kv_heads=", INT_MAX, &attention->kv_heads);
    read_size(reader, "group=", INT_MAX, &attention->group);
    read_size(reader, "head=", INT_MAX, &attention->head);
    attention->values = attention->head;
    if (plan_reader_accept(reader, "values="))
        plan_reader_int(reader, 1, INT_MAX, &attention->values);
    if (plan_reader_accept(reader, "window="))
        plan_reader_int(reader, 1, INT_MAX, &attention->window);
    attention->keys = attention->seq;
    if (plan_reader_accept(reader, "keys=")) plan_reader_int(reader, 1, INT_MAX, &attention->keys);
    attention->documents = plan_reader_accept(reader, "documents=1");
    read_kernels(reader, &attention->kernels);
    return !reader->failed;
}

static bool read_attentions(PlanReader *reader, PlanDevice *out) {
    int capacity = 0;
    for (;;) {
        PlanReader line = *reader;
        PlanAttention attention = {0};
        if (!plan_reader_accept(reader, "attention ")) return true;
        if (out->n_attentions == MAX_PLAN_ATTENTIONS) {
            return plan_reader_fail(reader, "more than %d attentions", MAX_PLAN_ATTENTIONS);
        }
        if (!read_attention(reader, &attention)) return false;
        if (plan_find_attention(out, &attention)) {
            reader->at = line.at;
            return plan_reader_fail(reader, "an attention that was there before");
        }
        if (!plan_reader_end_line(reader)) return false;
        ARENA_PUSH(reader->arena, out->attentions, out->n_attentions, capacity, attention);
    }
}

bool plan_reader_device(PlanReader *reader, PlanDevice *out) {
    int capacity = 0;
    if (!plan_reader_accept(reader, "device ")) return !reader->failed;
    if (!read_names(reader, out) || !plan_reader_end_line(reader)) return false;
    for (;;) {
        PlanReader line = *reader; /* where a product that is there twice is reported */
        PlanAlgo algo = {0};
        if (!plan_reader_accept(reader, "algo ")) return read_attentions(reader, out);
        if (out->n_algos == MAX_PLAN_ALGOS) {
            return plan_reader_fail(reader, "more than %d products", MAX_PLAN_ALGOS);
        }
        if (!read_algo(reader, &algo)) return false;
        for (int i = 0; i < out->n_algos; i++) {
            if (!plan_algo_same_product(&out->algos[i], &algo)) continue;
            reader->at = line.at;
            return plan_reader_fail(reader, "a product that was there before");
        }
        if (!plan_reader_end_line(reader)) return false;
        ARENA_PUSH(reader->arena, out->algos, out->n_algos, capacity, algo);
    }
}
