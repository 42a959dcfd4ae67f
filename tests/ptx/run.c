/* Blocks one after the other, warps in turn, each until it waits at a barrier or ends. */
#include "tests/ptx/machine.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_launches;
static char error_text[512];

const char *ptx_error(void) {
    return error_text;
}

void machine_fail(Machine *m, const Warp *w, const Instruction *i, int lane, const char *format,
                  ...) {
    va_list args;
    if (m->failed) return;
    m->failed = true;
    int n = snprintf(error_text, sizeof error_text, "%s: %s:%d, %s in block %u,%u,%u, warp %d%s",
                     m->kernel->name, m->kernel->path, i ? i->line : 0,
                     i ? PTX_OP_NAMES[i->op] : "launch", m->block[0], m->block[1], m->block[2],
                     w ? w->number : 0, lane < 0 ? ": " : "");
    if (lane >= 0) n += snprintf(error_text + n, sizeof error_text - (size_t)n, " lane %d: ", lane);
    va_start(args, format);
    vsnprintf(error_text + n, sizeof error_text - (size_t)n, format, args);
    va_end(args);
}

/* --- operands --- */

uint64_t warp_special(const Machine *m, const Warp *w, Special which, int lane) {
    switch (which) {
    case SPECIAL_TID_X: return (uint64_t)(w->number * WARP + lane);
    case SPECIAL_NTID_X: return (uint64_t)m->launch->threads;
    case SPECIAL_CTAID_X: return m->block[0];
    case SPECIAL_CTAID_Y: return m->block[1];
    case SPECIAL_CTAID_Z: return m->block[2];
    case SPECIAL_NCTAID_X: return m->launch->grid[0];
    case SPECIAL_NCTAID_Y: return m->launch->grid[1];
    case SPECIAL_NCTAID_Z: return m->launch->grid[2];
    case SPECIAL_LANEID: return (uint64_t)lane;
    case SPECIAL_NTID_Y:
    case SPECIAL_NTID_Z: return 1;
    default: return 0;
    }
}

/* All lanes of an operand, in `room` if they are not a register's. */
static const uint64_t *operand_lanes(const Machine *m, const Warp *w, const Operand *operand,
                                     uint64_t room[WARP]) {
    const uint64_t *lanes = operand->kind == OPERAND_REGISTER ? w->registers[operand->reg] : NULL;
    if (lanes && !operand->negated) return lanes;
    if (lanes) {
        for (int lane = 0; lane < WARP; lane++) room[lane] = lanes[lane] ^ 1;
    } else if (operand->kind == OPERAND_SPECIAL) {
        for (int lane = 0; lane < WARP; lane++) room[lane] = warp_operand(m, w, operand, lane);
    } else {
        for (int lane = 0; lane < WARP; lane++) room[lane] = (uint64_t)operand->number;
    }
    return room;
}

static void set_lanes(Warp *w, int reg, uint32_t mask, const uint64_t values[WARP]) {
    uint64_t *to = w->registers[reg];
    if (mask == UINT32_MAX) {
        memcpy(to, values, sizeof(uint64_t) * WARP);
    } else {
        for (int lane = 0; lane < WARP; lane++)
            to[lane] = mask >> lane & 1 ? values[lane] : to[lane];
    }
    w->defined[reg] |= mask;
    w->touched[reg] = w->n_done;
}

/* How many operands are written, not read. */
static int count_results(const Instruction *i) {
    switch (i->op) {
    case PTX_st:
    case PTX_stmatrix:
    case PTX_red:
    case PTX_bar:
    case PTX_bra:
    case PTX_ret:
    case PTX_cp:
    case PTX_setmaxnreg:
    case PTX_fence: return 0;
    default: return 1;
    }
}

static bool check_register(Machine *m, Warp *w, const Instruction *i, int reg, uint32_t mask,
                           bool written) {
    if (w->under_way[reg] == 1 || (written && w->under_way[reg])) {
        machine_fail(m, w, i, -1, "%s a register of a wgmma under way",
                     written ? "writes" : "reads");
    } else if (!written && mask & ~w->defined[reg]) {
        machine_fail(m, w, i, __builtin_ctz(mask & ~w->defined[reg]),
                     "reads a register that nothing wrote");
    }
    w->touched[reg] = w->n_done;
    return !m->failed;
}

static bool check_operands(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    if (i->op == PTX_wgmma && i->mode == MODE_MMA_ASYNC) return true; /* has its own rules */
    int n_results = count_results(i);
    /* nvcc packs {x, nothing} where only the low half is used. */
    bool packs = i->op == PTX_mov && i->operands[1].kind == OPERAND_LIST;
    for (int k = 0; k < i->n_operands; k++) {
        const Operand *operand = &i->operands[k];
        bool written = k < n_results;
        if (operand->kind == OPERAND_LIST) {
            for (int e = 0; e < (packs ? 1 : operand->second); e++) {
                int reg = m->kernel->lists[operand->reg + e];
                if (reg >= 0 && !check_register(m, w, i, reg, mask, written)) return false;
            }
        } else if (operand->kind == OPERAND_REGISTER) {
            if (!check_register(m, w, i, operand->reg, mask, written)) return false;
            if (operand->second >= 0 && !check_register(m, w, i, operand->second, mask, true))
                return false;
        } else if (operand->kind == OPERAND_MEMORY && operand->reg >= 0) {
            if (!check_register(m, w, i, operand->reg, mask, false)) return false;
        }
    }
    return true;
}

/* --- instructions between lanes --- */

static bool check_members(Machine *m, Warp *w, const Instruction *i, uint32_t mask,
                          const Operand *members) {
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint32_t named = (uint32_t)warp_operand(m, w, members, lane);
        if (!(named >> lane & 1))
            machine_fail(m, w, i, lane, "is not in its own mask, %#x", named);
        else if (named & ~mask)
            machine_fail(m, w, i, lane, "names lanes %#x that are not here", named & ~mask);
        if (m->failed) return false;
    }
    return true;
}

/* d|p, a, b, c, members */
static bool shuffle(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const Operand *o = i->operands;
    uint64_t values[WARP] = {0}, in_range[WARP] = {0};
    if (!check_members(m, w, i, mask, &o[4])) return false;
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left), from;
        int by = (int)(warp_operand(m, w, &o[2], lane) & 31);
        int clamp = (int)warp_operand(m, w, &o[3], lane);
        int segment = clamp >> 8 & 31, most = (lane & segment) | (clamp & 31 & ~segment);
        int least = lane & segment;
        bool in = true;
        switch (i->mode) {
        case MODE_UP: in = (from = lane - by) >= most; break;
        case MODE_DOWN: in = (from = lane + by) <= most; break;
        case MODE_BFLY: in = (from = lane ^ by) <= most; break;
        default: in = (from = least | (by & ~segment)) <= most; break;
        }
        if (!in) from = lane;
        uint32_t named = (uint32_t)warp_operand(m, w, &o[4], lane);
        if (!(named >> from & 1)) {
            machine_fail(m, w, i, lane, "takes from lane %d, which is not in the mask", from);
            return false;
        }
        values[lane] = (uint32_t)warp_operand(m, w, &o[1], from);
        in_range[lane] = in;
    }
    set_lanes(w, o[0].reg, mask, values);
    if (o[0].second >= 0) set_lanes(w, o[0].second, mask, in_range);
    return true;
}

/* vote: d, p, members; match.any: d, a, members */
static bool vote(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const Operand *o = i->operands;
    uint64_t values[WARP] = {0};
    if (!check_members(m, w, i, mask, &o[2])) return false;
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t own = warp_operand(m, w, &o[1], lane), any = 0, all = 1;
        uint32_t same = 0, ballot = 0;
        for (uint32_t rest = (uint32_t)warp_operand(m, w, &o[2], lane); rest; rest &= rest - 1) {
            int other = __builtin_ctz(rest);
            uint64_t theirs = warp_operand(m, w, &o[1], other);
            any |= theirs & 1;
            all &= theirs & 1;
            same |= (uint32_t)(theirs == own) << other;
            ballot |= (uint32_t)(theirs & 1) << other;
        }
        values[lane] = i->op == PTX_match       ? same
                       : i->mode == MODE_BALLOT ? ballot
                       : i->mode == MODE_ALL    ? all
                                                : any;
    }
    set_lanes(w, o[0].reg, mask, values);
    return true;
}

/* --- instructions of each lane --- */

static int list_register(const Machine *m, const Operand *list, int k) {
    return m->kernel->lists[list->reg + k];
}

/* mov of words into one, {a, b}, or of one into words. */
static bool move_list(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const Operand *to = &i->operands[0], *from = &i->operands[1];
    const Operand *list = to->kind == OPERAND_LIST ? to : from;
    const unsigned bits = i->type.bits / (unsigned)list->second;
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t whole = list == to ? warp_operand(m, w, from, lane) : 0;
        for (int k = 0; k < list->second; k++) {
            int reg = list_register(m, list, k);
            if (list == to) {
                warp_set(w, reg, lane, whole >> bits * (unsigned)k & ((1ull << bits) - 1));
            } else {
                uint64_t part = reg < 0 ? (uint64_t)(-1 - reg) : w->registers[reg][lane];
                whole |= (part & ((1ull << bits) - 1)) << bits * (unsigned)k;
            }
        }
        if (list == from) warp_set(w, to->reg, lane, whole);
    }
    return true;
}

/* bfi: d, what is inserted, into what, from which bit, how many */
static void insert_bits(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    const Operand *o = i->operands;
    for (uint32_t left = mask; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        uint64_t at = warp_operand(m, w, &o[3], lane) & 255,
                 n = warp_operand(m, w, &o[4], lane) & 255;
        uint64_t field = n >= 64 ? ~0ull : (1ull << n) - 1;
        field = at >= 64 ? 0 : field << at;
        uint64_t value = (warp_operand(m, w, &o[1], lane) << (at & 63) & field) |
                         (warp_operand(m, w, &o[2], lane) & ~field);
        warp_set(w, o[0].reg, lane, i->type.bits == 32 ? (uint32_t)value : value);
    }
}

static bool compute(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    static const uint64_t ZEROS[WARP];
    uint64_t room[3][WARP], out[WARP];
    const uint64_t *in[3];
    if (i->op == PTX_mov &&
        (i->operands[0].kind == OPERAND_LIST || i->operands[1].kind == OPERAND_LIST))
        return move_list(m, w, i, mask);
    if (i->op == PTX_bfi) {
        insert_bits(m, w, i, mask);
        return true;
    }
    if (i->n_operands > 4 || i->operands[0].kind != OPERAND_REGISTER)
        return machine_fail(m, w, i, -1, "operands that are not known"), false;
    for (int k = 0; k < 3; k++) {
        in[k] = k + 1 < i->n_operands ? operand_lanes(m, w, &i->operands[k + 1], room[k]) : ZEROS;
    }
    if (!ptx_compute(i, in[0], in[1], in[2], out))
        return machine_fail(m, w, i, -1, "not known for this type"), false;
    set_lanes(w, i->operands[0].reg, mask, out);
    if (i->operands[0].second >= 0)
        return machine_fail(m, w, i, -1, "a second result is not known"), false;
    return true;
}

/* --- control --- */

/* Lanes of mask for which the guard holds. */
static bool guarded(Machine *m, Warp *w, const Instruction *i, uint32_t mask, uint32_t *out) {
    *out = mask;
    if (i->guard < 0) return true;
    if (!check_register(m, w, i, i->guard, mask, false)) return false;
    const uint64_t *lanes = w->registers[i->guard];
    uint32_t holds = 0;
    for (int lane = 0; lane < WARP; lane++) holds |= (uint32_t)(lanes[lane] & 1) << lane;
    *out &= i->guard_negated ? ~holds : holds;
    return true;
}

static bool needs_whole_warp(const Instruction *i) {
    return i->op == PTX_mma || i->op == PTX_ldmatrix || i->op == PTX_stmatrix ||
           i->op == PTX_wgmma || i->op == PTX_setmaxnreg;
}

/* One instruction for the lanes of `mask`; false: failed. */
static bool execute(Machine *m, Warp *w, const Instruction *i, uint32_t mask) {
    if (needs_whole_warp(i) && (mask != UINT32_MAX || w->n_lanes != WARP))
        return machine_fail(m, w, i, -1, "lanes %#x only: the whole warp is needed", mask), false;
    if (!check_operands(m, w, i, mask)) return false;
    switch (i->op) {
    case PTX_ld:
    case PTX_st:
    case PTX_atom:
    case PTX_red:
    case PTX_cp:
    case PTX_fence: return memory_access(m, w, i, mask);
    case PTX_mma:
    case PTX_ldmatrix:
    case PTX_stmatrix:
    case PTX_wgmma: return tensor_run(m, w, i);
    case PTX_setmaxnreg: return true; /* registers are as many as there are */
    case PTX_shfl: return shuffle(m, w, i, mask);
    case PTX_vote:
    case PTX_match: return vote(m, w, i, mask);
    default: return compute(m, w, i, mask);
    }
}

/* The lanes that are at the lowest instruction, and the next one at which others are. */
static uint32_t lowest_lanes(const Warp *w, int *out_pc, int *out_next) {
    int pc = INT32_MAX, next = INT32_MAX;
    uint32_t mask = 0;
    for (uint32_t left = w->live; left; left &= left - 1) {
        int lane = __builtin_ctz(left), at = w->pc[lane];
        if (at < pc) {
            next = pc;
            pc = at;
            mask = 1u << lane;
        } else if (at == pc) {
            mask |= 1u << lane;
        } else if (at < next) {
            next = at;
        }
    }
    *out_pc = pc;
    *out_next = next;
    return mask;
}

static void put_lanes(Warp *w, uint32_t mask, int pc) {
    for (uint32_t left = mask; left; left &= left - 1) w->pc[__builtin_ctz(left)] = pc;
}

/* A barrier of a warp or of the block; false: failed, or the warp waits. */
static bool wait_here(Machine *m, Warp *w, const Instruction *i, uint32_t mask, int pc) {
    if (i->warp) {
        if (!check_members(m, w, i, mask, &i->operands[0])) return false;
        w->epoch++;
        return true;
    }
    put_lanes(w, mask, pc + 1);
    return barrier_come(m, w, i, mask) && w->state == WARP_RUNS;
}

/* Until it ends, waits, or fails. */
static void run_warp(Machine *m, Warp *w) {
    while (w->state == WARP_RUNS && !m->failed) {
        int pc, next;
        uint32_t mask = lowest_lanes(w, &pc, &next), taking;
        if (!mask) {
            w->state = WARP_ENDED;
            return;
        }
        while (pc < next) {
            const Instruction *i = &m->kernel->code[pc];
            w->n_done++;
            if (!guarded(m, w, i, mask, &taking)) return;
            if (i->op == PTX_bra) {
                int target = (int)i->operands[0].number;
                if (taking == mask) {
                    pc = target;
                    if (pc >= next) break;
                    continue;
                }
                put_lanes(w, taking, target);
                put_lanes(w, mask & ~taking, pc + 1);
                mask = 0;
                break;
            }
            if (i->op == PTX_ret) {
                w->live &= ~taking;
                put_lanes(w, mask, pc + 1);
                mask = 0;
                break;
            }
            if (i->op == PTX_bar) {
                if (!wait_here(m, w, i, taking, pc)) return;
            } else if (taking && !execute(m, w, i, taking)) {
                return;
            }
            pc++;
        }
        put_lanes(w, mask, pc);
    }
}

/* --- blocks --- */

static void begin_block(Machine *m) {
    const int n = m->kernel->n_registers;
    memset(m->shadow, 0, sizeof(Shadow) * (m->shared_bytes / SHADOW_BYTES + 1));
    memset(m->readers, 0, sizeof(uint32_t) * (m->shared_bytes / SHADOW_BYTES + 1));
    memset(m->shared, 0xff, m->shared_bytes);
    for (int k = 0; k < m->n_warps; k++) {
        Warp *w = &m->warps[k];
        w->state = WARP_RUNS;
        w->number = k;
        w->line = 0;
        w->n_lanes = m->launch->threads - k * WARP < WARP ? m->launch->threads - k * WARP : WARP;
        w->live = w->n_lanes == WARP ? UINT32_MAX : (1u << w->n_lanes) - 1;
        memset(w->pc, 0, sizeof w->pc);
        memset(w->defined, 0, sizeof(uint32_t) * (size_t)n);
        memset(w->touched, 0, sizeof(uint32_t) * (size_t)n);
        memset(w->under_way, 0, (size_t)n);
        memset(w->handed, 0, sizeof w->handed);
        memset(w->copy_group, 0, sizeof w->copy_group);
        memset(w->bulk_group, 0, sizeof w->bulk_group);
        w->n_done = w->fenced_at = 0;
        w->epoch = 1;
        w->n_bulks = 0;
        w->n_copies = w->n_tiles = w->tile_group = w->n_issued = w->n_polls = 0;
    }
    barriers_begin(m);
}

static void run_block(Machine *m) {
    begin_block(m);
    for (bool ended = false; !ended && !m->failed;) {
        bool ran = false;
        ended = true;
        for (int k = 0; k < m->n_warps && !m->failed; k++) {
            Warp *w = &m->warps[m->launch->order & 1 ? m->n_warps - 1 - k : k];
            ran |= w->state == WARP_RUNS;
            run_warp(m, w);
        }
        for (int k = 0; k < m->n_warps; k++) ended &= m->warps[k].state == WARP_ENDED;
        if (!ran && !ended && !m->failed) barriers_report_stuck(m);
    }
    for (int k = 0; k < m->n_warps && !m->failed; k++) {
        if (m->warps[k].n_tiles)
            machine_fail(m, &m->warps[k], NULL, -1, "ends with a wgmma under way");
        if (m->warps[k].n_bulks)
            machine_fail(m, &m->warps[k], NULL, -1, "ends with a bulk copy under way");
    }
    if (!m->failed) barriers_check_end(m);
}

/* Memory that stays from launch to launch: to clear it for each takes longer than most run. Blocks
 * find in registers, too, what those before them left there. Under AddressSanitizer it is a
 * launch's own, and no longer than that launch may use. */
typedef struct Room {
    void *memory;
    size_t bytes;
} Room;

#if defined(__has_feature) /* clang's */
#if __has_feature(address_sanitizer)
#define SANITIZES_ADDRESSES
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SANITIZES_ADDRESSES)
enum { ROOMS_STAY = false };
#else
enum { ROOMS_STAY = true };
#endif

static void *room_of(Room *room, size_t bytes) {
    if (ROOMS_STAY && bytes <= room->bytes) return room->memory;
    free(room->memory);
    if (posix_memalign(&room->memory, 1024, bytes)) exit(2);
    memset(room->memory, 0, bytes);
    room->bytes = bytes;
    return room->memory;
}

static void place_machine(Machine *m) {
    static struct {
        Room shared, shadow, readers, reads, warps, registers[MOST_WARPS], defined[MOST_WARPS],
            touched[MOST_WARPS], under_way[MOST_WARPS];
    } rooms;
    const size_t n = (size_t)m->kernel->n_registers + 1,
                 n_cells = m->shared_bytes / SHADOW_BYTES + 1, n_warps = (size_t)m->n_warps;
    m->shared = room_of(&rooms.shared, m->shared_bytes + 1);
    m->shadow = room_of(&rooms.shadow, sizeof(Shadow) * n_cells);
    m->readers = room_of(&rooms.readers, sizeof(uint32_t) * n_cells);
    m->reads = room_of(&rooms.reads, sizeof(LastRead) * n_cells * n_warps);
    m->warps = room_of(&rooms.warps, sizeof(Warp) * n_warps);
    for (int k = 0; k < m->n_warps; k++) {
        Warp *w = &m->warps[k];
        w->registers = room_of(&rooms.registers[k], sizeof *w->registers * n);
        w->defined = room_of(&rooms.defined[k], sizeof *w->defined * n);
        w->touched = room_of(&rooms.touched[k], sizeof *w->touched * n);
        w->under_way = room_of(&rooms.under_way[k], n);
    }
}

static bool create_machine(Machine *m, const PtxLaunch *launch) {
    const PtxKernel *kernel = launch->kernel;
    const int align = kernel->shared_align;
    const int dynamic = (kernel->static_shared_bytes + align - 1) / align * align;
    *m = (Machine){.launch = launch, .kernel = kernel};
    m->n_warps = (launch->threads + WARP - 1) / WARP;
    m->shared_bytes = (uint32_t)(launch->shared_bytes ? dynamic + launch->shared_bytes
                                                      : kernel->static_shared_bytes);
    if (launch->threads < 1 || launch->threads > kernel->max_threads ||
        launch->threads > MOST_WARPS * WARP || launch->shared_bytes < 0 ||
        m->shared_bytes > 227 * 1024 || !launch->grid[0] || !launch->grid[1] || !launch->grid[2]) {
        machine_fail(
            m, NULL, NULL, -1, "%d threads, %u bytes of shared memory, a grid of %u x %u x %u",
            launch->threads, m->shared_bytes, launch->grid[0], launch->grid[1], launch->grid[2]);
        return false;
    }
    if (launch->args_bytes < (size_t)kernel->param_bytes) {
        machine_fail(m, NULL, NULL, -1, "%zu bytes of arguments for %d", launch->args_bytes,
                     kernel->param_bytes);
        return false;
    }
    place_machine(m);
    return true;
}

/* So that a script can tell that kernels' PTX is what was run. */
static void print_count(void) {
    printf("ptx: %u launches\n", n_launches);
}

bool ptx_launch(const PtxLaunch *launch) {
    Machine m;
    pthread_mutex_lock(&launching);
    if (n_launches++ == 0) atexit(print_count);
    error_text[0] = '\0';
    if (create_machine(&m, launch)) {
        uint64_t n = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
        for (uint64_t b = 0; b < n && !m.failed; b++) {
            uint64_t block = launch->order & 1 ? n - 1 - b : b;
            m.block[0] = (unsigned)(block % launch->grid[0]);
            m.block[1] = (unsigned)(block / launch->grid[0] % launch->grid[1]);
            m.block[2] = (unsigned)(block / launch->grid[0] / launch->grid[1]);
            run_block(&m);
        }
    }
    pthread_mutex_unlock(&launching);
    return !m.failed;
}
