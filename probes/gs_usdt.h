/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the arguments of a USDT probe.
 *
 * Plain C: the includer defines gs_read_user() and gs_read_kernel(), 0 on success.
 */
#ifndef GS_USDT_H
#define GS_USDT_H

#include "gs_target.h"

/* The value of one argument, widened to 64 bits; 0 on success. */
static inline __attribute__((always_inline)) int
gs_usdt_read(const void *regs, const struct gs_usdt_arg *arg, u64 *out)
{
	u64 value = 0, index = 0;
	u32 unused = arg->unused_bits & 56;

	if (arg->kind == GS_USDT_CONSTANT) {
		*out = arg->value;
		return 0;
	}
	if (arg->kind == GS_USDT_NONE)
		return -1;
	if (arg->base != GS_NO_REGISTER &&
	    gs_read_kernel(&value, sizeof(value), (const char *)regs + arg->base))
		return -1;
	if (arg->kind == GS_USDT_MEMORY) {
		if (arg->index != GS_NO_REGISTER &&
		    gs_read_kernel(&index, sizeof(index), (const char *)regs + arg->index))
			return -1;
		value += arg->value + (index << (arg->scale_shift & 3));
		if (gs_read_user(&value, 8 - unused / 8, value))
			return -1;
	}
	value <<= unused;
	*out = arg->is_signed ? (u64)((s64)value >> unused) : value >> unused;
	return 0;
}

#endif
