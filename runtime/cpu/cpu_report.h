/* What the processor is, for `perilune devices` and for device profiles. */
#ifndef RUNTIME_CPU_CPU_REPORT_H
#define RUNTIME_CPU_CPU_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CpuReport {
    char name[128];      /* "Intel(R) Xeon(R) Processor"; printable ASCII */
    int cores;           /* that this process may use */
    char library[64];    /* "oneDNN 2.7.2": matrix products */
    const char *vectors; /* the widest vector instructions that this program was built for */
    bool bf16_native;    /* products of bf16 have instructions of their own: else they are slow */
    bool tiles;          /* products of f32 and 16 bits are on a processor's tiles (tiles.h) */
    const char *bf16;    /* which: "amx_bf16" (tiles), "avx512_bf16", "none" */
    int64_t memory_bytes;
} CpuReport;

void cpu_report(CpuReport *out);
/* The processor's name by the text of /proc/cpuinfo, as printable ASCII. */
void cpu_report_name(const char *cpuinfo, char *out, size_t size);

#endif
