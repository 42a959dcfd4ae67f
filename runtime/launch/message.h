/* Messages of the control plane: frames in a stream of bytes, written and read.
 *
 *     "PLCM" | kind u8 | zero u8[3] | payload bytes u32 | payload        all numbers little-endian
 *
 * A writer appends frames to a StrBuf. A reader takes the stream in pieces of any size and gives
 * frames back; it never trusts a length (memory grows with what has arrived, up to max_bytes) and
 * after the first malformed byte it gives MESSAGE_BAD for ever. A Cursor reads a payload: past its
 * end it gives zeros and `ok` turns false, so callers test once. Text that is read has no control
 * characters left: it may go to a terminal.
 */
#ifndef RUNTIME_LAUNCH_MESSAGE_H
#define RUNTIME_LAUNCH_MESSAGE_H

#include "ir/base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_HEADER_BYTES = 12 };

typedef enum MessageKind {
    MESSAGE_HELLO = 1, /* a rank to rank 0: who it is */
    MESSAGE_WELCOME,   /* back: rank 0's host */
    MESSAGE_REFUSED,   /* back: why not */
    MESSAGE_START,     /* to all: every rank is there */
    MESSAGE_HEARTBEAT, /* both ways: progress */
    MESSAGE_REQUEST,   /* to rank 0: part in a collective */
    MESSAGE_RESULT,    /* back, when all have come */
    MESSAGE_REPORT,    /* to rank 0: this rank failed, or wants the job to end */
    MESSAGE_FAIL,      /* to all, and to who comes then: the job ends, and why */
    MESSAGE_DECLINE,   /* a rank to rank 0: who it is, and why it cannot take part */
    /* Between islands (runtime/islands/islands.h): */
    MESSAGE_ISLAND_HELLO,   /* to island 0: who it is, what it trains, what it goes on from */
    MESSAGE_ISLAND_WELCOME, /* back: goes on, or takes the weights that follow */
    MESSAGE_ISLAND_OFFER,   /* to island 0: its weights follow */
    MESSAGE_ISLAND_RESULT,  /* back: the new ones follow */
    MESSAGE_ISLAND_DATA,    /* a part of what follows */
    MESSAGE_ISLAND_WAIT,    /* to an island that waits: island 0 is there */
    MESSAGE_KIND_END
} MessageKind;

/* Returns where the frame starts, for message_end. */
size_t message_begin(StrBuf *out, MessageKind kind);
void message_end(StrBuf *out, size_t start);
void message_put_u32(StrBuf *out, uint32_t value);
void message_put_u64(StrBuf *out, uint64_t value);
/* Length and bytes; at most 2^32 - 1. */
void message_put_bytes(StrBuf *out, const void *bytes, size_t length);
void message_put_text(StrBuf *out, const char *text);

typedef struct MessageReader {
    StrBuf buffer;
    size_t start;     /* of what has not been given back */
    size_t max_bytes; /* the largest payload */
    bool bad;
} MessageReader;

typedef enum MessageStatus { MESSAGE_INCOMPLETE, MESSAGE_COMPLETE, MESSAGE_BAD } MessageStatus;

typedef struct Message {
    MessageKind kind;
    const unsigned char *payload; /* valid until the reader is fed or destroyed */
    size_t length;
} Message;

MessageReader message_reader_create(size_t max_bytes);
void message_reader_destroy(MessageReader *reader);
void message_reader_feed(MessageReader *reader, const void *bytes, size_t length);
MessageStatus message_reader_next(MessageReader *reader, Message *out);

typedef struct Cursor {
    const unsigned char *at;
    size_t left;
    bool ok;
} Cursor;

Cursor cursor_create(const Message *message);
uint32_t cursor_u32(Cursor *cursor);
uint64_t cursor_u64(Cursor *cursor);
/* NULL and *out_length 0 when they are not there. */
const unsigned char *cursor_bytes(Cursor *cursor, size_t *out_length);
/* Cut to size - 1 bytes. */
void cursor_text(Cursor *cursor, char *out, size_t size);
/* All read, nothing left. */
bool cursor_end(const Cursor *cursor);

#endif
