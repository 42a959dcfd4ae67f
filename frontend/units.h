/* Figures as people read them. */
#ifndef FRONTEND_UNITS_H
#define FRONTEND_UNITS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* 1536 -> "1.5 KiB" */
static inline void units_format_bytes(char *out, size_t size, int64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

#endif
