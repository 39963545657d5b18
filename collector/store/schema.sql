-- The collector's tables. Portable: no DateTime64, no LowCardinality, nothing newer than
-- ClickHouse 18.16. Times are nanoseconds; *_ktime_ns is the target's monotonic clock.
-- Statements are separated by a semicolon at a line's end and must be repeatable.

CREATE TABLE IF NOT EXISTS sessions (
    session_id String,
    received_unix_ns UInt64,
    service String,
    host String,
    pid UInt64,
    process_start_ticks UInt64,
    executable String,
    python_version String,
    greenlet_version String,
    threshold_ns UInt64,
    sample_hz UInt64,
    start_ktime_ns UInt64,
    start_unix_ns UInt64,
    label_names Array(String),
    label_values Array(String)
) ENGINE = MergeTree() ORDER BY session_id;

-- Stacks by a hash of what they hold, innermost frame first. The same stack may be there more
-- than once: inserting one again changes nothing, so this needs no transaction with records.
CREATE TABLE IF NOT EXISTS stacks (
    session_id String,
    stack_id UInt64,
    status UInt8,
    functions Array(String),
    files Array(String),
    first_lines Array(UInt64),
    origins Array(UInt8),
    lines Array(UInt64)
) ENGINE = ReplacingMergeTree() ORDER BY (session_id, stack_id);

-- One row for each record, and one for each batch (kind 0, position 0), all of a batch in one
-- INSERT: either all of them are there or none. `kind` as in docs/record-format.md; columns
-- that a kind does not use are empty and take no room.
CREATE TABLE IF NOT EXISTS records (
    session_id String,
    number UInt64,
    position UInt32,
    kind UInt8,
    tid UInt64,
    greenlet_id UInt64,
    from_ktime_ns UInt64,    -- start of a hold; begin of a loss; a session's end
    to_ktime_ns UInt64,
    duration_ns UInt64,      -- of a hold
    on_cpu_ns UInt64,
    flags UInt8,             -- 1 is_hub, 2 is_open (or has_hub of a thread), 4 began_before
    piece_stack_ids Array(UInt64),
    piece_reasons Array(String),
    piece_durations_ns Array(UInt64),
    piece_counts Array(UInt64),
    what String,             -- lost or shed; a thread's name
    why String,              -- of shedding and of the end
    kind_known UInt8,        -- the code of a greenlet kind:
    kind_function String,
    kind_file String,
    kind_first_line UInt64,
    kind_origin UInt8,
    seen UInt64,             -- greenlets seen; what was lost; records skipped of a batch
    ended UInt64,
    alive UInt64,
    switches UInt64,
    holds UInt64,
    running_ns UInt64,       -- of greenlets; a thread's holding_ns
    waiting_ns UInt64,       -- of greenlets; a thread's hub_ns
    idle_ns UInt64,
    longest_hold_ns UInt64
) ENGINE = MergeTree() ORDER BY (session_id, number, position);

-- Columns that came later: a store that an earlier version made gets them when it is opened.
ALTER TABLE records ADD COLUMN IF NOT EXISTS uncertainty_ns UInt64;  -- of a hold
ALTER TABLE records ADD COLUMN IF NOT EXISTS unwatched_ns UInt64;  -- of a thread
ALTER TABLE records ADD COLUMN IF NOT EXISTS unwatched_switches UInt64;
ALTER TABLE records ADD COLUMN IF NOT EXISTS function_known UInt8;  -- the function that ran:
ALTER TABLE records ADD COLUMN IF NOT EXISTS function String;
ALTER TABLE records ADD COLUMN IF NOT EXISTS function_file String;
ALTER TABLE records ADD COLUMN IF NOT EXISTS function_first_line UInt64;
ALTER TABLE records ADD COLUMN IF NOT EXISTS function_origin UInt8;
ALTER TABLE records ADD COLUMN IF NOT EXISTS cost_ns UInt64;  -- of the probes
ALTER TABLE records ADD COLUMN IF NOT EXISTS budget_ns UInt64;
ALTER TABLE records ADD COLUMN IF NOT EXISTS cpu_ns UInt64;  -- of the agent
ALTER TABLE records ADD COLUMN IF NOT EXISTS rss_bytes UInt64;
