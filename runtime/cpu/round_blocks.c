#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/round_blocks.h"

#include "runtime/cpu/ggml_blocks.h"

#include <stdlib.h>

enum { BLOCK = ROUND_BLOCK, TILE = 64 /* rows whose blocks are taken at a time */ };
_Static_assert((int)ROUND_BLOCK == (int)GGML_BLOCK, "blocks are those of files");
static const int64_t SMALL = 1 << 15; /* numbers that one thread takes alone */

/* The blocks of some rows at one place of them: [rows, BLOCK], and where they come from. */
typedef struct Tile {
    int n_rows;
    bool along, across; /* a block's numbers, or the rows, lie one after the other */
    int64_t row[BLOCK], other[TILE];
    float numbers[TILE * BLOCK];
} Tile;

static void put_number(DType dtype, void *out, int64_t at, float x) {
    if (dtype == DTYPE_F32) {
        ((float *)out)[at] = x;
    } else {
        copy_store(dtype, &x, (uint16_t *)out + at, 1);
    }
}

static void load_tile(Tile *t, const float *from) {
    if (t->along) {
        for (int r = 0; r < t->n_rows; r++) {
            for (int i = 0; i < BLOCK; i++) {
                t->numbers[r * BLOCK + i] = from[t->other[r] + t->row[0] + i];
            }
        }
        return;
    }
    for (int i = 0; i < BLOCK; i++) {
        const float *line = from + t->row[i];
        if (t->across) {
            for (int r = 0; r < t->n_rows; r++) t->numbers[r * BLOCK + i] = line[t->other[0] + r];
        } else {
            for (int r = 0; r < t->n_rows; r++) t->numbers[r * BLOCK + i] = line[t->other[r]];
        }
    }
}

static void store_tile(const Tile *t, DType dtype, void *out) {
    if (t->along) {
        for (int r = 0; r < t->n_rows; r++) {
            const int64_t at = t->other[r] + t->row[0];
            const float *x = &t->numbers[r * BLOCK];
            if (dtype == DTYPE_F32) {
                for (int i = 0; i < BLOCK; i++) ((float *)out)[at + i] = x[i];
            } else {
                copy_store(dtype, x, (uint16_t *)out + at, BLOCK);
            }
        }
        return;
    }
    for (int i = 0; i < BLOCK; i++) {
        float line[TILE];
        for (int r = 0; r < t->n_rows; r++) line[r] = t->numbers[r * BLOCK + i];
        const int64_t at = t->row[i] + t->other[0];
        if (t->across && dtype == DTYPE_F32) {
            for (int r = 0; r < t->n_rows; r++) ((float *)out)[at + r] = line[r];
        } else if (t->across) {
            copy_store(dtype, line, (uint16_t *)out + at, t->n_rows);
        } else {
            for (int r = 0; r < t->n_rows; r++)
                put_number(dtype, out, t->row[i] + t->other[r], line[r]);
        }
    }
}

static bool lies_together(const int64_t *places, int n) {
    for (int i = 1; i < n; i++) {
        if (places[i] != places[0] + i) return false;
    }
    return true;
}

static void round_rows(RoundForm form, const RoundLayout *l, int64_t first, const float *from,
                       DType dtype, void *out) {
    Tile t = {.n_rows = (int)(l->n_rows - first < TILE ? l->n_rows - first : TILE)};
    for (int r = 0; r < t.n_rows; r++) {
        t.other[r] = round_place(l->n_other, l->other_dims, l->other_strides, first + r);
    }
    t.across = lies_together(t.other, t.n_rows);
    for (int64_t at = 0; at < l->length; at += BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            t.row[i] = round_place(l->n_row, l->row_dims, l->row_strides, at + i);
        }
        t.along = lies_together(t.row, BLOCK);
        load_tile(&t, from);
        for (int r = 0; r < t.n_rows; r++) {
            if (form == ROUND_Q4_0) {
                ggml_round_q4_0(&t.numbers[r * BLOCK]);
            } else {
                ggml_round_q8_0(&t.numbers[r * BLOCK]);
            }
        }
        store_tile(&t, dtype, out);
    }
}

/* As a file has them, then as the copy does. */
static void round_halves(const float *from, DType dtype, void *out, int64_t first, int64_t n) {
    enum { RUN = 256 };
    uint16_t halves[RUN];
    float numbers[RUN];
    for (int64_t i = first; i < first + n; i += RUN) {
        const int64_t run = first + n - i < RUN ? first + n - i : RUN;
        float *to = dtype == DTYPE_F32 ? (float *)out + i : numbers;
        vec_f16_store(from + i, halves, run);
        vec_f16_load(halves, to, run);
        if (dtype != DTYPE_F32) copy_store(dtype, numbers, (uint16_t *)out + i, run);
    }
}

void round_blocks(RoundForm form, const RoundLayout *layout, const float *from, DType dtype,
                  void *out, int64_t n) {
    if (form == ROUND_F16) {
#pragma omp parallel for schedule(static) if (n > SMALL)
        for (int64_t at = 0; at < n; at += SMALL) {
            round_halves(from, dtype, out, at, n - at < SMALL ? n - at : SMALL);
        }
        return;
    }
#pragma omp parallel for schedule(static) if (n > SMALL)
    for (int64_t first = 0; first < layout->n_rows; first += TILE) {
        round_rows(form, layout, first, from, dtype, out);
    }
}
