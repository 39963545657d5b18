// SPDX-License-Identifier: Apache-2.0
/*
 * cpu-clock on every CPU: what runs in threads with a hub, and where is a hold that lasts too
 * long? Other processes cost one map look-up.
 */

/* struct bpf_perf_event_data of include/uapi/linux/bpf_perf_event.h, as far as it is read: that
 * header pulls in most of the kernel's, which alone take two seconds to compile. */
struct gs_perf_context {
	struct pt_regs regs;
};

int gs_on_sample_walk(struct gs_perf_context *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target = thread ? gs_target_of(thread) : 0;
	struct gs_event event = { .kind = GS_EVENT_SAMPLE, .nr = -1, .tid = tid, .tgid = tgid };
	int zero = 0;
	struct gs_walk *walk = gs_sampler_walk.lookup(&zero);

	if (!target || !thread || !walk)
		return 0;
	if (gs_walk_some(walk, target))
		gs_sampler_programs.call(ctx, GS_PROGRAM_WALK);
	if (walk->head.tick_tid) {
		gs_send_tick(walk, target);
		return 0;
	}
	event.stack_id = gs_keep_stack(walk, target);
	if (thread->role == GS_ROLE_UNKNOWN)
		gs_learn_role(thread, walk, tgid);
	event.flags = gs_hold_flags(thread);
	/* In kernel mode the system call is the one in the registers saved at its entry; an
	 * exception (page fault) leaves -1 there. */
	if (!(ctx->regs.cs & 3)) {
		struct pt_regs *saved = (void *)bpf_task_pt_regs(
			(void *)bpf_get_current_task_btf());

		event.nr = (s32)saved->orig_ax;
		event.flags |= GS_FLAG_IN_SYSCALL;
	}
	event.ktime_ns = walk->now_ns;
	event.hold_id = thread->hold_id;
	event.greenlet_id = thread->greenlet_id;
	gs_send(&event);
	return 0;
}

int gs_on_sample(struct gs_perf_context *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target;
	struct gs_watch *watch;
	struct gs_walk *walk;
	bool is_old;
	int zero = 0;

	if (!thread || thread->exited)
		return 0;
	target = gs_target_of(thread);
	watch = gs_watch_of(thread);
	walk = gs_sampler_walk.lookup(&zero);
	if (!target || !watch || !walk)
		return 0;
	if (thread->idle)
		gs_wake_unseen(thread, now);
	gs_look(thread, target, watch, tid, now);
	if (!gs_hold_matters(thread))
		return 0;
	gs_walk_begin(walk, target, gs_tstate_of(thread, tid), tgid);
	/* A hub that may have turned around since the look before is one for the probe to see. */
	is_old = now - thread->same_since_ns >= target->sample_age_ns &&
		 (thread->phase & 1 || !gs_just_switched(thread, now));
	walk->head.tick_tid = is_old ? 0 : tid;
	walk->now_ns = now;
	gs_sampler_programs.call(ctx, GS_PROGRAM_WALK);
	return 0;
}
