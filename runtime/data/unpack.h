/* Unpacking of what is compressed, by zlib, libzstd and libsnappy: a stretch of known size at once,
 * or a stream part by part. Bytes are not trusted: what is damaged is said to be. */
#ifndef RUNTIME_DATA_UNPACK_H
#define RUNTIME_DATA_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

typedef enum PackKind { PACK_NONE, PACK_GZIP, PACK_ZSTD, PACK_SNAPPY } PackKind;

/* By the first bytes of a file: PACK_GZIP, PACK_ZSTD, or PACK_NONE. */
PackKind pack_kind_of(const unsigned char *bytes, size_t length);

/* bytes [length] -> out [n_out], all of it. False: they are not that. */
bool unpack_whole(PackKind kind, const unsigned char *bytes, size_t length, unsigned char *out,
                  size_t n_out);

/* A stream: gzip's members or zstd's frames, one behind the other, or what is not packed. */
typedef struct Unpacker Unpacker;
/* Of bytes that stay where they are while it is read. */
Unpacker *unpacker_create(PackKind kind, const unsigned char *bytes, size_t length);
/* Of a descriptor, a pipe for example, packed as its first bytes say. */
Unpacker *unpacker_create_reading(int descriptor);
void unpacker_destroy(Unpacker *unpacker);
/* Fills out [room], less at the end: -> how much. *out_wrong: what is wrong, or NULL. */
size_t unpacker_read(Unpacker *unpacker, unsigned char *out, size_t room, const char **out_wrong);
/* How many bytes, as they came, have been read. */
size_t unpacker_position(const Unpacker *unpacker);

#endif
