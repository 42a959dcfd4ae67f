/* The mesh: how ranks are arranged, one size per mesh axis.
 *
 * A rank's coordinates follow the order of MESH_AXES, fastest first: rank = t + T * (d + D * p),
 * so that tensor-parallel ranks are neighbours (Narayanan et al. 2021, section 3).
 */
#ifndef IR_MESH_H
#define IR_MESH_H

#include <stdbool.h>

/*        name, what a shard along it holds */
#define MESH_AXES(X)                                                                               \
    X(T, t, "tensor")                                                                              \
    X(D, d, "data")                                                                                \
    X(P, p, "pipeline")

typedef enum MeshAxis {
#define X(upper, lower, text) MESH_##upper,
    MESH_AXES(X)
#undef X
        N_MESH_AXES
} MeshAxis;

typedef struct Mesh {
    int size[N_MESH_AXES];
} Mesh;

static inline const char *mesh_axis_name(int axis) {
    static const char *const names[] = {
#define X(upper, lower, text) #lower,
        MESH_AXES(X)
#undef X
    };
    return axis >= 0 && axis < N_MESH_AXES ? names[axis] : "?";
}

static inline int mesh_axis_find(const char *name, int length) {
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        const char *known = mesh_axis_name(axis);
        if (length == 1 && name[0] == known[0]) return axis;
    }
    return -1;
}

static inline int mesh_rank_count(const Mesh *mesh) {
    int count = 1;
    for (int axis = 0; axis < N_MESH_AXES; axis++) count *= mesh->size[axis];
    return count;
}

/* A rank's coordinate along every mesh axis. */
typedef struct MeshCoord {
    int at[N_MESH_AXES];
} MeshCoord;

static inline MeshCoord mesh_coord(const Mesh *mesh, int rank) {
    MeshCoord coord;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        coord.at[axis] = rank % mesh->size[axis];
        rank /= mesh->size[axis];
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
