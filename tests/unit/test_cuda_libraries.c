/* Where CUDA's libraries are found, in folders made for it, and what is said of a driver that is
 * too old.
 *
 * Would catch: folders that people name searched after others, wheels not found beside a virtual
 * environment's python3, a broken file replaced in silence, a message without the file's name, an
 * NVRTC that cannot compile since its other half is not where the loader looks.
 */
#define _GNU_SOURCE /* dladdr */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip CUDA's libraries: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64] = "/tmp/perilune-libraries-XXXXXX";
static char path[512], why[256];

/* root/NAME, with the folders above it; the last result but three is overwritten. */
static const char *place(const char *name) {
    static char texts[4][256];
    static int next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof(texts[0]), "%s/%s", root, name);
    for (char *slash = text + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(text, 0700);
        *slash = '/';
    }
    return text;
}

static void put_text(const char *name, mode_t mode) {
    const char *at = place(name);
    FILE *file = fopen(at, "w");
    if (file) fputs("no library\n", file), fclose(file), chmod(at, mode);
}

static void *find(const CuPlaces *places) {
    return cu_library_open(LIBRARY_cudart, places, path, sizeof(path), why, sizeof(why));
}

/* The library is found, at this path. */
static void check_found(const CuPlaces *places, const char *expected) {
    void *handle = find(places);
    CHECK(handle && strcmp(path, expected) == 0, "found %s, not %s (%s)", handle ? path : "nothing",
          expected, why);
    CHECK(!*why, "says: %s", why);
    if (handle) dlclose(handle);
}

static void check_missing(const CuPlaces *places, const char *text) {
    void *handle = find(places);
    CHECK(!handle, "found %s", path);
    CHECK(strstr(why, text), "says '%s', not '%s'", why, text);
    if (handle) dlclose(handle);
}

static void test_places(const char *real) {
    static const char WHEEL[] = "nvidia/cu13/lib/libcudart.so.13";
    char name[192], packages[128], venv[128], bin[128], prefixes[512];
    snprintf(packages, sizeof(packages), "%s", place("packages"));
    snprintf(venv, sizeof(venv), "%s", place("venv"));
    snprintf(bin, sizeof(bin), "%s", place("venv/bin"));
    bool made = symlink(real, place("given/libcudart.so.13")) == 0;
    snprintf(name, sizeof(name), "packages/%s", WHEEL);
    made &= symlink(real, place(name)) == 0;
    snprintf(name, sizeof(name), "venv/lib/python3.12/site-packages/%s", WHEEL);
    made &= symlink(real, place(name)) == 0;
    put_text("venv/bin/python3", 0700);
    put_text("broken/libcudart.so.13", 0600);

    check_begin("libraries: folders that people name come first");
    CHECK(made, "links in %s", root);
    CuPlaces places = {.given = place("given"), .packages = packages, .loader = true};
    check_found(&places, place("given/libcudart.so.13"));
    places.given = "/nowhere:";
    snprintf(name, sizeof(name), "packages/%s", WHEEL);
    check_found(&places, place(name));

    check_begin("libraries: wheels beside the python3 of PATH");
    snprintf(name, sizeof(name), "/nowhere::%s", bin);
    cu_python_prefixes(name, prefixes, sizeof(prefixes));
    CHECK(strncmp(prefixes, bin, strlen(bin)) == 0, "prefixes are '%s'", prefixes);
    snprintf(name, sizeof(name), "venv/bin/../lib/python3.12/site-packages/%s", WHEEL);
    check_found(&(CuPlaces){.python = prefixes}, place(name));
    cu_python_prefixes("/nowhere", prefixes, sizeof(prefixes));
    CHECK(!*prefixes, "prefixes are '%s'", prefixes);

    check_begin("libraries: what cannot be loaded is said, not replaced");
    check_missing(&(CuPlaces){.given = place("broken"), .loader = true, .toolkit = place("given")},
                  "broken/libcudart.so.13");
    check_missing(&(CuPlaces){.toolkit = place("broken")}, "broken/libcudart.so.13");
    check_missing(&(CuPlaces){.given = "/nowhere"}, "libcudart.so.13: not found");
    check_found(&(CuPlaces){.toolkit = "/nowhere", .python = venv},
                place("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13"));
    check_end();
}

/* NVRTC in a folder that the loader does not know, its other half beside it. */
static void test_builtins(const char *real) {
    char pattern[512], given[128], nvrtc[512];
    glob_t found;
    int length = (int)(strrchr(real, '/') - real);
    snprintf(pattern, sizeof(pattern), "%.*s/libnvrtc-builtins.so.1*", length, real);
    if (glob(pattern, 0, NULL, &found) != 0) {
        printf("skip NVRTC's other half: no %s\n", pattern);
        return;
    }
    const char *builtins = strrchr(found.gl_pathv[0], '/') + 1;
    check_begin("NVRTC brings what it loads by name alone");
    snprintf(given, sizeof(given), "%s", place("nvrtc"));
    snprintf(nvrtc, sizeof(nvrtc), "%.*s/libnvrtc.so.13", length, real);
    CHECK(symlink(nvrtc, place("nvrtc/libnvrtc.so.13")) == 0, "%s", nvrtc);
    snprintf(pattern, sizeof(pattern), "nvrtc/%s", builtins);
    CHECK(symlink(found.gl_pathv[0], place(pattern)) == 0, "%s", builtins);
    CHECK(!dlopen(builtins, RTLD_NOW | RTLD_NOLOAD), "it is there before");
    const CuPlaces places = {.given = given};
    void *handle = cu_library_open(LIBRARY_nvrtc, &places, path, sizeof(path), why, sizeof(why));
    CHECK(handle && strncmp(path, given, strlen(given)) == 0, "%s", why);
    CHECK(dlopen(builtins, RTLD_NOW | RTLD_NOLOAD), "%s is not loaded", builtins);
    globfree(&found);
    check_end();
}

static int driver_version;

static cudaError_t too_old(int *out) {
    *out = 0;
    return cudaErrorInsufficientDriver;
}

static cudaError_t get_driver(int *out) {
    *out = driver_version;
    return cudaSuccess;
}

static void test_driver(void) {
    const char *said;
    int n_devices = 7;
    CuApi api = *fake_cuda_create(&(FakeOptions){0});
    api.cudaGetDeviceCount = too_old;
    api.cudaDriverGetVersion = get_driver;
    check_begin("a driver that is too old");
    driver_version = 12080;
    CHECK(!cuda_usable(&api, &n_devices, &said) && n_devices == 0, "is used");
    CHECK(strstr(said, "is for CUDA 12.8: one for CUDA 13 is needed"), "says: %s", said);
    driver_version = 0;
    CHECK(!cuda_usable(&api, &n_devices, &said), "no driver is used");
    CHECK(strstr(said, "no NVIDIA driver was found"), "says: %s", said);
    check_end();
    fake_cuda_destroy();
}

/* The file of the library that is installed, from a function of it: the loader gives a name alone.
 * NULL: there is none. */
static char *find_real(void) {
    const CuPlaces places = {.loader = true, .toolkit = "/usr/local/cuda/lib64"};
    Dl_info info;
    void *handle = find(&places), *function = handle ? dlsym(handle, "cudaGetDeviceCount") : NULL;
    char *real = function && dladdr(function, &info) ? realpath(info.dli_fname, NULL) : NULL;
    if (handle) dlclose(handle);
    return real;
}

int main(void) {
    char command[128], *real = find_real();
    test_driver();
    if (!real) {
        printf("skip CUDA's libraries: %s\n", why);
        return check_report();
    }
    if (!mkdtemp(root)) return 1;
    test_places(real);
    test_builtins(real);
    free(real);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command) != 0) printf("%s is left\n", root);
    return check_report();
}
#endif
