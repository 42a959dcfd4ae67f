#include "frontend/commands/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 64, HEIGHT = 12, DOTS_X = 2 * WIDTH, DOTS_Y = 4 * HEIGHT };

bool plot_is_utf8(void) {
    static const char *const NAMES[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        const char *value = getenv(NAMES[i]);
        if (!value || !*value) continue;
        return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

/* Of what falls into each of `width` columns, the mean; NAN: nothing. */
static void find_means(const double *x, const double *y, int n, int width, double *out) {
    const double span = x[n - 1] - x[0];
    double sum[DOTS_X] = {0};
    int count[DOTS_X] = {0};
    for (int i = 0; i < n; i++) {
        if (!isfinite(y[i])) continue;
        int at = span > 0 ? (int)((x[i] - x[0]) / span * width) : 0;
        if (at >= width) at = width - 1;
        sum[at] += y[i];
        count[at]++;
    }
    for (int i = 0; i < width; i++) out[i] = count[i] ? sum[i] / count[i] : NAN;
}

typedef struct Grid {
    bool at[DOTS_Y][DOTS_X];
    int width, height;
} Grid;

/* What joins two means that follow each other is drawn, too. */
static void draw(Grid *grid, const double *means, double least, double most) {
    int last = -1;
    for (int c = 0; c < grid->width; c++) {
        if (isnan(means[c])) continue;
        const double share = (most - fmin(most, means[c])) / (most - least);
        const int row = (int)(share * (grid->height - 1) + 0.5);
        const int from = last < 0 ? row : last < row ? last + 1 : last > row ? last - 1 : row;
        for (int r = from;; r += from < row ? 1 : -1) {
            grid->at[r][c] = true;
            if (r == row) break;
        }
        last = row;
    }
}

/* Dots of a character, U+2800 and on: columns of 1, 2, 4, 64 and 8, 16, 32, 128. */
static void put_braille(StrBuf *out, const Grid *grid, int row, int column) {
    static const unsigned char BITS[2][4] = {{1, 2, 4, 64}, {8, 16, 32, 128}};
    unsigned dots = 0;
    for (int c = 0; c < 2; c++) {
        for (int r = 0; r < 4; r++) {
            if (grid->at[4 * row + r][2 * column + c]) dots |= BITS[c][r];
        }
    }
    if (dots == 0) {
        strbuf_put(out, " ");
    } else {
        const char text[3] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 63))};
        strbuf_put_bytes(out, text, sizeof(text));
    }
}

void plot_put(StrBuf *out, const double *x, const double *y, int n, bool utf8) {
    enum { LABEL = 10 };
    Grid grid = {.width = utf8 ? DOTS_X : WIDTH, .height = utf8 ? DOTS_Y : HEIGHT};
    double means[DOTS_X], least = INFINITY, most = -INFINITY;
    int n_finite = 0;
    for (int i = 0; i < n; i++) n_finite += isfinite(y[i]) != 0;
    if (n_finite < 2) return;
    find_means(x, y, n, grid.width, means);
    const int first = grid.width / 16; /* before it the top may be missed */
    for (int c = 0; c < grid.width; c++) {
        if (isnan(means[c])) continue;
        least = fmin(least, means[c]);
        if (c >= first) most = fmax(most, means[c]);
    }
    if (!(most > least)) most = least + fmax(fabs(least) * 1e-3, 1e-9);
    draw(&grid, means, least, most);
    for (int row = 0; row < HEIGHT; row++) {
        if (row == 0 || row == HEIGHT - 1) {
            strbuf_printf(out, "%*.4g ", LABEL - 1, row ? least : most);
        } else {
            strbuf_printf(out, "%*s", LABEL, "");
        }
        strbuf_put(out, utf8 ? "\u2502" : "|");
        for (int c = 0; c < WIDTH; c++) {
            if (utf8) {
                put_braille(out, &grid, row, c);
            } else {
                strbuf_put(out, grid.at[row][c] ? "*" : " ");
            }
        }
        while (out->length && out->text[out->length - 1] == ' ') out->length--;
        strbuf_put(out, "\n");
    }
    strbuf_printf(out, "%*s%-*.10g%*.10g\n", LABEL + 1, "", WIDTH / 2, x[0], WIDTH / 2, x[n - 1]);
}
