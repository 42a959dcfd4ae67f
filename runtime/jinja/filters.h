/* What the rooms of filters share. */
#ifndef RUNTIME_JINJA_FILTERS_H
#define RUNTIME_JINJA_FILTERS_H

#include "runtime/jinja/value.h"

const JinjaBuiltin *jinja_find_list_filter(const char *name);

/* Neither missing nor None. */
bool filter_given(JinjaValue value);
/* False, failed: the value is no integer; missing and None are `none`. */
bool filter_integer(Jinja *jinja, JinjaValue value, const char *what, int64_t none, int64_t *out);

#endif
