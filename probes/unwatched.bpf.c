// SPDX-License-Identifier: Apache-2.0
/*
 * What can be known of a thread while the switch probe is off, as it is between two bursts where
 * it would cost more than the user allows.
 *
 * greenlet itself counts: PythonState::operator>>() (TPythonState.cpp) adds one to
 * PyThreadState.context_ver at each switch, to make contextvars look again. So two looks that
 * find the same number saw one and the same hold, and the difference is the number of switches
 * between them. Context.run() adds to it too, which makes a hold look like two, and is reckoned
 * out of the number of switches (gs_thread.drift).
 *
 * Looks are taken by the sampler's ticks and where a thread leaves the CPU. A hold that began or
 * ended between two of them did so in the middle, give or take half of the time between.
 */

static __always_inline u64
gs_read_version(struct gs_thread *thread, const struct gs_target *target, u32 tid)
{
	u64 tstate = gs_tstate_of(thread, tid), version = 0;

	if (tstate && target->tstate_version)
		gs_read_user(&version, sizeof(version), tstate + target->tstate_version);
	return version;
}

/*
 * That no switch took place says nothing of a hub, whose loop may have turned around meanwhile:
 * only a stay off the CPU is one stretch.
 */
static __always_inline bool
gs_may_have_turned(const struct gs_thread *thread, const struct gs_target *target)
{
	return thread->role == GS_ROLE_HUB && thread->longest_block_ns < target->sample_age_ns;
}

/* The present hold has ended at some time since the last look. */
static __always_inline void
gs_end_unseen(struct gs_thread *thread, const struct gs_target *target, u32 tid, u64 now)
{
	struct gs_greenlet_key key = { .addr = thread->greenlet, .tgid = thread->tgid };
	struct gs_greenlet *greenlet = gs_greenlets.lookup(&key);
	u64 last = thread->seen_ns > thread->hold_start_ns ? thread->seen_ns :
							     thread->hold_start_ns;
	u64 half = (now - last) / 2;

	thread->uncertain_ns += half;
	if (gs_may_have_turned(thread, target))
		thread->unwatched_ns += last + half - thread->hold_start_ns;
	else
		gs_end_hold(thread, target, tid, last + half, 0);
	if (greenlet)
		greenlet->left_ns = last + half;
	gs_begin_hold(thread, last + half);
	thread->uncertain_ns = half;
	thread->same_since_ns = now;
	thread->before_same_ns = last;
}

/*
 * The hub may have polled since the last look, and is known again from then on. Where it has not,
 * its hold goes on since it was met first: its begin lies in between.
 */
static __always_inline void
gs_see_hub(struct gs_thread *thread, const struct gs_watch *watch, u64 now)
{
	u64 since = watch->phase & 1 ? now : watch->on_since_ns, same_since = thread->same_since_ns;
	u64 before = thread->before_same_ns, half = 0;

	if (since < thread->hold_start_ns)
		return;
	if (!(watch->phase & 1) && before < since)
		half = (since - before) / 2;
	thread->unwatched_ns += since - half - thread->hold_start_ns;
	gs_begin_hold(thread, since - half);
	thread->uncertain_ns = half;
	thread->same_since_ns = same_since;
	thread->before_same_ns = before;
}

/* Brings a thread up to date that switched without being seen. On the thread itself. */
static __always_inline void
gs_look(struct gs_thread *thread, const struct gs_target *target, const struct gs_watch *watch,
	u32 tid, u64 now)
{
	u64 version, same_since = thread->same_since_ns, before = thread->before_same_ns;
	bool known = thread->version;
	s64 more;

	if (thread->phase == watch->phase && !(watch->phase & 1))
		return;
	version = gs_read_version(thread, target, tid);
	more = (s64)(version - thread->version);
	/* In the middle of a switch that the probe has told of. */
	if (more < 0 && version && gs_just_switched(thread, now))
		return;
	thread->phase = watch->phase;
	thread->version = version;
	if (known && version && more > 0) {
		gs_end_unseen(thread, target, tid, now);
		thread->unwatched_switches += more;
		thread->greenlet = 0;
		thread->greenlet_id = 0;
		thread->role = GS_ROLE_UNKNOWN;
		thread->stack_wanted = 1;
	} else if (thread->role == GS_ROLE_HUB && !gs_may_have_turned(thread, target)) {
		gs_end_unseen(thread, target, tid, now);
		thread->same_since_ns = same_since;
		thread->before_same_ns = before;
	} else if (thread->role == GS_ROLE_HUB || !version || !known) {
		gs_see_hub(thread, watch, now);
	}
	thread->seen_ns = now;
}

#define GS_DRIFT_EVERY 64	/* switches: a read of the target's memory costs a tenth of one */

/* At the probe of a switch: notes what context_ver grew by without one. */
static __always_inline void
gs_note_drift(struct gs_thread *thread, const struct gs_target *target, u32 tid)
{
	u64 version = gs_read_version(thread, target, tid);

	if (version && thread->version)
		thread->drift += (s64)(version - thread->version);
	thread->version = version;
}
