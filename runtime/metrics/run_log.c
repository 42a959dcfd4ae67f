#include "runtime/metrics/run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 512 };

struct RunLog {
    int fd;
    char *path;
};

RunLog *run_log_open(const char *path, Diag *diag) {
    /* O_NONBLOCK: a pipe is refused instead of waited for. Emptied only once it is known to be a
     * regular file. */
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat st;
    int fd = open(path, flags, 0666);
    if (fd < 0) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot write the run log: %s", strerror(errno));
        return NULL;
    }
    const char *why = NULL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        why = "not a regular file";
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        why = "another run is writing it";
    } else if (ftruncate(fd, 0) != 0) {
        why = strerror(errno);
    }
    if (why) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be the run log: %s", why);
        close(fd);
        return NULL;
    }
    RunLog *log = calloc(1, sizeof(*log));
    if (!log || !(log->path = strdup(path))) BUG("out of memory");
    log->fd = fd;
    return log;
}

/* 9 significant digits give any float back; the times need no more. */
static void put_number(char *text, size_t size, double x) {
    if (isfinite(x))
        snprintf(text, size, "%.9g", x);
    else
        snprintf(text, size, "null");
}

int run_log_format(char *text, size_t size, const StepMetrics *metrics) {
    enum { N_NUMBERS = 6, NUMBER_BYTES = 32 };
    const double values[N_NUMBERS] = {metrics->loss,         metrics->grad_norm, metrics->lr,
                                      metrics->tokens_per_s, metrics->seconds,   metrics->val_loss};
    char numbers[N_NUMBERS][NUMBER_BYTES], val_loss[NUMBER_BYTES + 16] = "";
    for (int i = 0; i < N_NUMBERS; i++) put_number(numbers[i], NUMBER_BYTES, values[i]);
    if (metrics->has_val_loss) snprintf(val_loss, sizeof val_loss, ",\"val_loss\":%s", numbers[5]);
    int n = snprintf(text, size,
                     "{\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens_per_s\":%s,"
                     "\"seconds\":%s%s}\n",
                     (long long)metrics->step, numbers[0], numbers[1], numbers[2], numbers[3],
                     numbers[4], val_loss);
    return n < (int)size ? n : (int)size - 1;
}

bool run_log_write(RunLog *log, const StepMetrics *metrics, Diag *diag) {
    char text[LINE_BYTES];
    size_t length = (size_t)run_log_format(text, sizeof text, metrics);
    for (size_t n_written = 0; n_written < length;) {
        ssize_t n = write(log->fd, text + n_written, length - n_written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            diag_error(diag, (SourceLoc){log->path, 0}, "cannot write the run log: %s",
                       strerror(errno));
            return false;
        }
        n_written += (size_t)n;
    }
    return true;
}

void run_log_close(RunLog *log) {
    if (!log) return;
    close(log->fd);
    free(log->path);
    free(log);
}
