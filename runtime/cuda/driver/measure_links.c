/* Messages and collectives among the devices of one process, by NCCL. */
#include "ir/base/clock.h"
#include "runtime/cuda/driver/measure.h"

#include <stdio.h>

typedef struct LinkDevice {
    cudaStream_t stream;
    void *in, *out;
    ncclComm_t comm; /* of the group being measured */
} LinkDevice;

typedef struct Links {
    const CuApi *api;
    Diag *diag;
    int n_devices;
    LinkDevice devices[MEASURE_MOST_DEVICES];
} Links;

static int count_devices(int n_devices) {
    return n_devices < MEASURE_MOST_DEVICES ? n_devices : MEASURE_MOST_DEVICES;
}

void cuda_measure_list_links(const MeasureList *list, const CuApi *api, int n_devices) {
    if (n_devices < 2 || !api->path[LIBRARY_nccl]) return;
    measure_list_messages(list);
    for (int members = 2; members <= count_devices(n_devices); members *= 2) {
        measure_list_collectives(list, members);
    }
}

static bool check(const Links *links, ncclResult_t status, const char *what) {
    if (status == ncclSuccess) return true;
    diag_error(links->diag, NO_LOC, "NCCL: %s: %s", what, links->api->ncclGetErrorString(status));
    return false;
}

static bool choose(const Links *links, int device) {
    return cuda_check(links->api, links->api->cudaSetDevice(device), links->diag,
                      "choosing a device");
}

static bool open_devices(Links *links, int64_t bytes) {
    const CuApi *api = links->api;
    for (int i = 0; i < links->n_devices; i++) {
        LinkDevice *device = &links->devices[i];
        if (!choose(links, i) ||
            !cuda_check(api, api->cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking),
                        links->diag, "making a stream") ||
            !cuda_check(api, api->cudaMalloc(&device->in, (size_t)bytes), links->diag,
                        "allocating a buffer") ||
            !cuda_check(api, api->cudaMalloc(&device->out, (size_t)bytes), links->diag,
                        "allocating a buffer") ||
            !cuda_check(api, api->cudaMemsetAsync(device->in, 0, (size_t)bytes, device->stream),
                        links->diag, "clearing a buffer")) {
            return false;
        }
    }
    return true;
}

static void close_comms(Links *links) {
    for (int i = 0; i < links->n_devices; i++) {
        if (links->devices[i].comm) links->api->ncclCommDestroy(links->devices[i].comm);
        links->devices[i].comm = NULL;
    }
}

static void close_devices(Links *links) {
    const CuApi *api = links->api;
    close_comms(links);
    for (int i = 0; i < links->n_devices; i++) {
        LinkDevice *device = &links->devices[i];
        api->cudaSetDevice(i);
        if (device->stream) api->cudaStreamDestroy(device->stream);
        if (device->in) api->cudaFree(device->in);
        if (device->out) api->cudaFree(device->out);
    }
    api->cudaSetDevice(0);
}

/* A communicator of the first `members` devices. */
static bool open_comms(Links *links, int members) {
    const CuApi *api = links->api;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    close_comms(links);
    bool fine = check(links, api->ncclGetUniqueId(&id), "making an id") &&
                check(links, api->ncclGroupStart(), "making a communicator");
    if (!fine) return false;
    for (int i = 0; fine && i < members; i++) {
        fine = choose(links, i) &&
               check(links,
                     api->ncclCommInitRankConfig(&links->devices[i].comm, members, id, i, &config),
                     "making a communicator");
    }
    return check(links, api->ncclGroupEnd(), "making a communicator") && fine;
}

/* What one of the devices does: a collective (kind >= 0), or its side of a message. */
typedef struct LinkCall {
    int kind; /* ProfileCollectiveKind; -1: a message from device 0 to 1 */
    int64_t members, bytes;
} LinkCall;

static ncclResult_t issue(const Links *links, const LinkCall *call, int i) {
    const CuApi *api = links->api;
    const LinkDevice *device = &links->devices[i];
    size_t bytes = (size_t)call->bytes, floats = bytes / sizeof(float);
    size_t part = floats / (size_t)call->members;
    switch (call->kind) {
    case PROFILE_ALL_REDUCE:
        return api->ncclAllReduce(device->in, device->out, floats, ncclFloat, ncclSum, device->comm,
                                  device->stream);
    case PROFILE_ALL_GATHER:
        return api->ncclAllGather(device->in, device->out, part, ncclFloat, device->comm,
                                  device->stream);
    case PROFILE_REDUCE_SCATTER:
        return api->ncclReduceScatter(device->in, device->out, part, ncclFloat, ncclSum,
                                      device->comm, device->stream);
    default:
        return i == 0
                   ? api->ncclSend(device->in, bytes, ncclUint8, 1, device->comm, device->stream)
                   : api->ncclRecv(device->out, bytes, ncclUint8, 0, device->comm, device->stream);
    }
}

static bool run_all(const Links *links, const LinkCall *call, int repeats) {
    const CuApi *api = links->api;
    for (int r = 0; r < repeats; r++) {
        bool fine = check(links, api->ncclGroupStart(), "a message");
        for (int i = 0; fine && i < call->members; i++) {
            fine = choose(links, i) && check(links, issue(links, call, i), "a message");
        }
        if (!check(links, api->ncclGroupEnd(), "a message") || !fine) return false;
    }
    for (int i = 0; i < call->members; i++) {
        if (!cuda_check(api, api->cudaStreamSynchronize(links->devices[i].stream), links->diag,
                        "a message")) {
            return false;
        }
    }
    return true;
}

/* By the host's clock over many, since they run on several devices; -1: reported. */
static double time_call(const Links *links, const LinkCall *call, bool quick) {
    enum { MOST_REPEATS = 50 };
    double samples[MEASURE_MOST_SAMPLES];
    int n_samples = quick ? 3 : 5;
    if (!run_all(links, call, 3)) return -1; /* connects */
    double start = clock_now_us();
    if (!run_all(links, call, 1)) return -1;
    double once = clock_now_us() - start;
    int repeats = once > 1000 ? 1 : (int)(10e3 / (once + 1)) + 1;
    if (repeats > MOST_REPEATS) repeats = MOST_REPEATS;
    for (int s = 0; s < n_samples; s++) {
        start = clock_now_us();
        if (!run_all(links, call, repeats)) return -1;
        samples[s] = (clock_now_us() - start) / repeats;
    }
    return measure_median(samples, n_samples);
}

static bool measure_rows(CudaMeasure *measure, Links *links) {
    DeviceProfile *p = measure->profile;
    bool quick = measure->options->quick;
    int64_t members = 0;
    if (p->n_messages && !open_comms(links, 2)) return false;
    for (int i = 0; i < p->n_messages; i++) {
        ProfileMessage *row = &p->messages[i];
        LinkCall call = {-1, 2, row->bytes};
        measure_tell(&measure->progress, "message of %lld bytes", (long long)row->bytes);
        row->us = time_call(links, &call, quick);
        if (row->us < 0) return false;
    }
    for (int i = 0; i < p->n_collectives; i++) {
        ProfileCollective *row = &p->collectives[i];
        LinkCall call = {(int)row->kind, row->members, row->bytes};
        measure_tell(&measure->progress, "collective of %lld bytes among %lld",
                     (long long)row->bytes, (long long)row->members);
        if (row->members != members && !open_comms(links, (int)row->members)) return false;
        members = row->members;
        row->us = time_call(links, &call, quick);
        if (row->us < 0) return false;
    }
    return true;
}

bool cuda_measure_links(CudaMeasure *measure, int n_devices) {
    const DeviceProfile *p = measure->profile;
    int64_t most = 4096;
    if (p->n_messages + p->n_collectives == 0) return true;
    for (int i = 0; i < p->n_messages; i++) {
        if (p->messages[i].bytes > most) most = p->messages[i].bytes;
    }
    for (int i = 0; i < p->n_collectives; i++) {
        if (p->collectives[i].bytes > most) most = p->collectives[i].bytes;
    }
    Links *links = ARENA_NEW(measure->arena, Links);
    links->api = measure->device.api;
    links->diag = measure->diag;
    links->n_devices = count_devices(n_devices);
    bool fine = open_devices(links, most) && measure_rows(measure, links);
    close_devices(links);
    return fine;
}
