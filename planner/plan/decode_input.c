#include "planner/plan/plan.h"

#include <string.h>

static const char *const NAMES[N_DECODE_INPUTS] = {
    [DECODE_TOKENS] = "tokens", [DECODE_PLACES] = "places",
    [DECODE_ROWS] = "rows",     [DECODE_LAST] = "last",
    [DECODE_STARTS] = "starts", [DECODE_DOCUMENT_PLACES] = "document_places",
};

const char *decode_input_name(DecodeInput input) {
    return NAMES[input];
}

int decode_input_find(const char *name) {
    for (int i = 0; i < N_DECODE_INPUTS; i++) {
        if (strcmp(NAMES[i], name) == 0) return i;
    }
    return -1;
}
