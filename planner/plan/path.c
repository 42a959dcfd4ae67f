#include "planner/plan/path.h"

const char *path_name(PathKind kind) {
    static const char *const NAMES[N_PATH_KINDS] = {"line", "loop", "v"};
    return (int)kind >= 0 && kind < N_PATH_KINDS ? NAMES[kind] : "?";
}

bool path_allows(PathKind kind, int n_chunks) {
    return kind == PATH_LINE ? n_chunks == 1 : kind == PATH_V ? n_chunks == 2 : n_chunks >= 1;
}

bool path_goes_up(Path path, int chunk) {
    return path.kind == PATH_V && chunk % 2;
}

int path_global(Path path, int stage, int chunk) {
    return chunk * path.p + (path_goes_up(path, chunk) ? path.p - 1 - stage : stage);
}

int path_chunk(Path path, int global) {
    return global / path.p;
}

int path_stage(Path path, int global) {
    int at = global % path.p;
    return path_goes_up(path, path_chunk(path, global)) ? path.p - 1 - at : at;
}

static int neighbour(Path path, int stage, bool below) {
    int to = below ? stage + 1 : stage - 1;
    if (path.kind != PATH_V) return (to + path.p) % path.p;
    return to < 0 || to == path.p ? stage : to;
}

int path_next(Path path, int stage, int chunk) {
    return neighbour(path, stage, !path_goes_up(path, chunk));
}

int path_previous(Path path, int stage, int chunk) {
    return neighbour(path, stage, path_goes_up(path, chunk));
}

bool path_turns(Path path, int global) {
    return path.p == 1 || (path.kind == PATH_V && (global + 1) % path.p == 0);
}

int path_border(Path path, int global) {
    int from = path_stage(path, global), to = path_stage(path, global + 1);
    if (path_turns(path, global)) return -1;
    return path_goes_up(path, path_chunk(path, global)) ? to : from;
}

bool path_sends(Path path, int stage, int chunk, bool backward, int to) {
    int next = backward ? path_previous(path, stage, chunk) : path_next(path, stage, chunk);
    return to == next && to != stage;
}

bool path_has_border(Path path, int n_chunks, int stage, int chunk, bool before) {
    int global = path_global(path, stage, chunk), last = path.p * n_chunks - 1;
    return before ? global > 0 && !path_turns(path, global - 1)
                  : global < last && !path_turns(path, global);
}

int path_count_borders(Path path, int n_chunks, int stage) {
    int n = 0;
    for (int c = 0; c < n_chunks; c++) {
        n += path_has_border(path, n_chunks, stage, c, true) +
             path_has_border(path, n_chunks, stage, c, false);
    }
    return n;
}

int path_count_crossings(Path path, int n_chunks, int border) {
    if (border + 1 < path.p) return n_chunks;
    return path.kind == PATH_V ? 0 : n_chunks - 1;
}

bool path_ends_meet(Path path) {
    return path.p == 1 || path.kind == PATH_V;
}
