-- Double entry. A transfer is one immutable row with one debit and one credit account, so an unbalanced entry cannot be written.
-- Only accounts of customers and suppliers have a row with running totals. The platform's accounts take part in almost every transfer: a row
-- would make all writers wait for each other. Their balance is the sum of their transfers.
create table ledger_accounts (
  id TEXT not null primary key,
  kind TEXT not null,
  owner_id TEXT not null,
  prepaid INTEGER not null,
  debits_ucents INTEGER not null default 0 check (debits_ucents >= 0),
  credits_ucents INTEGER not null default 0 check (credits_ucents >= 0),
  held_ucents INTEGER not null default 0 check (held_ucents >= 0),
  created_ms INTEGER not null,
  check (prepaid = 0 or credits_ucents - debits_ucents - held_ucents >= 0)
) STRICT;

create table transfers (
  id TEXT not null primary key,
  batch_id TEXT not null,
  debit_account_id TEXT not null,
  credit_account_id TEXT not null,
  amount_ucents INTEGER not null check (amount_ucents > 0),
  kind TEXT not null,
  subject_id TEXT not null,
  evidence TEXT,
  effective_ms INTEGER not null,
  posted_ms INTEGER not null,
  check (debit_account_id <> credit_account_id)
) STRICT, WITHOUT ROWID;

create index transfers_by_subject on transfers (subject_id, effective_ms);

-- Money set aside for a purpose; moves often and leaves no entry of its own.
create table holds (
  id TEXT not null primary key,
  account_id TEXT not null references ledger_accounts (id),
  amount_ucents INTEGER not null check (amount_ucents > 0),
  updated_ms INTEGER not null
) STRICT, WITHOUT ROWID;

create index holds_by_account on holds (account_id);

-- only sqlite
create trigger transfers_never_change before update on transfers begin
  select raise(abort, 'transfers are immutable');
end;

create trigger transfers_never_vanish before delete on transfers begin
  select raise(abort, 'transfers are immutable');
end;
-- end
-- only postgres
create function transfers_immutable() returns trigger as $$
  begin
    raise exception 'transfers are immutable';
  end;
$$ language plpgsql;

create trigger transfers_never_change before update or delete on transfers for each row execute function transfers_immutable();
-- end
