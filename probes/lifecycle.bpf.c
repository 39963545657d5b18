// SPDX-License-Identifier: Apache-2.0
/*
 * Birth and end of greenlets. Addresses are reused within milliseconds, so a birth begins a
 * new identity even where an end was missed (a greenlet that never ran has none).
 */

static __always_inline struct gs_watch *gs_count_birth(u32 slot)
{
	struct gs_watch *watch = gs_watches.lookup(&slot);

	if (watch)
		watch->births++;
	return watch;
}

/* Constructor of greenlet::UserGreenlet, rdi = this. */
int gs_on_greenlet_created(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_greenlet_key key = { .addr = PT_REGS_PARM1(ctx), .tgid = tgid };
	struct gs_greenlet fresh = { .id = now, .tid = tid };
	struct gs_greenlet *old;
	u8 *slot = gs_slots.lookup(&tgid);
	struct gs_watch *watch = slot ? gs_count_birth(*slot) : 0;

	if (!watch)
		return 0;
	fresh.phase = watch->phase;
	old = gs_greenlets.lookup(&key);
	if (old)
		gs_bury(&key, old, now);
	if (gs_greenlets.update(&key, &fresh))
		gs_count_loss(GS_LOST_GREENLETS);
	return 0;
}

/*
 * greenlet::PythonState::did_finish(PyThreadState *), called by the greenlet that ends, on its
 * own stack; with a null thread state by whoever frees one that did not. The switch away that
 * follows is its last (gs_switch() buries it).
 */
int gs_on_greenlet_finished(struct pt_regs *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid;
	struct gs_thread *thread = gs_threads.lookup(&tid);
	struct gs_greenlet_key key = { .tgid = pid_tgid >> 32 };
	struct gs_greenlet *greenlet;
	struct gs_watch *watch = thread ? gs_count_birth(thread->slot) : 0;

	if (!watch || !thread || !PT_REGS_PARM2(ctx))
		return 0;
	/* `this` is a part of the greenlet, in all at the same place. */
	if (thread->greenlet && thread->phase == watch->phase && !(watch->phase & 1))
		watch->python_state = PT_REGS_PARM1(ctx) - thread->greenlet;
	if (!watch->python_state)
		return 0;
	key.addr = PT_REGS_PARM1(ctx) - watch->python_state;
	greenlet = gs_greenlets.lookup(&key);
	if (greenlet)
		greenlet->finished = 1;
	return 0;
}

/* Destructor of greenlet::Greenlet, rdi = this: for greenlet 2.0, which has no did_finish(). */
int gs_on_greenlet_freed(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct gs_greenlet_key key = { .addr = PT_REGS_PARM1(ctx), .tgid = tgid };
	struct gs_greenlet *greenlet = gs_greenlets.lookup(&key);

	if (greenlet)
		gs_bury(&key, greenlet, now);
	return 0;
}
