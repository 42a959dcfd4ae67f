/* What classes of texts are called, as a model says it: "negative,neutral,positive", or "3" for
 * three whose names are 0, 1 and 2. */
#ifndef IR_CLASS_NAMES_H
#define IR_CLASS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { CLASS_MOST = 4096, CLASS_MOST_NAME = 100, CLASS_MOST_BETWEEN = 8 };

/* How many classes the list has, from 2 to CLASS_MOST; 0: it is none: names are empty, too long,
 * there twice, or one is a number. */
int class_names_count(const char *list);
/* The name of class i, 0 <= i < count, as a copy. */
typedef struct ClassName {
    char text[CLASS_MOST_NAME + 1];
} ClassName;
ClassName class_names_at(const char *list, int i);
/* The class of that name; -1: none has it. */
int class_names_find(const char *list, const char *name, size_t length);

#endif
