-- Transfers up to the position, summed to the lines of bills and statements. Without them, a bill would read each transfer of its month.
-- The columns `subject_id`, `batch_id` and `evidence` are empty where a line sums up several of them.
create table month_lines (
  account_id TEXT not null,
  -- The first millisecond of the month, in UTC.
  month_ms INTEGER not null,
  kind TEXT not null,
  subject_id TEXT not null,
  batch_id TEXT not null,
  evidence TEXT not null,
  count INTEGER not null,
  -- Negative if the account paid.
  change_ucents INTEGER not null,
  last_posted_ms INTEGER not null,
  primary key (account_id, month_ms, kind, subject_id, batch_id, evidence)
) STRICT, WITHOUT ROWID;

create table month_lines_position (
  id INTEGER not null primary key check (id = 1),
  posted_ms INTEGER not null,
  transfer_id TEXT not null
) STRICT;
