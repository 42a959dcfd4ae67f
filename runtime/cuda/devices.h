/* What was found of CUDA on this machine, without types of CUDA: for `perilune devices`, and for
 * ranks to compare. */
#ifndef RUNTIME_CUDA_DEVICES_H
#define RUNTIME_CUDA_DEVICES_H

#include "ir/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_CUDA_LIBRARIES = 8, MAX_CUDA_DEVICES = 64 };

typedef struct CudaLibraryReport {
    const char *name;
    bool found, broken; /* broken: found, but does not work */
    bool optional;      /* one GPU can be used without */
    char version[32];   /* "13.1.0"; "" where the library does not say */
    char path[512];     /* where found */
    char why[320];      /* where not, or broken */
} CudaLibraryReport;

typedef struct CudaDeviceReport {
    int ordinal;
    char name[128], arch[16]; /* "NVIDIA H200", "sm_90" */
    char pci[32];             /* "0000:0a:00.0" */
    int64_t memory_bytes, free_bytes;
    int n_processors;
    bool enough; /* new enough for the kernels: sm_80 */
} CudaDeviceReport;

/* From one device to another. */
typedef struct CudaLinkReport {
    bool known;          /* false: CUDA did not say, or it is one device */
    bool peer_access;    /* may read and write the other's memory */
    bool native_atomics; /* also atomically: over NVLink, not over PCIe */
    int rank;            /* relative to the machine's other links: 0 is the fastest kind */
} CudaLinkReport;

typedef struct CudaReport {
    bool built; /* with CUDA's headers */
    int n_libraries;
    CudaLibraryReport libraries[MAX_CUDA_LIBRARIES];
    char driver[16], runtime[16]; /* CUDA versions, "13.0"; "" where not known */
    int n_devices;
    CudaDeviceReport devices[MAX_CUDA_DEVICES];
    CudaLinkReport links[MAX_CUDA_DEVICES][MAX_CUDA_DEVICES]; /* from, to: places in `devices` */
    char why[320]; /* what is missing, in one line; "" when a device can be used */
} CudaReport;

/* True: a device can be used. */
bool cuda_report(CudaReport *out);

/* What decides about numbers and speed on a device: appends a line for each, what it is, a tab and
 * its version or name. Without CUDA nothing. Leaves the device alone. */
void cuda_software(int ordinal, StrBuf *out);

#endif
