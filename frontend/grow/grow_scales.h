/* Scales: an element of a paired value is 2^c times the small one's element that it stands for, and
 * c is a sum of the parameters' own scales and of constants. */
#ifndef FRONTEND_GROW_GROW_SCALES_H
#define FRONTEND_GROW_GROW_SCALES_H

#include "frontend/grow/grow_pair.h"

enum { FORM_TERMS = 24 };

/* constant + sum of share x scale of parameter */
typedef struct Form {
    double constant;
    double shift; /* 2^c x + shift ln 2: of logarithms of sums over more elements */
    bool is_part; /* of an expert's slice: only the mean over slices is 2^c x */
    int n;
    struct {
        int param;
        double share;
    } terms[FORM_TERMS];
} Form;

typedef struct Scales {
    Form *solved; /* [n_params] */
    bool *is_solved;
    bool too_long;
} Scales;

/* The sum a + share b. */
Form form_sum(Scales *scales, const Form *a, const Form *b, double share);
/* form = 0. False: that contradicts what is so already. */
bool scales_require(Scales *scales, const Form *form);
/* The value; unknown scales are 0. */
double scales_value(Scales *scales, const Form *form);

/* Makes and solves the equations of all paired nodes; *out_scales [n_nodes]: of parameters'
 * nodes. False: reported. */
bool grow_find_scales(Growing *g, double *out_scales);

#endif
