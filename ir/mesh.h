/* The mesh: how ranks are arranged, one size per mesh axis.
 *
 * A rank's coordinates follow the order of MESH_AXES, fastest first:
 * rank = t + T * (c + C * (e + E * (d + D * (r + R * p)))), so that tensor-parallel ranks are
 * neighbours, and those that divide a sequence, and then experts, come next (Narayanan et al. 2021,
 * section 3; Megatron-LM's order).
 *
 * r has what ZeRO divides over d again, R times: it divides the batch, but no weights (hybrid
 * sharding: Zhao et al. 2023, PyTorch FSDP, arXiv 2304.11277, section 3.2.2). Its ranks' sums are
 * completed after d's, of shards.
 *
 * Axes that follow one another can divide a dimension, or reduce, together:
 *   ct       a sequence over c, each part of it over t
 *   te       experts over t, each part of them over e
 *   de       the batch over d, each part of it over e; and all ranks that have the same weights
 *   dc, dec  the same, where c divides sequences
 *   rd, rde  the batch over r, each part of it over d (and each of those over e)
 *   h        heads over c, of layers that have a sequence whole
 *   th       such heads over t, each part of them over c
 * Such a group's members and its shards are numbered alike: by the slower axis first, but for te
 * and th, where e and c are the faster ones: what lies on a rank before it is divided over e is its
 * part over t.
 * Where c and e have one rank, d or t alone is meant, and named; so is c or e where t has one, and
 * of the batch e where d has one. r has several ranks only where d has.
 *
 * What a rank stores of a vocabulary may be filled up to whole multiples of `vocab_multiple` words,
 * where it is whole on every rank, too: rows of logits then begin where a GPU's products like them.
 *
 * What c divides is dealt out in 2 C equal chunks, of which rank i has chunk i and chunk 2 C - 1 -
 * i: under a causal mask the two together see as many keys on every rank (Llama 3, arXiv
 * 2407.21783, section 3.3.2). dc and dec divide as d does, and h has c's ranks but divides in
 * order. An all-to-all over c takes sequences that c divides to heads that h does, or back.
 */
#ifndef IR_MESH_H
#define IR_MESH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*        name, what a shard along it holds */
#define MESH_AXES(X)                                                                               \
    X(T, t, "tensor")                                                                              \
    X(C, c, "context")                                                                             \
    X(E, e, "expert")                                                                              \
    X(D, d, "data")                                                                                \
    X(R, r, "replica")                                                                             \
    X(P, p, "pipeline")

typedef enum MeshAxis {
#define X(upper, lower, text) MESH_##upper,
    MESH_AXES(X)
#undef X
        N_MESH_AXES,
    MESH_CT = N_MESH_AXES,
    MESH_TE,
    MESH_DC,
    MESH_DE,
    MESH_DEC,
    MESH_RD,
    MESH_RDE,
    MESH_H,
    MESH_TH,
    N_MESH_GROUPS
} MeshAxis;

enum { MAX_VOCAB_MULTIPLE = 1 << 16 };

typedef struct Mesh {
    int size[N_MESH_AXES];
    int vocab_multiple; /* 0: as many words as there are */
} Mesh;

/* A rank's coordinate along every mesh axis. */
typedef struct MeshCoord {
    int at[N_MESH_AXES];
} MeshCoord;

static inline const char *mesh_axis_name(int axis) {
    static const char *const names[] = {
#define X(upper, lower, text) #lower,
        MESH_AXES(X)
#undef X
            [MESH_CT] = "ct",
        [MESH_TE] = "te",
        [MESH_DC] = "dc",
        [MESH_DE] = "de",
        [MESH_DEC] = "dec",
        [MESH_RD] = "rd",
        [MESH_RDE] = "rde",
        [MESH_H] = "h",
        [MESH_TH] = "th"};
    return axis >= 0 && axis < N_MESH_GROUPS ? names[axis] : "?";
}

/* An axis or a group; -1: no such name. */
static inline int mesh_axis_find(const char *name, int length) {
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        const char *known = mesh_axis_name(axis);
        if (length > 0 && strncmp(known, name, (size_t)length) == 0 && !known[length]) return axis;
    }
    return -1;
}

/* The axes of a group, the fastest of its members' numbers first; an axis is its only one. */
typedef struct MeshGroupAxes {
    int count, axes[3];
} MeshGroupAxes;
static inline MeshGroupAxes mesh_group_axes(int group) {
    switch (group) {
    case MESH_CT: return (MeshGroupAxes){2, {MESH_T, MESH_C}};
    case MESH_TE: return (MeshGroupAxes){2, {MESH_E, MESH_T}};
    case MESH_DC: return (MeshGroupAxes){2, {MESH_C, MESH_D}};
    case MESH_DE: return (MeshGroupAxes){2, {MESH_E, MESH_D}};
    case MESH_DEC: return (MeshGroupAxes){3, {MESH_C, MESH_E, MESH_D}};
    case MESH_RD: return (MeshGroupAxes){2, {MESH_D, MESH_R}};
    case MESH_RDE: return (MeshGroupAxes){3, {MESH_E, MESH_D, MESH_R}};
    case MESH_H: return (MeshGroupAxes){1, {MESH_C}};
    case MESH_TH: return (MeshGroupAxes){2, {MESH_C, MESH_T}};
    default: return (MeshGroupAxes){group >= 0 ? 1 : 0, {group}};
    }
}

/* An axis; or a group: ct, te, th, rd and rde have axes of more than one rank, the others all but
 * d. */
static inline bool mesh_has_group(const Mesh *mesh, int group) {
    bool t = mesh->size[MESH_T] > 1, c = mesh->size[MESH_C] > 1, e = mesh->size[MESH_E] > 1;
    bool rd = mesh->size[MESH_R] > 1 && mesh->size[MESH_D] > 1;
    switch (group) {
    case MESH_CT:
    case MESH_TH: return c && t;
    case MESH_H: return c;
    case MESH_TE: return t && e;
    case MESH_DC: return c;
    case MESH_DE: return e;
    case MESH_DEC: return c && e;
    case MESH_RD: return rd;
    case MESH_RDE: return rd && e;
    default: return group >= 0 && group < N_MESH_AXES;
    }
}

/* Bit a: the axis a is of the group, and has more than one rank if the group is of several. */
static inline unsigned mesh_axes(const Mesh *mesh, int group) {
    MeshGroupAxes of = mesh_group_axes(group);
    unsigned bits = 0;
    for (int i = 0; i < of.count; i++) {
        if (of.count == 1 || mesh->size[of.axes[i]] > 1) bits |= 1u << of.axes[i];
    }
    return bits;
}

static inline int mesh_size(const Mesh *mesh, int group) {
    MeshGroupAxes of = mesh_group_axes(group);
    int64_t size = 1; /* of a damaged plan it may be more than any mesh has */
    for (int i = 0; i < of.count && size < INT32_MAX; i++) size *= mesh->size[of.axes[i]];
    return size < INT32_MAX ? (int)size : INT32_MAX;
}

/* Are there messages over it? Over ct, te, th, rd and rde there are none: they go over one axis,
 * then the others. */
static inline bool mesh_has_messages(const Mesh *mesh, int group) {
    bool by_axes = group == MESH_CT || group == MESH_TE || group == MESH_TH || group == MESH_RD ||
                   group == MESH_RDE;
    return !by_axes && mesh_has_group(mesh, group) && mesh_size(mesh, group) > 1;
}

/* The ranks that have the same weights, of one of r: of what e divides, or of all else. */
static inline int mesh_replicas(const Mesh *mesh, bool divided_over_e) {
    bool c = mesh->size[MESH_C] > 1, e = mesh->size[MESH_E] > 1 && !divided_over_e;
    return c && e ? MESH_DEC : c ? MESH_DC : e ? MESH_DE : MESH_D;
}

/* Is it such a group? But for d they divide shards of ZeRO, and of all else the batch alone. */
static inline bool mesh_is_replicas(int group) {
    return group == MESH_D || group == MESH_DC || group == MESH_DE || group == MESH_DEC;
}

/* Ranks that messages of sums and weights go between: not those of a layer's parts. */
static inline bool mesh_is_data(int group) {
    return group == MESH_R || mesh_is_replicas(group);
}

/* How many parts the batch has. */
static inline int mesh_batch_parts(const Mesh *mesh) {
    return mesh_size(mesh, MESH_RDE);
}

/* "d x e" */
static inline const char *mesh_batch_name(const Mesh *mesh) {
    bool e = mesh->size[MESH_E] > 1, r = mesh->size[MESH_R] > 1;
    return e && r ? "r x d x e" : r ? "r x d" : e ? "d x e" : "d";
}

/* Ranks of a stage: they follow one another. */
static inline int mesh_stage_ranks(const Mesh *mesh) {
    int64_t count = 1;
    for (int axis = 0; axis < MESH_P && count < INT32_MAX; axis++) count *= mesh->size[axis];
    return count < INT32_MAX ? (int)count : INT32_MAX;
}

static inline int mesh_rank_count(const Mesh *mesh) {
    int count = 1;
    for (int axis = 0; axis < N_MESH_AXES; axis++) count *= mesh->size[axis];
    return count;
}

static inline MeshCoord mesh_coord(const Mesh *mesh, int rank) {
    MeshCoord coord;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        coord.at[axis] = rank % mesh->size[axis];
        rank /= mesh->size[axis];
    }
    return coord;
}

/* A shard divided further along the same dimension: by t within c, by e within t or d, by d within
 * r, by h within t. -2: that cannot be. */
static inline int mesh_divide(int group, int axis) {
    if (group == MESH_C && axis == MESH_T) return MESH_CT;
    if (group == MESH_T && axis == MESH_E) return MESH_TE;
    if (group == MESH_D && axis == MESH_E) return MESH_DE;
    if (group == MESH_R && axis == MESH_D) return MESH_RD;
    if (group == MESH_RD && axis == MESH_E) return MESH_RDE;
    if (group == MESH_T && axis == MESH_H) return MESH_TH;
    bool within = axis == MESH_CT || axis == MESH_TE || axis == MESH_TH;
    return group < 0 && !within ? axis : -2;
}

/* The axis that divided last, and what its ranks have in common. */
static inline int mesh_inner(int group) {
    switch (group) {
    case MESH_CT: return MESH_T;
    case MESH_TH: return MESH_H;
    case MESH_RD: return MESH_D;
    case MESH_TE:
    case MESH_DE:
    case MESH_RDE: return MESH_E;
    default: return group;
    }
}
static inline int mesh_outer(int group) {
    switch (group) {
    case MESH_CT: return MESH_C;
    case MESH_TE:
    case MESH_TH: return MESH_T;
    case MESH_DE: return MESH_D;
    case MESH_RD: return MESH_R;
    case MESH_RDE: return MESH_RD;
    default: return -1;
    }
}

/* Is the group what is left of a shard of `of` when axes that divided it last are gathered? -1 is.
 */
static inline bool mesh_leads_to(int group, int of) {
    while (of >= 0 && of != group) of = mesh_outer(of);
    return of == group;
}

/* Does c deal out chunks of what the group divides? */
static inline bool mesh_deals(int group) {
    return group == MESH_C || group == MESH_CT;
}

/* The rank's number in its group, which is that of its shard, too. */
static inline int mesh_member(const Mesh *mesh, MeshCoord coord, int group) {
    MeshGroupAxes of = mesh_group_axes(group);
    int member = 0;
    for (int i = of.count - 1; i >= 0; i--) {
        member = member * mesh->size[of.axes[i]] + coord.at[of.axes[i]];
    }
    return member;
}

/* The coordinates of a member of the group that `coord` is in. */
static inline MeshCoord mesh_member_coord(const Mesh *mesh, MeshCoord coord, int group,
                                          int member) {
    MeshGroupAxes of = mesh_group_axes(group);
    for (int i = 0; i < of.count; i++) {
        coord.at[of.axes[i]] = member % mesh->size[of.axes[i]];
        member /= mesh->size[of.axes[i]];
    }
    return coord;
}

static inline int mesh_rank(const Mesh *mesh, MeshCoord coord) {
    int rank = 0;
    for (int axis = N_MESH_AXES - 1; axis >= 0; axis--) {
        rank = rank * mesh->size[axis] + coord.at[axis];
    }
    return rank;
}

#endif
