/* Loads, stores and copies; and who may access which bytes of shared memory when. */
#include "tests/ptx/machine.h"
#include "tests/ptx/traffic.h"

#include <string.h>

static bool check_place(Machine *m, Warp *w, const Instruction *i, int lane, uint32_t at,
                        int bytes) {
    if (at % (uint32_t)bytes) {
        machine_fail(m, w, i, lane, "%d bytes of shared memory at %u are misaligned", bytes, at);
    } else if (at + (uint32_t)bytes > m->shared_bytes || at + (uint32_t)bytes < at) {
        machine_fail(m, w, i, lane, "%d bytes at %u are beyond the %u of shared memory", bytes, at,
                     m->shared_bytes);
    } else if (bytes < SHADOW_BYTES) {
        machine_fail(m, w, i, lane, "single bytes of shared memory are not followed");
    }
    return !m->failed;
}

static bool same_write(const Shadow *a, const Shadow *b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}

bool shared_read(Machine *m, Warp *w, const Instruction *i, int lane, uint32_t at, int bytes) {
    if (!check_place(m, w, i, lane, at, bytes)) return false;
    const Shadow *s = &m->shadow[at / SHADOW_BYTES];
    for (int k = 0; k < bytes / SHADOW_BYTES; k++, s++) {
        if (k && same_write(s, s - 1)) continue;
        if (s->pending)
            machine_fail(m, w, i, lane, "reads shared memory at %u, a copy to which is under way",
                         at);
        else if (!s->writer)
            machine_fail(m, w, i, lane, "reads shared memory at %u, which nothing wrote", at);
        else if (!comes_before(w, lane, s->writer, s->written))
            machine_fail(m, w, i, lane,
                         "reads shared memory at %u while thread %d writes it: no barrier between",
                         at, s->writer - 1);
        if (m->failed) return false;
    }
    note_reads(m, w, at, at + (uint32_t)bytes, lane);
    return true;
}

/* Of a warp, by cell: those of one access, or of a tile, lie one behind the other. */
static LastRead *last_reads(const Machine *m, int warp) {
    return &m->reads[(size_t)warp * (m->shared_bytes / SHADOW_BYTES + 1)];
}

void note_reads(Machine *m, const Warp *w, uint32_t at, uint32_t end, int lane) {
    uint32_t *restrict readers = &m->readers[at / SHADOW_BYTES];
    LastRead *restrict last = &last_reads(m, w->number)[at / SHADOW_BYTES];
    const uint32_t bit = 1u << w->number;
    const LastRead now = last_read(w->epoch, lane), several = last_read(w->epoch, SEVERAL);
    const int n = at < end ? (int)((end - at + SHADOW_BYTES - 1) / SHADOW_BYTES) : 0;
    if (lane == SEVERAL) { /* whole tiles */
        for (int k = 0; k < n; k++) last[k] = now;
        for (int k = 0; k < n; k++) readers[k] |= bit;
        return;
    }
    for (int k = 0; k < n; k++) {
        bool again = readers[k] & bit && last_read_epoch(last[k]) == last_read_epoch(now);
        last[k] = again && last[k] != now ? several : now;
        readers[k] |= bit;
    }
}

/* A thread that read the two bytes at `cell` and does not come before this lane's writing, or -1.
 */
static int find_reader(const Machine *m, const Warp *w, int lane, uint32_t cell) {
    for (uint32_t left = m->readers[cell]; left; left &= left - 1) {
        int other = __builtin_ctz(left);
        const LastRead last = last_reads(m, other)[cell];
        const int last_lane = last_read_lane(last);
        bool before = other == w->number ? last_read_epoch(last) < w->epoch || last_lane == lane
                                         : w->seen[other] >= last_read_epoch(last);
        if (!before) return other * WARP + (last_lane == SEVERAL ? 0 : last_lane);
    }
    return -1;
}

static const char *cell_defect(const Machine *m, const Warp *w, const Shadow *s) {
    if (!s->writer) return "nothing wrote it";
    if (s->pending) return "a copy to it is under way";
    const Warp *writer = &m->warps[(s->writer - 1) / WARP];
    if (w->seen[(s->writer - 1) / WARP] < s->written) return "no barrier since it was written";
    if (writer->handed[(s->writer - 1) % WARP] <= s->handed)
        return "its writer had no proxy fence since";
    return NULL;
}

const char *shared_defect(const Machine *m, const Warp *w, uint32_t at, uint32_t end) {
    const Shadow *known = NULL; /* to be fine; neighbours are mostly written together */
    for (; at < end; at += SHADOW_BYTES) {
        const Shadow *s = &m->shadow[at / SHADOW_BYTES];
        const char *why = known && same_write(s, known) ? NULL : cell_defect(m, w, s);
        if (why) return why;
        known = s;
    }
    return NULL;
}

/* What a bulk copy under way reads may not change. */
static bool is_in_bulk(const Machine *m, uint32_t at, int bytes) {
    for (int k = 0; k < m->n_warps && m->kernel->uses_bulk; k++) {
        const Warp *other = &m->warps[k];
        for (int b = 0; b < other->n_bulks; b++) {
            const Range *reads = &other->bulks[b].reads;
            if (at < reads->end && at + (uint32_t)bytes > reads->first) return true;
        }
    }
    return false;
}

/* A tile of a product under way may not change. */
static bool is_in_tile(const Machine *m, uint32_t at, int bytes) {
    for (int k = 0; k < m->n_warps && m->kernel->uses_wgmma; k++) {
        const Warp *other = &m->warps[k];
        for (int t = 0; t < 2 * other->n_tiles; t++) {
            const Range *reads = &other->tiles[t / 2].reads[t % 2];
            if (at < reads->end && at + (uint32_t)bytes > reads->first) return true;
        }
    }
    return false;
}

bool shared_write(Machine *m, Warp *w, const Instruction *i, int lane, uint32_t at, int bytes) {
    if (!check_place(m, w, i, lane, at, bytes)) return false;
    const uint16_t thread = (uint16_t)(w->number * WARP + lane + 1);
    if (is_in_tile(m, at, bytes))
        machine_fail(m, w, i, lane, "writes shared memory at %u, a tile of a wgmma under way", at);
    if (is_in_bulk(m, at, bytes))
        machine_fail(m, w, i, lane, "writes shared memory at %u, which a bulk copy under way reads",
                     at);
    for (int k = 0; k < bytes / SHADOW_BYTES && !m->failed; k++) {
        Shadow *s = &m->shadow[at / SHADOW_BYTES + (uint32_t)k];
        int reader = find_reader(m, w, lane, at / SHADOW_BYTES + (uint32_t)k);
        if (reader >= 0)
            machine_fail(m, w, i, lane,
                         "writes shared memory at %u while thread %d reads it: no barrier between",
                         at, reader);
        else if (!comes_before(w, lane, s->writer, s->written))
            machine_fail(m, w, i, lane,
                         "writes shared memory at %u while thread %d does: no barrier between", at,
                         s->writer - 1);
        else if (s->pending)
            machine_fail(m, w, i, lane, "writes shared memory at %u, a copy to which is under way",
                         at);
        s->writer = thread;
        s->written = w->epoch;
        m->readers[at / SHADOW_BYTES + (uint32_t)k] = 0;
        s->handed = w->handed[lane];
    }
    return !m->failed;
}

/* --- ld, st, atom, red --- */

/* memcpy of 1, 2, 4 or 8 bytes: a move each where the compiler knows how many. */
static inline void copy_element(void *to, const void *from, int bytes) {
    switch (bytes) {
    case 1: memcpy(to, from, 1); break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, 8); break;
    }
}

static uint64_t element_of(const unsigned char *from, int bytes, char kind) {
    uint64_t value = 0;
    copy_element(&value, from, bytes);
    if (kind == 's' && bytes < 4 && value >> (bytes * 8 - 1)) value |= ~0ull << bytes * 8;
    return bytes < 4 && kind == 's' ? (uint32_t)value : value;
}

/* Where a lane's access is on the host; NULL: failed. */
static unsigned char *place_of(Machine *m, Warp *w, const Instruction *i, const Operand *memory,
                               int lane, int bytes, bool writes) {
    uint64_t at =
        (uint64_t)memory->number + (memory->reg >= 0 ? w->registers[memory->reg][lane] : 0);
    if (i->space == SPACE_SHARED) {
        bool good = writes ? shared_write(m, w, i, lane, (uint32_t)at, bytes)
                           : shared_read(m, w, i, lane, (uint32_t)at, bytes);
        return good ? m->shared + (uint32_t)at : NULL;
    }
    if (i->space == SPACE_PARAM) {
        if (at + (uint64_t)bytes > m->launch->args_bytes)
            machine_fail(m, w, i, lane, "reads byte %d of an argument of %d", (int)at,
                         (int)m->launch->args_bytes);
        return m->failed ? NULL : (unsigned char *)(uintptr_t)m->launch->args + at;
    }
    if (at % (uint64_t)bytes || at < 4096)
        machine_fail(m, w, i, lane, "%d bytes at %#llx are misaligned, or nothing is there", bytes,
                     (unsigned long long)at);
    return m->failed ? NULL : (unsigned char *)(uintptr_t)at;
}

static int register_at(const Machine *m, const Operand *operand, int k) {
    return operand->kind == OPERAND_LIST ? m->kernel->lists[operand->reg + k] : operand->reg;
}

/* Of global and shared memory; param and local are registers' and caches' business. */
static void note_traffic(const Machine *m, const Warp *w, const Instruction *i,
                         const Operand *memory, uint32_t mask, int bytes) {
    uint64_t addresses[WARP];
    if (i->space == SPACE_PARAM || !traffic_wanted()) return;
    for (int lane = 0; lane < WARP; lane++)
        addresses[lane] =
            (uint64_t)memory->number + (memory->reg >= 0 ? w->registers[memory->reg][lane] : 0);
    traffic_note(m->kernel, i, mask, addresses, bytes, i->space == SPACE_SHARED);
}

static bool load(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const int bytes = i->type.bits / 8, n = vector_elements(i);
    if (i->acquire && ++w->n_polls > MOST_POLLS)
        return machine_fail(m, w, i, -1, "waits for what no block before it does"), false;
    note_traffic(m, w, i, &i->operands[1], mask, bytes * n);
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const unsigned char *from = place_of(m, w, i, &i->operands[1], lane, bytes * n, false);
        if (!from) return false;
        for (int k = 0; k < n; k++) {
            warp_set(w, register_at(m, &i->operands[0], k), lane,
                     element_of(from + k * bytes, bytes, i->type.kind));
        }
    }
    return true;
}

static bool store(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const int bytes = i->type.bits / 8, n = vector_elements(i);
    const Operand *values = &i->operands[1];
    note_traffic(m, w, i, &i->operands[0], mask, bytes * n);
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        unsigned char *to = place_of(m, w, i, &i->operands[0], lane, bytes * n, true);
        if (!to) return false;
        for (int k = 0; k < n; k++) {
            uint64_t value;
            if (values->kind == OPERAND_LIST) {
                int item = m->kernel->lists[values->reg + k];
                value = item < 0 ? (uint64_t)(-1 - item) : w->registers[item][lane];
            } else {
                value = warp_operand(m, w, values, lane);
            }
            copy_element(to + k * bytes, &value, bytes);
        }
    }
    return true;
}

/* atom.add of integers and atom.min of signed ones: lanes one after the other, and no race with
 * each other. */
static bool change_atomically(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const bool shared = i->space == SPACE_SHARED;
    if ((!shared && i->space != SPACE_GLOBAL) || i->type.bits != 32 || i->type.kind == 'f' ||
        (i->least && i->type.kind != 's'))
        return machine_fail(m, w, i, -1, "not known"), false;
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        const Operand *place = &i->operands[1];
        uint64_t at = w->registers[place->reg][lane] + (uint64_t)place->number;
        uint32_t old, now;
        if (shared && !check_place(m, w, i, lane, (uint32_t)at, 4)) return false;
        unsigned char *to =
            shared ? m->shared + (uint32_t)at : place_of(m, w, i, place, lane, 4, true);
        if (!to) return false;
        memcpy(&old, to, 4);
        now = (uint32_t)warp_operand(m, w, &i->operands[2], lane);
        now = !i->least ? old + now : (int32_t)now < (int32_t)old ? now : old;
        memcpy(to, &now, 4);
        warp_set(w, i->operands[0].reg, lane, old);
    }
    return true;
}

/* red.global.add.f32: lanes one after the other, each to its own place. */
static bool add_to_memory(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const int n = vector_elements(i);
    if (i->space != SPACE_GLOBAL || i->type.bits != 32 || i->type.kind != 'f')
        return machine_fail(m, w, i, -1, "not known"), false;
    note_traffic(m, w, i, &i->operands[0], mask, 4 * n);
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        unsigned char *to = place_of(m, w, i, &i->operands[0], lane, 4 * n, true);
        for (int k = 0; to && k < n; k++) {
            uint32_t bits = (uint32_t)w->registers[register_at(m, &i->operands[1], k)][lane];
            float x, sum;
            memcpy(&x, &bits, 4);
            memcpy(&sum, to + 4 * k, 4);
            sum += x;
            memcpy(to + 4 * k, &sum, 4);
        }
        if (!to) return false;
    }
    return true;
}

/* --- cp.async --- */

static void mark_pending(Machine *m, uint32_t at, bool pending) {
    for (int k = 0; k < 16 / SHADOW_BYTES; k++)
        m->shadow[at / SHADOW_BYTES + (uint32_t)k].pending = pending;
}

/* [to], [from], 16, bytes: what is copied, the rest becomes zero. */
static bool start_copies(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        Copy copy = {.to = (uint32_t)(w->registers[i->operands[0].reg][lane] +
                                      (uint64_t)i->operands[0].number),
                     .from =
                         w->registers[i->operands[1].reg][lane] + (uint64_t)i->operands[1].number,
                     .copied_bytes = 16,
                     .group = w->copy_group[lane],
                     .lane = lane};
        if (i->n_operands > 3) copy.copied_bytes = (int)warp_operand(m, w, &i->operands[3], lane);
        if (warp_operand(m, w, &i->operands[2], lane) != 16 || copy.copied_bytes < 0 ||
            copy.copied_bytes > 16)
            machine_fail(m, w, i, lane, "copies of 16 bytes only, at most %d", copy.copied_bytes);
        if (copy.copied_bytes && copy.from % 16)
            machine_fail(m, w, i, lane, "copies from %#llx, which is misaligned",
                         (unsigned long long)copy.from);
        if (w->n_copies == MOST_COPIES) machine_fail(m, w, i, lane, "too many copies under way");
        if (m->failed || !shared_write(m, w, i, lane, copy.to, 16)) return false;
        memset(m->shared + copy.to, 0xff, 16);
        mark_pending(m, copy.to, true);
        w->copies[w->n_copies++] = copy;
    }
    Instruction writes = *i;
    writes.space = SPACE_SHARED;
    note_traffic(m, w, &writes, &i->operands[0], mask, 16);
    return true;
}

static void finish_copies(Machine *m, Warp *w, uint32_t mask, int pending_groups) {
    int kept = 0;
    for (int k = 0; k < w->n_copies; k++) {
        const Copy copy = w->copies[k];
        if (!(mask >> copy.lane & 1) || copy.group >= w->copy_group[copy.lane] - pending_groups) {
            w->copies[kept++] = copy;
            continue;
        }
        memset(m->shared + copy.to, 0, 16);
        if (copy.copied_bytes)
            memcpy(m->shared + copy.to, (const void *)(uintptr_t)copy.from,
                   (size_t)copy.copied_bytes);
        mark_pending(m, copy.to, false);
        for (int b = 0; b < 16 / SHADOW_BYTES; b++)
            m->shadow[copy.to / SHADOW_BYTES + (uint32_t)b].handed = w->handed[copy.lane];
    }
    w->n_copies = kept;
}

/* --- cp.async.bulk, cp.reduce.async.bulk --- */

/* [to], [from], bytes: out of shared memory. */
static bool start_bulk(Machine *m, Warp *w, const Instruction *i, int lane) {
    const Operand *o = i->operands;
    Bulk bulk = {.to = w->registers[o[0].reg][lane] + (uint64_t)o[0].number,
                 .group = w->bulk_group[lane],
                 .lane = lane,
                 .adds = i->adds};
    const uint32_t from = (uint32_t)(w->registers[o[1].reg][lane] + (uint64_t)o[1].number);
    const uint32_t bytes = (uint32_t)warp_operand(m, w, &o[2], lane);
    bulk.reads = (Range){from, from + bytes};
    if (i->n_operands != 3 || (i->adds && (i->type.kind != 'f' || i->type.bits != 32)))
        machine_fail(m, w, i, lane, "not known");
    else if (bulk.to % 16 || bulk.to < 4096 || from % 16 || bytes % 16 || !bytes)
        machine_fail(m, w, i, lane, "%u bytes from %u to %#llx: not whole 16 bytes", bytes, from,
                     (unsigned long long)bulk.to);
    else if (bytes > m->shared_bytes || from > m->shared_bytes - bytes)
        machine_fail(m, w, i, lane, "%u bytes at %u are beyond the %u of shared memory", bytes,
                     from, m->shared_bytes);
    else if (w->n_bulks == MOST_BULKS)
        machine_fail(m, w, i, lane, "too many copies under way");
    if (m->failed) return false;
    const char *why = shared_defect(m, w, from, bulk.reads.end);
    if (why) machine_fail(m, w, i, lane, "copies shared memory at %u: %s", from, why);
    w->bulks[w->n_bulks++] = bulk;
    return !m->failed;
}

static void finish_bulk(Machine *m, Warp *w, const Bulk *bulk) {
    const unsigned char *from = m->shared + bulk->reads.first;
    unsigned char *to = (unsigned char *)(uintptr_t)bulk->to;
    const uint32_t bytes = bulk->reads.end - bulk->reads.first;
    for (uint32_t at = 0; at < bytes; at += 4) {
        float x, sum = 0;
        memcpy(&x, from + at, 4);
        if (bulk->adds) {
            memcpy(&sum, to + at, 4);
            x += sum;
        }
        memcpy(to + at, &x, 4);
    }
    note_reads(m, w, bulk->reads.first, bulk->reads.end, bulk->lane);
}

static void finish_bulks(Machine *m, Warp *w, uint32_t mask, int pending_groups) {
    int kept = 0;
    for (int k = 0; k < w->n_bulks; k++) {
        const Bulk bulk = w->bulks[k];
        if (!(mask >> bulk.lane & 1) || bulk.group >= w->bulk_group[bulk.lane] - pending_groups) {
            w->bulks[kept++] = bulk;
        } else {
            finish_bulk(m, w, &bulk);
        }
    }
    w->n_bulks = kept;
}

static bool copy_in_bulk(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    if (i->mode == MODE_WAIT) finish_bulks(m, w, mask, (int)i->operands[0].number);
    for (int lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        if (i->mode == MODE_COMMIT) w->bulk_group[lane]++;
        if (i->mode == MODE_ASYNC && !start_bulk(m, w, i, lane)) return false;
    }
    return true;
}

bool memory_access(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    switch (i->op) {
    case PTX_ld: return load(m, w, i, mask);
    case PTX_st: return store(m, w, i, mask);
    case PTX_atom: return change_atomically(m, w, i, mask);
    case PTX_red: return add_to_memory(m, w, i, mask);
    case PTX_fence:
        if (i->release) return true; /* between blocks, which run one after the other */
        for (int lane = 0; lane < WARP; lane++) w->handed[lane] += mask >> lane & 1;
        return true;
    default: break;
    }
    if (i->bulk) return copy_in_bulk(m, w, i, mask);
    if (i->mode == MODE_ASYNC) return start_copies(m, w, i, mask);
    if (i->mode == MODE_COMMIT) {
        for (int lane = 0; lane < WARP; lane++) w->copy_group[lane] += mask >> lane & 1;
    } else {
        finish_copies(m, w, mask, (int)i->operands[0].number);
    }
    return true;
}
