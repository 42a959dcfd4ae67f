/* StrBuf: text that grows, for printers. Freed by strbuf_destroy; `text` is always terminated. */
#ifndef IR_BASE_STRBUF_H
#define IR_BASE_STRBUF_H

#include <stdarg.h>
#include <stddef.h>

typedef struct StrBuf {
    char *text;
    size_t length, capacity;
} StrBuf;

StrBuf strbuf_create(void);
void strbuf_destroy(StrBuf *buf);
void strbuf_put(StrBuf *buf, const char *text);
void strbuf_put_bytes(StrBuf *buf, const void *bytes, size_t length);
void strbuf_printf(StrBuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void strbuf_vprintf(StrBuf *buf, const char *format, va_list args);

#endif
