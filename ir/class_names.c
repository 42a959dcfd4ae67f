#include "ir/class_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "12": so many, without names; 0: names. */
static int read_count(const char *list) {
    size_t n = strlen(list);
    if (n == 0 || n > 6 || strspn(list, "0123456789") != n) return 0;
    return atoi(list);
}

/* The name that begins at `at`, without blanks around it. */
static const char *read_name(const char *at, size_t *out_length) {
    while (*at == ' ') at++;
    size_t n = strcspn(at, ",");
    while (n > 0 && at[n - 1] == ' ') n--;
    *out_length = n;
    return at;
}

static const char *next_name(const char *at) {
    const char *comma = strchr(at, ',');
    return comma ? comma + 1 : NULL;
}

int class_names_find(const char *list, const char *name, size_t length) {
    int count = read_count(list), i = 0;
    if (count > 0) {
        char text[8];
        if (length == 0 || length >= sizeof(text)) return -1;
        memcpy(text, name, length);
        text[length] = '\0';
        bool plain = strspn(text, "0123456789") == length && (length == 1 || text[0] != '0');
        return plain && atoi(text) < count ? atoi(text) : -1;
    }
    for (const char *at = list; at; at = next_name(at), i++) {
        size_t n;
        const char *own = read_name(at, &n);
        if (n == length && memcmp(own, name, n) == 0) return i;
    }
    return -1;
}

const char *const CLASS_LABELS_NAMES[N_CLASS_LABELS] = {"one", "sets", "numbers"};

ClassLabels class_labels_find(const char *name) {
    int i = 0;
    while (i < N_CLASS_LABELS && strcmp(CLASS_LABELS_NAMES[i], name) != 0) i++;
    return (ClassLabels)i;
}

int class_names_count(const char *list) {
    return class_names_count_of(list, CLASS_ONE);
}

int class_names_count_of(const char *list, ClassLabels labels) {
    const int least = labels == CLASS_NUMBERS ? 1 : 2;
    int count = read_count(list), n_names = 0;
    if (count > 0) return count >= least && count <= CLASS_MOST ? count : 0;
    for (const char *at = list; at; at = next_name(at), n_names++) {
        size_t n;
        const char *name = read_name(at, &n);
        if (n == 0 || n > CLASS_MOST_NAME || strspn(name, "0123456789") >= n) return 0;
        for (size_t i = 0; i < n; i++) {
            if ((unsigned char)name[i] < 0x20) return 0;
        }
        if (n_names == CLASS_MOST || class_names_find(list, name, n) != n_names) return 0;
    }
    return n_names >= least ? n_names : 0;
}

bool class_weights_read(const char *list, int n, double *out) {
    for (int i = 0; i < n; i++) {
        char *end;
        double weight = *list == '-' ? -1 : strtod(list, &end);
        if (!(weight > 0 && weight <= 1e6) || end == list || *end != (i + 1 < n ? ',' : '\0')) {
            return false;
        }
        out[i] = weight;
        list = end + 1;
    }
    return true;
}

ClassName class_names_next(const char **rest, int i) {
    ClassName name = {{0}};
    if (!*rest) return name;
    if (i == 0 && read_count(*rest) > 0) *rest = "";
    if (!**rest) {
        snprintf(name.text, sizeof(name.text), "%d", i);
        return name;
    }
    size_t n;
    const char *own = read_name(*rest, &n);
    snprintf(name.text, sizeof(name.text), "%.*s", (int)n, own);
    *rest = next_name(*rest);
    return name;
}

ClassName class_names_at(const char *list, int i) {
    if (read_count(list) > 0) list = "";
    for (int k = 0; list && *list && k < i; k++) list = next_name(list);
    return class_names_next(&list, i);
}
