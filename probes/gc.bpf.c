// SPDX-License-Identifier: Apache-2.0
/*
 * python:gc__start and python:gc__done (Modules/gcmodule.c, USDT): the collector runs on the
 * thread that triggered it, inside its hold.
 */

int gs_on_gc_start(struct pt_regs *ctx)
{
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct gs_thread *thread = gs_threads.lookup(&tid);

	if (thread)
		thread->gc_since_ns = bpf_ktime_get_ns();
	return 0;
}

int gs_on_gc_done(struct pt_regs *ctx)
{
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct gs_thread *thread = gs_threads.lookup(&tid);

	if (thread && thread->gc_since_ns) {
		thread->gc_ns += bpf_ktime_get_ns() - thread->gc_since_ns;
		thread->gc_since_ns = 0;
	}
	return 0;
}
