/* Kernels on shards, in f32, bf16 and f16: small graphs divided over a mesh, run by all ranks at
 * once, each part compared with that part of the whole value in float64.
 *
 * Would catch: a shard that takes itself for the first one (tokens, positions, dropout masks),
 * padding read or not written as zero, a message over the wrong ranks, axis or reduction. No size
 * is a multiple of the mesh's. Names say what leaves are like; ranks share partial ones. */
#include "tests/support/kernel_run.h"
#include "tests/support/op_cases.h"
#include "tests/unit/check.h"
#include "tests/unit/fp8_nodes.h"
#include "tests/unit/ops_sharded_rule.h"

#include <string.h>

/* f32: a few roundings, as in test_ops; partial sums add one more. In 16 bits each rank's part of a
 * sum is rounded before it is sent, by up to 2^-8 = 0.004 or 2^-11, and values rounded the other
 * way than the reference's are read again by the next op. */
static const double TOLERANCE[N_DTYPES] = {
    [DTYPE_F32] = 3e-6, [DTYPE_BF16] = 0.015, [DTYPE_F16] = 0.002};

typedef struct ShardedCase {
    const char *name, *mesh;
    bool nonzero_pads; /* the result's padding need not be zero */
    const char *nodes;
} ShardedCase;

#define PARAM(id, values, type)                                                                    \
    "%" #id " = param() {name=\"" values "\", init=\"zeros\", decay=1} : f32[" type "\n"
#define TOKENS(id, values, type) "%" #id " = input() {name=\"" values "\"} : i32[" type "\n"

/* Of %0 and %1; %4 and %6 are the whole log-sum-exps of their rows. */
#define DIVERGENCE(beta)                                                                           \
    {                                                                                              \
        "divergence over a divided vocabulary, beta " beta, "t=3, d=2, p=1", false,                \
            PARAM(0, "", "batch=4/d, seq=3, vocab=11/t]")                                          \
                PARAM(1, "", "batch=4/d, seq=3, vocab=11/t]")                                      \
                    PARAM(2, "", "batch=4/d, seq=3]") "%3 = logsumexp(%0) {axis=vocab} : "         \
                                                      "f32[batch=4/d, seq=3]~lse(t)\n"             \
                                                      "%4 = all_reduce(%3) {mesh=\"t\"} : "        \
                                                      "f32[batch=4/d, seq=3]\n"                    \
                                                      "%5 = logsumexp(%1) {axis=vocab} : "         \
                                                      "f32[batch=4/d, seq=3]~lse(t)\n"             \
                                                      "%6 = all_reduce(%5) {mesh=\"t\"} : "        \
                                                      "f32[batch=4/d, seq=3]\n"                    \
                                                      "%7:2 = divergence_rows(%0, %1, %4, %6) "    \
                                                      "{axis=vocab, beta=" beta "} : "             \
                                                      "f32[batch=4/d, seq=3]~sum(t), "             \
                                                      "f32[batch=4/d, seq=3]~sum(t)\n"             \
                                                      "%8 = all_reduce(%7) {mesh=\"t\"} : "        \
                                                      "f32[batch=4/d, seq=3]\n"                    \
                                                      "%9 = all_reduce(%7.1) {mesh=\"t\"} : "      \
                                                      "f32[batch=4/d, seq=3]\n"                    \
                                                      "%10 = divergence_grad(%0, %1, %4, %6, %9, " \
                                                      "%2) {axis=vocab, beta=" beta "} : "         \
                                                      "f32[batch=4/d, seq=3, vocab=11/t]\n"        \
    }

static const ShardedCase CASES[] = {
    {"embedding, rows of the table divided", "t=2, d=1, p=1", false,
     TOKENS(0, "#7", "batch=2, seq=5]")
         PARAM(1, "", "vocab=7/t, model=3]") "%2 = embedding(%0, %1) {axis=vocab} : f32[batch=2, "
                                             "seq=5, model=3]~sum(t)\n"
                                             "%3 = all_reduce(%2) {mesh=\"t\"} : f32[batch=2, "
                                             "seq=5, model=3]\n"},
    {"embedding, rows of the table and tokens divided", "t=3, d=2, p=1",
     true, /* padding of tokens is token 0 */
     TOKENS(0, "#7", "batch=3/d, seq=5]")
         PARAM(1, "", "vocab=7/t, model=3]") "%2 = embedding(%0, %1) {axis=vocab} : f32[batch=3/d, "
                                             "seq=5, model=3]~sum(t)\n"
                                             "%3 = reduce_scatter(%2) {mesh=\"t\", axis=seq} : "
                                             "f32[batch=3/d, seq=5/t, model=3]\n"},
    {"embedding_grad, rows of the table divided", "t=3, d=1, p=1", false,
     TOKENS(0, "#7", "batch=2, seq=5]") PARAM(1, "", "batch=2, seq=5, model=3]")
         PARAM(2, "", "vocab=7/t, model=3]") "%3 = embedding_grad(%0, %1, %2) {axis=vocab} : "
                                             "f32[vocab=7/t, model=3]\n"},
    {"embedding_grad, tokens divided", "t=1, d=2, p=1", false,
     TOKENS(0, "#7", "batch=4/d, seq=5]") PARAM(1, "", "batch=4/d, seq=5, model=3]") PARAM(
         2, "", "vocab=7, model=3]") "%3 = embedding_grad(%0, %1, %2) {axis=vocab} : f32[vocab=7, "
                                     "model=3]~sum(d)\n"
                                     "%4 = all_reduce(%3) {mesh=\"d\"} : f32[vocab=7, model=3]\n"},
    {"cross-entropy over a divided vocabulary", "t=3, d=2, p=1", false,
     PARAM(0, "", "batch=4/d, seq=3, vocab=11/t]") TOKENS(1, "#11", "batch=4/d, seq=3]") PARAM(
         2, "",
         "batch=4/d, seq=3]") "%3 = logsumexp(%0) {axis=vocab} : f32[batch=4/d, seq=3]~lse(t)\n"
                              "%4 = all_reduce(%3) {mesh=\"t\"} : f32[batch=4/d, seq=3]\n"
                              "%5 = pick(%0, %1) {axis=vocab} : f32[batch=4/d, seq=3]~sum(t)\n"
                              "%6 = all_reduce(%5) {mesh=\"t\"} : f32[batch=4/d, seq=3]\n"
                              "%7 = cross_entropy_grad(%0, %1, %4, %2) {axis=vocab} : "
                              "f32[batch=4/d, seq=3, "
                              "vocab=11/t]\n"},
    DIVERGENCE("0"),
    DIVERGENCE("0.3"),
    DIVERGENCE("1"),
    STORED_DIVERGENCE,
    {"rotary, positions divided", "t=1, d=3, p=1", false,
     PARAM(0, "",
           "batch=2, seq=7/d, heads=2, head=6]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                                 "direction=1} : f32[batch=2, seq=7/d, heads=2, "
                                                 "head=6]\n"
                                                 "%2 = rotary(%1) {seq=seq, head=head, base=100, "
                                                 "direction=-1} : f32[batch=2, seq=7/d, "
                                                 "heads=2, head=6]\n"},
    {"rotary of a part, positions and heads divided", "t=2, d=3, p=1", false,
     PARAM(0, "",
           "batch=2, seq=7/d, heads=4/t, head=6]") "%1 = rotary(%0) {seq=seq, head=head, base=100, "
                                                   "direction=1, turned=4} : f32[batch=2, "
                                                   "seq=7/d, heads=4/t, head=6]\n"
                                                   "%2 = rotary(%1) {seq=seq, head=head, base=100, "
                                                   "direction=-1, turned=2} : f32[batch=2, "
                                                   "seq=7/d, heads=4/t, head=6]\n"},
    {"dropout, batch and columns divided", "t=2, d=2, p=1", false,
     PARAM(0, "+", "batch=3/d, seq=5, model=7/t]") "%1 = dropout(%0) {p=0.4, key=3} : "
                                                   "f32[batch=3/d, seq=5, model=7/t]\n"},
    {"dropout, positions divided", "t=3, d=1, p=1", false,
     PARAM(0, "+", "batch=3, seq=7/t, model=5]") "%1 = dropout(%0) {p=0.4, key=3} : f32[batch=3, "
                                                 "seq=7/t, model=5] @b4\n"},
    {"fused with dropout and broadcasts", "t=2, d=2, p=1", true,
     PARAM(0, "", "batch=3/d, seq=5, ffn=7/t]") PARAM(1, "", "ffn=7/t]")
         PARAM(2, "", "batch=3/d, seq=5]") "%3:3 = fused(%0, %1, %2) {program=\"t0=add(i0,i1) "
                                           "t1=gelu(t0) t2=dropout(t1,p=0.5,key=9) "
                                           "t3=mul(t2,i2) -> t3 t0 t1\"} : f32[batch=3/d, seq=5, "
                                           "ffn=7/t], f32[batch=3/d, seq=5, "
                                           "ffn=7/t], f32[batch=3/d, seq=5, ffn=7/t]\n"},
    {"elementwise, operands with other axis orders", "t=2, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=5/t]")
         PARAM(1, "",
               "cols=5/t, rows=3]") "%2 = mul(%0, %1) : f32[rows=3, cols=5/t]\n"
                                    "%3 = transpose(%2) {to=[cols, rows]} : f32[cols=5/t, rows=3]\n"
                                    "%4 = add_n(%3, %1, %3) : f32[cols=5/t, rows=3]\n"
                                    "%5 = reduce_sum(%4) {over=[rows]} : f32[cols=5/t]\n"
                                    "%6 = broadcast(%5) : f32[a=2, cols=5/t, rows=3]\n"},
    {"slice and all_gather, each axis", "t=3, d=2, p=1", false,
     PARAM(0, "",
           "a=7, b=5, c=11]") "%1 = slice(%0) {mesh=\"t\", axis=a} : f32[a=7/t, b=5, c=11]\n"
                              "%2 = slice(%1) {mesh=\"d\", axis=c} : f32[a=7/t, b=5, c=11/d]\n"
                              "%3 = all_gather(%2) {mesh=\"t\", axis=a} : f32[a=7, b=5, c=11/d]\n"
                              "%4 = slice(%3) {mesh=\"t\", axis=b} : f32[a=7, b=5/t, c=11/d]\n"
                              "%5 = all_gather(%4) {mesh=\"d\", axis=c} : f32[a=7, b=5/t, c=11]\n"
                              "%6 = all_gather(%5) {mesh=\"t\", axis=b} : f32[a=7, b=5, c=11]\n"},
    {"copies to the host and back", "t=3, d=2, p=1", false,
     PARAM(0, "", "a=7/d, b=5, c=11/t]") "%1 = offload(%0) : f32[a=7/d, b=5, c=11/t]\n"
                                         "%2 = fetch(%1) : f32[a=7/d, b=5, c=11/t]\n"},
    {"all_gather over what was there before", "t=3, d=2, p=1", false,
     PARAM(0, "",
           "a=7, b=5, c=11/t]") "%1 = slice(%0) {mesh=\"d\", axis=a} : f32[a=7/d, b=5, c=11/t]\n"
                                "%2 = scale(%1) {value=2} : f32[a=7/d, b=5, c=11/t]\n"
                                "%3 = all_gather(%2, %0) {mesh=\"d\", axis=a} : "
                                "f32[a=7, b=5, c=11/t]\n"},
    {"all_reduce, sums", "t=3, d=2, p=1", false,
     PARAM(0, "", "a=7/d, b=5]~sum(t)") "%1 = all_reduce(%0) {mesh=\"t\"} : f32[a=7/d, b=5]\n"},
    {"all_reduce, maxima", "t=2, d=1, p=1", false,
     PARAM(0, "", "a=7, b=5]~max(t)") "%1 = all_reduce(%0) {mesh=\"t\"} : f32[a=7, b=5]\n"},
    {"all_reduce, log-sum-exp", "t=3, d=1, p=1", false,
     PARAM(0, "", "a=7, b=5]~lse(t)") "%1 = all_reduce(%0) {mesh=\"t\"} : f32[a=7, b=5]\n"},
    {"all_reduce, two mesh axes", "t=3, d=2, p=1", false,
     PARAM(0, "", "a=7, b=5]~sum(t,d)") "%1 = all_reduce(%0) {mesh=\"d\"} : f32[a=7, b=5]~sum(t)\n"
                                        "%2 = all_reduce(%1) {mesh=\"t\"} : f32[a=7, b=5]\n"},
    {"reduce_scatter, each axis", "t=3, d=2, p=1", false,
     PARAM(0, "", "a=7, b=5, c=11]~sum(t,d)") "%1 = reduce_scatter(%0) {mesh=\"t\", axis=b} : "
                                              "f32[a=7, b=5/t, c=11]~sum(d)\n"
                                              "%2 = reduce_scatter(%1) {mesh=\"d\", axis=c} : "
                                              "f32[a=7, b=5/t, c=11/d]\n"},
    {"stage_reduce", "t=1, d=1, p=3", false,
     PARAM(0, "", "a=7, b=5]~sum(p)") "%1 = stage_reduce(%0) {comm=\"all\"} : f32[a=7, b=5]\n"},
    {"matmul, columns then summed axis divided", "t=3, d=2, p=1", false,
     PARAM(0, "", "batch=3/d, seq=3, model=5]") PARAM(1, "", "model=5, ffn=7/t]") PARAM(
         2, "",
         "ffn=7/t, model=5]") "%3 = matmul(%0, %1) {over=[model]} : f32[batch=3/d, seq=3, "
                              "ffn=7/t]\n"
                              "%4 = matmul(%3, %2) {over=[ffn]} : f32[batch=3/d, seq=3, "
                              "model=5]~sum(t)\n"
                              "%5 = all_reduce(%4) {mesh=\"t\"} : f32[batch=3/d, seq=3, model=5]\n"
                              "%6 = matmul(%3, %5) {over=[batch, seq]} : f32[ffn=7/t, "
                              "model=5]~sum(d)\n"
                              "%7 = all_reduce(%6) {mesh=\"d\"} : f32[ffn=7/t, model=5]\n"},
    {"matmul, a divided batch of products", "t=2, d=1, p=1", false,
     PARAM(0, "", "b=3/t, m=4, k=5]") PARAM(1, "", "b=3/t, n=2, k=5]") PARAM(
         2, "", "b=3/t, m=4, n=2]") "%3 = matmul(%0, %1) {over=[k]} : f32[b=3/t, m=4, n=2]\n"
                                    "%4 = matmul(%0, %1, %2) {over=[k]} : f32[b=3/t, m=4, n=2]\n"},
    {"layernorm and its gradient, rows divided", "t=2, d=2, p=1", true,
     PARAM(0, "", "batch=3/d, seq=5/t, model=7]") PARAM(1, "", "model=7]") PARAM(2, "", "model=7]")
         PARAM(3, "",
               "batch=3/d, seq=5/t, model=7]") "%4:3 = layernorm(%0, %1, %2) {axis=model, "
                                               "eps=0.001} : f32[batch=3/d, seq=5/t, model=7], "
                                               "f32[batch=3/d, seq=5/t], f32[batch=3/d, seq=5/t]\n"
                                               "%5:3 = layernorm_grad(%0, %1, %4.1, %4.2, %3) "
                                               "{axis=model} : f32[batch=3/d, seq=5/t, "
                                               "model=7], f32[model=7]~sum(t,d), "
                                               "f32[model=7]~sum(t,d)\n"
                                               "%6 = all_reduce(%5.1) {mesh=\"t\"} : "
                                               "f32[model=7]~sum(d)\n"
                                               "%7 = all_reduce(%6) {mesh=\"d\"} : f32[model=7]\n"
                                               "%8 = all_reduce(%5.2) {mesh=\"t\"} : "
                                               "f32[model=7]~sum(d)\n"
                                               "%9 = all_reduce(%8) {mesh=\"d\"} : f32[model=7]\n"},
    {"rmsnorm and its gradient, rows divided", "t=2, d=2, p=1", true,
     PARAM(0, "", "batch=3/d, seq=5/t, model=7]") PARAM(1, "", "model=7]")
         PARAM(2, "",
               "batch=3/d, seq=5/t, model=7]") "%3:2 = rmsnorm(%0, %1) {axis=model, eps=0.001} : "
                                               "f32[batch=3/d, seq=5/t, model=7], "
                                               "f32[batch=3/d, seq=5/t]\n"
                                               "%4:2 = rmsnorm_grad(%0, %1, %3.1, %2) {axis=model} "
                                               ": f32[batch=3/d, seq=5/t, model=7], "
                                               "f32[model=7]~sum(t,d)\n"
                                               "%5 = all_reduce(%4.1) {mesh=\"t\"} : "
                                               "f32[model=7]~sum(d)\n"
                                               "%6 = all_reduce(%5) {mesh=\"d\"} : f32[model=7]\n"},
    {"attention and its gradient, heads divided", "t=2, d=2, p=1", true,
     PARAM(0, "", "batch=2/d, seq=5, kv=3/t, group=2, head=4]")
         PARAM(1, "", "batch=2/d, seq=5, kv=3/t, head=4]")
             PARAM(2, "", "batch=2/d, seq=5, kv=3/t, head=4]") PARAM(
                 3, "",
                 "batch=2/d, seq=5, kv=3/t, group=2, head=4]") "%4:2 = attention(%0, %1, %2) "
                                                               "{seq=seq, head=head, causal=1, "
                                                               "scale=0.5, p=0.5, key=4} : "
                                                               "f32[batch=2/d, seq=5, kv=3/t, "
                                                               "group=2, head=4], f32[batch=2/d, "
                                                               "seq=5, kv=3/t, group=2]\n"
                                                               "%5:3 = attention_grad(%0, %1, %2, "
                                                               "%4, %4.1, %3) {seq=seq, head=head, "
                                                               "causal=1, scale=0.5, p=0.5, key=4} "
                                                               ": f32[batch=2/d, seq=5, kv=3/t, "
                                                               "group=2, head=4], f32[batch=2/d, "
                                                               "seq=5, kv=3/t, head=4], "
                                                               "f32[batch=2/d, seq=5, kv=3/t, "
                                                               "head=4]\n"},
    {"update of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]")
         PARAM(2, ":0", "rows=3, cols=7/t]") PARAM(3, ":0", "rows=3, cols=7/t]")
             PARAM(4, ":0.03125", "]") PARAM(5, ":1", "]") PARAM(6, "", "rows=3, cols=7/t]") PARAM(
                 7, ":0", "rows=3, cols=7/t]") "%8 = const() {value=0.5} : f32[]\n"
                                               "%9 = accumulate(%1, %0) : f32[rows=3, cols=7/t]\n"
                                               "%10 = sumsq(%9) : f32[]~sum(t)\n"
                                               "%11 = all_reduce(%10) {mesh=\"t\"} : f32[]\n"
                                               "%12 = add_n(%11, %8) : f32[]\n"
                                               "%13 = clip_scale(%12) {max_norm=1} : f32[]\n"
                                               "%14:2 = sgd(%6, %9, %7, %13, %4) {momentum=0.9, "
                                               "weight_decay=0.1} : f32[rows=3, cols=7/t], "
                                               "f32[rows=3, cols=7/t]\n"
                                               "%15:3 = adamw(%0, %9, %2, %3, %13, %4, %5) "
                                               "{beta1=0.9, beta2=0.95, eps=1e-08, "
                                               "weight_decay=0.1} : f32[rows=3, cols=7/t], "
                                               "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t]\n"},
    {"Lion of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]")
         PARAM(2, ":0", "rows=3, cols=7/t]") PARAM(3, ":0.03125", "]") PARAM(
             4, ":0.5",
             "]") "%5:2 = lion(%0, %1, %2, %4, %3) {beta1=0.9, beta2=0.99, weight_decay=0.1} : "
                  "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t]\n"},
    {"formulas of a divided parameter", "t=3, d=1, p=1", false, RULE_NODES},
    {"the average of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]") PARAM(2, ":0.5", "]")
         PARAM(3, ":5", "]") "%4 = ema(%0, %1, %2, %3) {decay=0.999} : f32[rows=3, cols=7/t]\n"},
    {"Muon of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]")
         PARAM(2, "", "rows=3, cols=7/t]") PARAM(3, ":0.03125", "]") PARAM(
             4, ":0.5",
             "]") "%5:2 = muon_momentum(%1, %4, %2) {momentum=0.95} : f32[rows=3, cols=7/t], "
                  "f32[rows=3, cols=7/t]\n"
                  "%6 = sumsq(%5.1) : f32[]~sum(t)\n"
                  "%7 = all_reduce(%6) {mesh=\"t\"} : f32[]\n"
                  "%8 = rsqrt(%7) : f32[]\n"
                  "%9 = mul(%5.1, %8) : f32[rows=3, cols=7/t]\n"
                  "%10 = matmul(%9, %9) {over=[cols], to=[rows, too]} : f32[rows=3, too=3]~sum(t)\n"
                  "%11 = all_reduce(%10) {mesh=\"t\"} : f32[rows=3, too=3]\n"
                  "%12 = matmul(%11, %11) {over=[too], to=[rows, too]} : f32[rows=3, too=3]\n"
                  "%13 = matmul(%12, %9) {over=[rows], to=[rows, cols]} : f32[rows=3, cols=7/t]\n"
                  "%14 = to_bf16(%13) : bf16[rows=3, cols=7/t]\n"
                  "%15 = muon(%0, %14, %4, %3) {scale=1, weight_decay=0.1} : f32[rows=3, "
                  "cols=7/t]\n"},
    {"a balanced parameter is whole", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=5]") PARAM(1, "", "rows=5]")
         PARAM(2, ":0.5", "]") "%3 = balance(%0, %1, %2) {balance=0.25} : f32[rows=5]\n"},
    {"LAMB of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]") PARAM(2, "+",
                                                                               "rows=3, cols=7/t]")
         PARAM(3, "", "rows=3, cols=7/t]") PARAM(4, ":0.5", "]") PARAM(5, ":0.03125", "]")
             PARAM(6, ":3",
                   "]") "%7:4 = lamb_moments(%0, %1, %2, %4, %6, %3) {beta1=0.9, beta2=0.999, "
                        "eps=1e-06, weight_decay=0.1} : f32[rows=3, cols=7/t], f32[rows=3, "
                        "cols=7/t], f32[]~sum(t), f32[]~sum(t)\n"
                        "%8 = stack(%7.2, %7.3) {to=[norms], count=2} : f32[norms=2]~sum(t)\n"
                        "%9 = all_reduce(%8) {mesh=\"t\"} : f32[norms=2]\n"
                        "%10 = narrow(%9) {axis=norms, first=0} : f32[]\n"
                        "%11 = narrow(%9) {axis=norms, first=1} : f32[]\n"
                        "%12 = lamb(%0, %7, %7.1, %4, %5, %6, %10, %11) {beta1=0.9, beta2=0.999, "
                        "eps=1e-06, weight_decay=0.1} : f32[rows=3, cols=7/t]\n"},
    {"Muon of a stack, a matrix for each rank", "t=1, d=3, p=1", false,
     PARAM(0, "", "rows=2, cols=6/d]") PARAM(
         1, "",
         "rows=2, cols=6/d]") "%2 = stack(%0, %1) {to=[each], count=3} : f32[each=3, rows=2, "
                              "cols=6/d]\n"
                              "%3 = all_to_all(%2) {axis=each, over=[cols], mesh=\"d\"} : "
                              "f32[each=3/d, rows=2, cols=6]\n"
                              "%4 = matmul(%3, %3) {over=[cols], to=[each, rows, too], "
                              "shared=[each]} : f32[each=3/d, "
                              "rows=2, too=2]\n"
                              "%5 = matmul(%4, %4) {over=[too], to=[each, rows, too], "
                              "shared=[each]} : f32[each=3/d, "
                              "rows=2, too=2]\n"
                              "%6 = matmul(%5, %3) {over=[rows], to=[each, rows, cols], "
                              "shared=[each]} : f32[each=3/d, "
                              "rows=2, cols=6]\n"
                              "%7 = all_to_all(%6) {axis=cols, over=[each], mesh=\"d\"} : "
                              "f32[each=3, rows=2, cols=6/d]\n"
                              "%8 = narrow(%7) {axis=each, first=1} : f32[rows=2, cols=6/d]\n"},
    {"Muon's step in f16", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]") PARAM(2, ":0.03125", "]")
         PARAM(3, ":0.5", "]") "%4 = to_f16(%1) : f16[rows=3, cols=7/t]\n"
                               "%5 = muon(%0, %4, %3, %2) {scale=1, weight_decay=0.1} : "
                               "f32[rows=3, cols=7/t]\n"},
    {"largest scores of rows that c and d divide, of heads that t divides", "t=2, c=2, d=2, p=1",
     true, /* lse of a head that is padding */
     PARAM(0, "", "batch=4/d, seq=8/c, kv=3/t, group=2, head=4]") PARAM(
         1, "", "batch=4/d, seq=8, kv=3/t, head=4]") PARAM(2, "",
                                                           "batch=4/d, seq=8, kv=3/t, head=4]")
         PARAM(3, ":-9",
               "kv=3/t, group=2]") "%4:3 = attention(%0, %1, %2) {seq=seq, head=head, causal=1, "
                                   "scale=2, largest=1} : f32[batch=4/d, seq=8/c, kv=3/t, group=2, "
                                   "head=4], f32[batch=4/d, seq=8/c, kv=3/t, group=2], "
                                   "f32[batch=4/d, seq=8/c, kv=3/t, group=2]\n"
                                   "%5 = largest(%3, %4.2) : f32[kv=3/t, group=2]~max(c,d)\n"
                                   "%6 = all_reduce(%5) {mesh=\"c\"} : f32[kv=3/t, "
                                   "group=2]~max(d)\n"
                                   "%7 = all_reduce(%6) {mesh=\"d\"} : f32[kv=3/t, group=2]\n"
                                   "%8 = max_n(%7) : f32[]~max(t)\n"
                                   "%9 = all_reduce(%8) {mesh=\"t\"} : f32[]\n"},
    {"factors of a divided parameter", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, kv=7/t, head=2]") PARAM(1, "", "rows=3, kv=7/t, head=2]")
         PARAM(2, ":0.03125", "]") PARAM(3, ":0.5", "]")
             PARAM(4, "+", "kv=7/t]") "%5 = muon(%0, %1, %3, %2, %4) {scale=1, weight_decay=0.1} : "
                                      "f32[rows=3, kv=7/t, head=2]\n"},
    {"loss scale", "t=2, d=1, p=1", false,
     PARAM(0, ":6553600", "]") PARAM(1, ":1024", "]") PARAM(2, ":1", "]") PARAM(
         3, ":5", "]") "%4:2 = clip_scale(%0, %1) {max_norm=1} : f32[], f32[]\n"
                       "%5:3 = loss_scale(%4, %1, %2, %3) {interval=2} : f32[], f32[], f32[]\n"},
    {"a spike of summed squares", "t=3, d=1, p=1", false,
     PARAM(0, ":3", "rows=3, cols=7/t]")
         PARAM(1, ":8", "]") "%2 = sumsq(%0) : f32[]~sum(t)\n"
                             "%3 = all_reduce(%2) {mesh=\"t\"} : f32[]\n"
                             "%4 = clip_scale(%3) {max_norm=1} : f32[]\n"
                             "%5 = skip_spike(%4, %3, %1) : f32[]\n"},
    {"accumulate, a divided share", "t=2, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]")
         PARAM(1, "", "rows=3, cols=7/t]") "%2 = accumulate(%0, %1) : f32[rows=3, cols=7/t]\n"},
    {"update of a divided parameter and its copy", "t=3, d=1, p=1", false,
     PARAM(0, "", "rows=3, cols=7/t]") PARAM(1, "", "rows=3, cols=7/t]") PARAM(
         2, ":0", "rows=3, cols=7/t]") PARAM(3, ":0", "rows=3, cols=7/t]") PARAM(4, ":0.03125", "]")
         PARAM(5, ":1", "]") PARAM(6, ":0.5", "]") PARAM(7, "", "rows=3, cols=7/t]") PARAM(
             8, ":0",
             "rows=3, cols=7/t]") "%9 = state() {name=\"\", of=\"p\"} : bf16[rows=3, cols=7/t]\n"
                                  "%10 = state() {name=\"\", of=\"q\"} : bf16[rows=3, cols=7/t]\n"
                                  "%11:4 = adamw(%0, %1, %2, %3, %6, %4, %5, %9) {beta1=0.9, "
                                  "beta2=0.95, eps=1e-08, "
                                  "weight_decay=0.1} : f32[rows=3, cols=7/t], f32[rows=3, "
                                  "cols=7/t], f32[rows=3, cols=7/t], "
                                  "bf16[rows=3, cols=7/t]\n"
                                  "%12:3 = sgd(%7, %1, %8, %6, %4, %10) {momentum=0.9, "
                                  "weight_decay=0.1} : f32[rows=3, "
                                  "cols=7/t], f32[rows=3, cols=7/t], bf16[rows=3, cols=7/t]\n"},
    {"parts of axes beside divided ones", "t=3, d=2, p=1", false,
     PARAM(0, "", "batch=4/d, seq=6, kv=5/t, head=7]")
         PARAM(1, "",
               "batch=4/d, seq=6, kv=5/t, rope=2]") "%2 = narrow(%0) {axis=head, to=[nope], "
                                                    "first=3, count=4} : f32[batch=4/d, seq=6, "
                                                    "kv=5/t, nope=4]\n"
                                                    "%3 = concat(%2, %1, %2) {over=[nope, rope], "
                                                    "to=[wide]} : f32[batch=4/d, seq=6, kv=5/t, "
                                                    "wide=10]\n"
                                                    "%4 = pad(%1) {axis=rope, to=[head], first=4, "
                                                    "count=7} : f32[batch=4/d, seq=6, kv=5/t, "
                                                    "head=7]\n"
                                                    "%5 = narrow(%0) {axis=head, first=6} : "
                                                    "f32[batch=4/d, seq=6, kv=5/t]\n"
                                                    "%6 = pad(%5) {to=[two], first=1, count=2, "
                                                    "at=2} : f32[batch=4/d, seq=6, two=2, kv=5/t]\n"
                                                    "%7 = shift(%0) {axis=seq, by=-2} : "
                                                    "f32[batch=4/d, seq=6, kv=5/t, head=7]\n"
                                                    "%8 = shift(%4) {axis=head, by=1} : "
                                                    "f32[batch=4/d, seq=6, kv=5/t, head=7]\n"},
    {"pairs of rows that are divided", "t=3, d=2, p=1", false,
     PARAM(0, "", "batch=4/d, seq=7/t]") "%1 = of_pairs(%0) {axis=batch, from=1, into=0} : "
                                         "f32[batch=4/d, seq=7/t]\n"
                                         "%2 = of_pairs(%0) {axis=batch, from=0, into=0} : "
                                         "f32[batch=4/d, seq=7/t]\n"},
    {"experts divided, of tokens that are divided", "t=2, d=2, p=1",
     true, /* padding of choices is expert 0 */
     PARAM(0, "", "batch=3/d, seq=7, routes=5]") PARAM(1, "", "batch=3/d, seq=7, model=3]") TOKENS(
         2, "#5", "batch=3/d, seq=7, choice=2]") PARAM(3, "", "batch=3/d, seq=7, choice=2]")
         PARAM(
             4, "",
             "experts=5/t, batch=3/d, slot=3, model=3]") "%5 = top(%0) {axis=routes, to=[choice], "
                                                         "count=2} : i32[batch=3/d, seq=7, "
                                                         "choice=2]\n"
                                                         "%6 = take(%0, %2) {axis=routes} : "
                                                         "f32[batch=3/d, seq=7, choice=2]\n"
                                                         "%7 = put(%3, %2) {axis=routes, count=5} "
                                                         ": f32[batch=3/d, seq=7, routes=5]\n"
                                                         "%8:3 = route(%2) {to=[experts, slot, "
                                                         "routes], experts=5, slots=3} : "
                                                         "i32[batch=3/d, seq=7, "
                                                         "choice=2], i32[experts=5/t, batch=3/d, "
                                                         "slot=3], f32[batch=3/d, routes=5]\n"
                                                         "%9 = dispatch(%1, %8, %8.1, %3) : "
                                                         "f32[experts=5/t, batch=3/d, slot=3, "
                                                         "model=3]\n"
                                                         "%10 = combine(%4, %8, %8.1, %3) : "
                                                         "f32[batch=3/d, seq=7, model=3]~sum(t)\n"
                                                         "%11 = all_reduce(%10) {mesh=\"t\"} : "
                                                         "f32[batch=3/d, seq=7, model=3]\n"
                                                         "%12 = slot_dot(%4, %8, %8.1, %1) : "
                                                         "f32[batch=3/d, seq=7, choice=2]~sum(t)\n"
                                                         "%13 = all_reduce(%12) {mesh=\"t\"} : "
                                                         "f32[batch=3/d, seq=7, choice=2]\n"},
    {"slice and all_gather, a sequence dealt out by c, and divided by t", "t=3, c=2, d=1, p=1",
     false,
     PARAM(0, "",
           "a=3, seq=12, b=5]") "%1 = slice(%0) {mesh=\"c\", axis=seq} : f32[a=3, seq=12/c, b=5]\n"
                                "%2 = slice(%1) {mesh=\"t\", axis=seq} : f32[a=3, seq=12/ct, b=5]\n"
                                "%3 = all_gather(%2) {mesh=\"t\", axis=seq} : f32[a=3, seq=12/c, "
                                "b=5]\n"
                                "%4 = all_gather(%3) {mesh=\"c\", axis=seq} : f32[a=3, seq=12, "
                                "b=5]\n"},
    {"slice and all_to_all, each axis", "t=1, e=2, d=2, p=1", false,
     PARAM(0, "", "a=4, b=8, c=6]") "%1 = slice(%0) {mesh=\"e\", axis=b} : f32[a=4, b=8/e, c=6]\n"
                                    "%2 = all_to_all(%1) {axis=c, over=[b], mesh=\"e\"} : "
                                    "f32[a=4, b=8, c=6/e]\n"
                                    "%3 = all_to_all(%2) {axis=a, over=[c], mesh=\"e\"} : "
                                    "f32[a=4/e, b=8, c=6]\n"
                                    "%4 = all_to_all(%3) {axis=b, over=[a], mesh=\"e\"} : "
                                    "f32[a=4, b=8/e, c=6]\n"},
    {"all_to_all over c, from a sequence that it deals out to heads, and back",
     "t=2, c=2, d=1, p=1", false,
     PARAM(0, "", "a=3, seq=12, heads=8, b=5]") "%1 = slice(%0) {mesh=\"c\", axis=seq} : f32[a=3, "
                                                "seq=12/c, heads=8, b=5]\n"
                                                "%2 = slice(%1) {mesh=\"t\", axis=heads} : "
                                                "f32[a=3, seq=12/c, heads=8/t, b=5]\n"
                                                "%3 = all_to_all(%2) {axis=heads, over=[seq], "
                                                "mesh=\"c\"} : f32[a=3, seq=12, heads=8/th, "
                                                "b=5]\n"
                                                "%4 = all_to_all(%3) {axis=seq, over=[heads], "
                                                "mesh=\"c\"} : f32[a=3, seq=12/c, heads=8/t, "
                                                "b=5]\n"
                                                "%5 = all_to_all(%1) {axis=heads, over=[seq], "
                                                "mesh=\"c\"} : f32[a=3, seq=12, heads=8/h, "
                                                "b=5]\n"
                                                "%6 = all_gather(%5) {mesh=\"h\", axis=heads} : "
                                                "f32[a=3, seq=12, heads=8, b=5]\n"
                                                "%7 = slice(%0) {mesh=\"h\", axis=heads} : "
                                                "f32[a=3, seq=12, heads=8/h, b=5]\n"},
    {"slice and all_gather over c and d", "t=1, c=2, d=2, p=1", false,
     PARAM(0, "", "a=3, b=7]") "%1 = slice(%0) {mesh=\"dc\", axis=b} : f32[a=3, b=7/dc]\n"
                               "%2 = all_gather(%1) {mesh=\"dc\", axis=b} : f32[a=3, b=7]\n"},
    {"reductions over c, over c and d, of shares", "t=1, c=2, d=2, p=1", false,
     PARAM(0, "", "a=3, seq=8]~sum(c)") PARAM(1, "", "a=3, b=7]~sum(c,d)")
         PARAM(2, "", "a=3]~sum(c,d)") "%3 = reduce_scatter(%0) {mesh=\"c\", axis=seq} : f32[a=3, "
                                       "seq=8/c]\n"
                                       "%4 = reduce_scatter(%1) {mesh=\"dc\", axis=b} : f32[a=3, "
                                       "b=7/dc]\n"
                                       "%5 = all_reduce(%2) {mesh=\"dc\"} : f32[a=3]\n"},
    {"rotary and dropout, a sequence dealt out", "t=3, c=2, d=1, p=1", false,
     PARAM(0, "", "batch=2, seq=12/c, heads=2, head=6]") PARAM(
         1, "+",
         "batch=3, seq=12/ct, model=5]") "%2 = rotary(%0) {seq=seq, head=head, base=100, "
                                         "direction=1} : f32[batch=2, seq=12/c, heads=2, head=6]\n"
                                         "%3 = dropout(%1) {p=0.4, key=3} : f32[batch=3, "
                                         "seq=12/ct, model=5]\n"},
    {"attention and its gradient, queries divided", "t=2, c=3, d=1, p=1", false,
     PARAM(0, "", "batch=2, seq=18/c, kv=2/t, group=2, head=4]") PARAM(
         1, "", "batch=2, seq=18, kv=2/t, head=4]") PARAM(2, "", "batch=2, seq=18, kv=2/t, head=4]")
         PARAM(3, "",
               "batch=2, seq=18/c, kv=2/t, group=2, head=4]") "%4:2 = attention(%0, %1, %2) "
                                                              "{seq=seq, head=head, causal=1, "
                                                              "window=7, scale=0.5, p=0.5, key=4} "
                                                              ": f32[batch=2, seq=18/c, kv=2/t, "
                                                              "group=2, head=4], f32[batch=2, "
                                                              "seq=18/c, kv=2/t, group=2]\n"
                                                              "%5:3 = attention_grad(%0, %1, %2, "
                                                              "%4, %4.1, %3) {seq=seq, head=head, "
                                                              "causal=1, window=7, scale=0.5, "
                                                              "p=0.5, key=4} : f32[batch=2, "
                                                              "seq=18/c, kv=2/t, group=2, head=4], "
                                                              "f32[batch=2, seq=18, kv=2/t, "
                                                              "head=4]~sum(c), f32[batch=2, "
                                                              "seq=18, kv=2/t, head=4]~sum(c)\n"
                                                              "%6 = reduce_scatter(%5.1) "
                                                              "{mesh=\"c\", axis=seq} : "
                                                              "f32[batch=2, seq=18/c, kv=2/t, "
                                                              "head=4]\n"},
    {"attention within documents, queries divided", "t=1, c=3, d=1, p=1", false,
     PARAM(0, "", "batch=2, seq=18/c, kv=2, head=4]") PARAM(1, "", "batch=2, seq=18, kv=2, head=4]")
         PARAM(2, "", "batch=2, seq=18/c, kv=2, head=4]") TOKENS(
             3, "#4",
             "batch=2, seq=18]") "%4:2 = documents(%3) {axis=seq, separator=1} : i32[batch=2, "
                                 "seq=18/c], i32[batch=2, seq=18/c]\n"
                                 "%5:2 = attention(%0, %1, %1, %4) {seq=seq, head=head, causal=1, "
                                 "scale=0.5} : f32[batch=2, "
                                 "seq=18/c, kv=2, head=4], f32[batch=2, seq=18/c, kv=2]\n"
                                 "%6:3 = attention_grad(%0, %1, %1, %5, %5.1, %2, %4) {seq=seq, "
                                 "head=head, causal=1, scale=0.5} : f32[batch=2, seq=18/c, kv=2, "
                                 "head=4], f32[batch=2, seq=18, kv=2, head=4]~sum(c), f32[batch=2, "
                                 "seq=18, kv=2, head=4]~sum(c)\n"},
    {"attention within documents, not causal, queries divided", "t=1, c=3, d=1, p=1", false,
     PARAM(0, "", "batch=2, seq=18/c, kv=2, head=4]") PARAM(1, "", "batch=2, seq=18, kv=2, head=4]")
         PARAM(2, "", "batch=2, seq=18/c, kv=2, head=4]") TOKENS(
             3, "#4",
             "batch=2, seq=18]") "%4:2 = documents(%3) {axis=seq, separator=1, apart=1} : "
                                 "i32[batch=2, seq=18/c], i32[batch=2, seq=18/c]\n"
                                 "%5 = document_ends(%3) {axis=seq, separator=1, apart=1} : "
                                 "i32[batch=2, seq=18/c]\n"
                                 "%6:2 = attention(%0, %1, %1, %4, %5) {seq=seq, head=head, "
                                 "causal=0, scale=0.5} : f32[batch=2, seq=18/c, kv=2, head=4], "
                                 "f32[batch=2, seq=18/c, kv=2]\n"
                                 "%7:3 = attention_grad(%0, %1, %1, %6, %6.1, %2, %4, %5) "
                                 "{seq=seq, head=head, causal=0, scale=0.5} : f32[batch=2, "
                                 "seq=18/c, kv=2, head=4], f32[batch=2, seq=18, kv=2, "
                                 "head=4]~sum(c), f32[batch=2, seq=18, kv=2, head=4]~sum(c)\n"},
    TOKENS_BEFORE,
    PATCHES_REGROUPED,
    PATCHES_JOINED,
    {"keys of another name, biases by distance, queries dealt out", "t=2, c=2, d=1, p=1", false,
     PARAM(0, "", "batch=2, heads=4/t, seq=12/c, keys=12]") PARAM(1, "", "buckets=8, heads=4/t]")
         PARAM(2, "",
               "batch=2, seq=12, heads=4/t]") "%3 = rename(%2) {axis=seq, to=[keys]} : "
                                              "f32[batch=2, keys=12, heads=4/t]\n"
                                              "%4 = relative_bias(%0, %1) {seq=seq, keys=keys, "
                                              "causal=1, distance=9} : f32[batch=2, heads=4/t, "
                                              "seq=12/c, keys=12]\n"
                                              "%5 = relative_bias_grad(%0) {to=[buckets, heads], "
                                              "count=8, seq=seq, keys=keys, causal=0, distance=9} "
                                              ": f32[buckets=8, heads=4/t]~sum(c)\n"
                                              "%6 = all_reduce(%5) {mesh=\"c\"} : "
                                              "f32[buckets=8, heads=4/t]\n"},
    {"linear attention, groups divided, and batch", "t=2, d=2, p=1", false,
     PARAM(0, "", "batch=3/d, seq=5, groups=3/t, head=4]")
         PARAM(1, "", "batch=3/d, seq=5, groups=3/t, head=4]") PARAM(
             2, "", "batch=3/d, seq=5, groups=3/t, heads=2, value=3]")
             PARAM(3, "", "batch=3/d, seq=5, groups=3/t, heads=2]") PARAM(
                 4, "",
                 "batch=3/d, seq=5, groups=3/t, heads=2]") "%5:2 = linear_attention(%0, %1, %2, "
                                                           "%3, %4) {seq=seq, head=head, "
                                                           "scale=0.5} : f32[batch=3/d, seq=5, "
                                                           "groups=3/t, heads=2, value=3], "
                                                           "f32[batch=3/d, seq=5, groups=3/t, "
                                                           "heads=2, value=3]\n"
                                                           "%6:4 = linear_attention_grad(%0, %1, "
                                                           "%5.1, %2, %3, %4) {seq=seq, "
                                                           "head=head, scale=0.5} : f32[batch=3/d, "
                                                           "seq=5, groups=3/t, head=4], "
                                                           "f32[batch=3/d, seq=5, groups=3/t, "
                                                           "head=4], f32[batch=3/d, seq=5, "
                                                           "groups=3/t, heads=2, value=3], "
                                                           "f32[batch=3/d, seq=5, groups=3/t, "
                                                           "heads=2]\n"},
    {"linear attention with decays of keys, groups divided, and batch", "t=2, d=2, p=1", false,
     PARAM(0, "", "batch=3/d, seq=5, groups=3/t, head=4]")
         PARAM(1, "", "batch=3/d, seq=5, groups=3/t, head=4]") PARAM(
             2, "", "batch=3/d, seq=5, groups=3/t, value=3]")
             PARAM(3, "", "batch=3/d, seq=5, groups=3/t, head=4]") PARAM(
                 4, "", "batch=3/d, seq=5, groups=3/t]") "%5:2 = linear_attention(%0, %1, %2, "
                                                         "%3, %4) {seq=seq, head=head, "
                                                         "scale=0.5} : f32[batch=3/d, seq=5, "
                                                         "groups=3/t, value=3], f32[batch=3/d, "
                                                         "seq=5, groups=3/t, value=3]\n"
                                                         "%6:4 = linear_attention_grad(%0, %1, "
                                                         "%5.1, %2, %3, %4) {seq=seq, "
                                                         "head=head, scale=0.5} : f32[batch=3/d, "
                                                         "seq=5, groups=3/t, head=4], "
                                                         "f32[batch=3/d, seq=5, groups=3/t, "
                                                         "head=4], f32[batch=3/d, seq=5, "
                                                         "groups=3/t, value=3], f32[batch=3/d, "
                                                         "seq=5, groups=3/t, head=4]\n"},
    {"linear attention, heads of each group divided", "t=3, d=1, p=1", false,
     PARAM(0, "", "batch=2, seq=5, head=4]") PARAM(1, "", "batch=2, seq=5, head=4]")
         PARAM(2, "", "batch=2, seq=5, heads=7/t, value=3]")
             PARAM(3, "", "batch=2, seq=5, heads=7/t]") "%4 = linear_attention(%0, %1, %2, %3) "
                                                        "{seq=seq, head=head, scale=1} : "
                                                        "f32[batch=2, seq=5, heads=7/t, value=3]\n"
                                                        "%5:4 = linear_attention_grad(%0, %1, %2, "
                                                        "%4, %3) {seq=seq, head=head, scale=1} "
                                                        ": f32[batch=2, seq=5, head=4]~sum(t), "
                                                        "f32[batch=2, seq=5, head=4]~sum(t), "
                                                        "f32[batch=2, seq=5, heads=7/t, value=3], "
                                                        "f32[batch=2, seq=5, heads=7/t]\n"
                                                        "%6 = all_reduce(%5) {mesh=\"t\"} : "
                                                        "f32[batch=2, seq=5, head=4]\n"
                                                        "%7 = all_reduce(%5.1) {mesh=\"t\"} : "
                                                        "f32[batch=2, seq=5, head=4]\n"},
    {"convolutions, channels divided, and batch", "t=2, d=2, p=1", false,
     PARAM(0, "", "batch=3/d, seq=5, heads=3/t, value=4]") PARAM(1, "",
                                                                 "taps=3, heads=3/t, value=4]")
         TOKENS(2, "#4",
                "batch=3/d, seq=5]") "%3 = convolve(%0, %1, %2) {seq=seq, axis=taps} : "
                                     "f32[batch=3/d, seq=5, heads=3/t, "
                                     "value=4]\n"
                                     "%4:2 = convolve_grad(%0, %1, %3, %2) {seq=seq, axis=taps} : "
                                     "f32[batch=3/d, seq=5, "
                                     "heads=3/t, value=4], f32[taps=3, heads=3/t, value=4]~sum(d)\n"
                                     "%5 = all_reduce(%4.1) {mesh=\"d\"} : f32[taps=3, heads=3/t, "
                                     "value=4]\n"},
    {"blocks of fp8, divided, dealt out and gathered", "t=2, c=2, d=1, p=1", false,
     PARAM(0, "",
           "batch=1, seq=512/c, ffn=256/t]") "%1:2 = quantize(%0) {over=[ffn]} : fp8[batch=1, "
                                             "seq=512/c, ffn=256/t], f32[batch=1, "
                                             "seq=512/c, ffn=2/t]\n"
                                             "%2:2 = quantize(%0) {over=[seq]} : fp8[batch=1, "
                                             "seq=512/c, ffn=256/t], f32[batch=1, seq=4/c, "
                                             "ffn=256/t]\n"
                                             "%3:2 = quantize(%0) {over=[seq], beside=[ffn]} "
                                             ": fp8[batch=1, seq=512/c, ffn=256/t], "
                                             "f32[batch=1, seq=4/c, ffn=2/t]\n"
                                             "%4 = all_gather(%1) {axis=ffn, mesh=\"t\"} : "
                                             "fp8[batch=1, seq=512/c, ffn=256]\n"
                                             "%5 = all_gather(%1.1) {axis=ffn, mesh=\"t\"} : "
                                             "f32[batch=1, seq=512/c, ffn=2]\n"
                                             "%6 = dequantize(%4, %5) : bf16[batch=1, "
                                             "seq=512/c, ffn=256]\n"
                                             "%7 = all_gather(%2) {axis=seq, mesh=\"c\"} : "
                                             "fp8[batch=1, seq=512, ffn=256/t]\n"
                                             "%8 = all_gather(%2.1) {axis=seq, mesh=\"c\"} : "
                                             "f32[batch=1, seq=4, ffn=256/t]\n"
                                             "%9 = dequantize(%7, %8) : bf16[batch=1, "
                                             "seq=512, ffn=256/t]\n"
                                             "%10 = dequantize(%3, %3.1) : bf16[batch=1, "
                                             "seq=512/c, ffn=256/t]\n"},
    {"weights in blocks, divided and gathered", "t=2, d=2, p=1", false,
     "%0 = param() {name=\"\", init=\"zeros\", decay=1, frozen=1} : nf4[model=6/d, ffn=256/t]\n"
     "%1 = param() {name=\"\", init=\"zeros\", decay=1, frozen=1} : int8[ffn=4/t, model=128/d]\n"
     "%2 = all_gather(%0) {axis=model, mesh=\"d\"} : nf4[model=6, ffn=256/t]\n"
     "%3 = all_gather(%1) {axis=model, mesh=\"d\"} : int8[ffn=4/t, model=128]\n"
     "%4 = widen(%2) {dtype=\"bf16\"} : bf16[model=6, ffn=256/t]\n"
     "%5 = widen(%3) {dtype=\"f32\"} : f32[ffn=4/t, model=128]\n"
     "%6 = widen(%0) {dtype=\"f16\"} : f16[model=6/d, ffn=256/t]\n"
     "%7 = round_blocks(%5) {dtype=\"f32\", blocks=\"q4_0\", along=[ffn, model]} : f32[ffn=4/t, "
     "model=128]\n"},
    {"products of fp8 and scales", "t=1, d=1, p=1", false, FP8_PRODUCT_NODES("f32[")},
    {"the share of labels on each rank", "t=2, d=2, p=1", true,
     PARAM(0, "", "batch=4/d, ffn=6/t]") "%1 = label_share() {value=3} : f32[]\n"
                                         "%2 = less(%0, %1) : f32[batch=4/d, ffn=6/t]\n"},
};

static bool tested[N_OPS], tested_in[N_DTYPES][N_OPS];

static void fill(Reference *ref) {
    uint64_t state = 7;
    for (int n = 0; n < ref->graph->n_nodes; n++) {
        Node *node = ref->graph->nodes[n];
        double *values = reference_value(ref, node_value(node, 0));
        if (!(OPS[node->op].flags & LEAF)) continue;
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            values[i] = op_case_draw(node_string(node, ATTR_name), &state);
            values[i] = reference_rounded(node->types[0].dtype, values[i]);
        }
    }
}

/* Leaves that every reader may take in this precision of 16 bits. */
static bool *find_low_leaves(const Graph *graph, DType precision) {
    bool *low = ARENA_ARRAY(graph->arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        low[n] = node->op == OP_PARAM && !dtype_is_blocked(node->types[0].dtype);
        for (int i = 0; i < node->n_inputs; i++) {
            OperandPrecision operand = op_operand_precision(node->op, i);
            bool bf16 = operand == OPERAND_STATE || operand == OPERAND_GRADIENT;
            bool wide = bf16 && precision != DTYPE_BF16;
            if (wide || operand == OPERAND_F32) low[node->inputs[i].node->id] = false;
        }
    }
    return low;
}

/* The same graph with operands of `precision` wherever an op takes them in 16 bits. NULL: there are
 * none. */
static const Graph *lower(const Graph *graph, DType precision, Diag *diag) {
    Graph *out = graph_create_like(graph, graph->arena);
    Value *map = ARENA_ARRAY(graph->arena, Value, graph->n_nodes * MAX_OUTPUTS + 1);
    bool *low = find_low_leaves(graph, precision), any = false;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        Value *inputs = ARENA_ARRAY(graph->arena, Value, node->n_inputs + 1);
        for (int i = 0; i < node->n_inputs; i++) {
            Value from = node->inputs[i];
            inputs[i] = map[from.node->id * MAX_OUTPUTS + from.output];
        }
        Attr attrs[N_ATTRS];
        int n_attrs = 0, added = node->op == OP_MATMUL ? matmul_accumulator(node) : -1;
        for (int i = 0; i < node->n_attrs; i++) {
            if (added < 0 || node->attrs[i].key != ATTR_dtype) attrs[n_attrs++] = node->attrs[i];
        }
        if (added >= 0) { /* a product is what it is added to */
            const char *dtype = dtype_name(value_type(inputs[added])->dtype);
            attrs[n_attrs++] = attr_string(ATTR_dtype, dtype);
        }
        Type type = node->types[0];
        if (dtype_is_low(type.dtype) && type.dtype != precision) low[n] = node->op == OP_STATE;
        if (low[n]) type.dtype = precision;
        if (node->op == OP_BROADCAST) type.dtype = value_type(inputs[0])->dtype;
        NodeSpec spec = {.op = node->op,
                         .inputs = inputs,
                         .n_inputs = node->n_inputs,
                         .attrs = attrs,
                         .n_attrs = n_attrs,
                         .type = &type,
                         .n_outputs = node->n_outputs,
                         .block = node->block};
        Node *copy = graph_add(out, &spec, diag);
        CHECK(copy, "%s", diag_text(diag));
        if (!copy) return NULL;
        memcpy(copy->shardings, node->shardings, sizeof(copy->shardings));
        for (int o = 0; o < node->n_outputs; o++) map[n * MAX_OUTPUTS + o] = node_value(copy, o);
        any |= low[n];
    }
    return any ? out : NULL;
}

static void compare(const ShardedCase *sharded, const KernelRun *run, double tolerance) {
    const Graph *graph = run->reference->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (OPS[node->op].flags & LEAF) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            if (run->overwritten[n * MAX_OUTPUTS + o]) continue;
            double error = kernel_run_error(run, node_value(node, o), 0, !sharded->nonzero_pads);
            CHECK(error <= tolerance, "%%%d %s, result %d: error %.3g", n, OPS[node->op].name, o,
                  error);
        }
        tested[node->op] = true;
        for (int i = 0; i < node->n_inputs; i++) {
            tested_in[value_type(node->inputs[i])->dtype][node->op] = true;
        }
    }
}

static void test_case(const ShardedCase *sharded, int micro, DType precision) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *text = arena_printf(arena, "graph \"\" mesh(%s) {\nforward:\n%s}\n", sharded->mesh,
                                    sharded->nodes);
    int line = 1;
    check_begin(
        arena_printf(arena, "%s, micro-batch %d, %s", sharded->name, micro, dtype_name(precision)));
    const Graph *graph = graph_parse(arena, sharded->name, &text, &line, diag);
    bool good = graph && graph_verify(graph, diag);
    CHECK(good, "%s", diag_text(diag));
    if (good && dtype_is_low(precision)) {
        graph = lower(graph, precision, diag);
        good = graph && graph_verify(graph, diag);
    }
    if (good) {
        KernelRun run;
        Reference *ref = reference_create(arena, graph);
        fill(ref);
        ref->micro = micro;
        ref->n_micro = 3;
        ref->overwrite = micro == 0;
        ref->seed = 99;
        bool bound = kernel_run_create(&run, ref, -1, diag);
        CHECK(bound, "%s", diag_text(diag));
        reference_run(ref);
        CHECK(bound && kernel_run_step(&run), "%s", comm_world_reason(run.world));
        if (bound) compare(sharded, &run, TOLERANCE[precision]);
        kernel_run_destroy(&run);
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Elementwise ops share one binding: one of them stands for all. */
static void test_coverage(void) {
    for (int op = 0; op < N_OPS; op++) {
        char name[64];
        if (!(OPS[op].flags & KERNEL)) continue;
        if (op_decodes((OpKind)op)) continue; /* decoding has one rank */
        if (OPS[op].flags & ELEMENTWISE_BIT && op != OP_MUL && op != OP_DROPOUT) continue;
        snprintf(name, sizeof(name), "%s has sharded cases", OPS[op].name);
        check_begin(name);
        CHECK(tested[op], "none");
        OperandPrecision second = op_operand_precision((OpKind)op, OPS[op].min_inputs > 1);
        bool takes_low =
            second != OPERAND_F32 || op_operand_precision((OpKind)op, 0) == OPERAND_FOLLOWS;
        bool is_bf16 = second == OPERAND_STATE || second == OPERAND_GRADIENT;
        if (op_is_number((OpKind)op) || op == OP_DEQUANTIZE || op == OP_WIDEN) takes_low = false;
        CHECK(tested_in[DTYPE_BF16][op] || !takes_low, "none in bf16");
        CHECK(tested_in[DTYPE_F16][op] || !takes_low || is_bf16, "none in f16");
        check_end();
    }
}

int main(void) {
    static const DType IN[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int micro = 0; micro < 2; micro++) {
            for (int k = 0; k < 3; k++) test_case(&CASES[i], micro, IN[k]);
        }
    }
    test_coverage();
    return check_report();
}
