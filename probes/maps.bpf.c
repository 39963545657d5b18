// SPDX-License-Identifier: Apache-2.0
/*
 * The maps, and the steps that every program shares. Comes first in the one translation unit
 * that the agent compiles: bcc rewrites map accesses in the main file only, so nothing in a
 * header may touch a map.
 */
#define GS_IN_KERNEL
#include <uapi/linux/ptrace.h>

/*
 * bpf_probe_read_user() by another name: where bcc sees a call of that one, it reads all of
 * /proc/kallsyms while it compiles, to be sure that the kernel has it. That takes 0.3 s.
 */
static long (*gs_probe_read_user)(void *dst, u32 size, const void *addr) =
	(void *)BPF_FUNC_probe_read_user;

#define gs_read_user(dst, size, addr) \
	gs_probe_read_user((dst), (size), (const void *)(addr))

#include "gs_types.h"
#include "gs_events.h"
#include "gs_target.h"
#include "gs_walk.h"

/* CPU time that greenlet needs for a switch at most: cold, and with a deep C stack to copy. */
#define GS_SWITCH_TAKES_NS 100000ULL

enum gs_loss {
	GS_LOST_EVENTS = 0,
	GS_LOST_STACKS = 1,
	GS_LOST_GREENLETS = 2,
	GS_LOST_THREADS = 3,
	GS_LOST_KINDS = 4,
};

/* By slot, which a thread knows: finding an entry of an array costs no call at each switch. */
BPF_ARRAY(gs_targets, struct gs_target, GS_MAX_TARGETS);
BPF_F_TABLE("array", u32, struct gs_watch, gs_watches, GS_MAX_TARGETS, BPF_F_MMAPABLE);
BPF_HASH(gs_slots, u32, u8, GS_MAX_TARGETS);	/* by process (tgid) */
BPF_HASH(gs_threads, u32, struct gs_thread, GS_MAX_THREADS);
BPF_ARRAY(gs_empty_thread, struct gs_thread, 1);	/* what a new entry is made from */
BPF_HASH(gs_greenlets, struct gs_greenlet_key, struct gs_greenlet, GS_MAX_GREENLETS);
/* Thread states that the agent read, for threads known before their first walk. */
BPF_HASH(gs_tstates, u32, u64, GS_MAX_THREADS);
/* Role of a greenlet by the code object of its outermost frame, as the agent resolved it. */
BPF_HASH(gs_roles, u64, u8, 1024);
/* Stacks that the agent has; the least recently used are sent again when they come back. */
BPF_TABLE("lru_hash", u64, u8, gs_sent_stacks, GS_MAX_STACKS);
BPF_PERCPU_ARRAY(gs_lost, u64, GS_LOST_KINDS);

/*
 * A walk is a program of its own, entered by a tail call from the one that wants it. Inside
 * that one, the verifier would check the loop once for each way that leads to it. An array
 * holds programs of one type.
 */
BPF_PROG_ARRAY(gs_switch_programs, 1);
BPF_PROG_ARRAY(gs_sampler_programs, 1);
BPF_PROG_ARRAY(gs_sched_programs, 1);
#define GS_PROGRAM_WALK 0

BPF_RINGBUF_OUTPUT(gs_events, GS_EVENT_PAGES);
BPF_RINGBUF_OUTPUT(gs_stacks, GS_STACK_PAGES);

/*
 * Scratch for a walk. A uprobe program can be preempted on its CPU by another thread that runs
 * the same program, so its scratch belongs to the thread; the sampler (interrupt) and the
 * scheduler's tracepoint (preemption off) cannot, theirs belong to the CPU.
 */
BPF_TABLE("lru_hash", u32, struct gs_walk, gs_uprobe_walk, GS_MAX_WALKS);
BPF_ARRAY(gs_empty_walk, struct gs_walk, 1);	/* what a new entry of it is made from */
BPF_PERCPU_ARRAY(gs_sampler_walk, struct gs_walk, 1);
BPF_PERCPU_ARRAY(gs_sched_walk, struct gs_walk, 1);

static __always_inline struct gs_target *gs_target_of(const struct gs_thread *thread)
{
	u32 slot = thread->slot;

	return gs_targets.lookup(&slot);
}

static __always_inline struct gs_watch *gs_watch_of(const struct gs_thread *thread)
{
	u32 slot = thread->slot;

	return gs_watches.lookup(&slot);
}

/* The thread's PyThreadState, 0 if nobody has met it yet. */
static __always_inline u64 gs_tstate_of(struct gs_thread *thread, u32 tid)
{
	u64 *known;

	if (!thread->tstate) {
		known = gs_tstates.lookup(&tid);
		if (known)
			thread->tstate = *known;
	}
	return thread->tstate;
}

static __always_inline void gs_count_loss(int what)
{
	u64 *count = gs_lost.lookup(&what);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void gs_send(struct gs_event *event)
{
	if (gs_events.ringbuf_output(event, sizeof(*event), 0))
		gs_count_loss(GS_LOST_EVENTS);
}

/* Sends a finished walk's stack if the agent does not have it yet. Gives its id. */
static __always_inline u64 gs_keep_stack(struct gs_walk *walk, const struct gs_target *target)
{
	u64 stack_id, size;
	u8 one = 1;

	gs_walk_end(walk, target);
	stack_id = walk->head.stack_id;
	if (!stack_id || gs_sent_stacks.lookup(&stack_id))
		return stack_id;
	size = sizeof(walk->head) + walk->head.nr_frames * sizeof(struct gs_frame);
	if (size > sizeof(walk->head) + sizeof(walk->frames))
		return 0;
	if (gs_stacks.ringbuf_output(walk, size, 0))
		gs_count_loss(GS_LOST_STACKS);
	else
		gs_sent_stacks.update(&stack_id, &one);
	return stack_id;
}

/*
 * Sends a finished walk of a tick, as it is: most are met once. Nobody is woken for it, the agent
 * looks after the ring several times a second anyway.
 */
static __always_inline void gs_send_tick(struct gs_walk *walk, const struct gs_target *target)
{
	u64 size;

	gs_walk_end(walk, target);
	size = sizeof(walk->head) + walk->head.nr_frames * sizeof(struct gs_frame);
	if (size <= sizeof(walk->head) + sizeof(walk->frames) &&
	    gs_stacks.ringbuf_output(walk, size, BPF_RB_NO_WAKEUP))
		gs_count_loss(GS_LOST_STACKS);
}

/* A walk tells what the current greenlet is: its outermost frame is its entry function. */
static __always_inline void
gs_learn_role(struct gs_thread *thread, const struct gs_walk *walk, u32 tgid)
{
	struct gs_greenlet_key key = { .addr = thread->greenlet, .tgid = tgid };
	struct gs_greenlet *greenlet = gs_greenlets.lookup(&key);
	u64 outermost = walk->head.outermost_code;
	u8 *role;

	if (walk->head.status != GS_WALK_COMPLETE || !outermost)
		return;
	role = gs_roles.lookup(&outermost);
	/* A code object that the agent has not named yet leaves the question open. */
	if (role)
		thread->role = *role;
	if (thread->role == GS_ROLE_HUB)
		thread->has_hub = GS_HUB_SEEN;
	if (!greenlet)
		return;
	greenlet->role = thread->role;
	if (!greenlet->kind_stack_id)
		greenlet->kind_stack_id = walk->head.stack_id;
}

/*
 * A switch is noted at its beginning: for some microseconds more the thread still has the
 * frames of the greenlet that it leaves. Who is preempted there (what the probe sent wakes the
 * agent) must not be known by them.
 */
static __always_inline bool gs_just_switched(const struct gs_thread *thread, u64 now)
{
	u64 off_cpu = thread->blocked_ns + thread->preempted_ns;

	return now - thread->hold_start_ns < off_cpu + GS_SWITCH_TAKES_NS;
}

/* Does a hold of this thread keep others waiting? */
static __always_inline bool gs_hold_matters(const struct gs_thread *thread)
{
	return thread->has_hub && !thread->idle && thread->role != GS_ROLE_WORKER;
}

static __always_inline u8 gs_hold_flags(const struct gs_thread *thread)
{
	return (thread->role == GS_ROLE_HUB ? GS_FLAG_HUB : 0) |
	       (thread->began_before ? GS_FLAG_BEGAN_BEFORE : 0) |
	       (thread->has_hub != GS_HUB_SEEN ? GS_FLAG_ASSUMED : 0) |
	       (thread->undecided ? GS_FLAG_UNDECIDED : 0) |
	       (thread->phase & 1 ? GS_FLAG_UNWATCHED : 0) |
	       (thread->gc_since_ns ? GS_FLAG_GC : 0);
}

/* Closes the books of the present hold and sends it if it was a blocking one. */
static __always_inline u64
gs_end_hold(struct gs_thread *thread, const struct gs_target *target, u32 tid, u64 now,
	    u64 stack_id)
{
	u64 length = now - thread->hold_start_ns;

	u64 certain = thread->role == GS_ROLE_HUB ? target->threshold_ns : target->sample_age_ns;

	/* What nobody saw begin or end, and was not seen to last: may have been many. */
	if (thread->uncertain_ns && length < thread->uncertain_ns + certain) {
		thread->unwatched_ns += length;
		return length;
	}
	if (thread->gc_since_ns) {
		thread->gc_ns += now - thread->gc_since_ns;
		thread->gc_since_ns = now;
	}
	if (thread->role == GS_ROLE_HUB)
		thread->hub_ns += length;
	else
		thread->holding_ns += length;
	if (gs_hold_matters(thread) || thread->undecided) {
		if (length > thread->longest_hold_ns && !thread->undecided)
			thread->longest_hold_ns = length;
		if (length >= target->threshold_ns || thread->undecided) {
			struct gs_event event = {
				.kind = GS_EVENT_HOLD,
				.flags = gs_hold_flags(thread),
				.nr = thread->uncertain_ns < 0x7fffffff ?
					      (s32)thread->uncertain_ns : 0x7fffffff,
				.tid = tid,
				.tgid = thread->tgid,
				.ktime_ns = now,
				.hold_id = thread->hold_id,
				.stack_id = stack_id,
				.duration_ns = length,
				.greenlet_id = thread->greenlet_id,
				.blocked_ns = thread->blocked_ns,
				.preempted_ns = thread->preempted_ns,
				.gc_ns = thread->gc_ns,
			};

			if (!thread->undecided)
				thread->holds++;
			gs_send(&event);
		}
	}
	return length;
}

/* Adds a hold that gs_end_hold() closed to the greenlet whose it was. */
static __always_inline void
gs_book_hold(struct gs_greenlet *greenlet, const struct gs_thread *thread, u64 length)
{
	greenlet->running_ns += length;
	if (length > greenlet->longest_hold_ns && !thread->undecided)
		greenlet->longest_hold_ns = length;
}

static __always_inline void gs_begin_hold(struct gs_thread *thread, u64 now)
{
	thread->hold_id++;
	thread->hold_start_ns = now;
	thread->blocked_ns = 0;
	thread->preempted_ns = 0;
	thread->gc_ns = 0;
	thread->began_before = 0;
	thread->undecided = 0;
	thread->same_since_ns = now;
	thread->before_same_ns = now;
	thread->uncertain_ns = 0;
	thread->longest_block_ns = 0;
}

/*
 * A thread that woke up between the agent's look at it and the begin of the watch is still marked
 * idle while it runs. From when on, nobody knows.
 */
static __always_inline void gs_wake_unseen(struct gs_thread *thread, u64 now)
{
	thread->idle = 0;
	thread->off_since_ns = 0;
	gs_begin_hold(thread, now);
	thread->began_before = 1;
}

/* Sends the sums of a greenlet that is no more, and forgets it. */
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
		.hold_id = greenlet->start_code,
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
