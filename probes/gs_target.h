/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs from target to target, put into a map by the agent when it attaches, and the
 * state kept for each thread and greenlet. greenscope/bpf/abi.py mirrors these.
 */
#ifndef GS_TARGET_H
#define GS_TARGET_H

#include "gs_types.h"

enum gs_wait_stacks {
	GS_WAITS_OFF = 0,
	GS_WAITS_SAMPLED = 1,
	GS_WAITS_EXACT = 2,
};

/* Offsets are bounded by the agent before they come here (offsets/table.py). */
struct gs_target {
	u64 tstate_addr;	/* address of the pointer to the running thread state; 0: none */
	u64 threshold_ns;
	u64 sample_age_ns;	/* the sampler leaves younger holds alone */
	u64 min_block_ns;	/* shorter blocks of a young hold are only summed */
	u64 instr_mask;		/* all ones: an address (3.11+); 32 bits: f_lasti (to 3.10) */
	u32 tstate_frame;	/* PyThreadState.cframe (3.11, 3.12), .frame, .current_frame */
	s32 cframe_frame;	/* _PyCFrame.current_frame; -1 where there is no such hop */
	u16 frame_code;
	u16 frame_previous;
	u16 frame_instr;
	u16 frame_owner;
	u8 shim_owner;		/* frames whose owner is >= this are not Python; 255: none */
	u8 wait_stacks;		/* enum gs_wait_stacks */
	u8 frame_span;		/* bytes of a frame up to the end of the last field read */
	u8 pad;
	u32 wait_walks;		/* GS_WAITS_SAMPLED: walks allowed per thread and 10 ms */
	u32 tstate_version;	/* PyThreadState.context_ver; 0: none, or not known yet */
	/* for kind.bpf.c */
	u16 greenlet_self;	/* of greenlet::Greenlet, its PyGreenlet; 0: not known yet */
	u16 greenlet_dict;	/* of PyGreenlet */
	u16 object_type;
	u16 dict_keys;
	u16 dict_values;
	u16 keys_log2_index_bytes;
	u16 keys_kind;
	u16 keys_nentries;
	u16 keys_indices;
	u16 text_data;		/* of a compact text that is ASCII */
	u16 method_function;
	u16 function_code;
	u16 values_items;	/* of struct _dictvalues */
	u16 pad2;
	u64 function_type;	/* address of PyFunction_Type */
	u64 method_type;
};

#define GS_NEVER_LOOKED (~1ULL)	/* gs_thread.phase */

/* How the probes of a process stand at present. The agent maps this and writes the first three. */
struct gs_watch {
	u64 phase;		/* grows at each turn of the switch probe; odd: it is off */
	u64 on_since_ns;	/* when it was put in place the last time */
	u64 fresh_since;	/* births were missed before this phase: other greenlets may have the
				 * addresses now; 0: none was */
	/* what was hit since the watch began, of which the agent reckons what it cost */
	u64 switches;
	u64 walks;
	u64 polls;
	u64 births;		/* and ends */
	u64 leaves;		/* of the CPU */
	u64 python_state;	/* where in a greenlet::Greenlet that is; 0: not known yet */
};

enum gs_role {
	GS_ROLE_UNKNOWN = 0,
	GS_ROLE_GREENLET = 1,
	GS_ROLE_HUB = 2,
	GS_ROLE_WORKER = 3,	/* a native pool thread: blocks nobody */
	GS_ROLE_LOOP = 4,	/* gevent's loop in Python (cffi), inside the hub; no greenlet */
};

enum gs_hub {
	GS_HUB_NONE = 0,
	GS_HUB_SEEN = 1,	/* a hub ran on this thread */
	GS_HUB_ASSUMED = 2,	/* the main thread, before the first look at its hub */
};

struct gs_thread {
	u64 tstate;		/* PyThreadState of this OS thread, last seen */
	u64 greenlet;		/* address of the current greenlet; 0: not known yet */
	u64 greenlet_id;
	u64 hold_id;		/* grows by one with each hold */
	u64 hold_start_ns;
	/* of the present hold */
	u64 blocked_ns;
	u64 preempted_ns;
	u64 gc_ns;
	u64 gc_since_ns;	/* 0: not collecting */
	u64 off_since_ns;	/* 0: on a CPU */
	u64 off_stack_id;
	s32 off_nr;
	u8 off_kind;
	u8 role;		/* enum gs_role of the current greenlet */
	u8 has_hub;		/* enum gs_hub */
	u8 idle;		/* the hub polls since off_since_ns */
	u8 began_before;
	u8 exited;
	u8 stack_wanted;	/* the current greenlet has no kind_stack_id yet */
	u8 slot;		/* of its process in gs_targets */
	u32 tgid;
	u8 undecided;		/* the present hold has a poll that may be the hub's own */
	u8 pad[7];
	/* for the times in which the switch probe is off (unwatched.bpf.c) */
	u64 phase;		/* of its process when this thread was last looked at */
	u64 version;		/* PyThreadState.context_ver as it should be; 0: not known */
	u64 seen_ns;		/* when it was last looked at */
	u64 same_since_ns;	/* since when no switch was seen, nor can there have been one */
	u64 before_same_ns;	/* the last look before that */
	u64 uncertain_ns;	/* by how much hold_start_ns may be wrong, either way */
	u64 longest_block_ns;	/* of the present hold */
	/* sums since attach */
	u64 unwatched_ns;
	u64 unwatched_switches;
	s64 drift;		/* what context_ver grew by without a switch */
	u64 switches;
	u64 holds;		/* blocking ones */
	u64 holding_ns;
	u64 hub_ns;
	u64 idle_ns;
	u64 longest_hold_ns;
	u64 walk_window_ns;
	u64 walk_tokens;
};

struct gs_greenlet_key {
	u64 addr;
	u32 tgid;
	u32 pad;
};

struct gs_greenlet {
	u64 id;			/* ktime when first seen: unique in a process, as the GIL is */
	u64 left_ns;		/* when it was last switched away from; 0: runs or never ran */
	u64 left_stack_id;
	u64 kind_stack_id;	/* a stack of it, from which the agent names its kind */
	u64 switches;
	u64 running_ns;
	u64 waiting_ns;
	u64 longest_hold_ns;
	u64 phase;		/* in which it was seen last */
	u64 start_code;		/* of the function that it was started with; 0: not known */
	u32 tid;
	u8 role;
	u8 finished;		/* its function returned; the switch that follows is the last */
	u8 start_read;
	u8 pad;
};

/*
 * Places of USDT probes (greenscope/target/usdt.py parses the notes). One probe has several
 * where its function was inlined, each with operands of its own; the cookie of an attachment
 * is the index of its place in the map gs_places.
 */
#define GS_USDT_ARGS 12		/* <sys/sdt.h> has macros for no more */
#define GS_NO_REGISTER 0xffff

enum gs_usdt_kind {
	GS_USDT_NONE = 0,	/* not readable */
	GS_USDT_CONSTANT = 1,
	GS_USDT_REGISTER = 2,
	GS_USDT_MEMORY = 3,
};

struct gs_usdt_arg {
	s64 value;		/* the constant, or what is added to the address */
	u16 base;		/* offset in pt_regs; GS_NO_REGISTER: none */
	u16 index;
	u8 kind;		/* enum gs_usdt_kind */
	u8 scale_shift;
	u8 unused_bits;		/* 64 less the size of the value */
	u8 is_signed;
};

struct gs_place {
	u32 probe;		/* what the agent calls it */
	u32 nr_args;
	struct gs_usdt_arg args[GS_USDT_ARGS];
};

#endif
