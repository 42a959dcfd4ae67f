/* A case of test_ops_sharded: stored words over a divided vocabulary, some of another shard. */
#ifndef TESTS_UNIT_OPS_SHARDED_STORED_H
#define TESTS_UNIT_OPS_SHARDED_STORED_H

/* clang-format off */
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
/* clang-format on */

#endif
