#define _GNU_SOURCE /* O_TMPFILE */
#include "ir/base/file.h"

#include "ir/base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 * 1024, N_NAME_ATTEMPTS = 16 };

struct FileWriter {
    int fd;
    char *path, *temporary_path;
    bool named;  /* the file is at temporary_path; else it has no name, and ends with the process */
    bool failed; /* already reported: what follows stays silent */
    size_t n_buffered;
    unsigned char buffer[BUFFER_BYTES];
};

static void report(Diag *diag, const char *path, const char *what) {
    diag_error(diag, (SourceLoc){path, 0}, "%s: %s", what, strerror(errno));
}

static const char *kind_name(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISLNK(mode)) return "a symbolic link";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "something else";
}

/* O_NONBLOCK so that a pipe with no writer is refused instead of waited for. */
static int open_at_once(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static int open_regular(const char *path, size_t *out_bytes, Diag *diag) {
    int fd = open_at_once(path);
    if (fd < 0) {
        report(diag, path, "cannot open");
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st) != 0) {
        report(diag, path, "cannot read");
    } else if (!S_ISREG(st.st_mode)) {
        diag_error(diag, (SourceLoc){path, 0}, "is %s, not a regular file", kind_name(st.st_mode));
    } else {
        *out_bytes = (size_t)st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

static bool read_fully(int fd, char *bytes, size_t length, size_t *out_length) {
    size_t n = 0;
    while (n < length) {
        ssize_t got = read(fd, bytes + n, length - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) break; /* the file shrank since fstat */
        n += (size_t)got;
    }
    *out_length = n;
    return true;
}

char *file_read(Arena *arena, const char *path, size_t limit_bytes, size_t *out_length,
                Diag *diag) {
    size_t length;
    int fd = open_regular(path, &length, diag);
    if (fd < 0) return NULL;
    char *text = NULL;
    if (length > limit_bytes) {
        diag_error(diag, (SourceLoc){path, 0}, "has %zu bytes; at most %zu are read here", length,
                   limit_bytes);
    } else {
        text = arena_alloc(arena, length + 1);
        if (!read_fully(fd, text, length, &length)) {
            report(diag, path, "cannot read");
            text = NULL;
        } else {
            text[length] = '\0';
            if (out_length) *out_length = length;
        }
    }
    close(fd);
    return text;
}

bool file_read_head(const char *path, void *out, size_t n) {
    struct stat st;
    size_t length = 0;
    int fd = open_at_once(path);
    if (fd < 0) return false;
    bool read = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_fully(fd, out, n, &length);
    close(fd);
    return read && length == n;
}

/* --- writing --- */

/* Refuses a target that a rename would silently destroy; keeps an existing file's permissions. */
static bool check_target(const char *path, mode_t *out_mode, bool *out_exists, Diag *diag) {
    struct stat st;
    *out_exists = lstat(path, &st) == 0;
    if (*out_exists && !S_ISREG(st.st_mode)) {
        diag_error(diag, (SourceLoc){path, 0}, "is %s, not a regular file: not replaced",
                   kind_name(st.st_mode));
        return false;
    }
    if (!*out_exists && errno != ENOENT) {
        report(diag, path, "cannot write");
        return false;
    }
    if (*out_exists) *out_mode = st.st_mode & 0777;
    return true;
}

/* The path of the folder that a file is in; to be freed. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder) BUG("out of memory");
    return folder;
}

/* A file that no folder lists: nothing is left of it if the process is killed. -1 where the file
 * system has none, or they cannot be given a name later. */
static int open_nameless(const char *path) {
    if (access("/proc/self/fd", X_OK) != 0) return -1;
    char *folder = folder_of(path);
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    return fd;
}

/* Gives the writer's file its temporary name, making the file if it is not there yet. Unguessable,
 * and nothing is followed or replaced: nobody can have put a link there beforehand. */
static bool name_temporary(FileWriter *writer) {
    char self[40];
    size_t size = strlen(writer->path) + sizeof ".tmp-0123456789abcdef";
    snprintf(self, sizeof self, "/proc/self/fd/%d", writer->fd);
    for (int attempt = 0; !writer->named && attempt < N_NAME_ATTEMPTS; attempt++) {
        uint64_t random;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) return false;
        snprintf(writer->temporary_path, size, "%s.tmp-%016llx", writer->path,
                 (unsigned long long)random);
        temporary_add(writer->temporary_path);
        if (writer->fd >= 0) {
            writer->named =
                linkat(AT_FDCWD, self, AT_FDCWD, writer->temporary_path, AT_SYMLINK_FOLLOW) == 0;
        } else {
            writer->fd =
                open(writer->temporary_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            writer->named = writer->fd >= 0;
        }
        int error = errno;
        if (!writer->named) temporary_forget(writer->temporary_path);
        errno = error;
        if (!writer->named && error != EEXIST) return false;
    }
    return writer->named;
}

int file_count_unfinished(const char *path, char *out_name, size_t size) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name);
    char *folder = folder_of(path);
    DIR *dir = opendir(folder);
    int count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *at = entry->d_name + length;
        if (strncmp(entry->d_name, name, length) != 0 || strncmp(at, ".tmp-", 5) != 0) continue;
        if (strspn(at + 5, "0123456789abcdef") != 16 || at[21]) continue;
        if (count++ == 0) snprintf(out_name, size, "%s", entry->d_name);
    }
    if (dir) closedir(dir);
    free(folder);
    return count;
}

static void writer_free(FileWriter *writer) {
    if (writer->fd >= 0) close(writer->fd);
    free(writer->path);
    free(writer->temporary_path);
    free(writer);
}

FileWriter *file_writer_open(const char *path, Diag *diag) {
    mode_t mode = 0;
    bool exists;
    if (!check_target(path, &mode, &exists, diag)) return NULL;
    size_t size = strlen(path) + sizeof ".tmp-0123456789abcdef";
    FileWriter *writer = calloc(1, sizeof(*writer));
    if (!writer || !(writer->path = strdup(path)) || !(writer->temporary_path = malloc(size))) {
        BUG("out of memory");
    }
    writer->fd = open_nameless(path);
    if (writer->fd < 0 && !name_temporary(writer)) {
        report(diag, path, "cannot create a file beside it");
        writer_free(writer);
        return NULL;
    }
    if (exists && fchmod(writer->fd, mode) != 0) {
        report(diag, path, "cannot keep its permissions");
        file_writer_abandon(writer);
        return NULL;
    }
    return writer;
}

static bool write_fully(FileWriter *writer, const unsigned char *bytes, size_t length, Diag *diag) {
    while (length) {
        ssize_t n = write(writer->fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            report(diag, writer->path, "cannot write");
            writer->failed = true;
            return false;
        }
        bytes += n;
        length -= (size_t)n;
    }
    return true;
}

static bool flush(FileWriter *writer, Diag *diag) {
    size_t n = writer->n_buffered;
    writer->n_buffered = 0;
    return write_fully(writer, writer->buffer, n, diag);
}

bool file_writer_put(FileWriter *writer, const void *bytes, size_t length, Diag *diag) {
    if (writer->failed) return false;
    if (length > BUFFER_BYTES - writer->n_buffered) {
        if (!flush(writer, diag)) return false;
        if (length >= BUFFER_BYTES) return write_fully(writer, bytes, length, diag);
    }
    if (length) memcpy(writer->buffer + writer->n_buffered, bytes, length);
    writer->n_buffered += length;
    return true;
}

bool file_writer_replace(FileWriter *writer, size_t at, const void *bytes, size_t length,
                         Diag *diag) {
    if (writer->failed || !flush(writer, diag)) return false;
    ssize_t n = pwrite(writer->fd, bytes, length, (off_t)at);
    if (n == (ssize_t)length) return true;
    if (n >= 0) errno = EIO; /* they are there already */
    report(diag, writer->path, "cannot write");
    writer->failed = true;
    return false;
}

/* Makes the rename itself survive a power cut. Some file systems cannot sync a folder: not an
 * error, the file's own bytes are safe. */
static bool sync_folder(const char *path, Diag *diag) {
    char *folder = folder_of(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd < 0 || fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
    if (!ok) report(diag, path, "is written, but its folder cannot be synced");
    if (fd >= 0) close(fd);
    free(folder);
    return ok;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

bool file_link(const char *path, const char *name, Diag *diag) {
    char temporary[PATH_MAX];
    mode_t mode;
    bool exists;
    uint64_t random;
    if (is_same_file(path, name)) return true; /* of two names of one file rename removes none */
    if (!check_target(name, &mode, &exists, diag)) return false;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint64_t)getpid();
    int n =
        snprintf(temporary, sizeof temporary, "%s.tmp-%016llx", name, (unsigned long long)random);
    if (n >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
    } else if (link(path, temporary) == 0) {
        if (rename(temporary, name) == 0) return sync_folder(name, diag);
        int error = errno;
        unlink(temporary);
        errno = error;
    }
    report(diag, name, "cannot become a second name of a file");
    return false;
}

bool file_writer_finish(FileWriter *writer, Diag *diag) {
    if (writer->failed || !flush(writer, diag)) return false;
    if (fsync(writer->fd) == 0) return true;
    report(diag, writer->path, "cannot sync");
    writer->failed = true;
    return false;
}

bool file_writer_commit(FileWriter *writer, Diag *diag) {
    mode_t mode;
    bool exists;
    bool ok = file_writer_finish(writer, diag);
    if (ok && !name_temporary(writer)) {
        report(diag, writer->path, "cannot name a finished file beside it");
        ok = false;
    }
    if (ok) { /* network file systems report a full disk only here */
        ok = close(writer->fd) == 0;
        writer->fd = -1;
        if (!ok) report(diag, writer->path, "cannot close");
    }
    /* The target may have changed kind since the file was opened. */
    ok = ok && check_target(writer->path, &mode, &exists, diag);
    if (ok) temporary_add_inner(writer->path);
    if (ok && rename(writer->temporary_path, writer->path) != 0) {
        report(diag, writer->path, "cannot rename a finished file to it");
        ok = false;
    }
    if (!ok) {
        file_writer_abandon(writer);
        return false;
    }
    temporary_forget(writer->temporary_path);
    ok = sync_folder(writer->path, diag);
    writer_free(writer);
    return ok;
}

void file_writer_abandon(FileWriter *writer) {
    if (!writer) return;
    if (writer->named) {
        unlink(writer->temporary_path);
        temporary_forget(writer->temporary_path);
    }
    writer_free(writer);
}

bool file_writer_reserve(FileWriter *writer, size_t length, Diag *diag) {
    if (writer->failed || !flush(writer, diag)) return false;
    if (ftruncate(writer->fd, (off_t)length) == 0 && name_temporary(writer)) return true;
    report(diag, writer->path, "cannot be given its size or a name");
    writer->failed = true;
    return false;
}

const char *file_writer_temporary(const FileWriter *writer) {
    return writer->temporary_path;
}

struct FilePart {
    int fd;
    char *path;
    bool failed;
};

FilePart *file_part_open(const char *temporary_path, size_t length, Diag *diag) {
    struct stat st;
    int fd = open(temporary_path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        report(diag, temporary_path, "cannot open");
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size != length) {
        diag_error(diag, (SourceLoc){temporary_path, 0}, "is not a file of %zu bytes", length);
        close(fd);
        return NULL;
    }
    FilePart *part = calloc(1, sizeof(*part));
    if (!part || !(part->path = strdup(temporary_path))) BUG("out of memory");
    part->fd = fd;
    return part;
}

bool file_part_put(FilePart *part, size_t at, const void *bytes, size_t length, Diag *diag) {
    const unsigned char *next = bytes;
    while (length && !part->failed) {
        ssize_t n = pwrite(part->fd, next, length, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            report(diag, part->path, "cannot write");
            part->failed = true;
            break;
        }
        next += n;
        at += (size_t)n;
        length -= (size_t)n;
    }
    return !part->failed;
}

bool file_part_close(FilePart *part, Diag *diag) {
    bool ok = !part->failed;
    if (ok && fsync(part->fd) != 0) {
        report(diag, part->path, "cannot sync");
        ok = false;
    }
    if (close(part->fd) != 0 && ok) {
        report(diag, part->path, "cannot close");
        ok = false;
    }
    free(part->path);
    free(part);
    return ok;
}

bool file_write(const char *path, const void *bytes, size_t length, Diag *diag) {
    FileWriter *writer = file_writer_open(path, diag);
    if (!writer) return false;
    file_writer_put(writer, bytes, length, diag);
    return file_writer_commit(writer, diag);
}

bool file_make_folders(const char *path, unsigned mode) {
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof(part)) errno = ENAMETOOLONG;
    if (length == 0) errno = ENOENT;
    if (length == 0 || length >= sizeof(part)) return false;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i]) continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST) return false;
    }
    return true;
}

/* --- mapping --- */

bool file_map(const char *path, FileMap *out_map, Diag *diag) {
    *out_map = (FileMap){0};
    size_t length;
    int fd = open_regular(path, &length, diag);
    if (fd < 0) return false;
    bool ok = true;
    if (length > 0) {
        void *data = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            report(diag, path, "cannot map");
            ok = false;
        } else {
            *out_map = (FileMap){data, length};
        }
    }
    close(fd); /* the mapping keeps the file */
    return ok;
}

void file_unmap(FileMap *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->length_bytes);
    *map = (FileMap){0};
}

void file_map_forget(const void *data, size_t length) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page; /* whole pages alone */
    const uintptr_t end = ((uintptr_t)data + length) / page * page;
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}
