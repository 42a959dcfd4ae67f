/* Linear attention by chunks (linear_chunk.c) and position by position (linear_attention.c) against
 * the recurrence in f64, which keeps every state: odd sizes, decays to nothing, the delta rule, 16
 * bits, states that last. */
#include "runtime/cpu/vec_low.h"

#include "runtime/cpu/linear_chunk.h"
#include "tests/unit/kernel_check.h"

typedef LinearAttentionShape Shape;

typedef struct Data {
    Shape s;
    bool write;
    int64_t n_q, n_v, n_h; /* numbers of queries, values, decays */
    void *q, *k, *v, *d_o, *o, *e, *dq, *dk, *du;
    float *decay, *share, *ddecay;
} Data;

typedef struct Reference {
    double *o, *e, *dq, *dk, *du, *ddecay, *last; /* last: [streams, keys, values] */
} Reference;

static void *random_array(DType dtype, int64_t n) {
    void *x = kc_alloc((size_t)n * vec_bytes(dtype));
    for (int64_t i = 0; i < n; i++) vec_put(x, dtype, i, kc_uniform());
    return x;
}

/* Keys have a length of one at most. Decays: logarithms down to `least`, some -inf or as good as
 * that. */
static Data make_data(Shape s, bool write, float least, double nothing) {
    Data d = {.s = s, .write = write};
    const int64_t rows = s.batch * s.seq * s.groups;
    d.n_q = rows * s.keys, d.n_h = rows * s.heads, d.n_v = d.n_h * s.values;
    d.q = random_array(s.dtype, d.n_q), d.k = random_array(s.dtype, d.n_q);
    for (int64_t i = 0; i < d.n_q; i++) {
        vec_put(d.k, s.dtype, i, vec_get(d.k, s.dtype, i) / sqrtf((float)s.keys));
    }
    d.v = random_array(s.dtype, d.n_v), d.d_o = random_array(s.dtype, d.n_v);
    d.o = random_array(s.dtype, d.n_v), d.e = random_array(s.dtype, d.n_v);
    d.dq = random_array(s.dtype, d.n_q), d.dk = random_array(s.dtype, d.n_q);
    d.du = random_array(s.dtype, d.n_v);
    d.decay = kc_random(d.n_h), d.share = kc_random(d.n_h), d.ddecay = kc_random(d.n_h);
    for (int64_t i = 0; i < d.n_h; i++) {
        const double draw = 0.5 + 0.5 * (double)kc_uniform();
        d.decay[i] = draw < nothing / 2 ? -INFINITY
                     : draw < nothing   ? -200.0f
                                        : least * (0.5f + 0.5f * d.decay[i]);
        d.share[i] = 0.5f + 0.5f * d.share[i];
    }
    return d;
}

static void free_data(Data *d) {
    free(d->q), free(d->k), free(d->v), free(d->d_o), free(d->o), free(d->e), free(d->dq);
    free(d->dk), free(d->du), free(d->decay), free(d->share), free(d->ddecay);
}

static Reference make_reference(const Data *d) {
    const int64_t streams = d->s.batch * d->s.groups * d->s.heads;
    return (Reference){kc_zeros64(d->n_v),
                       kc_zeros64(d->n_v),
                       kc_zeros64(d->n_q),
                       kc_zeros64(d->n_q),
                       kc_zeros64(d->n_v),
                       kc_zeros64(d->n_h),
                       kc_zeros64(streams * d->s.keys * d->s.values)};
}

static void free_reference(Reference *r) {
    free(r->o), free(r->e), free(r->dq), free(r->dk), free(r->du), free(r->ddecay), free(r->last);
}

static double number(const Data *d, const void *x, int64_t i) {
    return (double)vec_get(x, d->s.dtype, i);
}

/* Forwards: states[t] is the state that has decayed to position t. Errors are what was stored. */
static void reference_forward(const Data *d, Reference *r, int64_t row, int64_t head, int64_t t,
                              double *state, double *decayed) {
    const Shape *s = &d->s;
    for (int64_t j = 0; j < s->values; j++) {
        const int64_t at = head * s->values + j;
        double u = number(d, d->v, at), sum = 0;
        for (int64_t i = 0; i < s->keys; i++) {
            double *x = &state[i * s->values + j];
            *x *= exp((double)d->decay[head]);
            decayed[t * s->keys * s->values + i * s->values + j] = *x;
            if (d->write) u -= number(d, d->k, row * s->keys + i) * *x;
        }
        r->e[at] = u;
        if (d->write) u = (double)d->share[head] * number(d, d->e, at);
        for (int64_t i = 0; i < s->keys; i++) {
            double *x = &state[i * s->values + j];
            *x += number(d, d->k, row * s->keys + i) * u;
            sum += number(d, d->q, row * s->keys + i) * *x;
        }
        r->o[at] = (double)s->scale * sum;
    }
}

static void reference_backward(const Data *d, Reference *r, int64_t row, int64_t head,
                               const double *decayed, double *state) {
    const Shape *s = &d->s;
    const double share = d->write ? (double)d->share[head] : 1;
    for (int64_t j = 0; j < s->values; j++) {
        const int64_t at = head * s->values + j;
        const double u = share * number(d, d->write ? d->e : d->v, at);
        const double dout = (double)s->scale * number(d, d->d_o, at);
        double du = 0;
        for (int64_t i = 0; i < s->keys; i++) {
            const double k = number(d, d->k, row * s->keys + i);
            double *x = &state[i * s->values + j];
            r->dq[row * s->keys + i] += (decayed[i * s->values + j] + k * u) * dout;
            *x += number(d, d->q, row * s->keys + i) * dout;
            du += k * *x;
            r->dk[row * s->keys + i] += *x * u;
        }
        r->du[at] = du;
        const double de = d->write ? share * number(d, d->du, at) : 0;
        for (int64_t i = 0; i < s->keys; i++) {
            double *x = &state[i * s->values + j], before = decayed[i * s->values + j];
            r->dk[row * s->keys + i] -= before * de;
            *x -= number(d, d->k, row * s->keys + i) * de;
            r->ddecay[head] += *x * before;
            *x *= exp((double)d->decay[head]);
        }
    }
}

static void run_reference(const Data *d, Reference *r, bool gradient) {
    const Shape *s = &d->s;
    const int64_t size = s->keys * s->values;
    double *decayed = kc_zeros64(s->seq * size), *state = kc_zeros64(size);
    for (int64_t stream = 0; stream < s->batch * s->groups * s->heads; stream++) {
        const int64_t group = stream / s->heads, first = group / s->groups * s->seq;
        memset(state, 0, (size_t)size * sizeof *state);
        for (int64_t t = 0; t < s->seq; t++) {
            const int64_t row = (first + t) * s->groups + group % s->groups;
            reference_forward(d, r, row, row * s->heads + stream % s->heads, t, state, decayed);
        }
        memcpy(r->last + stream * size, state, (size_t)size * sizeof *state);
        memset(state, 0, (size_t)size * sizeof *state);
        for (int64_t t = s->seq - 1; gradient && t >= 0; t--) {
            const int64_t row = (first + t) * s->groups + group % s->groups;
            reference_backward(d, r, row, row * s->heads + stream % s->heads, decayed + t * size,
                               state);
        }
    }
    free(decayed), free(state);
}

/* The largest error, by the number itself and the root mean square of all. */
static double error_of(DType dtype, const void *x, const double *reference, int64_t n) {
    double worst = 0, squares = 1e-300;
    for (int64_t i = 0; i < n; i++) squares += reference[i] * reference[i];
    const double mean = sqrt(squares / (double)n);
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)vec_get(x, dtype, i) - reference[i]);
        worst = fmax(worst, error / (mean + fabs(reference[i])));
        if (isnan(error)) return INFINITY;
    }
    return worst;
}

static LinearAttentionInputs inputs_of(const Data *d, bool gradient) {
    return (LinearAttentionInputs){.q = d->q,
                                   .k = d->k,
                                   .v = gradient && d->write ? d->e : d->v,
                                   .decay = d->decay,
                                   .write = d->write ? d->share : NULL};
}

/* By chunks, whatever the size: one run of all heads. */
static void run_chunks(Data *d) {
    const Shape *s = &d->s;
    LinearAttentionInputs in = inputs_of(d, false);
    linear_chunk_forward(s, &in, d->o, d->write ? d->e : NULL);
    in = inputs_of(d, true);
    float *dq = kc_random(s->seq * s->keys), *dk = kc_random(s->seq * s->keys);
    for (int64_t row = 0; row < s->batch * s->groups; row++) {
        const LinearChunkRun run = {.batch = row / s->groups,
                                    .group = row % s->groups,
                                    .end = s->heads,
                                    .d_o = d->d_o,
                                    .du = d->du,
                                    .dq = dq,
                                    .dk = dk,
                                    .ddecay = d->ddecay};
        linear_chunk_backward(s, &in, &run);
        for (int64_t i = 0; i < s->seq * s->keys; i++) {
            const int64_t at = (run.batch * s->seq + i / s->keys) * s->groups + run.group;
            vec_put(d->dq, s->dtype, at * s->keys + i % s->keys, dq[i]);
            vec_put(d->dk, s->dtype, at * s->keys + i % s->keys, dk[i]);
        }
    }
    free(dq), free(dk);
}

/* As the engine does it. */
static void run_plain(Data *d) {
    LinearAttentionInputs in = inputs_of(d, false);
    void *workspace = kc_alloc(linear_attention_workspace_bytes(&d->s));
    linear_attention_forward(&d->s, &in, d->o, d->write ? d->e : NULL);
    in = inputs_of(d, true);
    linear_attention_backward(&d->s, &in, d->d_o, d->dq, d->dk, d->du, d->ddecay, workspace);
    free(workspace);
}

static void check_results(const Data *d, bool cancels, const char *how) {
    const Shape *s = &d->s;
    /* Sums of f32 in other orders; results of 16 bits are rounded once, by 2^-8 or 2^-11 at most;
     * ddecay is f32, a sum of sums that cancel, as good as all where hardly anything passes from
     * one position to the next. */
    const double near = s->dtype == DTYPE_BF16 ? 0x1p-8 : s->dtype == DTYPE_F16 ? 0x1p-11 : 8e-6;
    Reference r = make_reference(d);
    run_reference(d, &r, true);
#define CHECK_RESULT(x, n, type, tolerance)                                                        \
    do {                                                                                           \
        const double error = error_of(type, d->x, r.x, n);                                         \
        CHECK(error < (tolerance), "%s, b%d s%d g%d h%d k%d v%d %s%s: error of " #x " %.3g", how,  \
              (int)s->batch, (int)s->seq, (int)s->groups, (int)s->heads, (int)s->keys,             \
              (int)s->values, dtype_name(s->dtype), d->write ? ", delta rule" : "", error);        \
    } while (0)
    CHECK_RESULT(o, d->n_v, s->dtype, near);
    if (d->write) CHECK_RESULT(e, d->n_v, s->dtype, near);
    CHECK_RESULT(dq, d->n_q, s->dtype, near);
    CHECK_RESULT(dk, d->n_q, s->dtype, near);
    CHECK_RESULT(du, d->n_v, s->dtype, near);
    CHECK_RESULT(ddecay, d->n_h, DTYPE_F32, cancels ? 2e-4 : 5e-5);
    free_reference(&r);
}

static void check_shape(Shape s, float least, double nothing) {
    for (int write = 0; write < 2; write++) {
        Data d = make_data(s, write, least, nothing);
        run_chunks(&d);
        check_results(&d, least < -50, "by chunks");
        run_plain(&d);
        check_results(&d, least < -50,
                      linear_chunk_pays(&s) ? "as chosen" : "position by position");
        free_data(&d);
    }
}

static void check_shapes(void) {
    static const Shape shapes[] = {
        {2, 2, 2, 5, 16, 8, .scale = 1.0f},    {1, 16, 2, 1, 20, 24, .scale = 0.3f},
        {2, 17, 1, 5, 16, 8, .scale = 0.3f},   {1, 63, 2, 3, 33, 9, .scale = 0.5f},
        {1, 64, 1, 2, 24, 16, .scale = 0.3f},  {1, 65, 1, 9, 17, 40, .scale = 0.3f},
        {1, 200, 2, 2, 20, 24, .scale = 0.3f}, {1, 130, 1, 2, 128, 64, .scale = 0.1f},
        {1, 70, 1, 1, 256, 33, .scale = 0.1f}, {1, 66, 1, 2, 64, 128, .scale = 0.2f},
        {1, 37, 1, 1, 31, 256, .scale = 0.2f},
    };
    check_begin("linear attention and its gradient equal the recurrence in f64");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += VARIANT_STEP) {
        check_shape(shapes[i], -0.2f, 0);
        if (shapes[i].keys * shapes[i].values < 4096) {
            check_shape(shapes[i], -4, 0.05);
        }
    }
    check_begin("decays to nothing, that grow, and so strong that sums of them leave f32");
    check_shape((Shape){1, 150, 1, 2, 16, 16, .scale = 0.3f}, -0.1f, 0.5);
    check_shape((Shape){1, 130, 1, 2, 16, 16, .scale = 0.3f}, 0.02f, 0);
    check_shape((Shape){1, 130, 1, 2, 16, 16, .scale = 0.3f}, -90, 0);
    check_begin("in 16 bits");
    check_shape((Shape){1, 100, 1, 5, 24, 20, .scale = 0.3f, .dtype = DTYPE_BF16}, -1, 0.02);
    check_shape((Shape){1, 100, 2, 2, 20, 35, .scale = 0.3f, .dtype = DTYPE_F16}, -1, 0.02);
    check_shape((Shape){1, 20, 1, 1, 128, 64, .scale = 0.3f, .dtype = DTYPE_BF16}, -1, 0);
}

static void check_choice(void) {
    Shape s = {1, 16, 1, 1, 128, 64, .scale = 1};
    check_begin("chunks are chosen by a head's sizes alone");
    CHECK(linear_chunk_pays(&s), "not for mamba2-130m");
    s.seq = 15;
    CHECK(!linear_chunk_pays(&s), "for few positions");
    s.seq = 4096, s.keys = 64;
    CHECK(!linear_chunk_pays(&s), "for a state that the first-level cache holds");
    s.keys = 256, s.by_keys = true;
    CHECK(!linear_chunk_pays(&s), "for decays of keys");
}

/* Of a text's second document nothing changes where the first is another one. */
static void check_documents(void) {
    const Shape s = {1, 150, 1, 5, 20, 24, .scale = 0.3f};
    const int64_t first = 70;
    check_begin("nothing of a document passes a decay to nothing");
    for (int write = 0; write < 2; write++) {
        Data d = make_data(s, write, -0.5f, 0);
        for (int64_t h = 0; h < s.heads; h++) d.decay[first * s.heads + h] = -INFINITY;
        run_chunks(&d);
        const int64_t q = first * s.keys, v = first * s.heads * s.values, h = first * s.heads;
        float *o = kc_copy(d.o, d.n_v), *du = kc_copy(d.du, d.n_v);
        float *dq = kc_copy(d.dq, d.n_q), *dk = kc_copy(d.dk, d.n_q), *dg = kc_copy(d.ddecay, h);
        for (int64_t i = 0; i < v; i++) ((float *)d.v)[i] = 1e4f * kc_uniform();
        for (int64_t i = 0; i < q; i++) ((float *)d.k)[i] = kc_uniform();
        run_chunks(&d);
        CHECK(kc_same_bits(o + v, (float *)d.o + v, d.n_v - v), "o, delta rule %d", write);
        CHECK(kc_same_bits(du + v, (float *)d.du + v, d.n_v - v), "du, delta rule %d", write);
        CHECK(kc_same_bits(dq + q, (float *)d.dq + q, d.n_q - q), "dq, delta rule %d", write);
        CHECK(kc_same_bits(dk + q, (float *)d.dk + q, d.n_q - q), "dk, delta rule %d", write);
        for (int64_t i = 0; i < s.heads; i++) CHECK(d.ddecay[h + i] == 0, "of the boundary");
        CHECK(!kc_same_bits(o, d.o, v) && !kc_same_bits(dg, d.ddecay, h), "the first is another");
        free(o), free(du), free(dq), free(dk), free(dg);
        free_data(&d);
    }
}

/* Threads change no bit; nor, of the forward, do the heads beside one. */
static void check_threads(void) {
    const Shape s = {2, 66, 1, 5, 128, 64, .scale = 0.3f};
    check_begin("results depend neither on the number of threads nor on other heads");
    Data d = make_data(s, true, -0.5f, 0.01), one = make_data(s, true, -0.5f, 0.01);
    omp_set_num_threads(1);
    run_plain(&d);
    float *o = kc_copy(d.o, d.n_v), *dk = kc_copy(d.dk, d.n_q), *dq = kc_copy(d.dq, d.n_q);
    float *du = kc_copy(d.du, d.n_v), *ddecay = kc_copy(d.ddecay, d.n_h);
    omp_set_num_threads(3);
    run_plain(&d);
    omp_set_num_threads(2);
    CHECK(kc_same_bits(o, d.o, d.n_v) && kc_same_bits(du, d.du, d.n_v), "o or du differs");
    CHECK(kc_same_bits(dq, d.dq, d.n_q) && kc_same_bits(dk, d.dk, d.n_q), "dq or dk differs");
    CHECK(kc_same_bits(ddecay, d.ddecay, d.n_h), "ddecay differs");
    /* The last head of the second row by itself. */
    one.s.batch = one.s.heads = 1;
    memcpy(one.q, (float *)d.q + d.n_q / 2, (size_t)(d.n_q / 2) * sizeof(float));
    memcpy(one.k, (float *)d.k + d.n_q / 2, (size_t)(d.n_q / 2) * sizeof(float));
    for (int64_t t = 0; t < s.seq; t++) {
        const int64_t head = (s.seq + t) * s.heads + s.heads - 1;
        one.decay[t] = d.decay[head], one.share[t] = d.share[head];
        memcpy((float *)one.v + t * s.values, (float *)d.v + head * s.values,
               (size_t)s.values * sizeof(float));
    }
    LinearAttentionInputs in = inputs_of(&one, false);
    linear_attention_forward(&one.s, &in, one.o, one.e);
    for (int64_t t = 0; t < s.seq; t++) {
        const int64_t head = (s.seq + t) * s.heads + s.heads - 1;
        CHECK(kc_same_bits((float *)one.o + t * s.values, o + head * s.values, s.values),
              "position %d", (int)t);
    }
    free(o), free(dk), free(dq), free(du), free(ddecay);
    free_data(&d), free_data(&one);
}

/* Positions [first, first + n) of a row's text, n < 0: none of it, in a call of `seq` positions. */
static void read_text(const Data *d, int64_t first, int64_t n, int64_t seq, bool chunks,
                      float *states, float *o) {
    Shape s = d->s;
    int32_t rows[1] = {n < 0 ? -1 : 1}, *places = kc_alloc((size_t)seq * sizeof *places);
    const LinearAttentionStates kept = {states, 2, rows, places};
    LinearAttentionInputs in = inputs_of(d, false);
    const int64_t heads = s.groups * s.heads;
    for (int64_t t = 0; t < seq; t++) places[t] = t < n ? (int32_t)(first + t) : -1;
    s.seq = seq;
    in.q = (float *)d->q + first * s.groups * s.keys;
    in.k = (float *)d->k + first * s.groups * s.keys;
    in.v = (float *)d->v + first * heads * s.values;
    in.decay += first * heads;
    if (in.write) in.write += first * heads;
    in.states = &kept;
    (chunks ? linear_chunk_forward : linear_attention_forward)(&s, &in, o, NULL);
    free(places);
}

/* A text that is read by chunks in two calls, the second of which has more positions than the text,
 * goes on position by position: its results and its last state are those of the whole. */
static void check_states(void) {
    const Shape s = {1, 120, 2, 3, 20, 24, .scale = 0.3f};
    const int64_t heads = s.groups * s.heads, each = heads * s.values, size = s.keys * s.values;
    check_begin("states last from call to call");
    for (int write = 0; write < 2; write++) {
        Data d = make_data(s, write, -0.3f, 0.01);
        float *o = kc_random(120 * each), *states = kc_random(2 * heads * size);
        float *other = kc_copy(states, heads * size), *rest = kc_random(17 * each);
        for (int64_t i = heads * size; i < 2 * heads * size; i++) states[i] = NAN;
        read_text(&d, 0, 80, 80, true, states, o);
        for (int64_t i = 0; i < heads * size; i++) {
            CHECK(isfinite(states[heads * size + i]), "what was there before is read");
        }
        read_text(&d, 80, 3, 20, true, states, o + 80 * each);
        for (int64_t i = 83 * each; i < 100 * each; i++) CHECK(o[i] == 0, "behind the text");
        read_text(&d, 0, -1, 17, true, states, rest);
        for (int64_t i = 0; i < 17 * each; i++) CHECK(rest[i] == 0, "of no text");
        read_text(&d, 83, 37, 37, false, states, o + 83 * each);
        Reference r = make_reference(&d);
        run_plain(&d); /* the reference goes by the errors as stored */
        run_reference(&d, &r, false);
        const double error = error_of(DTYPE_F32, o, r.o, d.n_v);
        CHECK(error < 4e-6, "delta rule %d: error of o %.3g", write, error);
        const double last = error_of(DTYPE_F32, states + heads * size, r.last, heads * size);
        CHECK(last < 4e-6, "delta rule %d: error of the last state %.3g", write, last);
        CHECK(kc_same_bits(other, states, heads * size), "another text's state");
        free(o), free(states), free(other), free(rest);
        free_reference(&r);
        free_data(&d);
    }
}

int main(void) {
    check_choice();
    check_shapes();
    check_documents();
    check_threads();
    check_states();
    return check_report();
}
