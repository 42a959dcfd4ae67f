/* The mesh: how ranks are arranged, one size per mesh axis.
 *
 * A rank's coordinates follow the order of MESH_AXES, fastest first:
 * rank = t + T * (c + C * (d + D * p)), so that tensor-parallel ranks are neighbours, and those
 * that divide a sequence come next (Narayanan et al. 2021, section 3; Megatron-LM's order).
 *
 * Two axes that follow one another can divide a dimension, or reduce, together: ct (a sequence over
 * c, each part of it over t) and dc (all ranks that have the same weights). Such a group's members
 * and its shards are numbered alike: by the slower axis first. Where c has one rank, d or t alone
 * is meant, and named; so is c, where t has one.
 *
 * What c divides is dealt out in 2 C equal chunks, of which rank i has chunk i and chunk 2 C - 1 -
 * i: under a causal mask the two together see as many keys on every rank (Llama 3, arXiv
 * 2407.21783, section 3.3.2). dc divides as d does.
 */
#ifndef IR_MESH_H
#define IR_MESH_H

#include <stdbool.h>
#include <string.h>

/*        name, what a shard along it holds */
#define MESH_AXES(X)                                                                               \
    X(T, t, "tensor")                                                                              \
    X(C, c, "context")                                                                             \
    X(D, d, "data")                                                                                \
    X(P, p, "pipeline")

typedef enum MeshAxis {
#define X(upper, lower, text) MESH_##upper,
    MESH_AXES(X)
#undef X
        N_MESH_AXES,
    MESH_CT = N_MESH_AXES,
    MESH_DC,
    N_MESH_GROUPS
} MeshAxis;

typedef struct Mesh {
    int size[N_MESH_AXES];
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
        [MESH_DC] = "dc"};
    return axis >= 0 && axis < N_MESH_GROUPS ? names[axis] : "?";
}

/* An axis or a group of two; -1: no such name. */
static inline int mesh_axis_find(const char *name, int length) {
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        const char *known = mesh_axis_name(axis);
        if (length > 0 && strncmp(known, name, (size_t)length) == 0 && !known[length]) return axis;
    }
    return -1;
}

/* An axis; or a group of two of which ct has two axes of more than one rank, dc has c for one. */
static inline bool mesh_has_group(const Mesh *mesh, int group) {
    if (group == MESH_CT) return mesh->size[MESH_C] > 1 && mesh->size[MESH_T] > 1;
    if (group == MESH_DC) return mesh->size[MESH_C] > 1;
    return group >= 0 && group < N_MESH_AXES;
}

/* Bit a: the axis a is of the group, and has more than one rank if the group is of two. */
static inline unsigned mesh_axes(const Mesh *mesh, int group) {
    unsigned c = mesh->size[MESH_C] > 1 ? 1u << MESH_C : 0;
    if (group == MESH_CT) return c | (mesh->size[MESH_T] > 1 ? 1u << MESH_T : 0);
    if (group == MESH_DC) return c | (mesh->size[MESH_D] > 1 ? 1u << MESH_D : 0);
    return group < 0 ? 0 : 1u << group;
}

static inline int mesh_size(const Mesh *mesh, int group) {
    if (group == MESH_CT) return mesh->size[MESH_T] * mesh->size[MESH_C];
    if (group == MESH_DC) return mesh->size[MESH_C] * mesh->size[MESH_D];
    return mesh->size[group];
}

/* Are there messages over it? Over ct there are none: they go over t, then over c. */
static inline bool mesh_has_messages(const Mesh *mesh, int group) {
    return group != MESH_CT && mesh_has_group(mesh, group) && mesh_size(mesh, group) > 1;
}

/* The ranks that have the same weights. */
static inline int mesh_replicas(const Mesh *mesh) {
    return mesh->size[MESH_C] > 1 ? MESH_DC : MESH_D;
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

/* A shard divided further along the same dimension: by t within c. -2: that cannot be. */
static inline int mesh_divide(int group, int axis) {
    if (group == MESH_C && axis == MESH_T) return MESH_CT;
    return group < 0 && axis != MESH_CT ? axis : -2;
}

/* The axis that divided last, and what its ranks have in common. */
static inline int mesh_inner(int group) {
    return group == MESH_CT ? MESH_T : group;
}
static inline int mesh_outer(int group) {
    return group == MESH_CT ? MESH_C : -1;
}

/* Does c deal out chunks of what the group divides? */
static inline bool mesh_deals(int group) {
    return group == MESH_C || group == MESH_CT;
}

/* The rank's number in its group, which is that of its shard, too. */
static inline int mesh_member(const Mesh *mesh, MeshCoord coord, int group) {
    if (group == MESH_CT) return coord.at[MESH_T] + mesh->size[MESH_T] * coord.at[MESH_C];
    if (group == MESH_DC) return coord.at[MESH_C] + mesh->size[MESH_C] * coord.at[MESH_D];
    return coord.at[group];
}

/* The coordinates of a member of the group that `coord` is in. */
static inline MeshCoord mesh_member_coord(const Mesh *mesh, MeshCoord coord, int group,
                                          int member) {
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool within = axis == group || (axis == MESH_C && group >= N_MESH_AXES) ||
                      (group == MESH_CT && axis == MESH_T) || (group == MESH_DC && axis == MESH_D);
        if (!within) continue;
        coord.at[axis] = member % mesh->size[axis];
        member /= mesh->size[axis];
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
