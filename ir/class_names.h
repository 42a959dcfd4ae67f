/* What classes of texts are called, as a model says it: "negative,neutral,positive", or "3" for
 * three whose names are 0, 1 and 2. */
#ifndef IR_CLASS_NAMES_H
#define IR_CLASS_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { CLASS_MOST = 4096, CLASS_MOST_NAME = 100, CLASS_MOST_BETWEEN = 8 };

/* What a text has of the classes: one of them, any number of them, or a number of each (then there
 * may be one alone). */
typedef enum ClassLabels { CLASS_ONE, CLASS_SETS, CLASS_NUMBERS, N_CLASS_LABELS } ClassLabels;
extern const char *const CLASS_LABELS_NAMES[N_CLASS_LABELS]; /* "one", "sets", "numbers" */
ClassLabels class_labels_find(const char *name);             /* N_CLASS_LABELS: none is called so */

/* How many classes the list has, from 2 to CLASS_MOST; 0: it is none: names are empty, too long,
 * there twice, or one is a number. */
int class_names_count(const char *list);
/* The same of what texts have so: from 1 on, where they are numbers. */
int class_names_count_of(const char *list, ClassLabels labels);
/* "1,3.5": what each of n counts, more than 0. False: it is no such list. */
bool class_weights_read(const char *list, int n, double *out);
/* The name of class i, 0 <= i < count, as a copy. */
typedef struct ClassName {
    char text[CLASS_MOST_NAME + 1];
} ClassName;
ClassName class_names_at(const char *list, int i);
/* The same for one after the other: *rest is the list for class 0, and then what is left of it. */
ClassName class_names_next(const char **rest, int i);
/* The class of that name; -1: none has it. */
int class_names_find(const char *list, const char *name, size_t length);

#endif
