/* Putting together the JSON of show*_json.c: names that are not UTF-8, numbers that are
 * not finite. Internal to those files. */
#ifndef PLANNER_SHOW_SHOW_JSON_PUT_H
#define PLANNER_SHOW_SHOW_JSON_PUT_H

#include "ir/base/strbuf.h"
#include "planner/cost/step_cost.h"

#include <jansson.h>
#include <stdint.h>

/* An untrusted name; what is not UTF-8 becomes '?', NULL "". */
json_t *json_name(const char *name);
void json_put_name(json_t *object, const char *key, const char *name);
void json_put_int(json_t *object, const char *key, int64_t value);
/* null for what is not finite. */
void json_put_real(json_t *object, const char *key, double value);
/* null for what is not positive: it stands for what is not known. */
void json_put_known(json_t *object, const char *key, double value);
/* mesh {t, d, p}, schedule, chunks, micro_batch, micro_batches, recompute, zero and
 * sequence_parallel. */
void json_put_candidate(json_t *object, const Candidate *candidate);
/* Returns `child`. */
json_t *json_put_new(json_t *object, const char *key, json_t *child);
/* Appends the whole document and releases it. */
void json_put_document(StrBuf *out, json_t *root);

#endif
