-- How far the books were proven: transfers up to the position are summed in `proven_accounts`, and never read again before the next whole proof.
create table ledger_proof (
  id INTEGER not null primary key check (id = 1),
  posted_ms INTEGER not null,
  transfer_id TEXT not null,
  faults INTEGER not null,
  -- When a proof of each extent was last brought to its end.
  new_proven_ms INTEGER,
  whole_proven_ms INTEGER
) STRICT;

create table proven_accounts (
  account_id TEXT not null primary key,
  debits_ucents INTEGER not null,
  credits_ucents INTEGER not null
) STRICT;

create index transfers_in_time on transfers (posted_ms, id);
