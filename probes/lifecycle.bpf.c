// SPDX-License-Identifier: Apache-2.0
/*
 * Birth and death of greenlets: constructor and destructor of greenlet::UserGreenlet, rdi =
 * this in both. Addresses are reused within milliseconds, so a birth begins a new identity
 * even where a death was missed.
 */

static __always_inline void
gs_bury(struct gs_greenlet_key *key, struct gs_greenlet *greenlet, u64 now)
{
	struct gs_event event = {
		.kind = GS_EVENT_GREENLET_END,
		.flags = greenlet->role == GS_ROLE_HUB ? GS_FLAG_HUB : 0,
		.nr = -1,
		.tid = greenlet->tid,
		.tgid = key->tgid,
		.ktime_ns = now,
		.stack_id = greenlet->kind_stack_id,
		.duration_ns = greenlet->running_ns,
		.greenlet_id = greenlet->id,
		.blocked_ns = greenlet->waiting_ns,
		.preempted_ns = greenlet->longest_hold_ns,
		.gc_ns = greenlet->switches,
	};

	gs_send(&event);
	gs_greenlets.delete(key);
}

int gs_on_greenlet_created(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns(), pid_tgid = bpf_get_current_pid_tgid();
	u32 tid = (u32)pid_tgid, tgid = pid_tgid >> 32;
	struct gs_greenlet_key key = { .addr = PT_REGS_PARM1(ctx), .tgid = tgid };
	struct gs_greenlet fresh = { .id = now, .tid = tid };
	struct gs_greenlet *old;

	if (!gs_targets.lookup(&tgid))
		return 0;
	old = gs_greenlets.lookup(&key);
	if (old)
		gs_bury(&key, old, now);
	if (gs_greenlets.update(&key, &fresh))
		gs_count_loss(GS_LOST_GREENLETS);
	return 0;
}

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
