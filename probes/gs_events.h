/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel side tells the agent. greenscope/bpf/abi.py mirrors this file; the layout
 * test (tests/probes) compares the two field by field.
 *
 * All events are of one size, so that the agent decodes the mapped ring in one sweep.
 * Times are bpf_ktime_get_ns() (CLOCK_MONOTONIC), durations nanoseconds.
 */
#ifndef GS_EVENTS_H
#define GS_EVENTS_H

#include "gs_types.h"

enum gs_event_kind {
	GS_EVENT_HOLD = 1,	/* a hold ended that was not shorter than the threshold */
	GS_EVENT_SAMPLE = 2,	/* the sampler met a hold that lasts too long */
	GS_EVENT_BLOCK = 3,	/* a hold was off the CPU */
	GS_EVENT_GREENLET_END = 4,	/* a greenlet was freed; its sums */
};

enum gs_off_kind {
	GS_OFF_NONE = 0,
	GS_OFF_BLOCKED = 1,	/* gave up the CPU by itself in a system call */
	GS_OFF_PREEMPTED = 2,	/* wanted to run, the kernel ran something else */
	GS_OFF_FAULT = 3,	/* slept in a page fault */
};

/* gs_event.flags */
#define GS_FLAG_HUB		0x01	/* the greenlet is the hub */
#define GS_FLAG_BEGAN_BEFORE	0x02	/* was running when the watch began */
#define GS_FLAG_GC		0x04	/* inside a garbage collection */
#define GS_FLAG_IN_SYSCALL	0x08	/* sample taken in kernel mode, nr is valid */
#define GS_FLAG_ASSUMED		0x10	/* no hub was seen on this thread so far */
#define GS_FLAG_UNDECIDED	0x20	/* may have polled as the hub: the agent tells by the stacks
					 * of its BLOCK events; sent however short it was */
#define GS_FLAG_UNWATCHED	0x40	/* the switch probe is off */

struct gs_event {
	u8 kind;		/* enum gs_event_kind */
	u8 flags;
	u8 off_kind;		/* enum gs_off_kind; BLOCK only */
	u8 pad;
	s32 nr;			/* system call number; BLOCK and SAMPLE, -1 if none. HOLD: by how
				 * many ns its length may be wrong, either way */
	u32 tid;
	u32 tgid;
	u64 ktime_ns;		/* when it ended (HOLD, BLOCK) or was seen (SAMPLE, END) */
	u64 hold_id;		/* counts the holds of this thread; END: code that it was started with */
	u64 stack_id;		/* hash of a stack sent before on the stack ring; 0: none */
	u64 duration_ns;	/* HOLD, BLOCK: its length; END: sum of running time */
	u64 greenlet_id;
	u64 blocked_ns;		/* HOLD: off the CPU by itself; END: sum of waiting time */
	u64 preempted_ns;	/* HOLD: off the CPU by force; END: longest hold */
	u64 gc_ns;		/* HOLD: garbage collection; END: number of switches away */
};

/* One frame of a walk. instr is what the interpreter keeps: an address or an index. */
struct gs_frame {
	u64 code_addr;		/* low 3 bits: the frame's owner (3.11+), from which the agent
				 * tells frames that are no Python function */
	u64 instr;
};

enum gs_walk_status {
	GS_WALK_COMPLETE = 0,
	GS_WALK_TRUNCATED = 1,	/* deeper than GS_MAX_FRAMES */
	GS_WALK_UNREADABLE = 2,	/* a page was not readable */
};

/* Record on the stack ring: this header, then nr_frames of struct gs_frame. */
struct gs_stack_header {
	u64 stack_id;
	u64 outermost_code;
	u32 tgid;
	u16 nr_frames;
	u16 status;		/* enum gs_walk_status */
	u32 tick_tid;		/* the thread that a tick of the sampler met; 0: a stack with an id */
	u32 pad;
};

#endif
