#include "planner/search/search_axes.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_MICRO_BATCH = 64,
    LEAST_MOST_T = 16,        /* tried in any case, where nodes are small */
    LEAST_C_POSITIONS = 4096, /* of a rank: with fewer, messages outweigh what c saves */
    MOST_C = 64,
    MOST_E = 64, /* what DeepSeek V3 was trained with, over eight nodes */
    MOST_SHARD_NODES = 16
};

/* Divisors of n up to `most`, ascending. */
static int list_divisors(int n, int most, int *out) {
    int count = 0;
    for (int i = 1; i <= n && i <= most && count < MOST_VALUES; i++) {
        if (n % i == 0) out[count++] = i;
    }
    return count;
}

static bool can_split(const SearchSpace *space, int n_chunks) {
    int n_blocks = space->costs->n_blocks;
    if (n_chunks > n_blocks + MOST_BARE_CHUNKS) return false;
    /* The last of a chunk stays. */
    if (space->costs->offload_activations && n_chunks >= n_blocks) return false;
    const ClusterSoftware *software = &space->costs->cluster->software;
    return !software->even_split || blocks_split_evenly(software, n_blocks, n_chunks);
}

static int or_free(int value) {
    return value == ANY ? -1 : value;
}

static PipelineShape shape_of(const Candidate *candidate, int n_chunks) {
    return (PipelineShape){.p = candidate->p, .n_chunks = n_chunks, .n_micro = candidate->n_micro};
}

/* t: tensor degree. Beyond two nodes its messages, several per block, outweigh everything. */
static int t_get(const Candidate *candidate) {
    return candidate->t;
}
static void t_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->t = value;
}
static int t_fixed(const SearchSpace *space) {
    return or_free(space->request->t);
}
static int t_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    const SearchRequest *request = space->request;
    int two_nodes = 2 * space->costs->cluster->node.n_devices;
    (void)candidate;
    if (request->p != ANY && request->d != ANY) { /* then nothing is to be chosen */
        int64_t others = (int64_t)request->p * search_fixed_data(request) *
                         (request->c != ANY ? request->c : 1) *
                         (request->e != ANY ? request->e : 1);
        out[0] = (int)(space->n_ranks / others);
        return out[0] * others == space->n_ranks;
    }
    return list_divisors(space->n_ranks, two_nodes > LEAST_MOST_T ? two_nodes : LEAST_MOST_T, out);
}
static bool t_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    (void)candidate;
    return value >= 1 && space->n_ranks % value == 0;
}

/* c: context degree: of sequences so long that each rank still has many positions */
static int c_get(const Candidate *candidate) {
    return candidate_c(candidate);
}
static void c_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->c = value;
}
int search_fixed_c(const SearchSpace *space) {
    const SearchRequest *request = space->request;
    if (request->c != ANY) return request->c;
    bool long_ones = space->costs->seq >= 2 * LEAST_C_POSITIONS;
    bool chosen = request->p != ANY && request->d != ANY; /* t is what they leave */
    return long_ones && !chosen ? ANY : 1;
}
static int c_fixed(const SearchSpace *space) {
    return or_free(search_fixed_c(space));
}
static bool c_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    return value >= 1 && space->n_ranks / candidate->t % value == 0 &&
           (value == 1 || space->costs->seq % (2 * (int64_t)value) == 0);
}
static int c_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int64_t longest = space->costs->seq / LEAST_C_POSITIONS;
    int most = longest < MOST_C ? (int)longest : MOST_C, n_kept = 0;
    int n = list_divisors(space->n_ranks / candidate->t, most < 1 ? 1 : most, out);
    for (int i = 0; i < n; i++) {
        if (c_allows(space, candidate, out[i])) out[n_kept++] = out[i];
    }
    return n_kept;
}

/* e: expert degree, of models with experts */
static int e_get(const Candidate *candidate) {
    return candidate_e(candidate);
}
static void e_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->e = value;
}
int search_fixed_e(const SearchSpace *space) {
    const SearchRequest *request = space->request;
    if (request->e != ANY) return request->e;
    bool chosen = request->p != ANY && request->d != ANY; /* t is what they leave */
    return space->costs->n_experts > 1 && !chosen ? ANY : 1;
}
static int e_fixed(const SearchSpace *space) {
    return or_free(search_fixed_e(space));
}
static bool e_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    int left = space->n_ranks / candidate->t / candidate_c(candidate);
    if (value == 1) return true;
    return value > 1 && left % value == 0 && space->global_batch % value == 0 &&
           space->costs->n_experts % ((int64_t)value * candidate->t) == 0;
}
static int e_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int64_t n_experts = space->costs->n_experts;
    int most = n_experts < MOST_E ? (int)n_experts : MOST_E, n_kept = 0;
    int left = space->n_ranks / candidate->t / candidate_c(candidate);
    int n = list_divisors(left, most < 1 ? 1 : most, out);
    for (int i = 0; i < n; i++) {
        if (e_allows(space, candidate, out[i])) out[n_kept++] = out[i];
    }
    return n_kept;
}

/* Ranks that t, c and e leave. */
static int left_for_p(const SearchSpace *space, const Candidate *candidate) {
    return space->n_ranks / candidate->t / candidate_c(candidate) / candidate_e(candidate);
}

/* p: pipeline degree */
static int p_get(const Candidate *candidate) {
    return candidate->p;
}
static void p_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->p = value;
}
static int p_fixed(const SearchSpace *space) {
    return or_free(space->request->p);
}
static bool p_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    return value >= 1 && left_for_p(space, candidate) % value == 0 && value <= MAX_STAGES &&
           can_split(space, value);
}
static int p_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int n_chunks = space->costs->n_blocks + MOST_BARE_CHUNKS;
    int most = n_chunks < MAX_STAGES ? n_chunks : MAX_STAGES;
    int n = list_divisors(left_for_p(space, candidate), most, out), n_kept = 0;
    for (int i = 0; i < n; i++) {
        if (can_split(space, out[i])) out[n_kept++] = out[i];
    }
    return n_kept;
}

/* d: data degree, what t, c, e and p leave; with its replicas */
static int d_get(const Candidate *candidate) {
    return candidate->d * candidate_r(candidate);
}
static void d_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->d = value;
    candidate->r = 1;
}
int search_fixed_data(const SearchRequest *request) {
    return request->d == ANY || request->r == ANY ? request->d : request->d * request->r;
}
static int d_fixed(const SearchSpace *space) {
    return or_free(search_fixed_data(space->request));
}
static bool d_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    int left = left_for_p(space, candidate) / candidate->p;
    int64_t data = (int64_t)value * candidate_e(candidate);
    return value == left && space->global_batch % data == 0;
}
static int d_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    out[0] = left_for_p(space, candidate) / candidate->p;
    return d_allows(space, candidate, out[0]);
}

/* micro-batch: all divisors, since every kernel's tiling likes another */
static int b_get(const Candidate *candidate) {
    return candidate->micro_batch;
}
static void b_set(const SearchSpace *space, Candidate *candidate, int value) {
    candidate->micro_batch = value;
    candidate->n_micro = space->global_batch / candidate_data(candidate) / value;
}
static int b_fixed(const SearchSpace *space) {
    return or_free(space->request->micro_batch);
}
/* A pair, or a row for each lane that there is to be. */
static int batch_unit(const SearchSpace *space) {
    int lanes = space->request->lanes;
    return space->costs->has_pairs ? 2 : lanes > 1 ? lanes : 1;
}
static int b_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int rows = space->global_batch / candidate_data(candidate), unit = batch_unit(space);
    int most = MOST_MICRO_BATCH > unit ? MOST_MICRO_BATCH / unit : 1;
    int n = rows % unit == 0 ? list_divisors(rows / unit, most, out) : 0;
    for (int i = 0; i < n; i++) out[i] *= unit;
    return n;
}
static bool b_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    return value >= 1 && value % batch_unit(space) == 0 &&
           space->global_batch / candidate_data(candidate) % value == 0;
}

/* recomputation */
static int r_get(const Candidate *candidate) {
    return (int)candidate->recompute;
}
static void r_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->recompute = (Recompute)value;
}
static int r_fixed(const SearchSpace *space) {
    return space->request->recompute;
}
static int r_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    (void)space, (void)candidate;
    for (int i = 0; i < N_RECOMPUTES; i++) out[i] = i;
    return N_RECOMPUTES;
}
static bool r_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    (void)space, (void)candidate;
    return value < N_RECOMPUTES;
}
static const char *r_name(int value) {
    return recompute_mode_name((Recompute)value);
}

/* sequence parallelism: of what the tensor axis leaves undivided */
static int sp_get(const Candidate *candidate) {
    return candidate->sequence_parallel;
}
static void sp_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->sequence_parallel = value != 0;
}
static int sp_fixed(const SearchSpace *space) {
    return space->request->sequence_parallel;
}
static int two_values(int n, int *out) {
    out[0] = 0, out[1] = 1;
    return n;
}
static int sp_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    (void)space;
    return two_values(candidate->t > 1 ? 2 : 1, out);
}
static bool is_flag(const SearchSpace *space, const Candidate *candidate, int value) {
    (void)space, (void)candidate;
    return value == 0 || value == 1;
}
static const char *flag_name(int value) {
    return value ? "on" : "off";
}

/* lanes: where there are messages within layers for them to hide */
static int l_get(const Candidate *candidate) {
    return candidate_lanes(candidate);
}
static void l_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->lanes = value;
}
static int l_fixed(const SearchSpace *space) {
    return or_free(space->request->lanes);
}
static bool l_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    bool pairs = space->costs->has_pairs;
    return value == 1 || (value > 1 && !pairs && candidate->micro_batch % value == 0);
}
static int l_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    bool divided = candidate->t > 1 || candidate_c(candidate) > 1 || candidate_e(candidate) > 1;
    bool hides = divided && space->costs->cluster->software.overlaps_block;
    out[0] = 1, out[1] = 2;
    return hides && l_allows(space, candidate, 2) ? 2 : 1;
}

/* schedule: one stage leaves nothing to choose, and one chunk is never interleaved */
static int s_get(const Candidate *candidate) {
    return candidate->schedule;
}
static void s_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->schedule = value;
}
static int s_fixed(const SearchSpace *space) {
    return space->schedule;
}
static bool s_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    int v = space->request->n_chunks;
    PipelineShape shape = shape_of(candidate, v != ANY ? v : schedule_least_chunks(value));
    bool again = candidate->recompute == RECOMPUTE_FULL || space->costs->offload_activations;
    if (again && schedule_splits(value)) return false;
    return schedule_allows(value, &shape);
}
static bool may_split(const SearchSpace *space, const Candidate *candidate) {
    return space->costs->cluster->software.splits_backward && candidate->p > 1 &&
           candidate->recompute != RECOMPUTE_FULL && !space->costs->offload_activations;
}
static int s_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int n = 0, v = space->request->n_chunks;
    if (candidate->p == 1 && v <= 1) {
        out[0] = schedule_find("1f1b");
        return 1;
    }
    for (int i = 0; schedule_name(i); i++) {
        bool interleaves = schedule_is_chunked(i);
        if (v != ANY && interleaves != (v > 1)) continue;
        if (schedule_splits(i) && !may_split(space, candidate)) continue;
        PipelineShape shape = shape_of(candidate, v != ANY ? v : interleaves ? 2 : 1);
        if (schedule_allows(i, &shape)) out[n++] = i;
    }
    return n;
}
static const char *s_name(int value) {
    return schedule_name(value);
}

/* chunks of a stage */
static int v_get(const Candidate *candidate) {
    return candidate->n_chunks;
}
static void v_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->n_chunks = value;
}
static int v_fixed(const SearchSpace *space) {
    return or_free(space->request->n_chunks);
}
static bool v_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    PipelineShape shape = shape_of(candidate, value);
    /* What chunks of one stage hand on stays. */
    if (space->costs->offload_activations && candidate->p == 1 && value > 1) return false;
    return schedule_allows(candidate->schedule, &shape) && can_split(space, candidate->p * value);
}
static int v_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int n = 0;
    /* One chunk of an interleaved schedule is 1f1b: only if that was not to be. */
    int least = schedule_is_chunked(candidate->schedule) && space->schedule < 0 ? 2 : 1;
    for (int v = least; v <= MAX_CHUNKS; v++) {
        if (v_allows(space, candidate, v)) out[n++] = v;
    }
    return n;
}

/* ZeRO's stage */
static int z_get(const Candidate *candidate) {
    return candidate->zero;
}
static void z_set(const SearchSpace *space, Candidate *candidate, int value) {
    (void)space;
    candidate->zero = value;
}
static int z_fixed(const SearchSpace *space) {
    return space->request->zero;
}
static int z_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int most = candidate_replicas(candidate) > 1 ? space->costs->cluster->software.zero_stages : 0;
    for (int stage = 0; stage <= most; stage++) out[stage] = stage;
    return most + 1;
}
static bool z_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    (void)space, (void)candidate;
    return value >= 0 && value < N_ZERO_STAGES;
}

/* messages of ZeRO-2 and 3: of each weight, or of a block's together, which takes more memory */
static int m_get(const Candidate *candidate) {
    return candidate->joins_messages;
}
static bool m_joins(const SearchSpace *space, const Candidate *candidate) {
    return space->costs->cluster->software.joins_messages && space->costs->n_blocks > 0 &&
           candidate->zero >= ZERO_GRADIENTS && candidate_replicas(candidate) > 1;
}
static void m_set(const SearchSpace *space, Candidate *candidate, int value) {
    candidate->joins_messages = value != 0 && m_joins(space, candidate);
}
static int m_fixed(const SearchSpace *space) {
    return space->request->messages == ANY ? -1 : space->request->messages - 1;
}
static int m_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    return two_values(m_joins(space, candidate) ? 2 : 1, out);
}
static const char *m_name(int value) {
    return value ? "block" : "weight";
}

/* r: replicas of what ZeRO divides. Where messages cross nodes it is tried to divide over the ranks
 * of one node, and of a few times as many. */
static int k_get(const Candidate *candidate) {
    return candidate_r(candidate);
}
static void k_set(const SearchSpace *space, Candidate *candidate, int value) {
    int data = d_get(candidate);
    (void)space;
    candidate->r = value;
    candidate->d = data / value;
}
static int k_fixed(const SearchSpace *space) {
    const SearchRequest *request = space->request;
    return request->r != ANY ? request->r : request->d != ANY ? 1 : -1;
}
static bool k_allows(const SearchSpace *space, const Candidate *candidate, int value) {
    int data = d_get(candidate);
    (void)space;
    return value == 1 || (value > 1 && candidate->zero && data % value == 0 && data > value);
}
static int k_values(const SearchSpace *space, const Candidate *candidate, int *out) {
    int node = space->costs->cluster->node.n_devices, data = d_get(candidate), n = 0;
    int width = candidate->t * candidate_c(candidate) * candidate_e(candidate);
    out[n++] = 1;
    if (!space->costs->cluster->software.repeats_shards) return n;
    for (int nodes = MOST_SHARD_NODES; nodes > 0; nodes /= 4) {
        int d = nodes * node / width, r = d > 1 && data % d == 0 ? data / d : 1;
        bool whole = nodes * node % width == 0;
        if (r > 1 && whole && k_allows(space, candidate, r)) out[n++] = r;
    }
    return n;
}

const SearchAxis SEARCH_AXES[] = {
    {"t", "t", false, "t must divide the ranks", t_get, t_set, t_fixed, t_values, t_allows, NULL},
    {"c", "--cp", false, "c must divide ranks / t, and 2 c the positions of a sequence", c_get,
     c_set, c_fixed, c_values, c_allows, NULL},
    {"e", "--ep", false,
     "e must divide ranks / (t x c) and the global batch, and t x e the experts", e_get, e_set,
     e_fixed, e_values, e_allows, NULL},
    {"p", "p", true,
     "p must divide ranks / (t x c x e), and the model's blocks must fill its stages", p_get, p_set,
     p_fixed, p_values, p_allows, NULL},
    {"d", "d", false,
     "t x c x e x p x d x r must be the ranks, and d x e x r must divide the global batch", d_get,
     d_set, d_fixed, d_values, d_allows, NULL},
    {"micro-batch", "--micro-batch", false,
     "it must divide global batch / (d x e x r), be a multiple of the lanes, and of pairs even",
     b_get, b_set, b_fixed, b_values, b_allows, NULL},
    {"recompute", "--recompute", false, "it is none, selective or full", r_get, r_set, r_fixed,
     r_values, r_allows, r_name},
    {"sequence-parallel", "--sequence-parallel", false, "it is on or off", sp_get, sp_set, sp_fixed,
     sp_values, is_flag, flag_name},
    {"lanes", "--lanes", false, "they must divide the micro-batch, which has no pairs", l_get,
     l_set, l_fixed, l_values, l_allows, NULL},
    {"schedule", "--schedule", false,
     "interleaved and zb-chunked need micro-batches in multiples of p, zb-v and "
     "v-half two chunks a stage, others one, and no split backward full recomputation",
     s_get, s_set, s_fixed, s_values, s_allows, s_name},
    {"chunks", "--chunks", true,
     "more than one need p > 1, a schedule that has them and p x chunks - 2 blocks", v_get, v_set,
     v_fixed, v_values, v_allows, NULL},
    {"zero", "--zero", false, "it is 0, 1, 2 or 3", z_get, z_set, z_fixed, z_values, z_allows,
     NULL},
    {"zero-messages", "--zero-messages", false, "it is block or weight", m_get, m_set, m_fixed,
     m_values, is_flag, m_name},
    {"r", "r", false,
     "more than one need --zero, d of more than 1, and r x d to be what t, c, e and p leave", k_get,
     k_set, k_fixed, k_values, k_allows, NULL},
};
const int N_SEARCH_AXES = sizeof(SEARCH_AXES) / sizeof(SEARCH_AXES[0]);
const int SEARCH_LAYOUT_AXES = 9, SEARCH_FRAME_AXES = 11;

const char *search_value_text(Arena *arena, const SearchAxis *axis, int value) {
    return axis->name_value ? axis->name_value(value) : arena_printf(arena, "%d", value);
}

static void list_left_by_e(const SearchSpace *space, const Candidate *mesh, int *out, int *n,
                           int most) {
    int ps[MOST_VALUES], n_p = p_values(space, mesh, ps), p = p_fixed(space);
    for (int k = 0; k < n_p && *n < most; k++) {
        int left = left_for_p(space, mesh) / ps[k] * candidate_e(mesh);
        if (p < 0 || p == ps[k]) out[(*n)++] = left;
    }
}

static void list_left_by_t(const SearchSpace *space, Candidate mesh, int *out, int *n, int most) {
    int cs[MOST_VALUES], es[MOST_VALUES], c = c_fixed(space), e = e_fixed(space);
    cs[0] = c;
    int n_c = c < 0 ? c_values(space, &mesh, cs) : c_allows(space, &mesh, c);
    for (int j = 0; j < n_c; j++) {
        mesh.c = cs[j];
        es[0] = e;
        int n_e = e < 0 ? e_values(space, &mesh, es) : e_allows(space, &mesh, e);
        for (int k = 0; k < n_e; k++) {
            mesh.e = es[k];
            list_left_by_e(space, &mesh, out, n, most);
        }
    }
}

/* How many (t, c, e, p) of what is not fixed there are, into out[...] what each leaves for d, times
 * e. */
static int list_left(const SearchSpace *space, int *out, int most) {
    Candidate mesh = {0};
    int ts[MOST_VALUES], n = 0, n_t = t_values(space, &mesh, ts), t = t_fixed(space);
    for (int i = 0; i < n_t; i++) {
        if (t >= 0 && t != ts[i]) continue;
        mesh.t = ts[i];
        list_left_by_t(space, mesh, out, &n, most);
    }
    return n;
}

int search_count_meshes(const SearchSpace *space, int n_ranks) {
    SearchSpace other = *space;
    int left[MOST_VALUES], count = 0, d = d_fixed(space);
    other.n_ranks = n_ranks;
    int n = list_left(&other, left, MOST_VALUES);
    for (int i = 0; i < n; i++) {
        count += space->global_batch % left[i] == 0 && (d < 0 || d == left[i]);
    }
    return count;
}

static int compare_ints(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

int search_list_d(const SearchSpace *space, bool divides, int *out) {
    int left[MOST_VALUES], n = list_left(space, left, MOST_VALUES), n_out = 0;
    qsort(left, (size_t)n, sizeof(*left), compare_ints);
    for (int i = 0; i < n; i++) {
        if ((space->global_batch % left[i] == 0) != divides) continue;
        if (n_out == 0 || out[n_out - 1] != left[i]) out[n_out++] = left[i];
    }
    return n_out;
}
