/* The three products of a linear layer on fp8 operands that lie as tensor cores read them, in text:
 * for the kernels of the CPU and of CUDA, against float64. A macro TYPE names the leaves' dtype.
 *
 * y: scales of rows and of tiles; dx: of rows, and of tiles whose rows are too short; dw: of two
 * turned operands, added to what is there. Then everything widened.
 */
#ifndef TESTS_UNIT_FP8_NODES_H
#define TESTS_UNIT_FP8_NODES_H

#define FP8_LEAF(id, type) "%" #id " = param() {name=\"\", init=\"zeros\", decay=1} : " type "\n"
/* clang-format off */
#define FP8_PRODUCT_NODES(TYPE)                                                                    \
    FP8_LEAF(0, TYPE "batch=2, seq=128, model=512]")                                               \
    FP8_LEAF(1, TYPE "model=512, heads=4, head=64]")                                               \
    FP8_LEAF(2, TYPE "batch=2, seq=128, heads=4, head=64]")                                        \
    FP8_LEAF(3, "f32[model=512, heads=4, head=64]")                                                \
    "%4:2 = quantize(%0) {over=[model], last=[model]}"                                             \
    " : fp8[batch=2, seq=128, model=512], f32[model=4, batch=2, seq=128]\n"                        \
    "%5:2 = quantize(%1) {over=[model], beside=[heads, head], last=[model]}"                       \
    " : fp8[heads=4, head=64, model=512], f32[heads=2, head=1, model=4]\n"                         \
    "%6:2 = quantize(%2) {over=[heads, head], last=[heads, head]}"                                 \
    " : fp8[batch=2, seq=128, heads=4, head=64], f32[heads=2, head=1, batch=2, seq=128]\n"         \
    "%7:2 = quantize(%1) {over=[heads, head], beside=[model], last=[heads, head], each=1}"         \
    " : fp8[model=512, heads=4, head=64], f32[heads=2, head=1, model=512]\n"                       \
    "%8:2 = quantize(%0) {over=[seq], last=[batch, seq]}"                                          \
    " : fp8[model=512, batch=2, seq=128], f32[batch=2, seq=1, model=512]\n"                        \
    "%9:2 = quantize(%2) {over=[seq], last=[batch, seq]}"                                          \
    " : fp8[heads=4, head=64, batch=2, seq=128], f32[batch=2, seq=1, heads=4, head=64]\n"          \
    "%10:2 = quantize(%1) {over=[model], beside=[heads, head], last=[model], each=1}"              \
    " : fp8[heads=4, head=64, model=512], f32[model=4, heads=4, head=64]\n"                        \
    "%11 = matmul(%4, %5, %4.1, %5.1) {over=[model]}"                                              \
    " : bf16[batch=2, seq=128, heads=4, head=64]\n"                                                \
    "%12 = matmul(%6, %7, %6.1, %7.1) {over=[heads, head], dtype=\"f32\"}"                         \
    " : f32[batch=2, seq=128, model=512]\n"                                                        \
    "%13 = matmul(%8, %9, %8.1, %9.1, %3) {over=[batch, seq], dtype=\"f32\"}"                      \
    " : f32[model=512, heads=4, head=64]\n"                                                        \
    "%14 = matmul(%5, %4, %5.1, %4.1) {over=[model]}"                                              \
    " : bf16[heads=4, head=64, batch=2, seq=128]\n"                                                \
    "%15 = dequantize(%4, %4.1) : bf16[batch=2, seq=128, model=512]\n"                             \
    "%16 = dequantize(%5, %5.1) : bf16[heads=4, head=64, model=512]\n"                             \
    "%17 = dequantize(%7, %7.1) : bf16[model=512, heads=4, head=64]\n"                             \
    "%18 = dequantize(%8, %8.1) : bf16[model=512, batch=2, seq=128]\n"                             \
    "%19 = dequantize(%10, %10.1) : bf16[heads=4, head=64, model=512]\n"
/* clang-format on */

#endif
