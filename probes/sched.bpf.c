// SPDX-License-Identifier: Apache-2.0
/*
 * sched_switch: exactly when, how long and at which stack a hold was off the CPU. A raw
 * tracepoint, which needs no tracefs; it runs on the CPU that switches, in the context of the
 * task that leaves, so the memory and registers of that one can be read.
 *
 * Offsets into task_struct come from the running kernel's BTF (GS_TASK_*), never from headers.
 */

static __always_inline bool gs_is_poll(s32 nr)
{
	return nr == GS_NR_EPOLL_WAIT || nr == GS_NR_EPOLL_PWAIT || nr == GS_NR_EPOLL_PWAIT2 ||
	       nr == GS_NR_POLL || nr == GS_NR_PPOLL || nr == GS_NR_SELECT ||
	       nr == GS_NR_PSELECT6 || nr == GS_NR_IO_URING_ENTER;
}

/* eventlet's loop sleeps where it has nothing to poll. gevent's never does. */
static __always_inline bool gs_is_sleep(s32 nr)
{
	return nr == GS_NR_NANOSLEEP || nr == GS_NR_CLOCK_NANOSLEEP;
}

static __always_inline bool gs_may_wait(s32 nr)
{
	return gs_is_poll(nr) || gs_is_sleep(nr);
}

/*
 * The hub is idle when it polls and no callback of its is on the stack. What cannot be told yet,
 * as the agent has not named the code so far, is for the agent to decide.
 */
static __always_inline bool gs_hub_polls(struct gs_thread *thread, const struct gs_walk *walk)
{
	u64 innermost = walk->frames[0].code_addr & ~7ULL;
	u8 *role;

	if (!gs_may_wait(thread->off_nr))
		return false;
	if (thread->role != GS_ROLE_HUB) {
		thread->undecided |= thread->role == GS_ROLE_UNKNOWN;
		return false;
	}
	/* No frame could be read: a hub that polls is most likely idle. */
	if (!walk->head.nr_frames)
		return gs_is_poll(thread->off_nr);
	role = gs_roles.lookup(&innermost);
	if (!role || *role == GS_ROLE_UNKNOWN)
		thread->undecided = 1;
	/* A hub's own frame and a sleep: a callback of the loop that is no Python function. */
	return role && ((*role == GS_ROLE_HUB && gs_is_poll(thread->off_nr)) ||
			*role == GS_ROLE_LOOP);
}

/* Notes that a traced thread leaves the CPU. Gives whether its stack is wanted. */
static __always_inline bool gs_leave_cpu(struct gs_thread *thread, u64 now, bool voluntary)
{
	if (thread->idle)
		gs_wake_unseen(thread, now);
	thread->off_since_ns = now;
	thread->off_stack_id = 0;
	thread->off_nr = -1;
	thread->off_kind = voluntary ? GS_OFF_BLOCKED : GS_OFF_PREEMPTED;
	if (voluntary) {
		struct pt_regs *saved = (void *)bpf_task_pt_regs(
			(void *)bpf_get_current_task_btf());

		thread->off_nr = (s32)saved->orig_ax;
		if (thread->off_nr < 0)
			thread->off_kind = GS_OFF_FAULT;
	}
	if (thread->off_kind != GS_OFF_BLOCKED && gs_just_switched(thread, now))
		return false;
	/* A poll of what may be a hub that was not seen yet is looked at on any thread. */
	return gs_hold_matters(thread) ||
	       (thread->off_kind == GS_OFF_BLOCKED && thread->role != GS_ROLE_WORKER &&
		thread->role != GS_ROLE_GREENLET && gs_may_wait(thread->off_nr));
}

static __always_inline void
gs_begin_idle(struct gs_thread *thread, const struct gs_target *target, u32 tid, u64 now)
{
	struct gs_greenlet_key key = { .addr = thread->greenlet, .tgid = thread->tgid };
	struct gs_greenlet *hub = gs_greenlets.lookup(&key);
	u64 length = gs_end_hold(thread, target, tid, now, thread->off_stack_id);

	if (hub)
		gs_book_hold(hub, thread, length);
	thread->idle = 1;
}

static __always_inline void gs_end_idle(struct gs_thread *thread, u32 tgid, u64 now)
{
	struct gs_greenlet_key key = { .addr = thread->greenlet, .tgid = tgid };
	struct gs_greenlet *hub = gs_greenlets.lookup(&key);
	u64 length = now - thread->off_since_ns;

	thread->idle_ns += length;
	if (hub)
		hub->waiting_ns += length;
	thread->idle = 0;
	gs_begin_hold(thread, now);
}

static __always_inline void gs_come_back(struct gs_thread *thread, u32 tid, u64 now)
{
	u64 length = now - thread->off_since_ns;
	u32 tgid = thread->tgid;
	struct gs_target *target = gs_target_of(thread);

	if (!target)
		return;
	thread->seen_ns = now;
	if (!thread->off_since_ns) {
		/* It went before the watch began, between the agent's look at it and now. How
		 * long it was away, and whether it was idle, nobody knows. */
		thread->hold_start_ns = now;
		thread->same_since_ns = now;
		return;
	}
	if (thread->idle) {
		gs_end_idle(thread, tgid, now);
		thread->off_since_ns = 0;
		return;
	}
	if (length > thread->longest_block_ns)
		thread->longest_block_ns = length;
	if (thread->off_kind == GS_OFF_PREEMPTED)
		thread->preempted_ns += length;
	else
		thread->blocked_ns += length;
	/* Short blocks matter once the hold is old: a thousand of them make a long one. */
	if (thread->undecided ||
	    (gs_hold_matters(thread) &&
	     (length >= target->min_block_ns ||
	      now - thread->hold_start_ns >= target->sample_age_ns))) {
		struct gs_event event = {
			.kind = GS_EVENT_BLOCK,
			.flags = gs_hold_flags(thread),
			.off_kind = thread->off_kind,
			.nr = thread->off_nr,
			.tid = tid,
			.tgid = tgid,
			.ktime_ns = now,
			.hold_id = thread->hold_id,
			.stack_id = thread->off_stack_id,
			.duration_ns = length,
			.greenlet_id = thread->greenlet_id,
		};

		gs_send(&event);
	}
	thread->off_since_ns = 0;
}

/* The thread that gets the CPU, if it is one of ours. */
static __always_inline void gs_next_comes_back(struct bpf_raw_tracepoint_args *ctx, u64 now)
{
	struct gs_thread *thread;
	u32 tid = 0;

	bpf_probe_read_kernel(&tid, sizeof(tid), (void *)(ctx->args[2] + GS_TASK_PID));
	thread = gs_threads.lookup(&tid);
	if (thread && !thread->exited)
		gs_come_back(thread, tid, now);
}

int gs_on_sched_switch_walk(struct bpf_raw_tracepoint_args *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target = thread ? gs_target_of(thread) : 0;
	int zero = 0;
	struct gs_walk *walk = gs_sched_walk.lookup(&zero);

	if (!target || !thread || !walk)
		return 0;
	if (gs_walk_some(walk, target))
		gs_sched_programs.call(ctx, GS_PROGRAM_WALK);
	thread->off_stack_id = gs_keep_stack(walk, target);
	/* Whoever is in a system call is in no switch: these frames are certainly its own. */
	if (thread->off_kind == GS_OFF_BLOCKED) {
		/* What polls may turn out to be a hub, when the agent has seen more of it. */
		if (thread->role == GS_ROLE_UNKNOWN ||
		    (thread->role == GS_ROLE_GREENLET && gs_may_wait(thread->off_nr)))
			gs_learn_role(thread, walk, tgid);
		if (gs_hub_polls(thread, walk))
			gs_begin_idle(thread, target, tid, walk->now_ns);
	}
	gs_next_comes_back(ctx, walk->now_ns);
	return 0;
}

/* args: bool preempt, task_struct *prev, task_struct *next, unsigned int prev_state (5.18+) */
int gs_on_sched_switch(struct bpf_raw_tracepoint_args *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32, state = 0;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target = 0;
	struct gs_watch *watch = 0;
	struct gs_walk *walk;
	int zero = 0;

	if (thread && !thread->exited) {
		target = gs_target_of(thread);
		watch = gs_watch_of(thread);
	}
	if (thread && target && watch) {
		watch->leaves++;
		gs_look(thread, target, watch, tid, now);
		bpf_probe_read_kernel(&state, sizeof(state),
				      (void *)(ctx->args[1] + GS_TASK_STATE));
		walk = gs_sched_walk.lookup(&zero);
		if (gs_leave_cpu(thread, now, !ctx->args[0] && state) && walk) {
			gs_walk_begin(walk, target, gs_tstate_of(thread, tid), tgid);
			walk->now_ns = now;
			gs_sched_programs.call(ctx, GS_PROGRAM_WALK);
		}
	}
	gs_next_comes_back(ctx, now);
	return 0;
}

static __always_inline void gs_end_thread(struct gs_thread *thread, u32 tid, u64 now)
{
	struct gs_target *target = gs_target_of(thread);
	struct gs_greenlet_key key = { .addr = thread->greenlet, .tgid = thread->tgid };
	struct gs_greenlet *greenlet = gs_greenlets.lookup(&key);
	struct gs_watch *watch = gs_watch_of(thread);
	u64 length;

	/* Killed while it polled: it came back for its end alone. */
	if (thread->exited || !target || !watch || thread->idle)
		return;
	gs_look(thread, target, watch, tid, now);
	length = gs_end_hold(thread, target, tid, now, 0);
	if (greenlet)
		gs_book_hold(greenlet, thread, length);
}

/* The books of a thread that ends stay readable for the agent, which deletes them. */
int gs_on_thread_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct gs_thread *thread = gs_threads.lookup(&tid);

	if (thread) {
		gs_end_thread(thread, tid, now);
		thread->exited = 1;
		gs_uprobe_walk.delete(&tid);
		gs_tstates.delete(&tid);
	}
	return 0;
}
