// SPDX-License-Identifier: Apache-2.0
/*
 * Entry of the function in which a hub's loop polls (libev's epoll_poll(), libuv's
 * uv__io_poll(), else libc's epoll_wait()): the loop turns around. Where the poll really
 * sleeps, sched_switch tells; where it returns at once only this ends the hub's hold, or a
 * loop of many short callbacks would look like one long one.
 */

int gs_on_poll(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target;
	struct gs_watch *watch;
	struct gs_greenlet_key key = { .tgid = tgid };
	struct gs_greenlet *hub;
	u64 length;

	if (!thread)
		return 0;
	target = gs_target_of(thread);
	watch = gs_watch_of(thread);
	if (!target || !watch)
		return 0;
	watch->polls++;
	if (thread->role != GS_ROLE_HUB || thread->idle || watch->phase & 1)
		return 0;
	if (thread->phase != watch->phase)
		gs_look(thread, target, watch, tid, now);
	key.addr = thread->greenlet;
	hub = gs_greenlets.lookup(&key);
	length = gs_end_hold(thread, target, tid, now, 0);
	if (hub)
		hub->running_ns += length;
	gs_begin_hold(thread, now);
	return 0;
}
