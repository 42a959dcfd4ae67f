#include "tests/support/op_cases.h"

#include <stdlib.h>
#include <string.h>

#define CASE(op, operands, attrs)                                                                  \
    { OP_##op, operands, attrs, 0, 0 }
#define NORM_EPS "axis=cols eps=1e-05"

/* The smallest sizes at which an index mixed up with another shows: all different, not round. */
const OpCase OP_CASES[] = {
    {.op = OP_CONST, .attrs = "value=0.375"},
    {.op = OP_LABEL_SHARE, .attrs = "value=3"},
    CASE(ACCUMULATE, "rows=3 cols=5; rows=3 cols=5", ""),
    CASE(ACCUMULATE, ":2; :3", ""),
    /* Elementwise: same shape, row and column broadcast, outer product, permuted axes, scalar */
    CASE(ADD, "rows=3 cols=5; rows=3 cols=5", ""),
    CASE(ADD, "rows=3 cols=5; cols=5", ""),
    CASE(ADD, "rows=3; rows=3 cols=5", ""),
    CASE(ADD, "rows=3; cols=5", ""),
    CASE(ADD, "rows=3 cols=5; cols=5 rows=3", ""),
    CASE(ADD, "a=2 b=3 c=4 d=5; b=3 d=5", ""),
    CASE(ADD, "a=2 b=3 c=4 d=5; d=5 a=2", ""),
    CASE(ADD, "rows=3 cols=5; ", ""),
    CASE(ADD, "; rows=3", ""),
    CASE(ADD, "rows=3; @0", ""),
    CASE(SUB, "rows=3 cols=5; cols=5", ""),
    CASE(SUB, "cols=5; rows=3 cols=5", ""),
    CASE(SUB, "rows=3; @0", ""),
    CASE(MUL, "rows=3 cols=5; cols=5", ""),
    CASE(MUL, "rows=3 cols=5; cols=5 rows=3", ""),
    CASE(MUL, "rows=3; cols=5", ""),
    CASE(MUL, "rows=37; @0", ""),
    CASE(DIV, "rows=3 cols=5; + cols=5", ""),
    CASE(DIV, "cols=5; + rows=3 cols=5", ""),
    CASE(DIV, "rows=3; + ", ""),
    CASE(NEG, "rows=3 cols=5", ""),
    CASE(SCALE, "rows=3 cols=5", "value=-1.75"),
    CASE(OFFSET, "rows=3 cols=5", "value=0.3"),
    CASE(COPY, "rows=3 cols=5", ""),
    CASE(SQUARE, "rows=3 cols=5", ""),
    CASE(SQRT, "+ rows=3 cols=5", ""),
    CASE(RSQRT, "+ rows=3 cols=5", ""),
    CASE(RECIPROCAL, "+ rows=3 cols=5", ""),
    CASE(EXP, "rows=3 cols=5", ""),
    CASE(LOG, "+ rows=3 cols=5", ""),
    CASE(TANH, "rows=3 cols=5", ""),
    CASE(SIGMOID, "rows=3 cols=5", ""),
    CASE(SOFTPLUS, "rows=3 cols=17", ""),
    CASE(GELU, "rows=3 cols=17", ""),
    CASE(GELU_ERF, "rows=3 cols=17", ""),
    CASE(SILU, "rows=3 cols=17", ""),
    CASE(RELU, "rows=3 cols=17", ""),
    CASE(MAXIMUM, "rows=3 cols=5; cols=5", ""),
    CASE(MAXIMUM, "cols=5; rows=3 cols=5", ""),
    CASE(MAXIMUM_GRAD, ":0.5 rows=3; :0.5 rows=3; rows=3", ""), /* ties: half to each */
    CASE(MINIMUM, "rows=3 cols=5; cols=5", ""),
    CASE(MINIMUM, "cols=5; rows=3 cols=5", ""),
    CASE(ABS, "rows=3 cols=17", ""),
    CASE(SIGN, "rows=3 cols=17", ""),
    CASE(SIGN, ":0 rows=3", ""),
    CASE(ROUND, "rows=3 cols=17", ""),
    CASE(ROUND, ":2.5 rows=3", ""), /* a half, to the even number */
    CASE(STOP_GRADIENT, "rows=3 cols=5", ""),
    CASE(LESS, "rows=3 cols=17; cols=17", ""),
    CASE(LESS, ":0.5 rows=3; :0.5 rows=3", ""),
    CASE(LESS, "#5 rows=9 cols=7; #5 cols=7", ""),
    CASE(LESS, ":2; #5 rows=37", ""),
    CASE(EQUAL, "#3 rows=37; :1", ""),
    CASE(EQUAL, "#3 rows=5 cols=4; #3 cols=4 rows=5", ""),
    CASE(EQUAL, ":0.5 rows=3 cols=5; :0.5 cols=5", ""),
    {OP_FUSED, "rows=3 cols=5; #4 rows=3; ",
     "program=t0=equal(i1,i2) t1=less(i2,i1) t2=add(t0,t1) t3=to_f32(i0) t4=mul(t3,t2) -> t4 t0", 2,
     0},
    CASE(DROPOUT, "rows=7 cols=13", "p=0.25 key=3"),
    {OP_DROPOUT, "batch=3 cols=13", "p=0.5 key=0", 0, 5},
    {OP_DROPOUT, "rows=2 batch=3 cols=5", "p=0 key=-1", 0, 1},
    {OP_FUSED, "rows=3 cols=5; cols=5", "program=t0=add(i0,i1) t1=gelu(t0) -> t1", 1, 0},
    {OP_FUSED, "rows=3 cols=5; cols=5; rows=3",
     "program=t0=add(i0,i1) t1=mul(t0,i2) t2=silu_grad(t1,i0) -> t1 t2 t0", 3, 0},
    {OP_FUSED, "batch=3 cols=11; cols=11",
     "program=t0=dropout(i0,p=0.3,key=2) t1=maximum_grad(t0,i1,i0) t2=offset(t1,value=0.5) "
     "t3=scale(t2,value=-2) -> t3 t0 t2 t1",
     4, 3},
    {OP_FUSED, "cols=5; rows=3 cols=5", "program=t0=sub(i1,i0) t1=sub(i0,t0) -> t1", 1, 0},
    {OP_FUSED, "rows=3; rows=3", "program=t0=add(i0,i1) -> t0 t0", 2, 0},
    CASE(TO_BF16, "rows=3 cols=37", ""),
    CASE(TO_BF16, "~rows=3", ""),
    CASE(TO_F16, "rows=3 cols=37", ""),
    CASE(TO_F16, "~rows=3", ""),
    CASE(TO_F32, "~rows=3 cols=37", ""),
    CASE(TO_F32, "", ""),
    /* Nothing is rounded before it is stored: t3 is the f32 sum. */
    {OP_FUSED, "~rows=3 cols=5; cols=5",
     "program=t0=to_low(i1) t1=add(i0,t0) t2=gelu(t1) t3=to_f32(t1) -> t2 t3", 2, 0},
    {OP_FUSED, "rows=3 cols=5; ~rows=3 cols=5; ",
     "program=t0=to_low(i0) t1=to_low(i2) t2=mul(t0,t1) t3=add(i1,t2) t4=to_f32(t3) "
     "t5=sub(t4,i0) -> t3 t5 t2",
     3, 0},
    CASE(ADD_N, "rows=3; rows=3; rows=3; rows=3; rows=3", ""),
    CASE(ADD_N, "", ""),
    CASE(BROADCAST, "cols=5", "to=rows=3 cols=5"),
    CASE(BROADCAST, "rows=3", "to=rows=3 cols=5"),
    CASE(BROADCAST, "cols=5 rows=3", "to=rows=3 a=2 cols=5"),
    CASE(BROADCAST, "", "to=rows=3"),
    /* Contractions: each form of each operand, batches, several axes in each part, columns */
    CASE(MATMUL, "m=3 k=5; k=5 n=4", "over=k"),
    CASE(MATMUL, "m=3 k=5; n=4 k=5", "over=k"),
    CASE(MATMUL, "k=5 m=3; k=5 n=4", "over=k"),
    CASE(MATMUL, "k=5 m=3; n=4 k=5", "over=k"),
    CASE(MATMUL, "b=2 m=3 k=5; b=2 k=5 n=4", "over=k"),
    CASE(MATMUL, "b=2 k=5 m=3; b=2 n=4 k=5", "over=k"),
    CASE(MATMUL, "batch=2 seq=3 model=5; model=5 heads=2 head=4", "over=model"),
    CASE(MATMUL, "batch=2 seq=3 heads=2 head=4; heads=2 head=4 model=5", "over=heads,head"),
    CASE(MATMUL, "batch=2 seq=3 model=5; vocab=7 model=5", "over=model"),
    CASE(MATMUL, "k=5; k=5 n=4", "over=k"),
    CASE(MATMUL, "m=3 k=5; k=5", "over=k"),
    CASE(MATMUL, "k=5 m=3; k=5", "over=k"),
    CASE(MATMUL, "k=5; k=5", "over=k"),
    CASE(MATMUL, "m=3; n=4", "over="),
    CASE(MATMUL, "b=2 c=3 m=4; b=2 c=3 n=5", "over="),
    CASE(MATMUL, "m=1 k=5; k=5 n=1", "over=k"),
    CASE(MATMUL, "m=3 k=1; k=1 n=4", "over=k"),
    CASE(MATMUL, "m=67 k=33; k=33 n=35", "over=k"),
    CASE(MATMUL, "m=3 k=5; k=5 n=4; m=3 n=4", "over=k"),
    CASE(MATMUL, "k=5 m=3; n=4 k=5; m=3 n=4", "over=k"),
    CASE(MATMUL, "b=2 m=3 k=5; b=2 k=5 n=4; b=2 m=3 n=4", "over=k"),
    CASE(MATMUL, "m=3 k=5; @0", "over=k to=m,n"),
    CASE(MATMUL, "m=3 k=5; m=3 k=5", "over=k to=m,n"),
    CASE(MATMUL, "k=5 m=3; k=5 m=3", "over=k to=m,n"),
    CASE(MATMUL, "s=3 r=3; s=3 a=2 b=4", "over=s to=s,a,b"),
    CASE(MATMUL, "a=2 b=4 s=3; s=3 r=3", "over=s to=a,b,s"),
    CASE(MATMUL, "b=2 m=3 k=5; @0", "over=k to=b,m,n shared=b"),
    CASE(MATMUL, "b=2 s=3 r=3; b=2 s=3 a=2 c=4", "over=s to=b,s,a,c shared=b"),
    CASE(MATMUL, "~b=2 k=33 m=7; ~b=2 k=33 m=7", "over=k dtype=f32 to=b,m,n shared=b"),
    CASE(MATMUL, "~m=67 k=33; ~m=67 k=33", "over=k dtype=f32 to=m,n"),
    CASE(MATMUL, "~m=67 k=33; ~k=33 n=35", "over=k dtype=f32"),
    CASE(MATMUL, "~k=5 m=3; ~n=4 k=5", "over=k dtype=low"),
    CASE(REDUCE_SUM, "~rows=3 cols=5", "over=rows dtype=f32"),
    CASE(REDUCE_SUM, "~rows=3 cols=5", "over=cols dtype=f32"),
    CASE(REDUCE_SUM, "rows=3 cols=5", "over=cols dtype=low"),
    CASE(REDUCE_SUM, "rows=3 cols=5", "over=cols"),
    CASE(REDUCE_SUM, "rows=3 cols=5", "over=rows"),
    CASE(REDUCE_SUM, "rows=3 cols=5", "over=rows,cols"),
    CASE(REDUCE_SUM, "a=2 b=3 c=4 d=5", "over=a,c"),
    CASE(REDUCE_SUM, "a=2 b=3 c=4 d=5", "over=b,d"),
    CASE(REDUCE_SUM, "a=2 b=3 c=4", "over="),
    CASE(TRANSPOSE, "rows=3 cols=5", "to=cols,rows"),
    CASE(TRANSPOSE, "a=2 b=3 c=4 d=5", "to=c,a,d,b"),
    CASE(TRANSPOSE, "a=2 b=3 c=4", "to=a,b,c"),
    CASE(TRANSPOSE, "a=2 b=3 c=4 d=5", "to=b,a,c,d"),
    /* Parts of an axis: inner, outer and in the middle, the ends, one element with and without its
     * axis, result named alike */
    CASE(NARROW, "rows=3 cols=7", "axis=cols to=part first=2 count=4"),
    CASE(NARROW, "rows=7 cols=3", "axis=rows to=part first=0 count=5"),
    CASE(NARROW, "a=2 b=5 c=4", "axis=b to=part first=3 count=2"),
    CASE(NARROW, "a=2 b=5 c=4", "axis=b to=b first=1 count=2"),
    CASE(NARROW, "a=2 b=5 c=3", "axis=b first=4"),
    CASE(NARROW, "rows=3 cols=7", "axis=cols first=2"),
    CASE(NARROW, "rows=3 cols=7", "axis=rows to=one first=1 count=1"),
    CASE(PAD, "rows=3 cols=4", "axis=cols to=wide first=2 count=9"),
    CASE(PAD, "rows=3 cols=5", "axis=rows to=wide first=0 count=4"),
    CASE(PAD, "a=2 b=3 c=4", "axis=b to=wide first=2 count=5"),
    CASE(PAD, "a=2 c=3", "to=b first=4 count=5 at=1"),
    CASE(PAD, "rows=3", "to=cols first=2 count=7 at=1"),
    CASE(PAD, "", "to=cols first=1 count=3 at=0"),
    CASE(STACK, "rows=3 cols=5; rows=3 cols=5; rows=3 cols=5", "to=all count=3"),
    CASE(STACK, "a=2; a=2", "to=b count=5"),
    CASE(STACK, ":1.5; :2", "to=b count=2"),
    CASE(CONCAT, "rows=3 a=2; rows=3 b=5", "over=a,b to=cols"),
    CASE(CONCAT, "rows=3 a=2; rows=3 a=2; rows=3 b=1", "over=a,b to=cols"),
    CASE(CONCAT, "a=2 cols=3; a=2 cols=3", "over=a to=rows"),
    CASE(CONCAT, "m=2 a=3 n=4; m=2 b=1 n=4", "over=a,b to=a"),
    /* Blocks along the last axis, over two axes, along one that others follow, tiles of both kinds
     */
    CASE(QUANTIZE, "m=3 k=256", "over=k"),
    CASE(QUANTIZE, "batch=2 seq=3 heads=4 head=64", "over=heads,head"),
    CASE(QUANTIZE, "batch=2 seq=128 model=5", "over=seq"),
    CASE(QUANTIZE, "batch=2 seq=256 model=300", "over=seq"),
    CASE(QUANTIZE, "model=128 kv=2 group=3 head=128", "over=model beside=head"),
    CASE(QUANTIZE, "a=2 k=256 heads=2 head=64", "over=k beside=heads,head"),
    /* As tensor cores read them: rows, columns that are turned, tiles of both kinds, as they are
     * and with a scale for each number of the other axes */
    CASE(QUANTIZE, "m=3 k=256", "over=k last=k"),
    CASE(QUANTIZE, "batch=2 seq=3 heads=4 head=64", "over=heads,head last=heads,head"),
    CASE(QUANTIZE, "batch=2 seq=128 model=5", "over=seq last=batch,seq"),
    CASE(QUANTIZE, "batch=2 seq=256 heads=3 head=100", "over=seq last=batch,seq"),
    CASE(QUANTIZE, "m=256 k=512", "over=k beside=m last=k"),
    CASE(QUANTIZE, "k=512 heads=4 head=64", "over=k beside=heads,head last=k"),
    CASE(QUANTIZE, "m=256 k=384", "over=k beside=m last=k each=1"),
    CASE(QUANTIZE, "k=384 heads=4 head=64", "over=k beside=heads,head last=k each=1"),
    CASE(QUANTIZE, ":0 k=128", "over=k"),
    CASE(QUANTIZE, ":448 k=128", "over=k"),
    CASE(QUANTIZE, ":450 m=2 k=128", "over=k"),
    CASE(QUANTIZE, ":1e-37 k=128", "over=k"),
    CASE(QUANTIZE, ":nan k=128", "over=k"),
    CASE(DEQUANTIZE, "m=3 k=256", "over=k"),
    CASE(DEQUANTIZE, "batch=2 seq=256 model=300", "over=seq"),
    CASE(DEQUANTIZE, "model=256 kv=2 head=128", "over=model beside=head"),
    CASE(DEQUANTIZE, "m=3 k=256", "over=k last=k"),
    CASE(DEQUANTIZE, "batch=2 seq=256 model=37", "over=seq last=batch,seq"),
    CASE(DEQUANTIZE, "k=512 heads=4 head=64", "over=k beside=heads,head last=k"),
    CASE(DEQUANTIZE, "m=256 k=384", "over=k beside=m last=k each=1"),
    CASE(WIDEN, "%4 model=48 heads=2 head=32", "dtype=low"),
    CASE(WIDEN, "%8 ffn=3 model=320", "dtype=low"),
    CASE(WIDEN, "%4 ffn=5 model=64", "dtype=f32"),
    CASE(WIDEN, "%8 model=37 ffn=128", "dtype=f32"),
    CASE(SHIFT, "batch=2 seq=5 model=3", "axis=seq by=2"),
    CASE(SHIFT, "batch=2 seq=5 model=3", "axis=seq by=-4"),
    CASE(SHIFT, "batch=3 seq=7", "axis=seq by=1"),
    CASE(SHIFT, "rows=3 cols=4", "axis=cols by=0"),
    CASE(SHIFT, "#9 batch=2 seq=6", "value=-1 axis=seq by=1"),
    CASE(SHIFT, "#9 batch=2 seq=6 model=4", "value=7 axis=seq by=-2"),
    CASE(RENAME, "batch=2 seq=5 model=3", "axis=seq to=keys"),
    CASE(RENAME, "rows=3 cols=4", "axis=cols to=part"),
    CASE(RENAME, "#9 batch=2 seq=6", "axis=seq to=keys"),
    CASE(OF_PAIRS, "batch=6", "axis=batch from=1 into=0"),
    CASE(OF_PAIRS, "batch=2 seq=5", "axis=batch from=1 into=1"),
    CASE(OF_PAIRS, "heads=3 batch=4 seq=5", "axis=batch from=0 into=1"),
    /* Biases by relative position: all buckets met or not, two axes of heads, other queries than
     * keys, no axis before the heads; later keys hidden */
    CASE(RELATIVE_BIAS, "batch=2 heads=3 seq=9 keys=9; buckets=8 heads=3",
         "seq=seq keys=keys causal=0 distance=6"),
    CASE(RELATIVE_BIAS, "batch=1 kv=2 group=2 seq=3 keys=37; buckets=32 kv=2 group=2",
         "seq=seq keys=keys causal=0 distance=20"),
    CASE(RELATIVE_BIAS, "heads=2 seq=11 keys=4; buckets=4 heads=2",
         "seq=seq keys=keys causal=0 distance=3"),
    CASE(RELATIVE_BIAS, "batch=2 heads=3 seq=19 keys=19; buckets=8 heads=3",
         "seq=seq keys=keys causal=1 distance=12"),
    /* Layers */
    CASE(LAYERNORM, "rows=3 cols=5; cols=5; cols=5", NORM_EPS),
    CASE(LAYERNORM, "batch=2 seq=19 cols=7; cols=7; cols=7", NORM_EPS),
    CASE(LAYERNORM, "cols=33; cols=33; cols=33", "axis=cols eps=0.1"),
    CASE(RMSNORM, "rows=3 cols=5; cols=5", NORM_EPS),
    CASE(RMSNORM, "batch=2 seq=19 cols=7; cols=7", NORM_EPS),
    CASE(RMSNORM, "cols=33; cols=33", "axis=cols eps=0.1"),
    CASE(ROTARY, "batch=2 seq=5 heads=3 head=6", "seq=seq head=head base=10000 direction=1"),
    CASE(ROTARY, "batch=2 seq=5 heads=3 head=6", "seq=seq head=head base=50 direction=-1"),
    CASE(ROTARY, "seq=7 head=2", "seq=seq head=head base=10000 direction=1"),
    CASE(ROTARY, "batch=2 seq=3 kv=2 group=2 head=4", "seq=seq head=head base=100 direction=1"),
    CASE(ROTARY, "batch=2 seq=9 heads=2 head=6", "seq=seq head=head base=50 factor=3 direction=1"),
    /* 64 positions are 10.2, 3.2, 1.0 and 0.32 turns of four pairs: kept, mixed, mixed, divided */
    CASE(ROTARY, "batch=2 seq=9 heads=2 head=8",
         "seq=seq head=head base=100 factor=8 few=1 many=4 context=64 direction=1"),
    CASE(ROTARY, "seq=9 head=8",
         "seq=seq head=head base=100 factor=8 few=0.5 many=2 context=64 direction=-1"),
    CASE(ROTARY, "batch=2 seq=40 kv=1 head=16",
         "seq=seq head=head base=100 factor=8 few=0.5 many=2 context=64 direction=1 ramp=1"),
    CASE(ROTARY, "batch=2 seq=9 heads=2 head=8",
         "seq=seq head=head base=100 direction=-1 turned=6 factors=1,2.5,7 scale=1.5"),
    CASE(EMBEDDING, "#7 batch=2 seq=5; vocab=7 model=3", "axis=vocab"),
    CASE(EMBEDDING, "#4 seq=9; vocab=4 model=19", "axis=vocab"),
    CASE(EMBEDDING_GRAD, "#7 seq=5; seq=5 model=3; vocab=7 model=3; vocab=7 model=3", "axis=vocab"),
    CASE(ATTENTION,
         "batch=2 seq=5 heads=2 head=3; batch=2 seq=5 heads=2 head=3; "
         "batch=2 seq=5 heads=2 head=3",
         "seq=seq head=head causal=1 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=4 heads=2 head=3; batch=1 seq=4 heads=2 head=3; "
         "batch=1 seq=4 heads=2 head=3",
         "seq=seq head=head causal=0 scale=0.6"),
    CASE(ATTENTION,
         "batch=2 seq=4 kv=2 group=3 head=2; batch=2 seq=4 kv=2 head=2; "
         "batch=2 seq=4 kv=2 head=2",
         "seq=seq head=head causal=1 scale=1.5"),
    CASE(ATTENTION,
         "batch=1 seq=5 kv=1 group=2 head=4; batch=1 seq=5 kv=1 head=4; "
         "batch=1 seq=5 kv=1 head=4",
         "seq=seq head=head causal=0 scale=0.5"),
    CASE(ATTENTION,
         "batch=2 seq=3 kv=2 group=1 head=2; batch=2 seq=3 kv=2 head=2; "
         "batch=2 seq=3 kv=2 head=2",
         "seq=seq head=head causal=1 scale=1"),
    CASE(ATTENTION,
         "batch=2 seq=7 kv=2 group=2 head=3; batch=2 seq=7 kv=2 head=3; "
         "batch=2 seq=7 kv=2 head=3",
         "seq=seq head=head causal=1 window=3 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=6 kv=2 group=1 head=3; batch=1 seq=6 kv=2 head=3; "
         "batch=1 seq=6 kv=2 head=3",
         "seq=seq head=head causal=0 window=2 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=5 kv=2 group=2 head=3; batch=1 seq=5 kv=2 head=3; "
         "batch=1 seq=5 kv=2 head=3",
         "seq=seq head=head causal=1 scale=0.6 softcap=0.75"),
    /* Values with an axis of their own */
    CASE(ATTENTION,
         "batch=2 seq=5 heads=2 head=3; batch=2 seq=5 heads=2 head=3; "
         "batch=2 seq=5 heads=2 value=2",
         "seq=seq head=head causal=1 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=5 kv=2 group=2 head=2; batch=1 seq=5 kv=2 head=2; "
         "batch=1 seq=5 kv=2 value=4; #3 batch=1 seq=5",
         "seq=seq head=head causal=1 window=3 scale=0.5 softcap=0.75"),
    /* Within documents, which are found in the last operand's tokens: 0 ends one. */
    CASE(ATTENTION,
         "batch=2 seq=9 kv=2 group=2 head=3; batch=2 seq=9 kv=2 head=3; "
         "batch=2 seq=9 kv=2 head=3; #3 batch=2 seq=9",
         "seq=seq head=head causal=1 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=11 kv=1 head=3; batch=1 seq=11 kv=1 head=3; "
         "batch=1 seq=11 kv=1 head=3; #4 batch=1 seq=11",
         "seq=seq head=head causal=1 window=3 scale=0.6 softcap=0.75"),
    /* With sinks, beside documents, too */
    CASE(ATTENTION,
         "batch=2 seq=6 kv=2 group=2 head=3; batch=2 seq=6 kv=2 head=3; "
         "batch=2 seq=6 kv=2 head=3; kv=2 group=2",
         "seq=seq head=head causal=1 window=3 scale=0.6"),
    CASE(ATTENTION,
         "batch=1 seq=7 kv=2 head=3; batch=1 seq=7 kv=2 head=3; "
         "batch=1 seq=7 kv=2 value=2; #3 batch=1 seq=7; kv=2",
         "seq=seq head=head causal=1 scale=0.6 softcap=0.75"),
    CASE(ROTARY, "batch=2 seq=3 kv=2 group=2 head=4; #9 batch=2 seq=3",
         "seq=seq head=head base=100 direction=1"),
    /* Rows are others than those of the batch, places begin anew at 0. */
    CASE(
        CACHE_LINEAR_ATTENTION,
        "batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 group=3 value=4; "
        "sequences=4 kv=2 group=3 head=5 value=4; #9 batch=2; #5 batch=2 seq=7; "
        "batch=2 seq=7 kv=2 group=3",
        "seq=seq head=head scale=0.5"),
    CASE(CACHE_LINEAR_ATTENTION,
         "batch=1 seq=5 head=3; batch=1 seq=5 head=3; batch=1 seq=5 value=70; "
         "sequences=2 head=3 value=70; #2 batch=1; #9 batch=1 seq=5; batch=1 seq=5; batch=1 seq=5",
         "seq=seq head=head scale=1"),
    CASE(CACHE_CONVOLVE,
         "batch=1 seq=5 kv=2 head=5; sequences=4 before=3 kv=2 head=5; taps=4 kv=2 head=5; "
         "#4 batch=1; #9 batch=1 seq=5",
         "seq=seq axis=taps"),
    CASE(CACHE_CONVOLVE,
         "batch=1 seq=2 cols=300; sequences=3 before=4 cols=300; taps=5 cols=300; #3 batch=1; "
         "#9 batch=1 seq=2; #4 batch=1 seq=2",
         "seq=seq axis=taps"),
    /* Caches: rows and places lie within them, and beyond. */
    CASE(CACHE_APPEND,
         "sequences=3 context=7 kv=2 head=3; batch=2 seq=4 kv=2 head=3; #3 batch=2; "
         "#9 batch=2 seq=4",
         ""),
    /* A group of heads shares queries and keys; without groups; values of one head. */
    CASE(
        LINEAR_ATTENTION,
        "batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 group=3 value=4; "
        "batch=2 seq=7 kv=2 group=3",
        "seq=seq head=head scale=0.5"),
    CASE(LINEAR_ATTENTION,
         "batch=2 seq=5 head=3; batch=2 seq=5 head=3; batch=2 seq=5 heads=11 value=2; "
         "batch=2 seq=5 heads=11",
         "seq=seq head=head scale=1"),
    CASE(LINEAR_ATTENTION,
         "batch=1 seq=4 kv=3 head=19; batch=1 seq=4 kv=3 head=19; batch=1 seq=4 kv=3 value=37; "
         "batch=1 seq=4 kv=3",
         "seq=seq head=head scale=0.25"),
    /* The delta rule; a decay to nothing begins anew. */
    CASE(
        LINEAR_ATTENTION,
        "batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 head=5; batch=2 seq=7 kv=2 group=3 value=4; "
        "batch=2 seq=7 kv=2 group=3; batch=2 seq=7 kv=2 group=3",
        "seq=seq head=head scale=0.5"),
    CASE(LINEAR_ATTENTION,
         "batch=1 seq=5 head=3; batch=1 seq=5 head=3; batch=1 seq=5 value=70; batch=1 seq=5; "
         "+ batch=1 seq=5",
         "seq=seq head=head scale=1"),
    CASE(LINEAR_ATTENTION,
         "batch=1 seq=4 kv=2 head=3; batch=1 seq=4 kv=2 head=3; batch=1 seq=4 kv=2 value=5; "
         ":-200 batch=1 seq=4 kv=2; batch=1 seq=4 kv=2",
         "seq=seq head=head scale=1"),
    CASE(CONVOLVE, "batch=2 seq=7 kv=2 head=5; taps=4 kv=2 head=5", "seq=seq axis=taps"),
    CASE(CONVOLVE, "batch=2 seq=3 rows=300; taps=5 rows=300", "seq=seq axis=taps"),
    CASE(CONVOLVE, "batch=3 seq=6 cols=5; taps=3 cols=5; #4 batch=3 seq=6", "seq=seq axis=taps"),
    CASE(CACHE_ATTENTION,
         "batch=3 seq=1 kv=2 group=3 head=5; sequences=2 context=9 kv=2 head=5; "
         "sequences=2 context=9 kv=2 head=5; #2 batch=3; #9 batch=3 seq=1",
         "seq=seq head=head scale=0.7"),
    CASE(CACHE_ATTENTION,
         "batch=2 seq=2 kv=3 head=40; sequences=4 context=300 kv=3 head=40; "
         "sequences=4 context=300 kv=3 head=40; #5 batch=2; #320 batch=2 seq=2; "
         "#99 batch=2 seq=2",
         "seq=seq head=head window=140 scale=0.2 softcap=3"),
    CASE(CACHE_ATTENTION,
         "batch=2 seq=1 kv=1 group=2 head=33; sequences=2 context=400 kv=1 "
         "head=33; sequences=2 context=400 kv=1 head=33; #2 batch=2; "
         "#400 batch=2 seq=1; #300 batch=2 seq=1",
         "seq=seq head=head scale=0.2"),
    CASE(CACHE_ATTENTION,
         "batch=2 seq=1 kv=2 group=3 head=24; sequences=2 context=300 kv=2 "
         "head=24; sequences=2 context=300 kv=2 value=17; #2 batch=2; "
         "#300 batch=2 seq=1; #200 batch=2 seq=1",
         "seq=seq head=head scale=0.2"),
    CASE(CACHE_ATTENTION,
         "batch=2 seq=1 kv=2 group=20 head=5; sequences=2 context=140 kv=2 head=5; "
         "sequences=2 context=140 kv=2 value=7; #2 batch=2; #140 batch=2 seq=1",
         "seq=seq head=head scale=0.7"),
    CASE(SELECT_ROW, "batch=3 seq=4 a=2 b=3; #4 batch=3", "seq=seq"),
    CASE(SELECT_ROW, "#7 batch=3 seq=4; #5 batch=3", "seq=seq"),
    CASE(DOCUMENTS, "#3 batch=2 seq=11", "axis=seq separator=1"),
    CASE(DOCUMENTS, "#2 seq=1", "axis=seq separator=0"),
    CASE(CROSS_ENTROPY, "batch=2 seq=3 vocab=7; #7 batch=2 seq=3", "axis=vocab"),
    CASE(CROSS_ENTROPY, "vocab=11; #11", "axis=vocab"),
    {OP_CROSS_ENTROPY, "batch=2 seq=3 vocab=7; #7 batch=2 seq=3", "axis=vocab", 2, 0},
    CASE(CROSS_ENTROPY_GRAD, "rows=3 vocab=7; #7 rows=3; rows=3; rows=3; rows=3", "axis=vocab"),
    CASE(LOGSUMEXP, "batch=2 seq=3 vocab=7", "axis=vocab"),
    CASE(LOGSUMEXP, "vocab=37", "axis=vocab"),
    CASE(PICK, "batch=2 seq=3 vocab=7; #7 batch=2 seq=3", "axis=vocab"),
    /* Choices, ties among them and all of them; numbers beyond the axis; experts that overflow,
     * that get nothing, that hold one; numbers that name no expert */
    CASE(TOP, "batch=2 seq=3 routes=7", "axis=routes to=choice count=3"),
    CASE(TOP, ":0.5 rows=2 routes=5", "axis=routes to=choice count=5"),
    CASE(TOP, ":nan routes=4", "axis=routes to=choice count=2"),
    CASE(TOP, "rows=37 routes=67", "axis=routes to=choice count=8"),
    CASE(TOP, "rows=37 routes=12", "axis=routes to=choice count=3 groups=4 kept=2 best=2"),
    CASE(TOP, ":0.5 rows=9 routes=15", "axis=routes to=choice count=5 groups=5 kept=3 best=1"),
    CASE(TOP, "rows=9 routes=64", "axis=routes to=choice count=2 groups=32 kept=32 best=2"),
    CASE(TAKE, "batch=2 seq=3 routes=7; #7 batch=2 seq=3 choice=3", "axis=routes"),
    CASE(TAKE, "rows=3 routes=4; #6 rows=3 choice=5", "axis=routes"),
    CASE(PUT, "batch=2 seq=3 choice=3; #7 batch=2 seq=3 choice=3", "axis=routes count=7"),
    CASE(PUT, "rows=3 choice=5; #6 rows=3 choice=5", "axis=routes count=4"),
    CASE(ROUTE, "#5 batch=2 seq=7 choice=2", "to=experts,slot,routes experts=5 slots=3"),
    CASE(ROUTE, "#7 batch=3 seq=37 choice=3", "to=experts,slot,routes experts=5 slots=1"),
    CASE(ROUTE, "#3 batch=1 seq=350 choice=4", "to=experts,slot,routes experts=4 slots=500"),
    CASE(DISPATCH, "batch=2 seq=7 model=5; #5/3 batch=2 seq=7 choice=2; @tokens", ""),
    CASE(DISPATCH,
         "batch=2 seq=6 model=19; #3/4 batch=2 seq=6 choice=2; @tokens; batch=2 seq=6 choice=2",
         ""),
    CASE(COMBINE, "experts=5 batch=2 slot=3 model=5; #5/3 batch=2 seq=7 choice=2; @tokens", ""),
    CASE(COMBINE,
         "experts=3 batch=2 slot=4 model=24; #3/4 batch=2 seq=6 choice=2; @tokens; batch=2 seq=6 "
         "choice=2",
         ""),
    CASE(SLOT_DOT,
         "experts=3 batch=2 slot=4 model=37; #3/4 batch=2 seq=6 choice=2; @tokens; batch=2 seq=6 "
         "model=37",
         ""),
    /* Clipping and optimizers: p, g, m, v, scale, lr, step */
    CASE(SUMSQ, "rows=13 cols=17", ""),
    CASE(SUMSQ, "", ""),
    CASE(CLIP_SCALE, ":6.25", "max_norm=1"),
    CASE(CLIP_SCALE, ":0.25", "max_norm=1"),
    CASE(CLIP_SCALE, ":6.25", "max_norm=0"),
    CASE(CLIP_SCALE, ":inf", "max_norm=1"),
    CASE(CLIP_SCALE, ":nan", "max_norm=0"),
    CASE(CLIP_SCALE, ":1048576; :1024", "max_norm=1"),
    CASE(CLIP_SCALE, ":1048576; :65536", "max_norm=1"),
    CASE(CLIP_SCALE, ":1048576; :3", "max_norm=0"),
    CASE(CLIP_SCALE, ":nan; :1024", "max_norm=1"),
    /* factor, scale, finite steps, updates */
    CASE(LOSS_SCALE, ":0.5; :1024; :5; :17", "interval=0"),
    CASE(LOSS_SCALE, ":nan; :1024; :5; :17", "interval=0"),
    CASE(LOSS_SCALE, ":0.5; :1024; :5; :17", "interval=7"),
    CASE(LOSS_SCALE, ":0.5; :1024; :6; :17", "interval=7"),
    CASE(LOSS_SCALE, ":nan; :1024; :6; :17", "interval=7"),
    CASE(LOSS_SCALE, ":nan; :1; :6; :17", "interval=1"),
    CASE(LOSS_SCALE, ":0.5; :4294967296; :0; :0", "interval=1"),
    CASE(LOSS_SCALE, ":0.5; :3000000000; :0; :0", "interval=1"),
    CASE(LOSS_SCALE, ":nan; :1.5; :0; :0", "interval=1"),
    CASE(ADAMW,
         "rows=3 cols=7; rows=3 cols=7; :0 rows=3 cols=7; :0 rows=3 cols=7; :0.5; :0.03125; :1",
         "beta1=0.9 beta2=0.999 eps=1e-8 weight_decay=0.1"),
    CASE(ADAMW, "rows=9; rows=9; rows=9; + rows=9; :1; :0.03125; :1000",
         "beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0"),
    CASE(ADAMW, "rows=9; rows=9; rows=9; + rows=9; :nan; :0.03125; :7",
         "beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1"),
    CASE(ADAMW,
         "rows=3 cols=7; rows=3 cols=7; :0 rows=3 cols=7; :0 rows=3 cols=7; :0.5; :0.03125; :1; "
         "~rows=3 cols=7",
         "beta1=0.9 beta2=0.999 eps=1e-8 weight_decay=0.1"),
    CASE(ADAMW, "rows=9; rows=9; rows=9; + rows=9; :nan; :0.03125; :7; ~rows=9",
         "beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1"),
    CASE(SGD, "rows=3 cols=7; rows=3 cols=7; :0 rows=3 cols=7; :0.5; :0.03125; ~rows=3 cols=7",
         "momentum=0.9 weight_decay=0.1"),
    CASE(SGD, "rows=9; rows=9; rows=9; :1; :0.03125; ~rows=9", "momentum=0 weight_decay=0"),
    CASE(SGD, "rows=9; rows=9; rows=9; :nan; :0.03125; ~rows=9", "momentum=0.9 weight_decay=0.1"),
    CASE(SGD, "rows=3 cols=7; rows=3 cols=7; :0 rows=3 cols=7; :0.5; :0.03125",
         "momentum=0.9 weight_decay=0.1"),
    CASE(SGD, "rows=9; rows=9; rows=9; :1; :0.03125", "momentum=0 weight_decay=0"),
    CASE(SGD, "rows=9; rows=9; rows=9; :nan; :0.03125", "momentum=0.9 weight_decay=0.1"),
    CASE(SGD, "rows=9; rows=9; rows=9; :1; :0.03125",
         "momentum=0.9 weight_decay=0.1 lr_scale=0.25"),
    CASE(ADAMW, "rows=9; rows=9; rows=9; + rows=9; :1; :0.03125; :10",
         "beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1 lr_scale=4"),
    CASE(LION, "rows=3 cols=7; rows=3 cols=7; :0 rows=3 cols=7; :0.5; :0.03125; ~rows=3 cols=7",
         "beta1=0.9 beta2=0.99 weight_decay=0.1"),
    CASE(LION, "rows=9; rows=9; rows=9; :1; :0.03125",
         "beta1=0.95 beta2=0.98 weight_decay=1 lr_scale=0.5"),
    CASE(LION, "rows=9; :0 rows=9; :0 rows=9; :1; :0.03125",
         "beta1=0.95 beta2=0.98 weight_decay=0"),
    CASE(LION, "rows=9; rows=9; rows=9; :nan; :0.03125; ~rows=9",
         "beta1=0.9 beta2=0.99 weight_decay=0.1"),
    /* p, m, v, scale, step, g */
    CASE(LAMB_MOMENTS, "rows=3 cols=7; :0 rows=3 cols=7; :0 rows=3 cols=7; :0.5; :1; rows=3 cols=7",
         "beta1=0.9 beta2=0.999 eps=1e-6 weight_decay=0.01"),
    CASE(LAMB_MOMENTS, "rows=9; rows=9; + rows=9; :1; :1000; rows=9",
         "beta1=0.9 beta2=0.95 eps=0.01 weight_decay=1"),
    CASE(LAMB_MOMENTS, "rows=9; rows=9; + rows=9; :nan; :7; rows=9",
         "beta1=0.9 beta2=0.95 eps=1e-6 weight_decay=0.1"),
    /* p, m, v, scale, lr, step, two norms */
    CASE(LAMB,
         "rows=3 cols=7; rows=3 cols=7; + rows=3 cols=7; :0.5; :0.03125; :3; :2.5; :40; "
         "~rows=3 cols=7",
         "beta1=0.9 beta2=0.999 eps=1e-6 weight_decay=0.01"),
    CASE(LAMB, "rows=9; rows=9; + rows=9; :1; :0.03125; :1000; :64; :4",
         "beta1=0.9 beta2=0.95 eps=0.01 weight_decay=1 trust_max=1.5 lr_scale=0.5"),
    CASE(LAMB, "rows=9; rows=9; + rows=9; :1; :0.03125; :5; :0; :4",
         "beta1=0.9 beta2=0.95 eps=0.01 weight_decay=1"),
    CASE(LAMB, "rows=9; rows=9; + rows=9; :1; :0.03125; :5; :4; :0",
         "beta1=0.9 beta2=0.95 eps=0.01 weight_decay=1"),
    CASE(LAMB, "rows=9; rows=9; + rows=9; :nan; :0.03125; :5; :4; :1; ~rows=9",
         "beta1=0.9 beta2=0.95 eps=0.01 weight_decay=1"),
    CASE(MUON_MOMENTUM, "rows=3 cols=7; :0.5; rows=3 cols=7", "momentum=0.95"),
    CASE(MUON_MOMENTUM, "rows=9; :inf; rows=9", "momentum=0.95"),
    CASE(MUON, "rows=3 cols=7; ~rows=3 cols=7; :0.5; :0.03125; ~rows=3 cols=7",
         "scale=6.4 weight_decay=0.1"),
    CASE(MUON, "rows=9; rows=9; :1; :0.03125", "scale=1 weight_decay=0 lr_scale=0.5"),
    CASE(BALANCE, "rows=300; rows=300; :0.5", "balance=0.25"),
    CASE(BALANCE, "rows=4; :3 rows=4; :0.5", "balance=0.25"),
    CASE(BALANCE, "rows=4; rows=4; :inf", "balance=0.25"),
    CASE(MUON, "rows=9; ~rows=9; :nan; :0.03125; ~rows=9", "scale=6.4 weight_decay=0.1"),
};
const int N_OP_CASES = sizeof(OP_CASES) / sizeof(OP_CASES[0]);

enum { MOST_OPERANDS = 9 };

const char *op_case_name(Arena *arena, const OpCase *op_case, const char *what) {
    return arena_printf(arena, "%s(%s) {%s} %s", OPS[op_case->op].name,
                        op_case->operands ? op_case->operands : "", op_case->attrs, what);
}

/* "rows=3 cols=5" */
static Type read_axes(Graph *graph, const char *text, DType dtype) {
    Type type = {.dtype = dtype};
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t length = strcspn(text, "=");
        char *end;
        type.axes[type.rank] = graph_axis(graph, text, (int)length);
        type.dims[type.rank++] = strtol(text + length + 1, &end, 10);
        text = end;
    }
    return type;
}

static Attr read_attr(Graph *graph, AttrKey key, const char *value) {
    Attr attr = {.key = key};
    switch (ATTRS[key].kind) {
    case ATTR_INT: attr.i = strtol(value, NULL, 10); break;
    case ATTR_FLOAT: attr.f = strtod(value, NULL); break;
    case ATTR_STRING: attr.s = value; break;
    case ATTR_AXIS: attr.axis = graph_axis(graph, value, (int)strlen(value)); break;
    case ATTR_AXES:
        while (*value) {
            size_t length = strcspn(value, ",");
            attr.axes.items[attr.axes.count++] = graph_axis(graph, value, (int)length);
            value += length + (value[length] == ',');
        }
        break;
    }
    return attr;
}

static int read_attrs(Graph *graph, const char *text, Attr *attrs) {
    int count = 0;
    while (*text) {
        size_t name = strcspn(text, "=");
        int key = attr_find(text, (int)name);
        size_t length = key == ATTR_program ? strlen(text) : strcspn(text, " ");
        char *value = arena_strndup(graph->arena, text + name + 1, length - name - 1);
        attrs[count++] = read_attr(graph, (AttrKey)key, value);
        text += length + (text[length] == ' ');
    }
    return count;
}

/* The operand's text without what it says about values. */
static const char *axes_text(const char *operand) {
    operand += strspn(operand, " ~");
    return *operand && strchr("+#:%", *operand) ? operand + strcspn(operand, " ") : operand;
}

static int split_operands(Arena *arena, const char *text, const char **out) {
    int count = 0;
    for (bool more = text != NULL; more && count < MOST_OPERANDS;) {
        size_t length = strcspn(text, ";");
        out[count] = arena_strndup(arena, text, length);
        out[count] += strspn(out[count], " ");
        count++;
        more = text[length] == ';';
        text += length + more;
    }
    return count;
}

/* Results of a route of what the operand's leaf chooses. */
static Node *add_route(Graph *graph, Value chosen, const char *operand, Diag *diag) {
    const char *names[3] = {"experts", "slot", "routes"}, *slash = strchr(operand, '/');
    int axes[3];
    for (int i = 0; i < 3; i++) axes[i] = graph_axis(graph, names[i], (int)strlen(names[i]));
    Attr attrs[3] = {attr_axes(ATTR_to, axes, 3), attr_int(ATTR_experts, atoi(operand + 1)),
                     attr_int(ATTR_slots, atoi(slash + 1))};
    return graph_add(graph,
                     &(NodeSpec){.op = OP_ROUTE,
                                 .inputs = &chosen,
                                 .n_inputs = 1,
                                 .attrs = attrs,
                                 .n_attrs = 3,
                                 .block = NO_BLOCK},
                     diag);
}

/* Puts a route between the choices, if operand 1 is some, and the op. */
static bool route_choices(Graph *graph, const char **operands, Value *inputs, int n, Diag *diag) {
    if (n < 3 || strcmp(operands[2], "@tokens") != 0) return true;
    Node *route = add_route(graph, inputs[1], operands[1], diag);
    for (int i = 0; i < 2; i++) inputs[1 + i] = node_value(route, i);
    return route != NULL;
}

/* Puts the search for documents between attention's tokens, if it has some, and attention. */
static bool find_documents(Graph *graph, const OpCase *op_case, Value *inputs, int n, Diag *diag) {
    bool has_some = n > 3 && !dtype_is_float(value_type(inputs[3])->dtype);
    if (op_case->op != OP_ATTENTION || !has_some) return true;
    Attr attrs[2] = {{.key = ATTR_axis, .axis = value_type(inputs[3])->axes[1]},
                     attr_int(ATTR_separator, 0)};
    Node *documents = graph_add(graph,
                                &(NodeSpec){.op = OP_DOCUMENTS,
                                            .inputs = &inputs[3],
                                            .n_inputs = 1,
                                            .attrs = attrs,
                                            .n_attrs = 2,
                                            .block = NO_BLOCK},
                                diag);
    inputs[3] = node_value(documents, 0);
    return documents != NULL;
}

/* Puts a quantize of the leaf, which the case's attributes are for, before a dequantize. */
static bool quantize_first(Graph *graph, const OpCase *op_case, const char *attrs_text,
                           Value *inputs, Diag *diag) {
    Attr attrs[N_ATTRS];
    if (op_case->op != OP_DEQUANTIZE) return true;
    NodeSpec spec = {.op = OP_QUANTIZE,
                     .inputs = inputs,
                     .n_inputs = 1,
                     .attrs = attrs,
                     .n_attrs = read_attrs(graph, attrs_text, attrs),
                     .block = NO_BLOCK};
    Node *quantize = graph_add(graph, &spec, diag);
    for (int i = 0; quantize && i < 2; i++) inputs[i] = node_value(quantize, i);
    return quantize != NULL;
}

static Node *add_leaf(Graph *graph, OpKind op, const char *name, const Type *type, Diag *diag) {
    Attr attrs[4] = {attr_string(ATTR_name, name), attr_string(ATTR_init, "zeros"),
                     attr_int(ATTR_decay, 1), attr_int(ATTR_frozen, 1)};
    return graph_add(graph,
                     &(NodeSpec){.op = op,
                                 .attrs = attrs,
                                 .n_attrs = dtype_is_blocked(type->dtype) ? 4
                                            : op == OP_PARAM              ? 3
                                                                          : 1,
                                 .type = type,
                                 .block = NO_BLOCK},
                     diag);
}

static Node *add(Graph *graph, OpKind op, Value *inputs, int n_inputs, const Attr *attr,
                 Diag *diag) {
    return graph_add(graph,
                     &(NodeSpec){.op = op,
                                 .inputs = inputs,
                                 .n_inputs = n_inputs,
                                 .attrs = attr,
                                 .n_attrs = attr ? 1 : 0,
                                 .block = NO_BLOCK},
                     diag);
}

static bool add_loss(Graph *graph, Value result, Value weights, Diag *diag) {
    if (dtype_is_low(value_type(result)->dtype)) {
        result = node_value(add(graph, OP_TO_F32, &result, 1, NULL, diag), 0);
    }
    const Type *type = value_type(result);
    Attr over = attr_axes(ATTR_over, type->axes, type->rank), name = attr_string(ATTR_name, "loss");
    Value operands[2] = {result, weights};
    Node *loss = add(graph, OP_MUL, operands, 2, NULL, diag);
    for (int step = 0; loss && step < 2; step++) {
        Value value = node_value(loss, 0);
        if (step == 0 && type->rank == 0) continue;
        loss = add(graph, step ? OP_OUTPUT : OP_REDUCE_SUM, &value, 1, step ? &name : &over, diag);
    }
    return loss != NULL;
}

static bool takes_low(const OpCase *op_case, int operand) {
    OperandPrecision precision = op_operand_precision(op_case->op, operand);
    return precision == OPERAND_FOLLOWS || precision == OPERAND_EITHER;
}

bool op_case_takes_low(const OpCase *op_case) {
    const char *text = op_case->operands;
    if (!text || strchr(text, '~') || op_is_cast(op_case->op)) return false;
    for (int i = 0; text; i++, text = strchr(text, ';'), text += text != NULL) {
        if (takes_low(op_case, i) && text[strspn(text, " ")] != '#') return true;
    }
    return false;
}

bool op_case_is_integer(const OpCase *op_case) {
    return (op_case->op == OP_SHIFT || op_case->op == OP_RENAME) && op_case->operands[0] == '#';
}

static bool has_low_operand(const OpCase *op_case) {
    return op_case->operands && strchr(op_case->operands, '~');
}

bool op_case_says_low(const OpCase *op_case) {
    return has_low_operand(op_case) || strstr(op_case->attrs, "low");
}

/* `text` with the dtype's name wherever it says "low". */
static const char *name_low(Arena *arena, const char *text, DType low) {
    const char *at = strstr(text, "low");
    if (!at) return text;
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, dtype_name(low),
                        name_low(arena, at + strlen("low"), low));
}

Graph *op_case_build(Arena *arena, const OpCase *op_case, DType precision, bool loss, Diag *diag) {
    const DType low = dtype_is_low(precision) ? precision : DTYPE_BF16;
    const bool lowered = dtype_is_low(precision) && !has_low_operand(op_case);
    const char *attrs_text = name_low(arena, op_case->attrs, low);
    Graph *graph = graph_create(arena, OPS[op_case->op].name);
    const char *operands[MOST_OPERANDS];
    Value inputs[MOST_OPERANDS];
    Attr attrs[N_ATTRS];
    bool broadcast = op_case->op == OP_BROADCAST;
    int n = split_operands(arena, op_case->operands, operands);
    for (int i = 0; i < n; i++) {
        if (strcmp(operands[i], "@tokens") == 0) continue;
        if (*operands[i] == '@') {
            inputs[i] = inputs[atoi(operands[i] + 1)];
            continue;
        }
        bool tokens = *operands[i] == '#';
        bool is_low = *operands[i] == '~' || (lowered && takes_low(op_case, i));
        DType dtype = tokens ? DTYPE_I32 : is_low ? low : DTYPE_F32;
        if (*operands[i] == '%') dtype = operands[i][1] == '4' ? DTYPE_NF4 : DTYPE_INT8;
        Type type = read_axes(graph, axes_text(operands[i]), dtype);
        OpKind op = tokens ? OP_INPUT : OP_PARAM;
        inputs[i] = node_value(add_leaf(graph, op, arena_printf(arena, "%d", i), &type, diag), 0);
    }
    if (!route_choices(graph, operands, inputs, n, diag)) return NULL;
    if (!find_documents(graph, op_case, inputs, n, diag)) return NULL;
    if (!quantize_first(graph, op_case, attrs_text, inputs, diag)) return NULL;
    bool dequantizes = op_case->op == OP_DEQUANTIZE;
    /* The weights' leaf must come before the op: its type is found on a copy. */
    Type type = {0};
    if (broadcast) {
        type = read_axes(graph, attrs_text + 3, lowered ? low : DTYPE_F32);
    }
    NodeSpec spec = {.op = op_case->op,
                     .inputs = inputs,
                     .n_inputs = dequantizes ? 2 : n,
                     .attrs = attrs,
                     .n_attrs = broadcast || dequantizes ? 0 : read_attrs(graph, attrs_text, attrs),
                     .type = &type,
                     .n_outputs = op_case->outputs,
                     .block = op_case->block ? op_case->block - 1 : NO_BLOCK};
    if (lowered && op_case->op == OP_MATMUL && n == 3) {
        attrs[spec.n_attrs++] = attr_string(ATTR_dtype, "f32");
    }
    Node *node = graph_add(graph, &spec, diag);
    if (!node || !loss) return node ? graph : NULL;
    Type weights_type = type_with_dtype(&node->types[0], DTYPE_F32);
    graph->n_nodes--;
    Node *weights = add_leaf(graph, OP_INPUT, "w", &weights_type, diag);
    node = graph_add(graph, &spec, diag);
    Value result = node_value(node, 0);
    if (op_case->op == OP_CROSS_ENTROPY && op_case->outputs == 2) {
        Value lse = node_value(node, 1); /* squared, as in a z-loss */
        Value both[2] = {result, node_value(add(graph, OP_SQUARE, &lse, 1, NULL, diag), 0)};
        result = node_value(add(graph, OP_ADD, both, 2, NULL, diag), 0);
    }
    bool good = add_loss(graph, result, node_value(weights, 0), diag);
    return good ? graph : NULL;
}

/* Multiples of 2^-12 in [0, 1): sums and differences of a few are exact in f32. */
static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 52) / 4096;
}

double op_case_draw(const char *operand, uint64_t *state) {
    double u = uniform(state);
    operand += *operand == '~';
    switch (*operand) {
    case '#': return (double)(int)(u * atoi(operand + 1));
    case ':': return strtod(operand + 1, NULL);
    case '+': return 0.5 + 1.5 * u;
    case '-': return u < 0.0625 ? -200 : -u;
    default: return 2 * u - 1;
    }
}

void op_case_fill(const OpCase *op_case, const Graph *graph, Reference *reference) {
    const char *operands[MOST_OPERANDS];
    uint64_t state = 2026;
    split_operands(reference->arena, op_case->operands, operands);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        const char *name = node_string(node, ATTR_name);
        double *values = reference_value(reference, node_value(node, 0));
        if (node->op != OP_PARAM && node->op != OP_INPUT) continue;
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            values[i] = op_case_draw(*name == 'w' ? "" : operands[atoi(name)], &state);
            values[i] = reference_rounded(node->types[0].dtype, values[i]);
        }
    }
}
