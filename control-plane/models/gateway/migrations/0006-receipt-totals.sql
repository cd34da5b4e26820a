-- Closed receipts, summed for each hour, day and month in UTC. Receipts go after their retention, their sums stay.
create table receipt_totals (
  org_id TEXT not null,
  span TEXT not null check (span in ('hour', 'day', 'month')),
  start_ms INTEGER not null,
  model_id TEXT not null,
  api_key_id TEXT not null,
  requests INTEGER not null,
  prompt_tokens INTEGER not null,
  completion_tokens INTEGER not null,
  images INTEGER not null,
  cost_ucents INTEGER not null,
  primary key (org_id, span, start_ms, model_id, api_key_id)
) STRICT, WITHOUT ROWID;

-- A place in the order of closing. The receipts up to it are in the sums, and no others.
create table receipt_totals_position (
  id INTEGER not null primary key check (id = 1),
  closed_ms INTEGER not null,
  receipt_id TEXT not null
) STRICT;

-- Receipts are read in the order of closing, from a place on. Many may close in one millisecond, and PostgreSQL would sort all of them.
drop index request_receipts_by_close;

create index request_receipts_by_close on request_receipts (closed_ms, id) where closed_ms is not null;
