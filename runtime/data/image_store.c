#include "runtime/data/image_store.h"

#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "runtime/data/mix.h"
#include "runtime/tokenizer/base64.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 1 << 16, /* in which most files say how large the image is */
    CHECKED_AT_ONCE = 1024,
    MOST_SHOWN = 200, /* of a name */
};

typedef struct Entry {
    char *name; /* a path, or a data: URL */
    size_t length;
    SourceLoc loc;     /* of a line that names it */
    int width, height; /* since it was checked; before that 0 */
} Entry;

struct ImageStore {
    char *folder;
    Entry *entries; /* [count] */
    int64_t count, capacity, n_checked;
    int64_t *table; /* [n_table]: numbers by the hash of their names; -1: free */
    size_t n_table;
    char **files; /* [n_files]: of locs */
    int n_files;
    pthread_mutex_t lock;
};

ImageStore *image_store_create(const char *folder) {
    ImageStore *store = memory_zeroed(1, sizeof(*store));
    if (folder) store->folder = memory_strndup(folder, strlen(folder));
    pthread_mutex_init(&store->lock, NULL);
    return store;
}

void image_store_destroy(ImageStore *store) {
    if (!store) return;
    for (int64_t i = 0; i < store->count; i++) free(store->entries[i].name);
    for (int i = 0; i < store->n_files; i++) free(store->files[i]);
    free(store->entries);
    free(store->table);
    free(store->files);
    free(store->folder);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

int64_t image_store_count(const ImageStore *store) {
    return store->count;
}

/* --- names --- */

static bool begins_with(const char *name, size_t length, const char *with) {
    const size_t n = strlen(with);
    return length >= n && strncasecmp(name, with, n) == 0;
}

static bool is_data(const char *name, size_t length) {
    return begins_with(name, length, "data:");
}

/* The base64 of a data: URL; NULL: it is none. */
static const char *find_base64(const char *name, size_t length, size_t *out_length) {
    static const char MARK[] = ";base64,";
    const char *comma = memchr(name, ',', length);
    const size_t n = sizeof(MARK) - 1;
    if (!comma || (size_t)(comma - name) + 1 < n || strncasecmp(comma + 1 - n, MARK, n) != 0) {
        return NULL;
    }
    *out_length = length - (size_t)(comma + 1 - name);
    return comma + 1;
}

static bool refuse_name(const char *name, size_t length, SourceLoc loc, Diag *diag) {
    const char *why = NULL;
    size_t n;
    if (length == 0) {
        why = "an image without a path";
    } else if (begins_with(name, length, "http://") || begins_with(name, length, "https://")) {
        why = "an image in a network: fetch it first, and name the file";
    } else if (memchr(name, '\0', length)) {
        why = "an image's path has a character of number 0";
    } else if (is_data(name, length) && !find_base64(name, length, &n)) {
        why = "an image as a data: URL is written in base64: data:image/png;base64,...";
    }
    if (why) {
        diag_error(diag, loc, "%s%s%.*s", why, length ? ": " : "",
                   (int)(length < MOST_SHOWN ? length : MOST_SHOWN), name);
    }
    return !why;
}

/* From malloc: what a path is relative to is put before it. */
static char *full_name(const ImageStore *store, const char *name, size_t length, SourceLoc loc) {
    if (begins_with(name, length, "file://")) {
        name += 7;
        length -= 7;
    }
    if (is_data(name, length) || name[0] == '/') return memory_strndup(name, length);
    const char *folder = store->folder ? store->folder : loc.file ? loc.file : "";
    const char *slash = strrchr(folder, '/');
    size_t n = store->folder ? strlen(folder) : slash ? (size_t)(slash - folder) : 0;
    if (n == 0 && !slash) return memory_strndup(name, length);
    char *full = memory_alloc(n + length + 2);
    memcpy(full, folder, n);
    full[n] = '/';
    memcpy(full + n + 1, name, length);
    full[n + 1 + length] = '\0';
    return full;
}

/* --- the table --- */

static uint64_t hash_of(const char *name, size_t length) {
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return mix_bits(hash);
}

/* Where the name is, or is to be. */
static int64_t *slot_of(const ImageStore *store, const char *name, size_t length) {
    size_t at = hash_of(name, length) & (store->n_table - 1);
    for (;; at = (at + 1) & (store->n_table - 1)) {
        const int64_t number = store->table[at];
        if (number < 0) return &store->table[at];
        const Entry *entry = &store->entries[number];
        if (entry->length == length && memcmp(entry->name, name, length) == 0) {
            return &store->table[at];
        }
    }
}

static void make_room(ImageStore *store) {
    if (store->count == store->capacity) {
        store->capacity = store->capacity ? 2 * store->capacity : 256;
        store->entries =
            memory_grow(store->entries, (size_t)store->capacity * sizeof(*store->entries));
    }
    if ((size_t)store->count * 2 < store->n_table) return;
    store->n_table = store->n_table ? 2 * store->n_table : 512;
    store->table = memory_grow(store->table, store->n_table * sizeof(*store->table));
    memset(store->table, 0xff, store->n_table * sizeof(*store->table));
    for (int64_t i = 0; i < store->count; i++) {
        *slot_of(store, store->entries[i].name, store->entries[i].length) = i;
    }
}

/* A copy of the file's name that lasts. */
static const char *keep_file(ImageStore *store, const char *file) {
    for (int i = store->n_files - 1; file && i >= 0; i--) {
        if (strcmp(store->files[i], file) == 0) return store->files[i];
    }
    if (!file) return NULL;
    store->files = memory_grow(store->files, (size_t)(store->n_files + 1) * sizeof(char *));
    return store->files[store->n_files++] = memory_strndup(file, strlen(file));
}

int64_t image_store_add(ImageStore *store, const char *name, size_t length, SourceLoc loc,
                        Diag *diag) {
    if (!refuse_name(name, length, loc, diag)) return -1;
    char *full = full_name(store, name, length, loc);
    const size_t n = strlen(full);
    pthread_mutex_lock(&store->lock);
    make_room(store);
    int64_t *slot = slot_of(store, full, n);
    if (*slot < 0) {
        *slot = store->count;
        store->entries[store->count++] =
            (Entry){full, n, {keep_file(store, loc.file), loc.line}, 0, 0};
        full = NULL;
    }
    const int64_t number = *slot;
    pthread_mutex_unlock(&store->lock);
    free(full);
    return number;
}

/* --- bytes --- */

/* Bytes of memory that `arena` keeps; NULL: there are none, and the Diag says why. */
static const unsigned char *read_bytes(const Entry *entry, Arena *arena, size_t *out_n,
                                       Diag *diag) {
    if (!is_data(entry->name, entry->length)) {
        return (const unsigned char *)file_read(arena, entry->name, IMAGE_MOST_BYTES, out_n, diag);
    }
    size_t n = 0;
    const char *text = find_base64(entry->name, entry->length, &n);
    unsigned char *bytes = arena_alloc(arena, n + 1);
    if (text && base64_decode(text, n, bytes, n, out_n)) return bytes;
    diag_error(diag, entry->loc, "an image as a data: URL is no base64");
    return NULL;
}

/* With the file's name, and the line that names it. */
static void report(const Entry *entry, const char *why, Diag *diag) {
    if (is_data(entry->name, entry->length)) {
        diag_error(diag, entry->loc, "an image as a data: URL is %s", why);
        return;
    }
    diag_error(diag, (SourceLoc){entry->name, 0}, "is %s", why);
    diag_note(diag, entry->loc, "named here");
}

static bool read_head(const char *path, unsigned char *head, size_t *out_n) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return false;
    const ssize_t n = read(file, head, HEAD_BYTES);
    close(file);
    *out_n = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static void keep_size(Entry *entry, const Image *size) {
    entry->width = size->width;
    entry->height = size->height;
}

static bool check_entry(Entry *entry, const ImageRule *rule, Diag *diag) {
    unsigned char head[HEAD_BYTES];
    char why[IMAGE_WHY];
    Image size;
    size_t n;
    if (!is_data(entry->name, entry->length) && read_head(entry->name, head, &n) &&
        image_read_size(head, n, &size, why) &&
        image_fit_check(rule, size.width, size.height, why)) {
        keep_size(entry, &size);
        return true;
    }
    Arena *arena = arena_create(); /* there is more before it says how large it is, or it is none */
    const int n_errors = diag_error_count(diag);
    const unsigned char *bytes = read_bytes(entry, arena, &n, diag);
    bool good = bytes && image_read_size(bytes, n, &size, why) &&
                image_fit_check(rule, size.width, size.height, why);
    arena_destroy(arena);
    if (good) keep_size(entry, &size);
    if (bytes && !good) report(entry, why, diag);
    if (!bytes && diag_error_count(diag) > n_errors && !is_data(entry->name, entry->length)) {
        diag_note(diag, entry->loc, "named here");
    }
    return good;
}

static bool has_grid(const Image *image, const ImageRule *rule, ImageGrid grid, char *why) {
    const ImageGrid own = image_grid_of(rule, image->width, image->height);
    if (own.rows == grid.rows && own.columns == grid.columns) return true;
    snprintf(why, IMAGE_WHY, "no longer the image that it was: it has other sides");
    return false;
}

static bool read_entry(const Entry *entry, const ImageRule *rule, const ImageWanted *wanted,
                       Diag *diag) {
    Arena *arena = arena_create();
    char why[IMAGE_WHY];
    Image image;
    size_t n;
    const unsigned char *bytes = read_bytes(entry, arena, &n, diag);
    bool good = bytes && image_decode(bytes, n, &image, why);
    arena_destroy(arena);
    if (good) {
        good = has_grid(&image, rule, wanted->grid, why) &&
               image_fit_parts(&image, rule, wanted->out, why);
        image_release(&image);
    }
    if (bytes && !good) report(entry, why, diag);
    if (!bytes && !is_data(entry->name, entry->length)) diag_note(diag, entry->loc, "named here");
    return good;
}

/* --- many at once --- */

/* Of those that went wrong, the first. */
static void take_bad(int64_t i, int64_t *first_bad) {
#pragma omp critical(image_store_bad)
    if (i < *first_bad) *first_bad = i;
}

/* Errors are told once more, in order, by the thread that has the Diag. */
static void check_some(const ImageStore *store, const ImageRule *rule, int64_t first, int64_t end,
                       int64_t *first_bad) {
#pragma omp parallel for schedule(dynamic, 8)
    for (int64_t i = first; i < end; i++) {
        Diag *quiet = diag_create();
        if (!check_entry(&store->entries[i], rule, quiet)) take_bad(i, first_bad);
        diag_destroy(quiet);
    }
}

bool image_store_check(ImageStore *store, const ImageRule *rule,
                       void (*progress)(void *user, int n_done, int n_all, const char *what),
                       void *user, Diag *diag) {
    const int64_t begin = store->n_checked;
    while (store->n_checked < store->count) {
        int64_t end = store->n_checked + CHECKED_AT_ONCE, first_bad = INT64_MAX;
        if (end > store->count) end = store->count;
        check_some(store, rule, store->n_checked, end, &first_bad);
        if (first_bad < INT64_MAX && !check_entry(&store->entries[first_bad], rule, diag))
            return false;
        store->n_checked = end;
        if (progress) progress(user, (int)(end - begin), (int)(store->count - begin), "");
    }
    return true;
}

ImageGrid image_store_grid(const ImageStore *store, const ImageRule *rule, int64_t number) {
    const Entry *entry = &store->entries[number];
    if (entry->width == 0) BUG("an image that was not checked");
    return image_grid_of(rule, entry->width, entry->height);
}

bool image_store_read(const ImageStore *store, const ImageRule *rule, const ImageWanted *wanted,
                      int64_t n, Diag *diag) {
    int64_t first_bad = INT64_MAX;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) {
        Diag *quiet = diag_create();
        if (!read_entry(&store->entries[wanted[i].number], rule, &wanted[i], quiet)) {
            take_bad(i, &first_bad);
        }
        diag_destroy(quiet);
    }
    if (first_bad == INT64_MAX) return true;
    const ImageWanted *bad = &wanted[first_bad];
    return read_entry(&store->entries[bad->number], rule, bad, diag);
}
