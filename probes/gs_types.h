/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed-width names for the host tests; under bcc the kernel's own are there already.
 */
#ifndef GS_TYPES_H
#define GS_TYPES_H

#ifndef GS_IN_KERNEL
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#endif

#endif
