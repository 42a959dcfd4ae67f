/* Measuring the device at hand into a DeviceProfile: what each operation of a plan takes, by size.
 *
 * What is to be measured is listed first (measure_list.c): rows of the profile without their times.
 * A backend then fills the times, in the order of the list, and takes out rows that its device
 * cannot do. Every time is the median of several samples, the lower quartile on a CPU; a sample is
 * long enough for the clock.
 */
#ifndef RUNTIME_MEASURE_MEASURE_H
#define RUNTIME_MEASURE_MEASURE_H

#include "planner/clusters/device_profile.h"
#include "runtime/comm/comm_tcp.h"

typedef struct MeasureOptions {
    bool quick;    /* fewer sizes and samples: under 10 s instead of a minute */
    bool tiny;     /* sizes that an emulated device can do, for a moment each: for tests */
    int n_threads; /* CPU: the most cores to use; 0: all */
    /* CPU: the processes between which messages are measured, which all call with equal options;
     * rank 0's profile has all of it, others' only rows of messages. NULL: between threads. */
    const CommJob *job;
    /* Told before each row; `what` lives until the next call. May be NULL. */
    void (*progress)(void *user, int n_done, int n_all, const char *what);
    void *user;
} MeasureOptions;

/* Everything of *out is owned by `arena`. False: reported. */
bool measure_cpu(const MeasureOptions *options, Arena *arena, DeviceProfile *out, Diag *diag);
/* All devices of this process; products and kernels on the first. In driver/ or absent.c. */
bool measure_cuda(const MeasureOptions *options, Arena *arena, DeviceProfile *out, Diag *diag);

/* --- what the backends share --- */

/* Appends rows to do. */
typedef struct MeasureList {
    DeviceProfile *profile;
    Arena *arena;
    bool quick, cuda; /* cuda: larger sizes */
    bool tiny;
} MeasureList;
void measure_list_calls(const MeasureList *list, int64_t threads);
void measure_list_products(const MeasureList *list, int64_t threads, bool bf16);
void measure_list_attention(const MeasureList *list, int64_t threads, bool bf16);
void measure_list_memory(const MeasureList *list, int64_t threads);
void measure_list_host(const MeasureList *list);                                /* CUDA */
void measure_list_kernels(const MeasureList *list, int64_t threads, bool bf16); /* CPU */
void measure_list_messages(const MeasureList *list);
void measure_list_collectives(const MeasureList *list, int64_t members);
int measure_list_count(const DeviceProfile *profile);

/* Elements of a product's operands and result together, and of attention's q, k, v or o. */
int64_t measure_product_elements(const ProfileProduct *row);
int64_t measure_attention_elements(const ProfileAttention *row);

/* How far a measurement is, for the progress callback. */
typedef struct MeasureProgress {
    const MeasureOptions *options;
    int n_done, n_all;
    char what[96];
} MeasureProgress;
void measure_tell(MeasureProgress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Takes out a product's or attention's rows that have no time. */
void measure_drop_failed(DeviceProfile *profile);

double measure_median(double *values, int count);
double measure_quartile(double *values, int count); /* the lower one: others use the CPU, too */

enum { MEASURE_MOST_SAMPLES = 12 };

#endif
