/* Cases of test_ops_sharded: optimizers that are formulas, with each number of states, and stored
 * words over a divided vocabulary, numbers of tokens, axes regrouped. */
#ifndef TESTS_UNIT_OPS_SHARDED_RULE_H
#define TESTS_UNIT_OPS_SHARDED_RULE_H

/* clang-format off */
#define RULE_NODES \
        PARAM(0, "", "rows=3, cols=7/t]") \
        PARAM(1, ":0.5", "]") \
        PARAM(2, ":0.03125", "]") \
        PARAM(3, ":3", "]") \
        PARAM(4, "", "rows=3, cols=7/t]") \
        PARAM(5, "", "rows=3, cols=7/t]") \
        PARAM(6, "+", "rows=3, cols=7/t]") \
        PARAM(7, "", "rows=3, cols=7/t]") \
        PARAM(8, "+", "rows=3, cols=7/t]") \
        PARAM(9, "+", "rows=3, cols=7/t]") \
        PARAM(10, "", "rows=3, cols=7/t]") \
        PARAM(11, "+", "rows=3, cols=7/t]") \
        PARAM(12, "+", "rows=3, cols=7/t]") \
        PARAM(13, "+", "rows=3, cols=7/t]") \
        "%14 = rule0(%4, %0, %1, %2, %3) " \
        "{program=\"t0=scale(i1,value=n0) t1=scale(t0,value=n4) t2=sub(i0,t1) -> t2\", " \
        "weight_decay=0.1, numbers=\"n4=div(n1,n2)\"} : " \
        "f32[rows=3, cols=7/t]\n" \
        "%15:2 = rule1(%5, %0, %6, %1, %2, %3) " \
        "{program=\"t0=scale(i1,value=n0) t1=add(i2,t0) " \
        "t2=scale(t1,value=n4) t3=sub(i0,t2) -> t3 t1\", " \
        "weight_decay=0.1, numbers=\"n4=div(n1,n2)\"} : " \
        "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t]\n" \
        "%16:3 = rule2(%7, %0, %8, %9, %1, %2, %3) " \
        "{program=\"t0=scale(i1,value=n0) t1=add(i2,t0) " \
        "t2=add(i3,t0) t3=scale(t2,value=n4) t4=sub(i0,t3) -> t4 t1 t2\", " \
        "weight_decay=0.1, numbers=\"n4=div(n1,n2)\"} : " \
        "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t], f32[rows=3, cols=7/t]\n" \
        "%17:4 = rule3(%10, %0, %11, %12, %13, %1, %2, %3) " \
        "{program=\"t0=scale(i1,value=n0) t1=add(i2,t0) " \
        "t2=add(i3,t0) t3=add(i4,t0) t4=scale(t3,value=n4) t5=sub(i0,t4) -> t5 t1 t2 t3\", " \
        "weight_decay=0.1, numbers=\"n4=div(n1,n2)\"} : " \
        "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t], " \
        "f32[rows=3, cols=7/t], f32[rows=3, cols=7/t]\n"

/* Some words are of another shard. */
#define STORED_ROWS_TYPE "f32[batch=4/d, seq=3]"
#define STORED_DIVERGENCE {"stored words over a divided vocabulary", "t=3, d=2, p=1", false, \
        PARAM(0, "", "batch=4/d, seq=3, vocab=11/t]") \
        TOKENS(1, "#11", "batch=4/d, seq=3, stored=4]") \
        PARAM(2, "", "batch=4/d, seq=3, stored=4]") \
        PARAM(3, "", "batch=4/d, seq=3]") \
        "%4 = logsumexp(%0) {axis=vocab} : " STORED_ROWS_TYPE "~lse(t)\n" \
        "%5 = all_reduce(%4) {mesh=\"t\"} : " STORED_ROWS_TYPE "\n" \
        "%6:3 = stored_rows(%0, %1, %2, %5) {axis=vocab} : " STORED_ROWS_TYPE "~sum(t), " \
        STORED_ROWS_TYPE "~sum(t), " STORED_ROWS_TYPE "~sum(t)\n" \
        "%7 = all_reduce(%6) {mesh=\"t\"} : " STORED_ROWS_TYPE "\n" \
        "%8 = all_reduce(%6.1) {mesh=\"t\"} : " STORED_ROWS_TYPE "\n" \
        "%9 = all_reduce(%6.2) {mesh=\"t\"} : " STORED_ROWS_TYPE "\n" \
        "%10 = stored_grad(%0, %1, %2, %5, %7, %8, %3) {axis=vocab} : " \
        "f32[batch=4/d, seq=3, vocab=11/t]\n"}

#define TOKENS_BEFORE {"tokens before, positions divided", "t=1, c=3, d=1, p=1", false, \
        TOKENS(0, "#9", "batch=2, seq=18]") \
        "%1 = ngram(%0) {axis=seq, by=3, count=50} : i32[batch=2, seq=18/c]\n" \
        "%2 = occurrence(%0) {axis=seq, token=4} : i32[batch=2, seq=18/c]\n"}

#define PATCHES_REGROUPED {"an axis as two, others divided", "t=2, d=2, p=1", false, \
        PARAM(0, "", "batch=4/d, patches=6, heads=4/t]") \
        "%1 = regroup(%0) {over=[patches], to=[rows, cols], count=3} : " \
        "f32[batch=4/d, rows=2, cols=3, heads=4/t]\n"}
#define PATCHES_JOINED {"two axes as one, others divided", "t=2, d=2, p=1", false, \
        PARAM(0, "", "batch=4/d, rows=2, cols=3, heads=4/t]") \
        "%1 = regroup(%0) {over=[rows, cols], to=[patches]} : " \
        "f32[batch=4/d, patches=6, heads=4/t]\n"}
/* clang-format on */

#endif
