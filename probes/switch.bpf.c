// SPDX-License-Identifier: Apache-2.0
/*
 * Entry of greenlet::Greenlet::g_switchstack(): a switch from the current greenlet to
 * its `this`, which is the second argument: the first is the hidden place of the result (the
 * class that it returns has a destructor, so the ABI wants it in memory). Runs on the thread that switches, which holds the GIL.
 */

/* State of a thread that switches for the first time; 0 if its process is not traced. */
static __always_inline struct gs_thread *gs_new_thread(u32 tid, u32 tgid, u64 now)
{
	u8 *slot = gs_slots.lookup(&tgid);
	int zero = 0;
	struct gs_thread *thread = gs_empty_thread.lookup(&zero);

	if (!slot || !thread)
		return 0;
	if (gs_threads.update(&tid, thread))
		gs_count_loss(GS_LOST_THREADS);
	thread = gs_threads.lookup(&tid);
	if (!thread)
		return 0;
	thread->tgid = tgid;
	thread->slot = *slot;
	thread->hold_start_ns = now;
	thread->same_since_ns = now;
	thread->off_nr = -1;
	thread->phase = GS_NEVER_LOOKED;
	thread->has_hub = tid == tgid ? GS_HUB_ASSUMED : 0;
	thread->stack_wanted = 1;
	return thread;
}

static __always_inline struct gs_greenlet *
gs_find_greenlet(struct gs_greenlet_key *key, const struct gs_watch *watch, u32 tid, u64 now)
{
	struct gs_greenlet fresh = { .id = now, .tid = tid, .phase = watch->phase };
	struct gs_greenlet *greenlet = gs_greenlets.lookup(key);

	/* A hub lives as long as its thread. */
	if (greenlet && greenlet->phase < watch->fresh_since && greenlet->role != GS_ROLE_HUB) {
		gs_bury(key, greenlet, now);
		greenlet = 0;
	}
	if (greenlet) {
		greenlet->phase = watch->phase;
		return greenlet;
	}
	if (gs_greenlets.update(key, &fresh))
		gs_count_loss(GS_LOST_GREENLETS);
	return gs_greenlets.lookup(key);
}

/* Whether a walk that nothing but completeness asks for fits into the budget. */
static __always_inline bool
gs_take_token(struct gs_thread *thread, const struct gs_target *target, u64 now)
{
	if (now - thread->walk_window_ns > 10000000ULL) {
		thread->walk_window_ns = now;
		thread->walk_tokens = target->wait_walks;
	}
	if (!thread->walk_tokens)
		return false;
	thread->walk_tokens--;
	return true;
}

/* Everything but the walk: closes the origin's hold, opens the target's. */
static __always_inline void
gs_switch(struct gs_thread *thread, const struct gs_target *target, u64 to_addr, u32 tid,
	  u64 now, u64 stack_id)
{
	struct gs_greenlet_key from = { .addr = thread->greenlet, .tgid = thread->tgid };
	struct gs_greenlet_key to = { .addr = to_addr, .tgid = thread->tgid };
	struct gs_greenlet *origin, *next;
	struct gs_watch *watch = gs_watch_of(thread);
	u64 length;

	/* A thread that woke up while the agent was attaching may still be marked idle. */
	if (thread->idle)
		thread->hold_start_ns = now;
	thread->idle = 0;
	length = gs_end_hold(thread, target, tid, now, stack_id);
	thread->switches++;
	if (thread->version)
		thread->version++;
	origin = gs_greenlets.lookup(&from);
	if (origin) {
		origin->switches++;
		if (watch)
			origin->phase = watch->phase;
		gs_book_hold(origin, thread, length);
		origin->left_ns = now;
		origin->left_stack_id = stack_id;
		if (origin->finished)
			gs_bury(&from, origin, now);
	}

	next = watch ? gs_find_greenlet(&to, watch, tid, now) : 0;
	if (next)
		gs_read_start(next, target, to_addr);
	thread->greenlet = to_addr;
	thread->greenlet_id = next ? next->id : 0;
	thread->role = next ? next->role : GS_ROLE_UNKNOWN;
	/* Of one whose start tells all there is no stack needed for its name. */
	thread->stack_wanted = !next || (!next->kind_stack_id &&
					 (!next->start_code || next->role == GS_ROLE_UNKNOWN));
	if (next && next->left_ns) {
		next->waiting_ns += now - next->left_ns;
		next->left_ns = 0;
	}
	gs_begin_hold(thread, now);
}

/* Does this switch need the stack of the greenlet that leaves? */
static __always_inline bool
gs_wants_stack(struct gs_thread *thread, const struct gs_target *target, u64 now)
{
	if (thread->stack_wanted || now - thread->hold_start_ns >= target->threshold_ns)
		return true;
	if (thread->role == GS_ROLE_UNKNOWN || target->wait_stacks == GS_WAITS_SAMPLED)
		return gs_take_token(thread, target, now);
	return target->wait_stacks == GS_WAITS_EXACT;
}

/* Scratch of this thread, made when it is first needed. */
static __always_inline struct gs_walk *gs_thread_walk(u32 tid)
{
	struct gs_walk *walk = gs_uprobe_walk.lookup(&tid), *empty;
	int zero = 0;

	if (walk)
		return walk;
	empty = gs_empty_walk.lookup(&zero);
	if (empty)
		gs_uprobe_walk.update(&tid, empty);
	return gs_uprobe_walk.lookup(&tid);
}

int gs_on_switch_walk(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid(), stack_id;
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target = thread ? gs_target_of(thread) : 0;
	struct gs_walk *walk = gs_uprobe_walk.lookup(&tid);

	if (!target || !thread)
		return 0;
	if (!walk) {
		/* Its scratch was taken for another thread meanwhile: the switch counts. */
		gs_switch(thread, target, PT_REGS_PARM2(ctx), tid, bpf_ktime_get_ns(), 0);
		return 0;
	}
	if (gs_walk_some(walk, target))
		gs_switch_programs.call(ctx, GS_PROGRAM_WALK);
	stack_id = gs_keep_stack(walk, target);
	/* What a greenlet is does not change while it lives. */
	if (thread->role == GS_ROLE_UNKNOWN || thread->stack_wanted)
		gs_learn_role(thread, walk, tgid);
	gs_switch(thread, target, PT_REGS_PARM2(ctx), tid, walk->now_ns, stack_id);
	return 0;
}

int gs_on_switch(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid(), to;
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_target *target;
	struct gs_watch *watch;
	struct gs_walk *walk;

	if (!thread || thread->exited)
		thread = gs_new_thread(tid, tgid, now);
	if (!thread)
		return 0;
	target = gs_target_of(thread);
	watch = gs_watch_of(thread);
	if (!target || !watch)
		return 0;
	watch->switches++;
	if (watch->phase & 1)
		return 0;
	if (thread->phase != watch->phase)
		gs_look(thread, target, watch, tid, now);
	else if (!(thread->switches % GS_DRIFT_EVERY))
		gs_note_drift(thread, target, tid);
	to = PT_REGS_PARM2(ctx);
	/* g_switchstack() returns at once when asked to switch to the current greenlet. */
	if (to == thread->greenlet)
		return 0;
	walk = gs_wants_stack(thread, target, now) ? gs_thread_walk(tid) : 0;
	if (walk) {
		watch->walks++;
		/* The switching thread holds the GIL: the running thread state is its own. */
		if (target->tstate_addr)
			gs_read_user(&thread->tstate, sizeof(thread->tstate),
				     target->tstate_addr);
		gs_walk_begin(walk, target, gs_tstate_of(thread, tid), tgid);
		walk->now_ns = now;
		gs_switch_programs.call(ctx, GS_PROGRAM_WALK);
	}
	/* Also where the tail call failed: the switch counts, its stack is missing. */
	gs_switch(thread, target, to, tid, now, 0);
	return 0;
}
