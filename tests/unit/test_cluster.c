/* Clusters: shipped ones are sound, wrong ones get one line each with the field's own line
 * (tests/golden/clusters, run again with BLESS=1 to accept what they say now), a profile's
 * measurements count.
 *
 * Would catch: a shipped file that is not embedded, a limit that a script gets around, a field that
 * is read into another's place, a number shown in the wrong unit, a profile that is ignored.
 */
#include "frontend/commands/cluster_show.h"
#include "frontend/lua/cluster_read.h"
#include "frontend/lua/lua_lines.h"
#include "ir/base/file.h"
#include "planner/clusters/cluster_fields.h"
#include "planner/cost/cluster_profile.h"
#include "planner/cost/device_time.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CASES = 200, FILE_LIMIT_BYTES = 1 << 20 };

static const char GOLDEN[] = "tests/golden/clusters";

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The .lua files of a folder, sorted, without their ending. */
static int list_scripts(Arena *arena, const char *folder, const char **out) {
    int n = 0;
    DIR *dir = opendir(folder);
    CHECK(dir, "no folder %s", folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (!ends_with(entry->d_name, ".lua") || n == MAX_CASES) continue;
        out[n++] = arena_strndup(arena, entry->d_name, strlen(entry->d_name) - 4);
    }
    if (dir) closedir(dir);
    qsort(out, (size_t)n, sizeof(*out), compare_texts);
    return n;
}

/* --- shipped ones ---------------------------------------------------------------------------- */

static void check_shipped(void) {
    check_begin("every shipped cluster is sound, and says the name it is found by");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    int n = 0;
    for (const char *name; (name = cluster_shipped_name(n)); n++) {
        const Cluster *cluster = cluster_read(arena, name, NULL, diag);
        CHECK(cluster, "%s", diag_text(diag));
        if (!cluster) continue;
        CHECK(strcmp(cluster->name, name) == 0, "%s calls itself %s", name, cluster->name);
        CHECK(cluster->title && cluster->source, "%s: no title or source", name);
        CHECK(strcmp(cluster->software.name, cluster->is_cpu ? "perilune-cpu" : "perilune") == 0,
              "%s assumes %s", name, cluster->software.name);
    }
    CHECK(n >= 9, "%d clusters", n);

    check_begin("every script of planner/clusters is embedded");
    const char *files[MAX_CASES];
    int n_files = list_scripts(arena, "planner/clusters", files), n_scripts = 0;
    while (CLUSTER_SCRIPTS[n_scripts].name) n_scripts++;
    CHECK(n_files == n_scripts, "%d files, %d embedded", n_files, n_scripts);

    check_begin("a shipped file reads the same as a file");
    const Cluster *built_in = cluster_read(arena, "h100-roce", NULL, diag);
    const Cluster *file = cluster_read(arena, "planner/clusters/h100-roce.lua", NULL, diag);
    CHECK(built_in && file, "%s", diag_text(diag));
    if (built_in && file) {
        StrBuf a = strbuf_create(), b = strbuf_create();
        cluster_show_json(&a, built_in);
        cluster_show_json(&b, file);
        CHECK(strcmp(a.text, b.text) == 0, "%s\n%s", a.text, b.text);
        strbuf_destroy(&a);
        strbuf_destroy(&b);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Against the data sheets, so that a slip of a unit shows. */
static void check_numbers(void) {
    check_begin("selene's numbers are those of its data sheets");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const Cluster *selene = cluster_read(arena, "selene", NULL, diag);
    CHECK(selene, "%s", diag_text(diag));
    if (selene) {
        CHECK(near(selene->device.peak_flops[MATH_BF16], 312e12), "bf16");
        CHECK(near(selene->device.memory_bytes, 85899345920.0), "memory");
        CHECK(near(selene->device.memory_bytes_per_second, 2.039e12), "memory rate");
        CHECK(near(selene->node.link_bytes_per_second, 300e9), "links");
        CHECK(near(selene->network.n_nics * selene->network.nic_bytes_per_second, 200e9), "cards");
        CHECK(selene->node.n_devices == 8 && selene->max_devices == 4480, "devices");
        CHECK(selene->device.peak_flops[MATH_FP8] == 0, "an A100 has no fp8");
        CHECK(selene->node.switched && !selene->node.reduces_in_switch, "no sums in the switch");
    }
    check_begin("what one rack of GB200 is adds up to the data sheet's rack");
    const Cluster *rack = cluster_read(arena, "gb200-nvl72", NULL, diag);
    CHECK(rack, "%s", diag_text(diag));
    if (rack) {
        double n = rack->node.n_devices;
        CHECK(near(n * rack->device.peak_flops[MATH_BF16], 180e15), "bf16");
        CHECK(near(n * rack->device.memory_bytes_per_second, 576e12), "memory rate");
        CHECK(fabs(n * rack->node.link_bytes_per_second * 2 / 130e12 - 1) < 0.01, "NVLink");
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* What a data sheet says of eight, or of one: TFLOP/s of bf16 and fp8 (dense), GB of memory (as
 * nvidia-smi counts them, up to 1 %), its GB/s; of the node a link's GB/s, one way. */
static void check_rented(void) {
    static const struct {
        const char *name;
        int n_devices, max_devices;
        double bf16, fp8, memory, rate, link, network; /* network: Gbit/s of a node */
        bool blocks;                                   /* products of fp8 with a scale: sm_90 */
    } ROWS[] = {
        {"b200-dgx", 8, 0, 2250, 4500, 179, 8000, 900, 3200, false},
        {"b300-dgx", 8, 0, 2250, 4500, 268.6, 8000, 900, 6400, false},
        {"gh200", 1, 1, 989, 1979, 96, 4000, 0, 0, true},
        {"h100-pcie", 8, 8, 756, 1513, 80, 2000, 63, 0, true},
        {"h100-nvl", 8, 8, 835, 1671, 94, 3900, 63, 0, true},
        {"a100-pcie", 8, 8, 312, 0, 80, 1935, 31.5, 0, false},
        {"l40s", 8, 0, 362, 733, 48, 864, 31.5, 400, false},
        {"rtx4090", 8, 8, 165.2, 330.3, 24, 1008, 31.5, 0, false},
        {"a10g", 8, 0, 70, 0, 24, 600, 31.5, 100, false},
    };
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        check_begin(arena_printf(arena, "%s is as its data sheet says", ROWS[i].name));
        const Cluster *of = cluster_read(arena, ROWS[i].name, NULL, diag);
        CHECK(of, "%s", diag_text(diag));
        if (!of) continue;
        const ClusterDevice *device = &of->device;
        double network = of->network.n_nics * of->network.nic_bytes_per_second * 8;
        CHECK(of->node.n_devices == ROWS[i].n_devices && of->max_devices == ROWS[i].max_devices,
              "%d a node, %lld in all", of->node.n_devices, (long long)of->max_devices);
        CHECK(near(device->peak_flops[MATH_BF16], ROWS[i].bf16 * 1e12), "bf16");
        CHECK(near(device->peak_flops[MATH_FP8], ROWS[i].fp8 * 1e12), "fp8");
        CHECK(near(device->memory_bytes, ROWS[i].memory * (1 << 30)), "memory");
        CHECK(near(device->memory_bytes_per_second, ROWS[i].rate * 1e9), "memory rate");
        CHECK(near(of->node.link_bytes_per_second, ROWS[i].link * 1e9), "links");
        CHECK(near(network, ROWS[i].network * 1e9), "network: %g", network);
        CHECK(device->fp8_blocks == ROWS[i].blocks, "fp8 blocks");
        CHECK(of->failures.device_mtbf_hours > 0 && of->storage.node_bytes_per_second > 0,
              "failures and storage");
        CHECK((of->price_per_device_hour > 0) == (of->price_source != NULL), "a price's source");
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void check_software(void) {
    static const char *const NAMES[] = {"perilune", "megatron-2021", "megatron-2022",
                                        "megatron-deepspeed-2022", "megatron-core-2024"};
    check_begin("every software stack can be picked, and is another one");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        const Cluster *cluster = cluster_read(arena, "selene", NAMES[i], diag);
        CHECK(cluster, "%s", diag_text(diag));
        if (!cluster) continue;
        bool old = i >= 1 && i <= 3;
        CHECK(strcmp(cluster->software.name, NAMES[i]) == 0, "%s", cluster->software.name);
        CHECK((cluster->software.attention == ATTENTION_MATERIALISED) == old, "%s", NAMES[i]);
        CHECK((cluster->software.forward_op_us > 0) == (i > 0), "%s issues each op", NAMES[i]);
    }
    check_begin("a software that there is not");
    CHECK(!cluster_read(arena, "selene", "megatron-core-2023", diag), "was read");
    CHECK(
        strcmp(diag_text(diag),
               "there is no software 'megatron-core-2023'; did you mean "
               "megatron-core-2024? there are: fsdp-2023, fsdp-2023-pure, hai-llm, megatron-2021, "
               "megatron-2022, megatron-core-2024, megatron-core-2025, megatron-core-deepep, "
               "megatron-core-moe, megatron-core-overlap, megatron-deepspeed-2022, perilune, "
               "perilune-cpu, torchtitan-2024, vtrain-traced\n") == 0,
        "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- wrong ones ------------------------------------------------------------------------------ */

static void check_golden(Arena *arena, const char *name, bool bless) {
    char path[300], expect_path[300];
    snprintf(path, sizeof(path), "%s/%s.lua", GOLDEN, name);
    snprintf(expect_path, sizeof(expect_path), "%s/%s.expect", GOLDEN, name);
    check_begin(arena_printf(arena, "golden %s", name));
    Diag *diag = diag_create();
    const Cluster *cluster = cluster_read(arena, path, NULL, diag);
    const char *text = cluster ? "sound\n" : diag_text(diag);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1, "not one line: %s", text);
    if (bless) {
        CHECK(file_write(expect_path, text, strlen(text), diag), "%s", diag_text(diag));
    } else {
        size_t length;
        const char *expect = file_read(arena, expect_path, FILE_LIMIT_BYTES, &length, diag);
        CHECK(expect && strcmp(expect, text) == 0, "says '%s', not '%s'", text,
              expect ? expect : "");
    }
    diag_destroy(diag);
}

static void check_all_golden(void) {
    Arena *arena = arena_create();
    const char *names[MAX_CASES];
    check_begin("golden cases are there");
    int n = list_scripts(arena, GOLDEN, names);
    CHECK(n > 40, "%d", n);
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "mod_", 4) != 0) check_golden(arena, names[i], getenv("BLESS"));
    }
    arena_destroy(arena);
}

/* Each field in turn: below its least, above its most, of another type, absent. */
static void check_each_field(void) {
    check_begin("each number of the table is refused outside of its range, by its name");
    Arena *arena = arena_create();
    const char *path = arena_printf(arena, "/tmp/perilune-cluster-%d.lua", (int)getpid());
    for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
        bool number = field->kind <= FIELD_LONG;
        if (!number || strncmp(field->path, "software.", 9) == 0) continue;
        for (int high = 0; high < 2; high++) {
            Diag *diag = diag_create();
            double wrong = high ? field->most * 1.5 + 1 : field->least - 0.5 * field->least - 1;
            const char *dot = strrchr(field->path, '.');
            const char *table =
                dot ? arena_strndup(arena, field->path, (size_t)(dot - field->path)) : NULL;
            const char *script = arena_printf(
                arena, "local c = require \"selene\"\nc%s%s.%s = %.17g\nreturn cluster(c)\n",
                table ? "." : "", table ? table : "", dot ? dot + 1 : field->path, wrong);
            CHECK(file_write(path, script, strlen(script), diag), "%s", diag_text(diag));
            CHECK(!cluster_read(arena, path, NULL, diag), "%s = %g was read", field->path, wrong);
            CHECK(strstr(diag_text(diag), field->path) &&
                      strstr(diag_text(diag), "must be between"),
                  "%s: %s", field->path, diag_text(diag));
            diag_destroy(diag);
        }
    }
    remove(path);
    arena_destroy(arena);
}

/* Two rows of one place would overwrite each other in silence. */
static void check_fields(void) {
    check_begin("no two rows have a path or a place in common");
    for (const ClusterField *a = CLUSTER_FIELDS; a->path; a++) {
        for (const ClusterField *b = a + 1; b->path; b++) {
            CHECK(strcmp(a->path, b->path) != 0, "%s twice", a->path);
            CHECK(a->offset != b->offset, "%s and %s", a->path, b->path);
        }
    }
}

static void check_lines(void) {
    static const char TEXT[] = "local x = cluster { -- cluster { a = 1 }\n"
                               "  s = 'a = 2', [[ a = 3\n"
                               "  ]], t = { a = 4 },\n"
                               "  a == 5, a = f { b = 6,\n"
                               "    b = 7 }, c = {\n"
                               "    [\"d\"] = 8 } }\n"
                               "  e = 9\n";
    static const struct {
        const char *path;
        int line;
    } CASES[] = {{"s", 2}, {"t", 3},   {"t.a", 3},    {"a", 4}, {"a.b", 4},
                 {"c", 5}, {"c.d", 6}, {"c.none", 5}, {"e", 1}, {"none.at.all", 1}};
    check_begin("the line of a field is found, whatever stands around it");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        int line = lua_key_line(TEXT, strlen(TEXT), 1, "cluster", CASES[i].path);
        CHECK(line == CASES[i].line, "%s: line %d, not %d", CASES[i].path, line, CASES[i].line);
    }
    check_begin("a text that ends anywhere is no trouble");
    for (size_t length = 0; length < strlen(TEXT); length++) {
        char *cut = malloc(length + 1); /* so that a sanitizer sees reads behind it */
        memcpy(cut, TEXT, length);
        CHECK(lua_key_line(cut, length, 1, "cluster", "c.d") >= 1, "length %zu", length);
        free(cut);
    }
}

/* --- showing --------------------------------------------------------------------------------- */

static void check_show(void) {
    check_begin("JSON has every field, under the path that Lua has it");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const Cluster *cluster = cluster_read(arena, "h100-dgx", NULL, diag);
    CHECK(cluster, "%s", diag_text(diag));
    if (cluster) {
        StrBuf text = strbuf_create(), json = strbuf_create();
        cluster_show_text(&text, cluster);
        cluster_show_json(&json, cluster);
        json_t *root = json_loads(json.text, 0, NULL);
        CHECK(root, "no JSON: %s", json.text);
        for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
            char path[100];
            snprintf(path, sizeof(path), "%s", field->path);
            json_t *at = root;
            for (char *part = strtok(path, "."); part; part = strtok(NULL, ".")) {
                at = json_object_get(at, part);
            }
            CHECK(at, "%s is not there", field->path);
        }
        json_t *device = json_object_get(root, "device");
        double rate = json_number_value(json_object_get(device, "memory_bytes_per_second"));
        CHECK(rate == 3.35e12, "memory %g", rate);
        CHECK(strcmp(json_string_value(json_object_get(json_object_get(root, "software"), "name")),
                     "perilune") == 0,
              "software");

        check_begin("text has numbers with their units");
        CHECK(strstr(text.text, "989 TFLOP/s"), "%s", text.text);
        CHECK(strstr(text.text, "3.35 TB/s"), "%s", text.text);
        CHECK(strstr(text.text, "80.0 GiB"), "%s", text.text);
        CHECK(strstr(text.text, "450 GB/s"), "%s", text.text);

        check_begin("what it comes to is no better than the data sheet allows");
        json_t *derived = json_object_get(root, "derived");
        double product = json_number_value(json_object_get(derived, "product_4096_us"));
        double inside = json_number_value(json_object_get(derived, "all_reduce_node_us"));
        double across = json_number_value(json_object_get(derived, "all_reduce_2_nodes_us"));
        CHECK(product > 2 * pow(4096, 3) / 989e12 * 1e6 && product < 1000, "product %g", product);
        CHECK(inside > 1024.0 * 1024 * 1024 / 450e9 * 1e6 && inside < across, "%g, %g", inside,
              across);
        json_decref(root);
        strbuf_destroy(&text);
        strbuf_destroy(&json);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- profiles -------------------------------------------------------------------------------- */

/* A GPU that never was: 400 TFLOP/s and 2 TB/s, links of 100 GB/s. */
static const char PROFILE[] =
    "{\"perilune_device_profile\": 2, \"device\": \"cuda\", \"name\": \"test\", \"cores\": 99,\n"
    " \"libraries\": [], \"calls\": [{\"threads\":1, \"us\":9, \"graph_us\":1.5}],\n"
    " \"products\": [{\"dtype\":\"bf16\", \"threads\":1, \"ta\":false, \"tb\":false, \"m\":64,\n"
    "  \"n\":64, \"k\":64, \"us\":5}, {\"dtype\":\"bf16\", \"threads\":1, \"ta\":false,\n"
    "  \"tb\":false, \"m\":10000, \"n\":10000, \"k\":10000, \"us\":5000}],\n"
    " \"attention\": [],\n"
    " \"memory\": [{\"threads\":1, \"bytes\":1000000000, \"copy_us\":500, \"triad_us\":500}],\n"
    " \"kernels\": [],\n"
    " \"messages\": [{\"bytes\":1, \"us\":4}, {\"bytes\":100000001, \"us\":1004}],\n"
    " \"collectives\": []}\n";

/* A gradient takes as long as was measured, however many products it is made of. */
static void check_measured_attention(Arena *arena, const char *software, Diag *diag) {
    static const char ROW[] = "[{\"dtype\":\"bf16\", \"threads\":1, \"batch\":4, \"heads\":16, "
                              "\"seq\":2048, \"head\":128, \"forward_us\":300, "
                              "\"backward_us\":1000}]";
    const char *none = strstr(PROFILE, "[],\n \"memory\"");
    const char *text =
        arena_printf(arena, "%.*s%s%s", (int)(none - PROFILE), PROFILE, ROW, none + 2);
    check_begin(arena_printf(arena, "a profile's attention takes as long as was measured, by %s",
                             software ? software : "own kernels"));
    DeviceProfile *profile = device_profile_parse(arena, "p.json", text, strlen(text), diag);
    Cluster *cluster = cluster_read(arena, "h100-dgx", software, diag);
    bool good = profile && cluster && cluster_apply_profile(cluster, profile, diag);
    CHECK(good, "%s", diag_text(diag));
    if (!good) return;
    const AttentionShape shape = {.batch = 4,
                                  .heads = 16,
                                  .kv_heads = 16,
                                  .seq = 2048,
                                  .head = 128,
                                  .causal = true,
                                  .bytes_per_element = 2};
    double kernel_us = cluster->device.kernel_us;
    int n_ops;
    double forward = device_attention_us(cluster, MATH_BF16, &shape, false, &n_ops) - kernel_us;
    double backward = device_attention_us(cluster, MATH_BF16, &shape, true, &n_ops) - 2 * kernel_us;
    CHECK(near(forward, 300) && near(backward, 1000), "%g and %g us", forward, backward);
}

static void check_profile(void) {
    check_begin("a profile's measurements count in place of the cluster's");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *text = PROFILE;
    DeviceProfile *profile = device_profile_parse(arena, "p.json", text, strlen(text), diag);
    Cluster *cluster = cluster_read(arena, "h100-dgx", NULL, diag);
    CHECK(profile && cluster, "%s", diag_text(diag));
    if (profile && cluster) {
        const Cluster before = *cluster;
        CHECK(cluster_apply_profile(cluster, profile, diag), "%s", diag_text(diag));
        const ClusterDevice *device = &cluster->device;
        CHECK(near(device->peak_flops[MATH_BF16], 989e12), "the peak is the data sheet's");
        CHECK(near(device->peak_flops[MATH_BF16] * device->product_fraction[MATH_BF16], 400e12),
              "products");
        CHECK(near(device->memory_bytes_per_second * device->memory_fraction, 2e12), "memory");
        CHECK(device->kernel_us == 1.5 && device->n_units == 99, "calls, units");
        CHECK(strcmp(device->name, "test") == 0, "%s", device->name);
        CHECK(near(cluster->node.link_bytes_per_second, 100e9), "links");
        CHECK(cluster->node.link_latency_us == 4, "latency");
        CHECK(device->attention_fraction == before.device.attention_fraction &&
                  device->own_attention_fraction == before.device.own_attention_fraction &&
                  device->product_fraction[MATH_F32] == before.device.product_fraction[MATH_F32] &&
                  memcmp(&cluster->network, &before.network, sizeof(before.network)) == 0,
              "what was not measured stays");
    }
    check_measured_attention(arena, NULL, diag);
    check_measured_attention(arena, "megatron-core-2024", diag);
    check_begin("a GPU's profile is refused for processors");
    Cluster *cpu = cluster_read(arena, "cpu", NULL, diag);
    CHECK(cpu && !cluster_apply_profile(cpu, profile, diag), "it was taken");
    CHECK(strcmp(diag_text(diag), "p.json: a profile of a GPU cannot describe the devices of "
                                  "cluster cpu, which are processor cores\n") == 0,
          "%s", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    check_shipped();
    check_numbers();
    check_rented();
    check_software();
    check_fields();
    check_lines();
    check_all_golden();
    check_each_field();
    check_show();
    check_profile();
    return check_report();
}
