/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking the frames of a thread in the target's memory.
 *
 * Plain C: the includer defines gs_read_user(dst, size, addr), 0 on success. The frames of a
 * thread lie side by side in the interpreter's data stack, so a page is copied once and the
 * chain is followed inside the copy; frame by frame costs three to five times as much.
 */
#ifndef GS_WALK_H
#define GS_WALK_H

#include "gs_events.h"
#include "gs_target.h"

#define GS_MAX_FRAMES 1024	/* a power of two: the verifier bounds indices by a mask */
/* Frames that one run of a walk program follows; then it calls itself by a tail call. The
 * verifier checks every iteration, and its time is part of the time to attach. */
#define GS_WALK_CHUNK 128
#define GS_PAGE 4096

struct gs_walk {
	struct gs_stack_header head;	/* head and frames leave as one record */
	struct gs_frame frames[GS_MAX_FRAMES];
	u64 next;		/* address of the next frame; 0: the chain has ended */
	u64 hash;
	u64 base;		/* address of what page holds, and how many bytes of it */
	u64 size;
	u64 last;		/* offset in page of the last place where a frame fits */
	u64 at;			/* offset in page of the present frame */
	u64 now_ns;		/* when the program began that asked for the walk */
	u8 page[2 * GS_PAGE];	/* half of it is for the verifier's masks */
};

/* Mixes one word into a 64-bit hash (the finaliser of splitmix64: full avalanche). */
static inline __attribute__((always_inline)) u64 gs_mix(u64 hash, u64 word)
{
	hash ^= word;
	hash *= 0xbf58476d1ce4e5b9ULL;
	hash ^= hash >> 29;
	return hash;
}

/*
 * The innermost frame of a thread state, 0 if it runs no Python code.
 * 3.11 and 3.12 keep it behind a _PyCFrame on the C stack (Include/cpython/pystate.h), all
 * others in the thread state itself.
 */
static inline __attribute__((always_inline)) int
gs_first_frame(const struct gs_target *target, u64 tstate, u64 *frame)
{
	u64 addr = 0;

	if (gs_read_user(&addr, sizeof(addr), tstate + target->tstate_frame))
		return -1;
	if (target->cframe_frame >= 0) {
		if (!addr) {
			*frame = 0;
			return 0;
		}
		if (gs_read_user(&addr, sizeof(addr), addr + target->cframe_frame))
			return -1;
	}
	*frame = addr;
	return 0;
}

static inline __attribute__((always_inline)) u64 gs_page_u64(const u8 *page, u32 offset)
{
	/* The mask is for the verifier; a field of a frame never leaves the copy here. */
	return *(const u64 *)(page + (offset & (GS_PAGE - 1)));
}

/*
 * The verifier must see one state, not one for each way through an iteration, or 1024 of them
 * are too many for it: what was just stored is read back as a value it knows nothing about.
 */
#define GS_FORGET(lvalue) (*(volatile u64 *)&(lvalue))

/*
 * Copies the page that holds a frame, or just the frame where it lies across two pages (the
 * page behind it need not exist).
 */
static inline __attribute__((always_inline)) int
gs_read_page(struct gs_walk *walk, const struct gs_target *target, u64 frame)
{
	u64 base = frame & ~(u64)(GS_PAGE - 1);

	walk->base = base;
	walk->size = GS_PAGE;
	if (frame - base > GS_PAGE - target->frame_span) {
		walk->base = frame;
		walk->size = target->frame_span;
	}
	walk->last = walk->size - target->frame_span;
	return gs_read_user(walk->page, GS_FORGET(walk->size) & (2 * GS_PAGE - 1),
			    GS_FORGET(walk->base));
}

/* Entry code of the greenlet; from 3.12 on a shim of the C stack lies outside of it. */
static inline __attribute__((always_inline)) void
gs_find_outermost(struct gs_walk *walk, const struct gs_target *target, u32 nr_frames)
{
	u64 code = walk->frames[(nr_frames - 1) & (GS_MAX_FRAMES - 1)].code_addr;

	if (nr_frames && (code & 7) >= target->shim_owner)
		code = walk->frames[(--nr_frames - 1) & (GS_MAX_FRAMES - 1)].code_addr;
	walk->head.outermost_code = nr_frames ? code & ~7ULL : 0;
}

/* Puts walk before the innermost frame of a thread state. */
static inline __attribute__((always_inline)) void
gs_walk_begin(struct gs_walk *walk, const struct gs_target *target, u64 tstate, u32 tgid)
{
	u64 frame = 0;

	walk->head.nr_frames = 0;
	walk->head.tgid = tgid;
	walk->head.status = GS_WALK_COMPLETE;
	walk->hash = 0x9e3779b97f4a7c15ULL;	/* any odd number */
	walk->base = 0;			/* nothing is copied yet: no frame lies at address 0 */
	walk->last = 0;
	if (!tstate || gs_first_frame(target, tstate, &frame))
		walk->head.status = GS_WALK_UNREADABLE;
	walk->next = frame;
}

/*
 * Appends the next GS_WALK_CHUNK frames at most, innermost first. True: there are more. A
 * walk is bounded by GS_MAX_FRAMES whatever the memory says, so a cyclic chain ends as
 * truncated.
 */
static inline __attribute__((always_inline)) int
gs_walk_some(struct gs_walk *walk, const struct gs_target *target)
{
	u64 frame = walk->next, hash = walk->hash;
	u32 begin = walk->head.nr_frames, i;

#pragma clang loop unroll(disable)
	for (i = 0; i < GS_WALK_CHUNK; i++) {
		struct gs_frame *out = &walk->frames[(begin + i) & (GS_MAX_FRAMES - 1)];
		u64 code, instr;
		u32 at;

		if (!frame)
			break;
		/* One comparison: a frame below the copy gives a huge offset. */
		walk->at = frame - walk->base;
		if (walk->at > walk->last) {
			if (gs_read_page(walk, target, frame)) {
				walk->head.status = GS_WALK_UNREADABLE;
				frame = 0;
				break;
			}
			walk->at = frame - walk->base;
		}
		at = (u32)GS_FORGET(walk->at);
		code = gs_page_u64(walk->page, at + target->frame_code) & ~7ULL;
		instr = gs_page_u64(walk->page, at + target->frame_instr) & target->instr_mask;
		code |= walk->page[(at + target->frame_owner) & (GS_PAGE - 1)] & 7;
		frame = gs_page_u64(walk->page, at + target->frame_previous);
		out->code_addr = code;
		out->instr = instr;
		hash = gs_mix(gs_mix(hash, code), instr);
	}
	walk->head.nr_frames = begin + i;
	walk->next = frame;
	walk->hash = hash;
	return frame && begin + i < GS_MAX_FRAMES;
}

/* Completes walk->head once there is nothing more to follow. */
static inline __attribute__((always_inline)) void
gs_walk_end(struct gs_walk *walk, const struct gs_target *target)
{
	if (walk->next)
		walk->head.status = GS_WALK_TRUNCATED;
	walk->head.stack_id = walk->head.nr_frames ? (walk->hash | 1) : 0;
	gs_find_outermost(walk, target, walk->head.nr_frames);
}

#endif
