// SPDX-License-Identifier: Apache-2.0
/* The walker of probes/gs_walk.h on a recorded image of memory, for tests/probes. */
#include <string.h>

#include "gs_types.h"

struct host_page {
	u64 base;
	const u8 *bytes;
};

static const struct host_page *host_pages;
static u64 host_page_count;
static u64 host_reads;

static const u8 *host_page_at(u64 base)
{
	for (u64 i = 0; i < host_page_count; i++)
		if (host_pages[i].base == base)
			return host_pages[i].bytes;
	return 0;
}

/* As bpf_probe_read_user(): all of it, or an error and zeros. */
static int gs_read_user(void *dst, u64 size, u64 addr)
{
	u8 *out = dst;

	host_reads++;
	for (u64 done = 0; done < size;) {
		u64 at = addr + done, offset = at & 4095, part = 4096 - offset;
		const u8 *page = host_page_at(at - offset);

		if (!page) {
			memset(dst, 0, size);
			return -14;
		}
		if (part > size - done)
			part = size - done;
		memcpy(out + done, page + offset, part);
		done += part;
	}
	return 0;
}

#include "gs_walk.h"

u64 host_walk_size(void)
{
	return sizeof(struct gs_walk);
}

u64 host_read_count(void)
{
	return host_reads;
}

/* Walks as the programs do, each run of gs_walk_some() one tail call. Gives the number of runs. */
u32 host_walk(struct gs_walk *walk, const struct gs_target *target, u64 tstate, u32 tgid,
	      const struct host_page *pages, u64 page_count)
{
	u32 runs = 1;

	host_pages = pages;
	host_page_count = page_count;
	host_reads = 0;
	gs_walk_begin(walk, target, tstate, tgid);
	/* MAX_TAIL_CALL_CNT (include/linux/bpf.h): the 34th call is refused. */
	while (gs_walk_some(walk, target) && runs < 33)
		runs++;
	gs_walk_end(walk, target);
	return runs;
}
