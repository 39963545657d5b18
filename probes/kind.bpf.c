// SPDX-License-Identifier: Apache-2.0
/*
 * The function that a greenlet of gevent was started with, read when it is met first: one that
 * ends without ever waiting leaves no stack behind by which it could be named.
 *
 * gevent keeps it as `_run` in the greenlet's own dict, which the greenlet empties at its end
 * (gevent/greenlet.py, Greenlet.__init__() and __free()). A subclass that overrides _run() has
 * none there, and goes by its first stack as before.
 */

#define GS_DICT_ENTRIES 4	/* looked at; `_run` comes first where nobody sets attributes before */
#define GS_KEYS_GENERAL 0	/* enum DictKeysKind (pycore_dict.h): other than texts */
#define GS_RUN_TEXT 0x6e75725f	/* "_run" */

struct gs_dict_entry {
	u64 key;
	u64 value;
};

struct gs_run_name {
	u32 text;
	u32 end;	/* its lowest byte ends the text */
};

static __always_inline u64 gs_read_word(u64 address)
{
	u64 word = 0;

	gs_read_user(&word, sizeof(word), address);
	return word;
}

static __always_inline u8 gs_read_byte(u64 address)
{
	u8 byte = 0;

	gs_read_user(&byte, sizeof(byte), address);
	return byte;
}

/* The code of a function or bound method, 0 of anything else. */
static __always_inline u64 gs_code_of(const struct gs_target *target, u64 function)
{
	u64 type = gs_read_word(function + target->object_type);

	if (type == target->method_type) {
		function = gs_read_word(function + target->method_function);
		type = gs_read_word(function + target->object_type);
	}
	return type == target->function_type ? gs_read_word(function + target->function_code) : 0;
}

static __always_inline u64 gs_start_code(const struct gs_target *target, u64 greenlet)
{
	struct gs_dict_entry entries[GS_DICT_ENTRIES] = {};
	u64 dict, keys, values, count, first;
	struct gs_run_name name;
	u8 log2_index_bytes;
	u32 i;

	dict = gs_read_word(greenlet + target->greenlet_self);
	dict = dict ? gs_read_word(dict + target->greenlet_dict) : 0;
	keys = dict ? gs_read_word(dict + target->dict_keys) : 0;
	if (!keys || gs_read_byte(keys + target->keys_kind) == GS_KEYS_GENERAL)
		return 0;
	values = gs_read_word(dict + target->dict_values);
	log2_index_bytes = gs_read_byte(keys + target->keys_log2_index_bytes);
	count = gs_read_word(keys + target->keys_nentries);
	first = keys + target->keys_indices + (1ULL << (log2_index_bytes & 31));
	if (gs_read_user(entries, sizeof(entries), first))
		return 0;
	for (i = 0; i < GS_DICT_ENTRIES; i++) {
		if (i >= count || !entries[i].key)
			continue;
		name.text = 0;
		gs_read_user(&name, sizeof(name), entries[i].key + target->text_data);
		if (name.text != GS_RUN_TEXT || name.end & 0xff)
			continue;
		if (values)
			entries[i].value = gs_read_word(values + target->values_items + 8 * i);
		return entries[i].value ? gs_code_of(target, entries[i].value) : 0;
	}
	return 0;
}

/* Names a greenlet that was not met before, and what it is if the agent knows that code. */
static __always_inline void
gs_read_start(struct gs_greenlet *greenlet, const struct gs_target *target, u64 address)
{
	u64 code;
	u8 *role;

	if (greenlet->start_read || !target->greenlet_self)
		return;
	greenlet->start_read = 1;
	code = gs_start_code(target, address);
	greenlet->start_code = code;
	role = code ? gs_roles.lookup(&code) : 0;
	if (role && greenlet->role == GS_ROLE_UNKNOWN)
		greenlet->role = *role;
}
