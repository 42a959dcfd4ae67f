#include "frontend/job/job.h"

#include "ir/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void job_put_shell(StrBuf *out, const char *text) {
    strbuf_put(out, "'");
    for (; *text; text++) {
        if (*text == '\'') {
            strbuf_put(out, "'\\''");
        } else {
            strbuf_put_bytes(out, text, 1);
        }
    }
    strbuf_put(out, "'");
}

void job_put_word(StrBuf *out, const char *text) {
    const char *name = strncmp(text, "--", 2) == 0 ? text + 2 : text;
    if (job_text_is_plain(name)) {
        strbuf_put(out, text);
    } else {
        job_put_shell(out, text);
    }
}

/* Line breaks of YAML 1.1, and what it does not count as printable. */
static bool is_escaped(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
           c == 0xfffe || c == 0xffff;
}

void job_put_yaml(StrBuf *out, const char *text, bool expanded) {
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text);
    strbuf_put(out, "\"");
    while (left > 0) {
        uint32_t c;
        int n = utf8_read(at, left, &c);
        if (n == 0) BUG("'%s' is not UTF-8", text);
        if (c == '"' || c == '\\') {
            strbuf_printf(out, "\\%c", (char)c);
        } else if (is_escaped(c)) {
            strbuf_printf(out, c < 0x100 ? "\\x%02" PRIx32 : "\\u%04" PRIx32, c);
        } else {
            /* $(NAME) is what a variable says, $$ a $: by doubling, nothing is. */
            if (c == '$' && expanded) strbuf_put(out, "$");
            strbuf_put_bytes(out, at, (size_t)n);
        }
        at += n;
        left -= (size_t)n;
    }
    strbuf_put(out, "\"");
}

void job_put_comment(StrBuf *out, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t c;
        int n = utf8_read(at, left, &c);
        if (n == 0 || is_escaped(c)) {
            strbuf_put(out, "?");
            n = n ? n : 1;
        } else {
            strbuf_put_bytes(out, at, (size_t)n);
        }
        at += n;
        left -= (size_t)n;
    }
}

bool job_text_is_plain(const char *text) {
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "._,+@:/=-";
    return *text && *text != '-' && strspn(text, allowed) == strlen(text);
}

bool job_text_is_option(const char *text) {
    if (text[0] != '-' || !text[1]) return false;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < ' ' || *c > '~' || strchr("'\"\\#`$", *c)) return false;
    }
    return true;
}

bool job_text_is_label(const char *text, int most) {
    size_t length = strlen(text);
    if (length == 0 || length > (size_t)most || text[0] == '-' || text[length - 1] == '-') {
        return false;
    }
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

/* A number of at most three digits. */
static const char *read_number(const char *text, int least_digits, int64_t *out) {
    int n = 0;
    for (*out = 0; n < 3 && text[n] >= '0' && text[n] <= '9'; n++) *out = *out * 10 + text[n] - '0';
    return n >= least_digits ? text + n : NULL;
}

bool job_time_parse(const char *text, int64_t *out_s) {
    int64_t days = 0, parts[3];
    const char *at = text, *dash = strchr(text, '-');
    if (dash) {
        at = read_number(at, 1, &days);
        if (at != dash) return false;
        at++;
    }
    for (int i = 0; i < 3; i++) {
        at = read_number(at, i ? 2 : 1, &parts[i]);
        if (!at || *at != (i < 2 ? ':' : '\0') || (i && parts[i] > 59)) return false;
        at++;
    }
    *out_s = ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
    return *out_s > 0;
}

void job_put_time(StrBuf *out, int64_t seconds) {
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (days) strbuf_printf(out, "%" PRId64 "-", days);
    strbuf_printf(out, "%02" PRId64 ":%02" PRId64 ":%02" PRId64, rest / 3600, rest / 60 % 60,
                  rest % 60);
}
