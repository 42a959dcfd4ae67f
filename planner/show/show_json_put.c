#include "planner/show/show_json_put.h"

#include "ir/base/diag.h"

#include <math.h>
#include <stdlib.h>

json_t *json_name(const char *name) {
    json_t *json = json_string(name ? name : "");
    if (json) return json;
    StrBuf text = strbuf_create();
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        strbuf_printf(&text, "%c", *c < 128 ? *c : '?');
    }
    json = json_string(text.text);
    strbuf_destroy(&text);
    return json;
}

void json_put_name(json_t *object, const char *key, const char *name) {
    json_object_set_new(object, key, json_name(name));
}

void json_put_int(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

void json_put_real(json_t *object, const char *key, double value) {
    json_t *json = json_real(value);
    json_object_set_new(object, key, json ? json : json_null()); /* no infinities in JSON */
}

void json_put_known(json_t *object, const char *key, double value) {
    json_put_real(object, key, value > 0 ? value : NAN);
}

void json_put_candidate(json_t *object, const Candidate *candidate) {
    json_t *mesh = json_put_new(object, "mesh", json_object());
    json_put_int(mesh, "t", candidate->t);
    if (candidate->c > 1) json_put_int(mesh, "c", candidate->c);
    if (candidate->e > 1) json_put_int(mesh, "e", candidate->e);
    json_put_int(mesh, "d", candidate->d);
    if (candidate->r > 1) json_put_int(mesh, "r", candidate->r);
    json_put_int(mesh, "p", candidate->p);
    json_put_name(object, "schedule", schedule_name(candidate->schedule));
    json_put_int(object, "chunks", candidate->n_chunks);
    json_put_int(object, "micro_batch", candidate->micro_batch);
    json_put_int(object, "micro_batches", candidate->n_micro);
    if (candidate->lanes > 1) json_put_int(object, "lanes", candidate->lanes);
    json_put_name(object, "recompute", recompute_mode_name(candidate->recompute));
    json_put_int(object, "zero", candidate->zero);
    if (candidate->zero >= ZERO_GRADIENTS) {
        json_put_name(object, "zero_messages", candidate->joins_messages ? "block" : "weight");
    }
    json_object_set_new(object, "sequence_parallel", json_boolean(candidate->sequence_parallel));
}

json_t *json_put_new(json_t *object, const char *key, json_t *child) {
    json_object_set_new(object, key, child);
    return child;
}

void json_put_document(StrBuf *out, json_t *root) {
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    if (!text) BUG("what does not become JSON");
    strbuf_put(out, text);
    strbuf_put(out, "\n");
    free(text);
    json_decref(root);
}
