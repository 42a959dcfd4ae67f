/* Ends the process where NCCL's abort does not come back: it waits for the device and for graphs'
 * last references, and after an error a device may give it neither. Other ranks, and whoever waits
 * for the job's end, would wait for this process.
 */
#ifndef RUNTIME_CUDA_DRIVER_ABORT_WATCH_H
#define RUNTIME_CUDA_DRIVER_ABORT_WATCH_H

typedef struct AbortWatch AbortWatch;

/* Unless it is ended within `seconds`, it writes `why`, why the job has failed (NULL: not known),
 * and ends the process with exit code 1. NULL: there is no thread for it. */
AbortWatch *abort_watch_begin(int rank, double seconds, const char *why);
void abort_watch_end(AbortWatch *watch);

#endif
