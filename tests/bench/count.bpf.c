// SPDX-License-Identifier: Apache-2.0
/*
 * The least that a uprobe can do: count. What our switch program costs is compared with it.
 */
#include <uapi/linux/ptrace.h>

BPF_PERCPU_ARRAY(bench_hits, u64, 1);

int bench_on_switch(struct pt_regs *ctx)
{
	int zero = 0;
	u64 *hits = bench_hits.lookup(&zero);

	if (hits)
		(*hits)++;
	return 0;
}
