/* perilune devices: what this machine has to train on. */
#include "frontend/commands/cli.h"
#include "frontend/commands/device_links.h"
#include "frontend/units.h"
#include "runtime/cpu/cpu_report.h"
#include "runtime/cuda/devices.h"

#include <jansson.h>
#include <stdlib.h>

static void print_text(const CpuReport *cpu, const CudaReport *cuda) {
    char memory[32], left[32];
    units_format_bytes(memory, sizeof(memory), cpu->memory_bytes);
    printf("cpu       %s: %d core%s, %s, %s\n", cpu->name, cpu->cores, cpu->cores == 1 ? "" : "s",
           memory, cpu->vectors);
    if (cpu->tiles) {
        printf("          matrix products of f32, bf16 and f16 on its tiles (AMX)\n");
        printf("          %s: small ones\n", cpu->library);
    } else if (cpu->bf16_native) {
        printf("          %s; bf16 products are native (%s)\n", cpu->library, cpu->bf16);
    } else {
        printf("          %s; bf16 products are not native here: slower than f32\n", cpu->library);
    }
    if (cuda->built) {
        printf("cuda      driver %s, runtime %s\n", cuda->driver[0] ? cuda->driver : "not found",
               cuda->runtime[0] ? cuda->runtime : "not found");
    } else {
        printf("cuda      not built in\n");
    }
    for (int i = 0; i < cuda->n_libraries; i++) {
        const CudaLibraryReport *library = &cuda->libraries[i];
        if (library->broken) {
            printf("library   %-9s %-8s broken: %s\n", library->name, library->version,
                   library->why);
        } else if (library->found) {
            printf("library   %-9s %-8s %s\n", library->name, library->version, library->path);
        } else {
            printf("library   %-9s not found%s: %s\n", library->name,
                   library->optional ? " (optional)" : "", library->why);
        }
    }
    for (int i = 0; i < cuda->n_devices; i++) {
        const CudaDeviceReport *device = &cuda->devices[i];
        units_format_bytes(memory, sizeof(memory), device->memory_bytes);
        units_format_bytes(left, sizeof(left), device->free_bytes);
        printf("gpu %-2d    %s, %s: %s, %s free, %d processors, PCI %s%s\n", device->ordinal,
               device->name, device->arch, memory, left, device->n_processors, device->pci,
               device->enough ? "" : " (too old: sm_80 is needed)");
    }
    StrBuf links = strbuf_create();
    device_links_put(&links, cuda);
    fputs(links.text, stdout);
    strbuf_destroy(&links);
}

static json_t *text_or_null(const char *text) {
    return text[0] ? json_string(text) : json_null();
}

static json_t *libraries_json(const CudaReport *cuda) {
    json_t *libraries = json_array();
    for (int i = 0; i < cuda->n_libraries; i++) {
        const CudaLibraryReport *library = &cuda->libraries[i];
        json_t *object = json_object();
        json_object_set_new(object, "name", json_string(library->name));
        json_object_set_new(object, "version", text_or_null(library->version));
        json_object_set_new(object, "path", text_or_null(library->path));
        json_object_set_new(object, "error", text_or_null(library->why));
        json_array_append_new(libraries, object);
    }
    return libraries;
}

static json_t *devices_json(const CudaReport *cuda) {
    json_t *devices = json_array();
    for (int i = 0; i < cuda->n_devices; i++) {
        const CudaDeviceReport *device = &cuda->devices[i];
        json_t *object = json_object();
        json_object_set_new(object, "ordinal", json_integer(device->ordinal));
        json_object_set_new(object, "name", json_string(device->name));
        json_object_set_new(object, "arch", json_string(device->arch));
        json_object_set_new(object, "pci", json_string(device->pci));
        json_object_set_new(object, "memory_bytes", json_integer(device->memory_bytes));
        json_object_set_new(object, "free_bytes", json_integer(device->free_bytes));
        json_object_set_new(object, "processors", json_integer(device->n_processors));
        json_object_set_new(object, "usable", json_boolean(device->enough));
        json_array_append_new(devices, object);
    }
    return devices;
}

static void print_json(const CpuReport *cpu, const CudaReport *cuda, bool usable) {
    json_t *root = json_object(), *processor = json_object(), *gpus = json_object();
    json_object_set_new(processor, "name", json_string(cpu->name));
    json_object_set_new(processor, "cores", json_integer(cpu->cores));
    json_object_set_new(processor, "memory_bytes", json_integer(cpu->memory_bytes));
    json_object_set_new(processor, "vectors", json_string(cpu->vectors));
    json_object_set_new(processor, "library", json_string(cpu->library));
    json_object_set_new(processor, "bf16_native", json_boolean(cpu->bf16_native));
    json_object_set_new(processor, "bf16", json_string(cpu->bf16));
    json_object_set_new(processor, "tiles", json_boolean(cpu->tiles));
    json_object_set_new(root, "cpu", processor);
    json_object_set_new(gpus, "built", json_boolean(cuda->built));
    json_object_set_new(gpus, "usable", json_boolean(usable));
    json_object_set_new(gpus, "missing", text_or_null(cuda->why));
    json_object_set_new(gpus, "driver", text_or_null(cuda->driver));
    json_object_set_new(gpus, "runtime", text_or_null(cuda->runtime));
    json_object_set_new(gpus, "libraries", libraries_json(cuda));
    json_object_set_new(gpus, "devices", devices_json(cuda));
    json_object_set_new(gpus, "links", device_links_json(cuda));
    json_object_set_new(root, "cuda", gpus);
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(root);
}

int cmd_devices(CliArgs *args) {
    CpuReport cpu;
    CudaReport *cuda = arena_alloc(args->arena, sizeof(*cuda));
    cpu_report(&cpu);
    bool usable = cuda_report(cuda);
    if (cli_given(args, OPT_JSON)) {
        print_json(&cpu, cuda, usable);
    } else {
        print_text(&cpu, cuda);
    }
    fflush(stdout);
    if (usable) return EXIT_DONE;
    fprintf(stderr, "perilune: no CUDA device can be used: %s\n", cuda->why);
    return EXIT_FAILED;
}
