#include "planner/clusters/device_profile.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/op.h"

#include <string.h>

/* Every array of the file is a table of rows; reading and writing both go by these. */
typedef enum FieldKind {
    FIELD_COUNT,      /* int64_t, 1 to most */
    FIELD_TIME,       /* double, microseconds */
    FIELD_TIME_OR_0,  /* the same, 0: not measured */
    FIELD_FLAG,       /* bool */
    FIELD_DTYPE,      /* bool: is it bf16 */
    FIELD_COLLECTIVE, /* ProfileCollectiveKind */
    FIELD_OP,         /* OpKind that has a kernel */
} FieldKind;

typedef struct Field {
    const char *key;
    FieldKind kind;
    size_t offset;
    int64_t most;
} Field;

enum { MAX_FIELDS = 8, MAX_THREADS = 1 << 16, MAX_SIDE = 1 << 24, MAX_TEXT = 256 };
static const int64_t MAX_BYTES = INT64_C(1) << 44;
static const double LEAST_US = 1e-4, MOST_US = 1e9;
/* What no device does for years to come, per second. */
static const double MOST_FLOPS = 1e18, MOST_BYTES = 1e16;

typedef struct Table {
    const char *key;
    bool needed; /* at least one row */
    bool newer;  /* may be missing */
    size_t row_bytes, count_offset, rows_offset;
    /* The key of a time that is too short for the row's work, or NULL. */
    const char *(*too_fast)(const void *row);
    Field fields[MAX_FIELDS];
} Table;

static bool exceeds(double amount, double us, double most_per_second) {
    return us > 0 && amount > most_per_second * us * 1e-6;
}

static const char *fast_product(const void *row) {
    const ProfileProduct *p = row;
    double flops = 2 * (double)p->m * (double)p->n * (double)p->k;
    return exceeds(flops, p->us, MOST_FLOPS) ? "us" : NULL;
}

static const char *fast_attention(const void *row) {
    const ProfileAttention *a = row;
    double flops =
        2 * (double)a->batch * (double)a->heads * (double)a->seq * (double)a->seq * (double)a->head;
    if (exceeds(flops, a->forward_us, MOST_FLOPS)) return "forward_us";
    return exceeds(2.5 * flops, a->backward_us, MOST_FLOPS) ? "backward_us" : NULL;
}

static const char *fast_memory(const void *row) {
    const ProfileMemory *m = row;
    if (exceeds((double)m->bytes, m->copy_us, MOST_BYTES)) return "copy_us";
    return exceeds((double)m->bytes, m->triad_us, MOST_BYTES) ? "triad_us" : NULL;
}

static const char *fast_host(const void *row) {
    const ProfileHost *h = row;
    return exceeds((double)h->bytes, h->us, MOST_BYTES) ? "us" : NULL;
}

static const char *fast_kernel(const void *row) {
    const ProfileKernel *k = row;
    return exceeds((double)k->elements, k->us, MOST_BYTES) ? "us" : NULL;
}

static const char *fast_message(const void *row) {
    const ProfileMessage *m = row;
    return exceeds((double)m->bytes, m->us, MOST_BYTES) ? "us" : NULL;
}

static const char *fast_collective(const void *row) {
    const ProfileCollective *c = row;
    return exceeds((double)c->bytes, c->us, MOST_BYTES) ? "us" : NULL;
}

#define ROWS(name, type)                                                                           \
    sizeof(type), offsetof(DeviceProfile, n_##name), offsetof(DeviceProfile, name)

static const Table TABLES[] = {
    {"calls",
     true,
     false,
     ROWS(calls, ProfileCall),
     NULL,
     {{"threads", FIELD_COUNT, offsetof(ProfileCall, threads), MAX_THREADS},
      {"us", FIELD_TIME, offsetof(ProfileCall, us), 0},
      {"graph_us", FIELD_TIME_OR_0, offsetof(ProfileCall, graph_us), 0}}},
    {"products",
     true,
     false,
     ROWS(products, ProfileProduct),
     fast_product,
     {{"dtype", FIELD_DTYPE, offsetof(ProfileProduct, bf16), 0},
      {"threads", FIELD_COUNT, offsetof(ProfileProduct, threads), MAX_THREADS},
      {"ta", FIELD_FLAG, offsetof(ProfileProduct, ta), 0},
      {"tb", FIELD_FLAG, offsetof(ProfileProduct, tb), 0},
      {"m", FIELD_COUNT, offsetof(ProfileProduct, m), MAX_SIDE},
      {"n", FIELD_COUNT, offsetof(ProfileProduct, n), MAX_SIDE},
      {"k", FIELD_COUNT, offsetof(ProfileProduct, k), MAX_SIDE},
      {"us", FIELD_TIME, offsetof(ProfileProduct, us), 0}}},
    {"attention",
     false,
     false,
     ROWS(attention, ProfileAttention),
     fast_attention,
     {{"dtype", FIELD_DTYPE, offsetof(ProfileAttention, bf16), 0},
      {"threads", FIELD_COUNT, offsetof(ProfileAttention, threads), MAX_THREADS},
      {"batch", FIELD_COUNT, offsetof(ProfileAttention, batch), MAX_SIDE},
      {"heads", FIELD_COUNT, offsetof(ProfileAttention, heads), MAX_SIDE},
      {"seq", FIELD_COUNT, offsetof(ProfileAttention, seq), MAX_SIDE},
      {"head", FIELD_COUNT, offsetof(ProfileAttention, head), MAX_SIDE},
      {"forward_us", FIELD_TIME, offsetof(ProfileAttention, forward_us), 0},
      {"backward_us", FIELD_TIME, offsetof(ProfileAttention, backward_us), 0}}},
    {"memory",
     true,
     false,
     ROWS(memory, ProfileMemory),
     fast_memory,
     {{"threads", FIELD_COUNT, offsetof(ProfileMemory, threads), MAX_THREADS},
      {"bytes", FIELD_COUNT, offsetof(ProfileMemory, bytes), MAX_BYTES},
      {"copy_us", FIELD_TIME, offsetof(ProfileMemory, copy_us), 0},
      {"triad_us", FIELD_TIME, offsetof(ProfileMemory, triad_us), 0}}},
    {"host",
     false,
     true,
     ROWS(host, ProfileHost),
     fast_host,
     {{"bytes", FIELD_COUNT, offsetof(ProfileHost, bytes), MAX_BYTES},
      {"us", FIELD_TIME, offsetof(ProfileHost, us), 0}}},
    {"kernels",
     false,
     false,
     ROWS(kernels, ProfileKernel),
     fast_kernel,
     {{"op", FIELD_OP, offsetof(ProfileKernel, op), 0},
      {"dtype", FIELD_DTYPE, offsetof(ProfileKernel, bf16), 0},
      {"threads", FIELD_COUNT, offsetof(ProfileKernel, threads), MAX_THREADS},
      {"elements", FIELD_COUNT, offsetof(ProfileKernel, elements), MAX_BYTES},
      {"us", FIELD_TIME, offsetof(ProfileKernel, us), 0}}},
    {"messages",
     false,
     false,
     ROWS(messages, ProfileMessage),
     fast_message,
     {{"bytes", FIELD_COUNT, offsetof(ProfileMessage, bytes), MAX_BYTES},
      {"us", FIELD_TIME, offsetof(ProfileMessage, us), 0}}},
    {"collectives",
     false,
     false,
     ROWS(collectives, ProfileCollective),
     fast_collective,
     {{"kind", FIELD_COLLECTIVE, offsetof(ProfileCollective, kind), 0},
      {"members", FIELD_COUNT, offsetof(ProfileCollective, members), MAX_THREADS},
      {"bytes", FIELD_COUNT, offsetof(ProfileCollective, bytes), MAX_BYTES},
      {"us", FIELD_TIME, offsetof(ProfileCollective, us), 0}}},
};
enum { N_TABLES = sizeof(TABLES) / sizeof(TABLES[0]) };

static const char *const VERSION_KEY = "perilune_device_profile";
static const char *const OTHER_KEYS[] = {"device", "name", "cores", "libraries"};
static const char *const COLLECTIVES[N_PROFILE_COLLECTIVES] = {"all_reduce", "all_gather",
                                                               "reduce_scatter"};

/* --- writing --- */

static void print_field(StrBuf *out, const Field *field, const unsigned char *row) {
    const void *at = row + field->offset;
    strbuf_printf(out, "\"%s\":", field->key);
    switch (field->kind) {
    case FIELD_COUNT: strbuf_printf(out, "%lld", (long long)*(const int64_t *)at); break;
    case FIELD_TIME:
    case FIELD_TIME_OR_0: strbuf_printf(out, "%.6g", *(const double *)at); break;
    case FIELD_FLAG: strbuf_put(out, *(const bool *)at ? "true" : "false"); break;
    case FIELD_DTYPE: strbuf_put(out, *(const bool *)at ? "\"bf16\"" : "\"f32\""); break;
    case FIELD_COLLECTIVE:
        strbuf_printf(out, "\"%s\"", COLLECTIVES[*(const ProfileCollectiveKind *)at]);
        break;
    case FIELD_OP: strbuf_printf(out, "\"%s\"", OPS[*(const OpKind *)at].name); break;
    }
}

static void print_table(StrBuf *out, const Table *table, const DeviceProfile *profile) {
    const unsigned char *base = (const unsigned char *)profile, *rows;
    int count = *(const int *)(base + table->count_offset);
    memcpy(&rows, base + table->rows_offset, sizeof(rows));
    strbuf_printf(out, ",\n \"%s\": [", table->key);
    for (int i = 0; i < count; i++) {
        strbuf_put(out, i ? ",\n  {" : "\n  {");
        for (int f = 0; f < MAX_FIELDS && table->fields[f].key; f++) {
            if (f) strbuf_put(out, ", ");
            print_field(out, &table->fields[f], rows + (size_t)i * table->row_bytes);
        }
        strbuf_put(out, "}");
    }
    strbuf_put(out, count ? "\n ]" : "]");
}

void device_profile_print(StrBuf *out, const DeviceProfile *profile) {
    strbuf_printf(out, "{\"%s\": %d,\n \"device\": \"%s\",\n \"name\": ", VERSION_KEY,
                  DEVICE_PROFILE_VERSION, profile->cuda ? "cuda" : "cpu");
    json_put_text(out, profile->name);
    strbuf_printf(out, ",\n \"cores\": %lld,\n \"libraries\": [", (long long)profile->cores);
    for (int i = 0; i < profile->n_libraries; i++) {
        if (i) strbuf_put(out, ", ");
        json_put_text(out, profile->libraries[i]);
    }
    strbuf_put(out, "]");
    for (int t = 0; t < N_TABLES; t++) print_table(out, &TABLES[t], profile);
    strbuf_put(out, "}\n");
}

/* --- reading --- */

typedef struct Reader {
    Arena *arena;
    const char *path;
    Diag *diag;
    char place[64]; /* "products[3]." */
} Reader;

/* A key may be the file's own text: what could break the line is left out. */
static bool wrong(const Reader *reader, const char *key, const char *why) {
    char shown[48];
    snprintf(shown, sizeof(shown), "%s", key);
    for (char *c = shown; *c; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
    diag_error(reader->diag, (SourceLoc){reader->path, 0}, "%s%s: %s", reader->place, shown, why);
    return false;
}

static bool read_count(const Reader *reader, const char *key, const json_t *value, int64_t most,
                       int64_t *out) {
    char why[96];
    if (!json_is_integer(value)) return wrong(reader, key, "is not a whole number");
    *out = json_integer_value(value);
    if (*out >= 1 && *out <= most) return true;
    snprintf(why, sizeof(why), "%lld is not between 1 and %lld", (long long)*out, (long long)most);
    return wrong(reader, key, why);
}

static bool read_time(const Reader *reader, const char *key, const json_t *value, bool or_zero,
                      double *out) {
    char why[96];
    if (!json_is_number(value)) return wrong(reader, key, "is not a number");
    *out = json_number_value(value);
    if ((*out >= LEAST_US && *out <= MOST_US) || (or_zero && *out == 0)) return true;
    snprintf(why, sizeof(why), "%g is not between %g and %g microseconds", *out, LEAST_US, MOST_US);
    return wrong(reader, key, why);
}

/* The number of the text among `names`, or -1: reported. */
static int read_name(const Reader *reader, const char *key, const json_t *value,
                     const char *const *names, int n_names) {
    const char *text = json_string_value(value);
    for (int i = 0; text && i < n_names; i++) {
        if (strcmp(text, names[i]) == 0) return i;
    }
    StrBuf why = strbuf_create();
    strbuf_put(&why, "is none of");
    for (int i = 0; i < n_names; i++) strbuf_printf(&why, "%s %s", i ? "," : "", names[i]);
    wrong(reader, key, why.text);
    strbuf_destroy(&why);
    return -1;
}

static bool read_op(const Reader *reader, const char *key, const json_t *value, OpKind *out) {
    const char *name = json_string_value(value);
    int op = name ? op_find(name, (int)strlen(name)) : -1;
    if (op < 0 || !(OPS[op].flags & KERNEL)) {
        return wrong(reader, key, "is no op that has a kernel");
    }
    *out = (OpKind)op;
    return true;
}

static bool read_field(const Reader *reader, const Field *field, const json_t *value,
                       unsigned char *row) {
    static const char *const DTYPES[] = {"f32", "bf16"};
    void *at = row + field->offset;
    int found;
    switch (field->kind) {
    case FIELD_COUNT: return read_count(reader, field->key, value, field->most, at);
    case FIELD_TIME: return read_time(reader, field->key, value, false, at);
    case FIELD_TIME_OR_0: return read_time(reader, field->key, value, true, at);
    case FIELD_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) || wrong(reader, field->key, "is not true or false");
    case FIELD_DTYPE:
        found = read_name(reader, field->key, value, DTYPES, 2);
        *(bool *)at = found == 1;
        return found >= 0;
    case FIELD_COLLECTIVE:
        found = read_name(reader, field->key, value, COLLECTIVES, N_PROFILE_COLLECTIVES);
        *(ProfileCollectiveKind *)at = (ProfileCollectiveKind)(found < 0 ? 0 : found);
        return found >= 0;
    case FIELD_OP: return read_op(reader, field->key, value, at);
    }
    return false;
}

static bool read_row(const Reader *reader, const Table *table, json_t *object, unsigned char *row) {
    size_t n_fields = 0;
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return wrong(reader, "", "is not an object");
    for (; n_fields < MAX_FIELDS && table->fields[n_fields].key; n_fields++) {
        const Field *field = &table->fields[n_fields];
        value = json_object_get(object, field->key);
        if (!value) return wrong(reader, field->key, "is missing");
        if (!read_field(reader, field, value, row)) return false;
    }
    json_object_foreach(object, key, value) {
        bool known = false;
        for (size_t f = 0; f < n_fields; f++) known |= strcmp(key, table->fields[f].key) == 0;
        if (!known) return wrong(reader, key, "is no key of a device profile");
    }
    const char *fast = table->too_fast ? table->too_fast(row) : NULL;
    return !fast || wrong(reader, fast, "is too short for what it measures");
}

static bool read_table(Reader *reader, const Table *table, json_t *array, DeviceProfile *profile) {
    unsigned char *base = (unsigned char *)profile;
    size_t count = json_array_size(array);
    if (!array) return table->newer || wrong(reader, table->key, "is missing");
    if (!json_is_array(array)) return wrong(reader, table->key, "is not an array");
    if (count > MAX_PROFILE_ROWS) return wrong(reader, table->key, "has too many rows");
    if (count == 0 && table->needed) return wrong(reader, table->key, "has no rows");
    unsigned char *rows = arena_alloc(reader->arena, (count + 1) * table->row_bytes);
    for (size_t i = 0; i < count; i++) {
        snprintf(reader->place, sizeof(reader->place), "%s[%zu].", table->key, i);
        if (!read_row(reader, table, json_array_get(array, i), rows + i * table->row_bytes)) {
            return false;
        }
    }
    reader->place[0] = '\0';
    *(int *)(base + table->count_offset) = (int)count;
    memcpy(base + table->rows_offset, &rows, sizeof(rows));
    return true;
}

/* Printable ASCII, since it is shown on terminals and pages. */
static bool read_text(const Reader *reader, const char *key, const json_t *value,
                      const char **out) {
    const char *text = json_string_value(value);
    if (!text) return wrong(reader, key, "is not a text");
    if (strlen(text) > MAX_TEXT) return wrong(reader, key, "is too long");
    for (const char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~') return wrong(reader, key, "has characters other than ASCII's");
    }
    *out = arena_strdup(reader->arena, text);
    return true;
}

static bool read_libraries(Reader *reader, json_t *array, DeviceProfile *profile) {
    enum { MOST_LIBRARIES = 64 };
    size_t count = json_array_size(array);
    if (!json_is_array(array)) return wrong(reader, "libraries", "is not an array");
    if (count > MOST_LIBRARIES) return wrong(reader, "libraries", "has too many rows");
    profile->libraries = ARENA_ARRAY(reader->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (!read_text(reader, "libraries", json_array_get(array, i), &profile->libraries[i])) {
            return false;
        }
    }
    profile->n_libraries = (int)count;
    return true;
}

static bool check_keys(const Reader *reader, json_t *root) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool known = strcmp(key, VERSION_KEY) == 0;
        for (size_t i = 0; i < sizeof(OTHER_KEYS) / sizeof(OTHER_KEYS[0]); i++) {
            known |= strcmp(key, OTHER_KEYS[i]) == 0;
        }
        for (int t = 0; t < N_TABLES; t++) known |= strcmp(key, TABLES[t].key) == 0;
        if (!known) return wrong(reader, key, "is no key of a device profile");
    }
    for (size_t i = 0; i < sizeof(OTHER_KEYS) / sizeof(OTHER_KEYS[0]); i++) {
        if (!json_object_get(root, OTHER_KEYS[i]))
            return wrong(reader, OTHER_KEYS[i], "is missing");
    }
    return true;
}

static bool read_profile(Reader *reader, json_t *root, DeviceProfile *profile) {
    static const char *const DEVICES[] = {"cpu", "cuda"};
    json_t *version = json_object_get(root, VERSION_KEY);
    if (!json_is_object(root) || !json_is_integer(version)) {
        diag_error(reader->diag, (SourceLoc){reader->path, 0},
                   "is no device profile: it has no whole number \"%s\"", VERSION_KEY);
        return false;
    }
    if (json_integer_value(version) != DEVICE_PROFILE_VERSION) {
        return wrong(reader, VERSION_KEY,
                     "is another version than 2: measure again with perilune profile");
    }
    if (!check_keys(reader, root)) return false;
    int device = read_name(reader, "device", json_object_get(root, "device"), DEVICES, 2);
    if (device < 0) return false;
    profile->cuda = device == 1;
    if (!read_text(reader, "name", json_object_get(root, "name"), &profile->name) ||
        !read_count(reader, "cores", json_object_get(root, "cores"), MAX_THREADS,
                    &profile->cores) ||
        !read_libraries(reader, json_object_get(root, "libraries"), profile)) {
        return false;
    }
    for (int t = 0; t < N_TABLES; t++) {
        if (!read_table(reader, &TABLES[t], json_object_get(root, TABLES[t].key), profile)) {
            return false;
        }
    }
    return true;
}

DeviceProfile *device_profile_parse(Arena *arena, const char *path, const char *text, size_t length,
                                    Diag *diag) {
    json_t *root = json_parse_bytes(path, text, length, diag);
    if (!root) return NULL;
    Reader reader = {arena, path, diag, ""};
    DeviceProfile *profile = ARENA_NEW(arena, DeviceProfile);
    profile->path = arena_strdup(arena, path);
    bool good = read_profile(&reader, root, profile);
    json_decref(root);
    return good ? profile : NULL;
}

DeviceProfile *device_profile_read(Arena *arena, const char *path, Diag *diag) {
    size_t length;
    char *text = file_read(arena, path, MAX_PROFILE_BYTES, &length, diag);
    return text ? device_profile_parse(arena, path, text, length, diag) : NULL;
}
