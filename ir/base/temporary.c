#include "ir/base/temporary.h"

#include "ir/base/diag.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Never freed, as a handler may be reading: taken again for other paths. */
typedef struct Temporary {
    struct Temporary *next;
    size_t room;
    atomic_bool live; /* false: `path` may be changing */
    char path[];
} Temporary;

static _Atomic(Temporary *) latest;
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

static Temporary *find_unused(size_t size) {
    for (Temporary *t = atomic_load(&latest); t; t = t->next) {
        if (!atomic_load(&t->live) && t->room >= size) return t;
    }
    return NULL;
}

void temporary_add(const char *path) {
    size_t size = strlen(path) + 1;
    pthread_mutex_lock(&writers);
    Temporary *t = find_unused(size);
    if (!t) {
        t = calloc(1, sizeof(*t) + size);
        if (!t) BUG("out of memory");
        t->room = size;
        t->next = atomic_load(&latest);
        atomic_store(&latest, t);
    }
    memcpy(t->path, path, size);
    atomic_store(&t->live, true);
    pthread_mutex_unlock(&writers);
}

/* Is it, or does it lie in, the first `length` characters of `folder`? */
static bool lies_in(const char *path, const char *folder, size_t length) {
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

void temporary_add_inner(const char *path) {
    const char *slash = strrchr(path, '/');
    bool inner = false;
    pthread_mutex_lock(&writers);
    for (Temporary *t = atomic_load(&latest); slash && t && !inner; t = t->next) {
        size_t length = (size_t)(slash - path);
        inner =
            atomic_load(&t->live) && strlen(t->path) == length && lies_in(path, t->path, length);
    }
    pthread_mutex_unlock(&writers);
    if (inner) temporary_add(path);
}

void temporary_forget(const char *path) {
    pthread_mutex_lock(&writers);
    for (Temporary *t = atomic_load(&latest); t; t = t->next) {
        if (lies_in(t->path, path, strlen(path))) atomic_store(&t->live, false);
    }
    pthread_mutex_unlock(&writers);
}

void temporary_remove_all(void) {
    /* Folders last, when nothing is in them; unlink leaves them, rmdir leaves files. */
    for (Temporary *t = atomic_load(&latest); t; t = t->next) {
        if (atomic_load(&t->live)) unlink(t->path);
    }
    for (Temporary *t = atomic_load(&latest); t; t = t->next) {
        if (atomic_load(&t->live)) rmdir(t->path);
    }
}
