#include "runtime/data/unpack.h"

#include "ir/base/memory.h"

#include <errno.h>
#include <limits.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
    BUFFER_BYTES = 1 << 18,
    GZIP_WINDOW = 15 + 16,    /* the largest, with gzip's header */
    ZSTD_LARGEST_WINDOW = 31, /* zstd --long=31, as archives of dumps have it */
};

PackKind pack_kind_of(const unsigned char *bytes, size_t length) {
    if (length >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0) return PACK_GZIP;
    return length >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0 ? PACK_ZSTD : PACK_NONE;
}

struct Unpacker {
    PackKind kind;
    const unsigned char *bytes; /* all, or what is there of a descriptor's */
    size_t length, at, before;
    int descriptor;        /* -1: none, or nothing more comes from it */
    unsigned char *buffer; /* of a descriptor */
    bool failed;           /* to read the descriptor */
    bool inside;           /* a member or a frame */
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static void begin(Unpacker *unpacker, PackKind kind) {
    unpacker->kind = kind;
    if (kind == PACK_GZIP) {
        if (inflateInit2(&unpacker->gzip, GZIP_WINDOW) != Z_OK) memory_exhausted(0);
    } else if (kind == PACK_ZSTD) {
        unpacker->zstd = ZSTD_createDStream();
        if (!unpacker->zstd) memory_exhausted(0);
        ZSTD_DCtx_setParameter(unpacker->zstd, ZSTD_d_windowLogMax, ZSTD_LARGEST_WINDOW);
    }
}

/* What is there of the descriptor's bytes has been read: the next ones, as many as come, but for
 * the first time, when there are to be enough to see what they are. */
static bool refill(Unpacker *unpacker) {
    enum { ENOUGH = 16 };
    size_t enough = unpacker->before + unpacker->length ? 1 : ENOUGH;
    unpacker->before += unpacker->length;
    unpacker->length = unpacker->at = 0;
    while (unpacker->length < enough) {
        ssize_t n = read(unpacker->descriptor, unpacker->buffer + unpacker->length,
                         BUFFER_BYTES - unpacker->length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            unpacker->descriptor = -1;
            return n == 0;
        }
        unpacker->length += (size_t)n;
    }
    return true;
}

Unpacker *unpacker_create(PackKind kind, const unsigned char *bytes, size_t length) {
    Unpacker *unpacker = memory_zeroed(1, sizeof(*unpacker));
    unpacker->bytes = bytes;
    unpacker->length = length;
    unpacker->descriptor = -1;
    begin(unpacker, kind);
    return unpacker;
}

Unpacker *unpacker_create_reading(int descriptor) {
    Unpacker *unpacker = memory_zeroed(1, sizeof(*unpacker));
    unpacker->bytes = unpacker->buffer = memory_alloc(BUFFER_BYTES);
    unpacker->descriptor = descriptor;
    unpacker->failed = !refill(unpacker);
    begin(unpacker, pack_kind_of(unpacker->bytes, unpacker->length));
    return unpacker;
}

void unpacker_destroy(Unpacker *unpacker) {
    if (!unpacker) return;
    if (unpacker->kind == PACK_GZIP) inflateEnd(&unpacker->gzip);
    ZSTD_freeDStream(unpacker->zstd);
    free(unpacker->buffer);
    free(unpacker);
}

size_t unpacker_position(const Unpacker *unpacker) {
    return unpacker->before + unpacker->at;
}

/* Zeros behind the last member are padding, as on tapes. */
static bool only_zeros(const unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static unsigned at_most_int(size_t n) {
    return n < INT_MAX ? (unsigned)n : INT_MAX;
}

/* One step of zlib's, which makes progress or says what is wrong. */
static size_t read_gzip(Unpacker *u, unsigned char *out, size_t room, const char **out_wrong) {
    z_stream *gzip = &u->gzip;
    if (!u->inside) {
        if (only_zeros(u->bytes + u->at, u->length - u->at)) {
            u->at = u->length;
            return 0;
        }
        inflateReset(gzip);
        u->inside = true;
    }
    unsigned in = at_most_int(u->length - u->at), space = at_most_int(room);
    gzip->next_in = (unsigned char *)u->bytes + u->at;
    gzip->avail_in = in;
    gzip->next_out = out;
    gzip->avail_out = space;
    int status = inflate(gzip, Z_NO_FLUSH);
    size_t n = space - gzip->avail_out, eaten = in - gzip->avail_in;
    u->at += eaten;
    if (status == Z_STREAM_END) {
        u->inside = false;
    } else if (status == Z_MEM_ERROR) {
        memory_exhausted(0);
    } else if (n == 0 && eaten == 0 && u->descriptor >= 0 && u->at == u->length) {
        return 0; /* more comes */
    } else if (status == Z_BUF_ERROR || (status == Z_OK && n == 0 && eaten == 0)) {
        *out_wrong = "ends too early: a part of it is missing";
    } else if (status != Z_OK) {
        *out_wrong = "is damaged: zlib cannot unpack it";
    }
    return n;
}

static size_t read_zstd(Unpacker *u, unsigned char *out, size_t room, const char **out_wrong) {
    ZSTD_inBuffer in = {u->bytes, u->length, u->at};
    ZSTD_outBuffer to = {out, room, 0};
    size_t status = ZSTD_decompressStream(u->zstd, &to, &in);
    bool moved = in.pos > u->at || to.pos > 0;
    u->at = in.pos;
    u->inside = status != 0;
    if (ZSTD_isError(status)) {
        *out_wrong = "is damaged: zstd cannot unpack it";
    } else if (!moved && u->at == u->length && u->descriptor < 0) {
        *out_wrong = "ends too early: a part of it is missing";
    }
    return to.pos;
}

static size_t read_plain(Unpacker *u, unsigned char *out, size_t room) {
    size_t n = u->length - u->at < room ? u->length - u->at : room;
    memcpy(out, u->bytes + u->at, n);
    u->at += n;
    return n;
}

size_t unpacker_read(Unpacker *unpacker, unsigned char *out, size_t room, const char **out_wrong) {
    Unpacker *u = unpacker;
    size_t n = 0;
    *out_wrong = NULL;
    while (n < room && !*out_wrong) {
        if (u->at == u->length && u->descriptor >= 0) u->failed = !refill(u);
        if (u->failed) *out_wrong = "cannot be read to its end";
        if (u->failed || (u->at == u->length && !u->inside)) break;
        n += u->kind == PACK_GZIP   ? read_gzip(u, out + n, room - n, out_wrong)
             : u->kind == PACK_ZSTD ? read_zstd(u, out + n, room - n, out_wrong)
                                    : read_plain(u, out + n, room - n);
    }
    return n;
}

bool unpack_whole(PackKind kind, const unsigned char *bytes, size_t length, unsigned char *out,
                  size_t n_out) {
    size_t n = 0;
    if (kind == PACK_NONE) {
        if (length == n_out && n_out > 0) memcpy(out, bytes, n_out);
        return length == n_out;
    }
    if (kind == PACK_SNAPPY) {
        if (snappy_uncompressed_length((const char *)bytes, length, &n) != SNAPPY_OK) return false;
        return n == n_out &&
               snappy_uncompress((const char *)bytes, length, (char *)out, &n) == SNAPPY_OK;
    }
    if (kind == PACK_ZSTD) return ZSTD_decompress(out, n_out, bytes, length) == n_out;
    const char *wrong;
    unsigned char beyond;
    Unpacker *unpacker = unpacker_create(kind, bytes, length);
    n = unpacker_read(unpacker, out, n_out, &wrong);
    bool good = !wrong && n == n_out && unpacker_read(unpacker, &beyond, 1, &wrong) == 0 && !wrong;
    unpacker_destroy(unpacker);
    return good;
}
