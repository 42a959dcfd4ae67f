#define _GNU_SOURCE /* pipe2, environ */
#include "frontend/judge/judge_command.h"

#include "ir/base/clock.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LINE = 4096, MOST_SHOWN = 60 };

/* How long a program that has closed its output, or whose input we have closed, may take to end. */
static const double END_S = 2;

struct CommandJudge {
    char *shown; /* the command, as messages have it */
    double timeout_s;
    pid_t pid;
    int to, from;        /* pipes; to is -1 once the program has closed it */
    char line[MAX_LINE]; /* [n_line]: read, but not understood yet */
    size_t n_line;
};

/* The answers of a call. */
typedef struct Asking {
    CommandJudge *judge;
    StrBuf lines;
    size_t n_written; /* bytes of them */
    bool asked;       /* else nothing may be there to read */
    int n, n_read;    /* rewards */
    float *rewards;   /* [n] */
    bool compares;    /* they are verdicts on pairs */
    double deadline_s;
    Diag *diag;
} Asking;

/* Its beginning in quotes, fit for a terminal. Freed by free(). */
static char *quote(const char *text, size_t length) {
    StrBuf out = strbuf_create();
    json_put_bytes(&out, text, length < MOST_SHOWN ? length : MOST_SHOWN);
    if (length > MOST_SHOWN) strbuf_put(&out, "...");
    return out.text;
}

/* --- the program --- */

/* Has it ended, within so many seconds? It stays to be waited for, so that its number remains its
 * own. What somebody else has waited for has no si_code. */
static bool has_ended(const CommandJudge *judge, double seconds, siginfo_t *out_how) {
    static const struct timespec PAUSE = {.tv_nsec = 2000000};
    for (double end_s = clock_now() + seconds;; nanosleep(&PAUSE, NULL)) {
        memset(out_how, 0, sizeof(*out_how));
        int got = waitid(P_PID, (id_t)judge->pid, out_how, WEXITED | WNOHANG | WNOWAIT);
        if (got == 0 && out_how->si_pid != 0) return true;
        if (got != 0 && errno != EINTR) return true;
        if (clock_now() >= end_s) return false;
    }
}

/* child[0], child[1] become its standard input and output. */
static int spawn(const char *command, const int child[2], pid_t *out_pid) {
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, pipe_alone;
    sigemptyset(&none);
    sigemptyset(&pipe_alone);
    sigaddset(&pipe_alone, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_adddup2(&files, child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, child[1], STDOUT_FILENO);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                       POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &pipe_alone);
    int error = posix_spawn(out_pid, argv[0], &files, &how, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return error;
}

/* A pipe whose end `ours` does not block. Above the standard files: where one of those is closed
 * its number would be given out. errno says why not. */
static bool open_pipe(int ours, int out_ends[2]) {
    int ends[2];
    out_ends[0] = out_ends[1] = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        if (good) out_ends[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        good = out_ends[i] >= 0;
    }
    good = good && fcntl(out_ends[ours], F_SETFL, O_NONBLOCK) == 0;
    int error = errno;
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        if (!good && out_ends[i] >= 0) close(out_ends[i]);
    }
    errno = error;
    return good;
}

CommandJudge *command_judge_open(const char *command, double timeout_s, Diag *diag) {
    CommandJudge *judge = memory_zeroed(1, sizeof(CommandJudge));
    judge->shown = quote(command, strlen(command));
    judge->timeout_s = timeout_s;
    int answers[2], rewards[2], error = 0;
    if (!open_pipe(1, answers)) {
        error = errno;
    } else if (!open_pipe(0, rewards)) {
        error = errno;
        close(answers[0]);
        close(answers[1]);
    } else {
        error = spawn(command, (int[2]){answers[0], rewards[1]}, &judge->pid);
        close(answers[0]);
        close(rewards[1]);
        judge->to = answers[1];
        judge->from = rewards[0];
        if (error) {
            close(judge->to);
            close(judge->from);
        }
    }
    if (!error) return judge;
    diag_error(diag, NO_LOC, "the judge %s cannot be started: %s", judge->shown, strerror(error));
    free(judge->shown);
    free(judge);
    return NULL;
}

void command_judge_close(CommandJudge *judge) {
    if (!judge) return;
    siginfo_t how;
    double patience_s = fmin(END_S, judge->timeout_s);
    if (judge->to >= 0) close(judge->to);
    bool ended = has_ended(judge, patience_s, &how);
    kill(-judge->pid, SIGTERM); /* its group: also what it has started and left */
    if (!ended && !has_ended(judge, patience_s, &how)) kill(-judge->pid, SIGKILL);
    while (waitpid(judge->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(judge->from);
    free(judge->shown);
    free(judge);
}

/* --- what goes wrong; false, all of them --- */

static const char *what_it_gives(const Asking *asking) {
    return asking->compares ? "verdicts" : "rewards";
}

/* What to do about it. */
static const char *advise(const siginfo_t *how) {
    if (how->si_code == CLD_EXITED && (how->si_status == 126 || how->si_status == 127)) {
        return "is there such a command, which may be executed?";
    }
    bool failed = how->si_code != 0 && how->si_status != 0;
    return failed ? "what it wrote to standard error may say why"
                  : "it must go on until its standard input ends";
}

static bool report_end(const Asking *asking) {
    const CommandJudge *judge = asking->judge;
    siginfo_t how;
    StrBuf what = strbuf_create();
    if (!has_ended(judge, fmin(END_S, judge->timeout_s), &how)) {
        strbuf_printf(&what, "has closed its standard %s", judge->to < 0 ? "input" : "output");
    } else if (how.si_code == CLD_EXITED) {
        strbuf_printf(&what, "has ended with exit code %d", how.si_status);
    } else if (how.si_code == CLD_KILLED || how.si_code == CLD_DUMPED) {
        strbuf_printf(&what, "was ended by signal %d (%s)", how.si_status,
                      strsignal(how.si_status));
    } else {
        strbuf_put(&what, "has ended");
    }
    diag_error(asking->diag, NO_LOC, "the judge %s %s after %d of %d %s; %s", judge->shown,
               what.text, asking->n_read, asking->n, what_it_gives(asking), advise(&how));
    strbuf_destroy(&what);
    return false;
}

static bool report_late(const Asking *asking) {
    const CommandJudge *judge = asking->judge;
    if (judge->to < 0) return report_end(asking);
    bool gave_all = asking->n_read == asking->n;
    diag_error(asking->diag, NO_LOC,
               "the judge %s has given %d of %d %s, and %s for %g seconds; %s", judge->shown,
               asking->n_read, asking->n, what_it_gives(asking),
               gave_all ? "read nothing" : "no other", judge->timeout_s,
               gave_all ? "it must read all answers" : "does it flush its output after each line?");
    return false;
}

static bool report_line(const Asking *asking, const char *line, size_t length, const char *wrong) {
    char *shown = quote(line, length);
    diag_error(asking->diag, NO_LOC, "the judge %s writes %s after %d of %d %s: %s",
               asking->judge->shown, shown, asking->n_read, asking->n, what_it_gives(asking),
               wrong);
    free(shown);
    return false;
}

static bool report_errno(const Asking *asking, const char *what) {
    diag_error(asking->diag, NO_LOC, "the judge %s: its %s: %s", asking->judge->shown, what,
               strerror(errno));
    return false;
}

/* --- rewards --- */

/* line [length] is terminated. */
static bool parse_reward(const char *line, size_t length, bool compares, float *out_reward) {
    char *end;
    const double number = strtod(line, &end);
    *out_reward = compares ? judged_pair_verdict(number) : (float)number;
    bool any = end > line;
    end += strspn(end, " \t\r");
    return any && end == line + length && isfinite(*out_reward);
}

/* Understands the lines that are whole. */
static bool take_lines(Asking *asking) {
    CommandJudge *judge = asking->judge;
    size_t at = 0;
    while (at < judge->n_line) {
        char *line = judge->line + at, *newline = memchr(line, '\n', judge->n_line - at);
        size_t length = newline ? (size_t)(newline - line) : judge->n_line - at;
        if (!asking->asked || asking->n_read == asking->n) {
            return report_line(asking, line, length,
                               asking->compares
                                   ? "more lines than pairs; it must write one for each"
                                   : "more lines than answers; it must write one for each");
        }
        if (!newline) break;
        *newline = '\0';
        if (!parse_reward(line, length, asking->compares, &asking->rewards[asking->n_read])) {
            return report_line(asking, line, length,
                               asking->compares
                                   ? "each line must be a number, above 0 where a is the better "
                                     "answer, below 0 where b is"
                                   : "each line must be a finite number, the reward of an answer");
        }
        asking->n_read++;
        asking->deadline_s = clock_now() + judge->timeout_s;
        at += length + 1;
    }
    judge->n_line -= at;
    memmove(judge->line, judge->line + at, judge->n_line);
    if (judge->n_line < MAX_LINE) return true;
    return report_line(asking, judge->line, judge->n_line,
                       "a line of thousands of bytes; each must be a number");
}

static bool read_some(Asking *asking) {
    CommandJudge *judge = asking->judge;
    ssize_t got = read(judge->from, judge->line + judge->n_line, MAX_LINE - judge->n_line);
    if (got == 0) return report_end(asking);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return true;
        return report_errno(asking, "standard output cannot be read");
    }
    judge->n_line += (size_t)got;
    return take_lines(asking);
}

/* --- answers --- */

/* A program that reads no more may still have rewards to give. */
static bool write_some(Asking *asking) {
    CommandJudge *judge = asking->judge;
    ssize_t n = write(judge->to, asking->lines.text + asking->n_written,
                      asking->lines.length - asking->n_written);
    if (n >= 0) {
        asking->n_written += (size_t)n;
    } else if (errno == EPIPE) {
        close(judge->to);
        judge->to = -1;
        asking->n_written = asking->lines.length;
    } else if (errno != EAGAIN && errno != EINTR) {
        return report_errno(asking, "standard input cannot be written");
    }
    return true;
}

/* Waits for the program to read or to write. */
static bool exchange(Asking *asking) {
    CommandJudge *judge = asking->judge;
    bool writes = asking->n_written < asking->lines.length;
    struct pollfd ends[] = {{.fd = judge->from, .events = POLLIN},
                            {.fd = writes ? judge->to : -1, .events = POLLOUT}};
    double left_s = asking->deadline_s - clock_now();
    if (left_s <= 0) return report_late(asking);
    int n_ready = poll(ends, 2, (int)fmin(ceil(1e3 * left_s), INT_MAX));
    if (n_ready < 0) return errno == EINTR || report_errno(asking, "pipes cannot be watched");
    if (ends[1].revents && !write_some(asking)) return false;
    return !ends[0].revents || read_some(asking);
}

/* Sends asking->lines, one for each of asking->n. */
static bool ask(Asking *asking) {
    bool good = read_some(asking) && (asking->judge->to >= 0 || report_end(asking));
    asking->asked = true;
    while (good && (asking->n_read < asking->n || asking->n_written < asking->lines.length)) {
        good = exchange(asking);
    }
    strbuf_destroy(&asking->lines);
    return good;
}

static Asking begin_asking(CommandJudge *judge, int n, float *out, Diag *diag) {
    return (Asking){.judge = judge,
                    .lines = strbuf_create(),
                    .n = n,
                    .rewards = out,
                    .deadline_s = clock_now() + judge->timeout_s,
                    .diag = diag};
}

bool command_judge_answers(CommandJudge *judge, const JudgedAnswer *answers, int n,
                           float *out_rewards, Diag *diag) {
    Asking asking = begin_asking(judge, n, out_rewards, diag);
    for (int i = 0; i < n; i++) judged_answer_put(&asking.lines, &answers[i]);
    return ask(&asking);
}

bool command_judge_pairs(CommandJudge *judge, const JudgedPair *pairs, int n, float *out_verdicts,
                         Diag *diag) {
    Asking asking = begin_asking(judge, n, out_verdicts, diag);
    asking.compares = true;
    for (int i = 0; i < n; i++) judged_pair_put(&asking.lines, &pairs[i]);
    return ask(&asking);
}
