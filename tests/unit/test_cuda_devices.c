/* What `perilune devices` says of the links between GPUs, on invented machines.
 *
 * Would catch: attributes mixed up or of the wrong pair; a machine with one GPU that shows links;
 * a pair without peer access called PCIe.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip links: built without CUDA's headers");
    return 0;
}
#else

#include "frontend/commands/device_links.h"
#include "runtime/cuda/driver/device.h"
#include "tests/support/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

typedef struct Case {
    const char *name;
    FakeOptions fake;
    const char *text;
} Case;

static const Case CASES[] = {
    {"one GPU", {.n_devices = 1}, ""},
    {"two with NVLink",
     {.n_devices = 2, .nvlink_devices = 2},
     "links     (0): the fastest kind here; host: no peer access\n"
     "          gpu 0       gpu 1\n"
     "  gpu 0   -           NVLink (0)\n"
     "  gpu 1   NVLink (0)  -\n"},
    {"two with PCIe",
     {.n_devices = 2},
     "links     (0): the fastest kind here; host: no peer access\n"
     "          gpu 0       gpu 1\n"
     "  gpu 0   -           PCIe (1)\n"
     "  gpu 1   PCIe (1)    -\n"},
    {"four: a pair with NVLink, two by PCIe, one of them out of reach",
     {.n_devices = 4, .nvlink_devices = 2, .last_apart = true},
     "links     (0): the fastest kind here; host: no peer access\n"
     "          gpu 0       gpu 1       gpu 2       gpu 3\n"
     "  gpu 0   -           NVLink (0)  PCIe (1)    host (2)\n"
     "  gpu 1   NVLink (0)  -           PCIe (1)    host (2)\n"
     "  gpu 2   PCIe (1)    PCIe (1)    -           host (2)\n"
     "  gpu 3   host (2)    host (2)    host (2)    -\n"},
};

/* Every pair of devices, in both directions, once, as the matrix has it. */
static void check_json(const CudaReport *report) {
    json_t *links = device_links_json(report);
    size_t expected = (size_t)(report->n_devices * (report->n_devices - 1));
    CHECK(json_array_size(links) == expected, "%zu links, not %zu", json_array_size(links),
          expected);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        json_int_t from = json_integer_value(json_object_get(link, "from"));
        json_int_t to = json_integer_value(json_object_get(link, "to"));
        const CudaLinkReport *there = &report->links[from][to];
        CHECK(there->known &&
                  json_is_true(json_object_get(link, "peer_access")) == there->peer_access &&
                  json_is_true(json_object_get(link, "native_atomics")) == there->native_atomics &&
                  json_integer_value(json_object_get(link, "performance_rank")) == there->rank &&
                  json_is_string(json_object_get(link, "kind")),
              "from %d to %d", (int)from, (int)to);
    }
    json_decref(links);
}

static nvrtcResult cannot_compile(nvrtcProgram program, int n_options, const char *const *options) {
    (void)program, (void)n_options, (void)options;
    return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
}

static void test_compiler(void) {
    static CudaReport broken;
    check_begin("an NVRTC that is there but does not compile");
    CuApi api = *fake_cuda_create(&(FakeOptions){0});
    api.nvrtcCompileProgram = cannot_compile;
    cuda_api_replace(&api);
    CHECK(!cuda_report(&broken) && strstr(broken.why, "does not compile: "), "says: %s",
          broken.why);
    CHECK(broken.libraries[LIBRARY_nvrtc].found && broken.libraries[LIBRARY_nvrtc].broken,
          "it is not found, or works");
    cuda_api_replace(NULL);
    fake_cuda_destroy();
    check_end();
}

static cudaError_t not_ready(int *out) {
    *out = 0;
    return cudaErrorSystemNotReady;
}

static void test_not_ready(void) {
    const char *why;
    int n_devices;
    check_begin("a machine whose fabric is not ready");
    CuApi api = *fake_cuda_create(&(FakeOptions){0});
    api.cudaGetDeviceCount = not_ready;
    CHECK(!cuda_usable(&api, &n_devices, &why) && strstr(why, "Fabric Manager"), "says: %s", why);
    fake_cuda_destroy();
    check_end();
}

/* More processes than devices that they see. */
static void test_ordinal(void) {
    CudaDevice device;
    Diag *diag = diag_create();
    check_begin("a process for which there is no GPU");
    setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
    bool opened =
        cuda_device_open(&device, fake_cuda_create(&(FakeOptions){.n_devices = 2}), 2, diag);
    CHECK(!opened && strcmp(diag_text(diag), "there is no GPU number 2: this process sees 2, as "
                                             "CUDA_VISIBLE_DEVICES is 4,5\n") == 0,
          "%s", diag_text(diag));
    unsetenv("CUDA_VISIBLE_DEVICES");
    cuda_device_close(&device);
    fake_cuda_destroy();
    diag_destroy(diag);
    check_end();
}

int main(void) {
    static CudaReport report;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        StrBuf text = strbuf_create();
        check_begin(CASES[i].name);
        cuda_api_replace(fake_cuda_create(&CASES[i].fake));
        CHECK(cuda_report(&report), "%s", report.why);
        CHECK(report.n_devices == CASES[i].fake.n_devices, "%d devices", report.n_devices);
        device_links_put(&text, &report);
        CHECK(strcmp(text.text, CASES[i].text) == 0, "\n%s", text.text);
        check_json(&report);
        strbuf_destroy(&text);
        cuda_api_replace(NULL);
        CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
        fake_cuda_destroy();
        check_end();
    }
    test_compiler();
    test_not_ready();
    test_ordinal();
    return check_report();
}
#endif
