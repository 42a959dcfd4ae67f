/* Matrix instructions: fragments and tiles as PTX ISA 9.0, 9.7.14 (mma, ldmatrix, stmatrix)
 * and 9.7.15 (wgmma) lay them out. Pairs of 16 bits in, f32 accumulators, added up in the order of
 * k. */
#include "tests/emulate/row.h"
#include "tests/ptx/machine.h"
#include "tests/ptx/traffic.h"

#include <string.h>

static int *list_at(const Machine *m, const Operand *operand) {
    return &m->kernel->lists[operand->reg];
}

static float half_of(uint64_t word, int half, bool bf16) {
    return ptx_widen((uint16_t)(word >> 16 * half), bf16);
}

static float float_of(uint64_t bits) {
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, 4);
    return x;
}

static uint64_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* --- mma.sync.m16n8k16, ldmatrix, stmatrix --- */

/* Fragments of a [16, 16]: pair `r` of a lane is row lane / 4 + 8 (r % 2), columns from
 * 2 (lane % 4) + 8 (r / 2). */
static void gather_a(const Warp *w, const int *registers, bool bf16, float (*a)[16]) {
    for (int lane = 0; lane < WARP; lane++) {
        for (int r = 0; r < 4; r++) {
            for (int half = 0; half < 2; half++) {
                a[lane / 4 + 8 * (r % 2)][lane % 4 * 2 + 8 * (r / 2) + half] =
                    half_of(w->registers[registers[r]][lane], half, bf16);
            }
        }
    }
}

static void multiply(const Machine *m, Warp *w, const Instruction *i) {
    const int *d = list_at(m, &i->operands[0]), *b = list_at(m, &i->operands[2]);
    const int *c = list_at(m, &i->operands[3]);
    const bool bf16 = i->from.kind == 'n';
    float as[16][16], bs[16][8], sums[16][8];
    gather_a(w, list_at(m, &i->operands[1]), bf16, as);
    for (int lane = 0; lane < WARP; lane++) {
        for (int r = 0; r < 2; r++) {
            for (int half = 0; half < 2; half++) {
                bs[lane % 4 * 2 + 8 * r + half][lane / 4] =
                    half_of(w->registers[b[r]][lane], half, bf16);
            }
        }
        for (int r = 0; r < 4; r++) {
            sums[lane / 4 + 8 * (r / 2)][lane % 4 * 2 + r % 2] = float_of(w->registers[c[r]][lane]);
        }
    }
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < 8; n++) sums[row][n] += as[row][k] * bs[k][n];
        }
    }
    for (int lane = 0; lane < WARP; lane++) {
        for (int r = 0; r < 4; r++) {
            warp_set(w, d[r], lane, bits_of(sums[lane / 4 + 8 * (r / 2)][lane % 4 * 2 + r % 2]));
        }
    }
}

/* Lane l names row l % 8 of matrix l / 8. */
static bool load_matrices(Machine *m, Warp *w, const Instruction *i) {
    const int *to = list_at(m, &i->operands[0]), n = i->operands[0].second;
    uint16_t matrices[4][8][8];
    uint64_t addresses[WARP] = {0};
    for (int lane = 0; lane < 8 * n; lane++) {
        uint32_t at =
            (uint32_t)(w->registers[i->operands[1].reg][lane] + (uint64_t)i->operands[1].number);
        if (!shared_read(m, w, i, lane, at, 16)) return false;
        addresses[lane] = at;
        memcpy(matrices[lane / 8][lane % 8], m->shared + at, 16);
    }
    traffic_note(m->kernel, i, n == 4 ? UINT32_MAX : (1u << 8 * n) - 1, addresses, 16, true);
    for (int lane = 0; lane < WARP; lane++) {
        for (int r = 0; r < n; r++) {
            const uint16_t(*matrix)[8] = matrices[r];
            int outer = lane / 4, inner = lane % 4 * 2;
            uint32_t low = i->transposed ? matrix[inner][outer] : matrix[outer][inner];
            uint32_t high = i->transposed ? matrix[inner + 1][outer] : matrix[outer][inner + 1];
            warp_set(w, to[r], lane, high << 16 | low);
        }
    }
    return true;
}

/* The same the other way. */
static bool store_matrices(Machine *m, Warp *w, const Instruction *i) {
    const int *from = list_at(m, &i->operands[1]), n = i->operands[1].second;
    uint64_t addresses[WARP] = {0};
    if (i->transposed || n != 4)
        return machine_fail(m, w, i, -1, "four matrices by rows only"), false;
    for (int lane = 0; lane < WARP; lane++) {
        uint32_t at =
            (uint32_t)(w->registers[i->operands[0].reg][lane] + (uint64_t)i->operands[0].number);
        if (!shared_write(m, w, i, lane, at, 16)) return false;
        addresses[lane] = at;
        for (int t = 0; t < 4; t++) {
            uint32_t pair = (uint32_t)w->registers[from[lane / 8]][lane % 8 * 4 + t];
            memcpy(m->shared + at + 4 * t, &pair, 4);
        }
    }
    traffic_note(m->kernel, i, UINT32_MAX, addresses, 16, true);
    return true;
}

/* --- wgmma --- */

/* A matrix descriptor: start, from one panel to the next, from eight rows to the next, 128-byte
 * swizzle, which exchanges bits 4 to 6 of an address by its bits 7 to 9. */
static uint32_t descriptor_field(uint64_t matrix, int first_bit) {
    return (uint32_t)(matrix >> first_bit & 0x3fff) << 4;
}

/* Element r along the rows or columns, k along what is summed; by_k: rows are k's. */
static uint32_t element_place(uint64_t matrix, int r, int k, bool by_k) {
    uint32_t at = descriptor_field(matrix, 0), eight = descriptor_field(matrix, 32);
    if (by_k) {
        at += (uint32_t)(r / 64) * descriptor_field(matrix, 16) + (uint32_t)(k / 8) * eight +
              (uint32_t)(k % 8) * 128 + (uint32_t)(r % 64) * 2;
    } else {
        at += (uint32_t)(r / 8) * eight + (uint32_t)(r % 8) * 128 + (uint32_t)k * 2;
    }
    return at ^ (at >> 7 & 7) << 4;
}

enum { CHUNK = 8 }; /* elements one behind the other: what the swizzle moves is 16 bytes */

/* [n][16] of a matrix's rows from `first` on, or by k, [16][stride]. */
static void gather_tile(const Machine *m, const Tile *tile, uint64_t matrix, bool by_k, int first,
                        int n, bool transposed, float *out, int stride) {
    for (int r = 0; r < n; r += by_k ? CHUNK : 1) {
        for (int k = 0; k < 16; k += by_k ? 1 : CHUNK) {
            uint16_t bits[CHUNK];
            memcpy(bits, m->shared + element_place(matrix, first + r, k, by_k), sizeof bits);
            for (int e = 0; e < CHUNK; e++) {
                int row = by_k ? r + e : r, column = by_k ? k : k + e;
                out[transposed ? column * stride + row : row * stride + column] =
                    ptx_widen(bits[e], tile->bf16);
            }
        }
    }
}

/* What a tile reads lies within shared memory, is complete, handed over, and behind a barrier. */
static bool check_matrix(Machine *m, Warp *w, const Instruction *i, Range *reads, uint64_t matrix,
                         int rows, bool by_k) {
    *reads = (Range){UINT32_MAX, 0};
    if (matrix >> 62 != 1 || descriptor_field(matrix, 0) % 32 || (matrix >> 49 & 7))
        return machine_fail(m, w, i, -1, "descriptor %#llx: no 128-byte swizzle, or misaligned",
                            (unsigned long long)matrix),
               false;
    for (int r = 0; r < rows; r += by_k ? CHUNK : 1) {
        for (int k = 0; k < 16; k += by_k ? 1 : CHUNK) {
            uint32_t first = element_place(matrix, r, k, by_k), end = first + 2 * CHUNK;
            if (end > m->shared_bytes)
                return machine_fail(m, w, i, -1, "a tile at %u is beyond shared memory", first),
                       false;
            const char *why = shared_defect(m, w, first, end);
            if (why) return machine_fail(m, w, i, -1, "a tile at %u: %s", first, why), false;
            if (first < reads->first) reads->first = first;
            if (end > reads->end) reads->end = end;
        }
    }
    return true;
}

/* Accumulators and fragments: settled before the last fence, and not to be touched from now on. */
static bool take_registers(Machine *m, Warp *w, const Instruction *i, const int *registers, int n,
                           uint8_t as, bool reads) {
    for (int k = 0; k < n; k++) {
        int r = registers[k];
        if (w->under_way[r] && w->under_way[r] != as)
            machine_fail(m, w, i, -1, "a register of another operation under way");
        else if (!w->fenced_at || (!w->under_way[r] && w->touched[r] > w->fenced_at))
            machine_fail(m, w, i, -1, "no wgmma.fence since register %d of its list was accessed",
                         k);
        else if (reads && !w->under_way[r] && ~w->defined[r])
            machine_fail(m, w, i, -1, "register %d of its list was not written", k);
        if (m->failed) return false;
    }
    for (int k = 0; k < n; k++) w->under_way[registers[k]] = as;
    return true;
}

/* All four warps of a group issue the same, one after the other. */
static bool check_group(Machine *m, Warp *w, const Instruction *i, const Tile *tile) {
    const Warp *first = &m->warps[w->number / 4 * 4];
    const Tile *theirs = first->tiles;
    if (m->n_warps < w->number / 4 * 4 + 4)
        return machine_fail(m, w, i, -1, "four warps are needed"), false;
    for (int t = 0; t < first->n_tiles && w != first; t++) {
        if (first->n_issued - first->n_tiles + t != w->n_issued) continue;
        if (theirs[t].line != tile->line || theirs[t].b_matrix != tile->b_matrix ||
            theirs[t].a_matrix != tile->a_matrix || theirs[t].add != tile->add ||
            theirs[t].a_by_k != tile->a_by_k)
            return machine_fail(m, w, i, -1, "another operation than the group's first warp's"),
                   false;
    }
    return true;
}

/* {d}, {a} or a's descriptor, b's descriptor, add, 1, 1, [a by k,] b by k. */
static bool issue_tile(Machine *m, Warp *w, const Instruction *i) {
    const Operand *o = i->operands, *added = &o[3];
    bool from_registers = o[1].kind == OPERAND_LIST;
    uint32_t adds = 0;
    for (int lane = 0; lane < WARP; lane++)
        adds += (warp_operand(m, w, added, lane) & 1) != (added->negated ? 1 : 0);
    if (w->n_tiles == MOST_TILES || i->n_operands != (from_registers ? 7 : 8) ||
        o[0].second != i->wgmma_n / 2 || o[4].number != 1 || o[5].number != 1 ||
        (adds && adds != WARP))
        return machine_fail(m, w, i, -1, "operands that are not known"), false;
    Tile tile = {.d = o[0].reg,
                 .n_d = o[0].second,
                 .a = from_registers ? o[1].reg : -1,
                 .a_matrix = from_registers ? 0 : warp_operand(m, w, &o[1], 0),
                 .b_matrix = warp_operand(m, w, &o[2], 0),
                 .n = i->wgmma_n,
                 .group = w->tile_group,
                 .line = i->line,
                 .bf16 = i->from.kind == 'n',
                 .add = adds != 0,
                 .a_by_k = !from_registers && o[6].number != 0,
                 .b_by_k = o[from_registers ? 6 : 7].number != 0};
    for (int lane = 1; lane < WARP; lane++) {
        if (warp_operand(m, w, &o[2], lane) != tile.b_matrix)
            return machine_fail(m, w, i, lane, "another descriptor than lane 0's"), false;
    }
    if (!check_group(m, w, i, &tile) ||
        !check_matrix(m, w, i, &tile.reads[1], tile.b_matrix, tile.n, tile.b_by_k) ||
        (!from_registers &&
         !check_matrix(m, w, i, &tile.reads[0], tile.a_matrix, 64, tile.a_by_k)) ||
        !take_registers(m, w, i, list_at(m, &o[0]), tile.n_d, 1, tile.add) ||
        (from_registers && !take_registers(m, w, i, list_at(m, &o[1]), 4, 2, true)))
        return false;
    w->tiles[w->n_tiles++] = tile;
    w->n_issued++;
    return true;
}

/* This warp's 16 rows. */
static void finish_tile(const Machine *m, Warp *w, const Tile *tile) {
    static _Alignas(EmulateRow) float b[16][256];
    const int *d = &m->kernel->lists[tile->d];
    _Alignas(EmulateRow) float sums[16][256];
    float a[16][16];
    if (tile->a >= 0) gather_a(w, &m->kernel->lists[tile->a], tile->bf16, a);
    if (tile->a < 0)
        gather_tile(m, tile, tile->a_matrix, tile->a_by_k, w->number % 4 * 16, 16, false, a[0], 16);
    gather_tile(m, tile, tile->b_matrix, tile->b_by_k, 0, tile->n, true, b[0], 256);
    for (int lane = 0; lane < WARP; lane++) { /* as mma's c, 8 columns after the other */
        for (int k = 0; k < tile->n_d; k++)
            sums[lane / 4 + 8 * (k % 4 / 2)][k / 4 * 8 + lane % 4 * 2 + k % 2] =
                tile->add ? float_of(w->registers[d[k]][lane]) : 0;
    }
    for (int r = 0; r < 16; r++) emulate_add_product(sums[r], a[r], b[0], 256, tile->n);
    for (int k = 0; k < tile->n_d; k++) {
        for (int lane = 0; lane < WARP; lane++)
            w->registers[d[k]][lane] =
                bits_of(sums[lane / 4 + 8 * (k % 4 / 2)][k / 4 * 8 + lane % 4 * 2 + k % 2]);
        w->defined[d[k]] = UINT32_MAX;
    }
}

static void release(const Machine *m, Warp *w, const Tile *tile, bool takes) {
    for (int k = 0; k < tile->n_d; k++) w->under_way[m->kernel->lists[tile->d + k]] = takes;
    for (int k = 0; k < 4 && tile->a >= 0; k++)
        w->under_way[m->kernel->lists[tile->a + k]] = takes ? 2 : 0;
}

/* Done are all groups but the last `pending`. */
static void wait_tiles(Machine *m, Warp *w, int pending) {
    int n = 0;
    for (; n < w->n_tiles && w->tiles[n].group < w->tile_group - pending; n++) {
        finish_tile(m, w, &w->tiles[n]);
        release(m, w, &w->tiles[n], false);
        for (int k = 0; k < 2; k++) { /* by this warp, as long as it was under way: until now */
            const Range *reads = &w->tiles[n].reads[k];
            note_reads(m, w, reads->first, reads->end, SEVERAL);
        }
    }
    w->n_tiles -= n;
    memmove(w->tiles, w->tiles + n, sizeof(Tile) * (size_t)w->n_tiles);
    for (int t = 0; t < w->n_tiles; t++) release(m, w, &w->tiles[t], true);
}

bool tensor_run(Machine *m, Warp *w, const Instruction *i) {
    if (i->op == PTX_mma) {
        multiply(m, w, i);
        return true;
    }
    if (i->op == PTX_ldmatrix) return load_matrices(m, w, i);
    if (i->op == PTX_stmatrix) return store_matrices(m, w, i);
    switch (i->mode) {
    case MODE_FENCE: w->fenced_at = w->n_done; return true;
    case MODE_COMMIT: w->tile_group++; return true;
    case MODE_WAIT: wait_tiles(m, w, (int)i->operands[0].number); return true;
    case MODE_MMA_ASYNC: return issue_tile(m, w, i);
    default: machine_fail(m, w, i, -1, "not known"); return false;
    }
}
