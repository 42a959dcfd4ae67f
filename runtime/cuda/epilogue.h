/* Epilogues: what follows a matrix product in the list becomes part of the product, which then
 * stores its result once instead of storing sums for another kernel to read.
 *
 * A launch of an elementwise or fused node that follows its product is folded where it computes
 *
 *   product + bias              bias over the product's last axes           (a bias of a layer)
 *   product + addend            an addend of the product's shape            (a residual branch)
 *   product + bias + addend
 *   product + addend + addend   one of them a product too, which takes the other
 *   gelu(product [+ bias])      the sum may be a result too, or be read by others: it is kept
 *   gelu_grad(x, product)
 *
 * and nothing else reads the product. Everything has the product's dtype, and gelu's is not f32;
 * sums are not rounded before gelu or an addition as they were while they went through memory. The
 * gelu is cuBLASLt's, the tanh form; gelu_erf is left alone. A folded command stands where the
 * launch stood, has the accesses of both, and its CommandInfo is the launch's. Values stay where
 * the plan has put them; where a result's memory meets an operand that the product still reads,
 * nothing is folded.
 *
 * To be called on one rank's walk, before messages are added and commands ordered. New accesses are
 * allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_EPILOGUE_H
#define RUNTIME_CUDA_EPILOGUE_H

#include "runtime/cuda/command.h"

/* What the device can do. */
typedef struct EpilogueCheck {
    bool (*supports)(void *user, const GemmCommand *gemm); /* NULL: everything */
    void *user;
    /* Which products also sum their right operand (bias_grad.h); NULL: none. */
    bool (*sums_bias)(void *user, const GemmCommand *gemm);
    /* Is it worth while to make one of several products (join_products.h)? NULL: always. */
    bool (*joins)(void *user, const GemmCommand *one, const GemmCommand *joined);
} EpilogueCheck;

/* Returns how many launches are gone. */
int cuda_fold_epilogues(CommandList *list, const Graph *graph, const EpilogueCheck *check,
                        Arena *arena);

/* "+bias+gelu", for reports. */
const char *epilogue_name(const GemmCommand *gemm, Arena *arena);

#endif
