#include "ir/type.h"

#include "ir/base/diag.h"
#include "ir/blocks.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    int bytes;
} DTYPES[N_DTYPES] = {
    [DTYPE_F32] = {"f32", 4},   [DTYPE_I32] = {"i32", 4},   [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_F16] = {"f16", 2},   [DTYPE_FP8] = {"fp8", 1},   [DTYPE_NF4] = {"nf4", 0},
    [DTYPE_INT8] = {"int8", 0}, [DTYPE_DYN8] = {"dyn8", 0}, [DTYPE_DYN8U] = {"dyn8u", 0}};

const char *dtype_name(DType dtype) {
    return DTYPES[dtype].name;
}

int dtype_bytes(DType dtype) {
    if (dtype_is_blocked(dtype)) BUG("an element of %s has no bytes of its own", dtype_name(dtype));
    return DTYPES[dtype].bytes;
}

int64_t dtype_size(DType dtype, int64_t n_elements) {
    if (!dtype_is_blocked(dtype)) return n_elements * DTYPES[dtype].bytes;
    int64_t n_blocks = (n_elements + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK;
    return n_blocks * (dtype == DTYPE_NF4 ? NF4_BLOCK_BYTES : INT8_BLOCK_BYTES); /* moments, too */
}

static bool text_equal(const char *known, const char *text, int length) {
    return strncmp(known, text, (size_t)length) == 0 && known[length] == '\0';
}

int dtype_find(const char *name, int length) {
    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        if (text_equal(DTYPES[dtype].name, name, length)) return dtype;
    }
    return -1;
}

bool axis_is_sequence(const char *name) {
    return strcmp(name, "seq") == 0 || strcmp(name, "source") == 0;
}

int axis_find(const AxisTable *table, const char *name, int length) {
    for (int axis = 0; axis < table->count; axis++) {
        if (text_equal(table->names[axis], name, length)) return axis;
    }
    return -1;
}

int type_find_axis(const Type *type, int axis) {
    for (int i = 0; i < type->rank; i++) {
        if (type->axes[i] == axis) return i;
    }
    return -1;
}

bool type_equal(const Type *a, const Type *b) {
    return a->dtype == b->dtype && type_same_shape(a, b);
}

Type type_with_dtype(const Type *type, DType dtype) {
    Type other = *type;
    other.dtype = dtype;
    return other;
}

bool type_same_shape(const Type *a, const Type *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->axes[i] != b->axes[i] || a->dims[i] != b->dims[i]) return false;
    }
    return true;
}

int64_t type_elements(const Type *type) {
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->dims[i];
    return count;
}

int64_t type_bytes(const Type *type) {
    return dtype_size(type->dtype, type_elements(type));
}

static const char *const REDUCE_NAMES[] = {"sum", "max", "lse"};

void type_print(StrBuf *out, const AxisTable *axes, const Type *type, const Sharding *sharding) {
    strbuf_printf(out, "%s[", dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) {
        strbuf_printf(out, "%s%s=%" PRId64, i ? ", " : "", axes->names[type->axes[i]],
                      type->dims[i]);
        if (sharding && sharding->mesh[i] >= 0) {
            strbuf_printf(out, "/%s", mesh_axis_name(sharding->mesh[i]));
        }
    }
    strbuf_put(out, "]");
    if (!sharding || !sharding->partial) return;
    strbuf_printf(out, "~%s(", REDUCE_NAMES[sharding->reduce]);
    for (int axis = 0, first = 1; axis < N_MESH_AXES; axis++) {
        if (!(sharding->partial >> axis & 1)) continue;
        strbuf_printf(out, "%s%s", first ? "" : ",", mesh_axis_name(axis));
        first = 0;
    }
    strbuf_put(out, ")");
}

Sharding sharding_none(void) {
    Sharding none = {.partial = 0, .reduce = REDUCE_SUM};
    memset(none.mesh, -1, sizeof(none.mesh));
    return none;
}

bool sharding_equal(const Sharding *a, const Sharding *b, int rank) {
    if (a->partial != b->partial || (a->partial && a->reduce != b->reduce)) return false;
    return memcmp(a->mesh, b->mesh, (size_t)rank) == 0;
}

bool sharding_is_whole(const Sharding *sharding, int rank) {
    Sharding none = sharding_none();
    return sharding_equal(sharding, &none, rank);
}

static int64_t group_parts(int group, const Mesh *mesh) {
    return group < 0 ? 1 : mesh_size(mesh, group);
}

int64_t type_share(const Type *type, int i, int group, const Mesh *mesh) {
    const int64_t parts = group_parts(group, mesh), share = (type->dims[i] + parts - 1) / parts;
    const int64_t multiple = type->axes[i] == AXIS_VOCAB ? mesh->vocab_multiple : 1;
    return multiple > 1 ? (share + multiple - 1) / multiple * multiple : share;
}

bool type_is_padded(const Type *type, int i, int group, const Mesh *mesh) {
    return type_share(type, i, group, mesh) * group_parts(group, mesh) != type->dims[i];
}

Type type_local(const Type *type, const Sharding *sharding, const Mesh *mesh) {
    Type local = *type;
    for (int i = 0; i < type->rank; i++) {
        local.dims[i] = type_share(type, i, sharding->mesh[i], mesh);
    }
    return local;
}

DimSpan type_span(const Type *type, int i, int group, const Mesh *mesh, MeshCoord coord) {
    const int64_t local = type_share(type, i, group, mesh);
    if (group < 0) return (DimSpan){local, 0, 0};
    if (!mesh_deals(group)) {
        int64_t first = mesh_member(mesh, coord, group) * local;
        return (DimSpan){local, first, first};
    }
    int64_t c = mesh->size[MESH_C], at = coord.at[MESH_C], chunk = type->dims[i] / (2 * c);
    int64_t before = group == MESH_CT ? coord.at[MESH_T] * local : 0; /* of what c gives the rank */
    return (DimSpan){.split = chunk - before,
                     .first = at * chunk + before,
                     .second = (2 * c - 2 - at) * chunk + before};
}

int span_dims(const DimSpan *span, int64_t local, SpanDims *out) {
    *out = (SpanDims){{local, 1}, {1, 1}, span_at(span, 0)};
    if (span->split <= 0 || span->split >= local) return 1;
    if (2 * span->split != local) BUG("runs of %d and more elements", (int)span->split);
    *out = (SpanDims){{2, span->split}, {span->split + span->second - span->first, 1}, span->first};
    return 2;
}

int64_t type_local_bytes(const Type *type, const Sharding *sharding, const Mesh *mesh) {
    Type local = type_local(type, sharding, mesh);
    return type_bytes(&local);
}

/* Padding, and what c deals out, is whole rows of blocks, or none of this is. */
static bool keeps_moments(const Type *type, const Sharding *sharding, const Mesh *mesh) {
    int64_t run = 1; /* elements that lie together */
    for (int i = type->rank - 1; i >= 0 && run % WEIGHT_BLOCK != 0; i--) {
        int group = sharding->mesh[i];
        int64_t parts = group_parts(group, mesh);
        if (parts > 1 && mesh_deals(group)) return false;
        if (type_is_padded(type, i, group, mesh)) return false;
        run *= type->dims[i] / parts;
        if (parts > 1) break;
    }
    return run % WEIGHT_BLOCK == 0 && !sharding->partial;
}

bool type_keeps_blocks(const Type *type, const Sharding *sharding, const Mesh *mesh) {
    if (dtype_is_moment(type->dtype)) return keeps_moments(type, sharding, mesh);
    int64_t run = 1; /* elements that lie together */
    bool cut = false;
    for (int i = type->rank - 1; i >= 0; i--) {
        int64_t parts = group_parts(sharding->mesh[i], mesh);
        if (parts > 1 && mesh_deals(sharding->mesh[i])) return false;
        if (type_is_padded(type, i, sharding->mesh[i], mesh)) return false;
        if (!cut) run *= type->dims[i] / parts;
        cut |= parts > 1;
    }
    return run % WEIGHT_BLOCK == 0 && !sharding->partial;
}
