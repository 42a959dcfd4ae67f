#include "runtime/binding.h"

bool bind_fail(const Binding *binding, const char *why) {
    diag_error(binding->diag, binding->node->loc, "%s: %s", OPS[binding->node->op].name, why);
    return false;
}

int64_t bind_offset(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    int mesh = sharding->mesh[i];
    if (mesh < 0) return 0;
    Type local = type_local(type, sharding, &binding->graph->mesh);
    return binding->coord.at[mesh] * local.dims[i];
}

int64_t bind_valid(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    Type local = type_local(type, sharding, &binding->graph->mesh);
    int64_t left = type->dims[i] - bind_offset(binding, type, sharding, i);
    if (left < 0) return 0;
    return left < local.dims[i] ? left : local.dims[i];
}

int64_t bind_rows(const Type *local) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < local->rank; i++) rows *= local->dims[i];
    return rows;
}

int64_t bind_stride(const Type *local, int dimension) {
    int64_t stride = 1;
    for (int i = dimension + 1; i < local->rank; i++) stride *= local->dims[i];
    return stride;
}

uint32_t bind_random_key(int block, int64_t key) {
    uint32_t hash = 2166136261u;
    uint64_t words[2] = {(uint64_t)(int64_t)block, (uint64_t)key};
    for (int i = 0; i < 16; i++) {
        hash = (hash ^ (uint32_t)(words[i / 8] >> (8 * (i % 8)) & 0xff)) * 16777619u;
    }
    return hash;
}
