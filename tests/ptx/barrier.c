/* Barriers of a block, and what they order.
 *
 * Each warp counts its own barriers, its epochs. What a warp does in one comes before what another
 * does now if that one has `seen` it: barriers hand on to those that wait what all that came had
 * done, and had seen (vector clocks: Lamport 1978, Mattern 1989). Those that arrive without waiting
 * see nothing.
 */
#include "tests/ptx/machine.h"

#include <string.h>

static void see(uint32_t to[MOST_WARPS], const uint32_t from[MOST_WARPS]) {
    for (int k = 0; k < MOST_WARPS; k++) to[k] = to[k] < from[k] ? from[k] : to[k];
}

/* Which barrier: a number, or what a register has, the same in all lanes; -1: reported. */
static int read_number(Machine *m, Warp *w, const Instruction *i) {
    const Operand *operand = &i->operands[0];
    int64_t number = operand->number;
    if (operand->kind == OPERAND_REGISTER) {
        const uint64_t *lanes = w->registers[operand->reg];
        for (int lane = 1; lane < w->n_lanes; lane++) {
            if (lanes[lane] == lanes[0]) continue;
            return machine_fail(m, w, i, lane, "comes to another barrier than lane 0"), -1;
        }
        number = (int64_t)lanes[0];
    } else if (operand->kind != OPERAND_NUMBER) {
        number = -1;
    }
    if (number < 0 || number >= MOST_BARRIERS)
        return machine_fail(m, w, i, -1, "barriers 0 to 15 only"), -1;
    return (int)number;
}

/* bar.sync n [, threads]; bar.arrive n, threads. All of the block where no number is said. */
static bool read_operands(Machine *m, Warp *w, const Instruction *i, int *out_number,
                          int *out_warps) {
    const int64_t threads = i->n_operands > 1 ? i->operands[1].number : m->n_warps * WARP;
    *out_number = read_number(m, w, i);
    if (*out_number < 0) return false;
    if (threads % WARP || threads < WARP || threads > m->n_warps * WARP ||
        (i->n_operands > 1 && i->operands[1].kind != OPERAND_NUMBER))
        return machine_fail(m, w, i, -1, "%d threads of %d", (int)threads, m->n_warps * WARP),
               false;
    *out_warps = (int)threads / WARP;
    return true;
}

bool barrier_come(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    int number, warps;
    if (mask != w->live || w->live != (w->n_lanes == WARP ? UINT32_MAX : (1u << w->n_lanes) - 1))
        return machine_fail(m, w, i, -1, "lanes %#x only come to the block's barrier", mask), false;
    if (!read_operands(m, w, i, &number, &warps)) return false;
    Barrier *b = &m->barriers[number];
    const bool whole = i->n_operands == 1; /* a line of the program that all come to */
    if (!b->come) *b = (Barrier){.warps = warps, .line = i->line};
    if (b->warps != warps || (whole && b->line != i->line))
        return machine_fail(m, w, i, -1, "others are at that barrier of line %d, %d warps", b->line,
                            b->warps),
               false;
    if (b->come >> w->number & 1)
        return machine_fail(m, w, i, -1, "comes twice, and others not at all"), false;
    b->come |= 1u << w->number;
    see(b->seen, w->seen);
    b->seen[w->number] = w->epoch++;
    if (!i->arrives) {
        b->waiting |= 1u << w->number;
        w->state = WARP_AT_BARRIER;
        w->line = i->line;
    }
    if (__builtin_popcount(b->come) < warps) return true;
    for (uint32_t left = b->waiting; left; left &= left - 1) {
        Warp *other = &m->warps[__builtin_ctz(left)];
        see(other->seen, b->seen);
        other->state = WARP_RUNS;
    }
    b->come = 0;
    return true;
}

void barriers_begin(Machine *m) {
    memset(m->barriers, 0, sizeof m->barriers);
    for (int k = 0; k < m->n_warps; k++) memset(m->warps[k].seen, 0, sizeof m->warps[k].seen);
}

void barriers_report_stuck(Machine *m) {
    const Warp *waiting = NULL, *other = NULL;
    for (int k = 0; k < m->n_warps; k++) {
        Warp *w = &m->warps[k];
        if (w->state == WARP_AT_BARRIER && !waiting) waiting = w;
    }
    for (int k = 0; k < m->n_warps && waiting && !other; k++) {
        Warp *w = &m->warps[k];
        if (w->state == WARP_ENDED || w->line != waiting->line) other = w;
    }
    if (!waiting) return;
    machine_fail(m, waiting, NULL, -1,
                 "waits for ever at the barrier of line %d; warp %d %s line %d", waiting->line,
                 other ? other->number : waiting->number,
                 other && other->state == WARP_ENDED ? "has ended, last at that of" : "waits at",
                 other ? other->line : waiting->line);
}

void barriers_check_end(Machine *m) {
    for (int k = 0; k < MOST_BARRIERS; k++) {
        if (m->barriers[k].come)
            machine_fail(m, NULL, NULL, -1, "ends with warps %#x at barrier %d",
                         m->barriers[k].come, k);
    }
}
