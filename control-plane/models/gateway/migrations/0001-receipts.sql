-- One row for each request to a model that was let in: what was held for it, and what became of that.
create table request_receipts (
  id TEXT not null primary key,
  org_id TEXT not null,
  api_key_id TEXT not null,
  request_id TEXT not null,
  model_id TEXT not null,
  tier TEXT not null,
  end_user TEXT,
  metadata TEXT,
  state TEXT not null,
  held_ucents INTEGER not null check (held_ucents >= 0),
  charged_ucents INTEGER not null default 0,
  ending TEXT,
  prompt_tokens INTEGER,
  completion_tokens INTEGER,
  counted_by TEXT,
  upstream TEXT,
  attempts TEXT,
  opened_ms INTEGER not null,
  closed_ms INTEGER,
  check (charged_ucents between 0 and held_ucents)
) STRICT, WITHOUT ROWID;

create index request_receipts_open on request_receipts (id) where state = 'open';
