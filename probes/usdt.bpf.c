// SPDX-License-Identifier: Apache-2.0
/*
 * What the programs on USDT probes share: their places, by the cookie of the attachment.
 * Compiled only with a part that reads arguments (calls, trace).
 */
static long (*gs_probe_read_kernel)(void *dst, u32 size, const void *addr) =
	(void *)BPF_FUNC_probe_read_kernel;

#define gs_read_kernel(dst, size, addr) \
	gs_probe_read_kernel((dst), (size), (const void *)(addr))

#include "gs_usdt.h"

BPF_ARRAY(gs_places, struct gs_place, GS_MAX_PLACES);

static __always_inline struct gs_place *gs_this_place(void *ctx)
{
	u32 cookie = bpf_get_attach_cookie(ctx);

	return gs_places.lookup(&cookie);
}
