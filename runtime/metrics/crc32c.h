/* CRC-32C (Castagnoli's polynomial, as of iSCSI, RFC 3720): what TensorBoard's files are checked
 * by.
 */
#ifndef RUNTIME_METRICS_CRC32C_H
#define RUNTIME_METRICS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t length);

#endif
