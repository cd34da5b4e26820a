-- The next address of each family of chains. The row is locked while an address is taken.
create table deposit_families (
  id TEXT not null primary key,
  next_position INTEGER not null
) STRICT;

-- One row for each address. A derived one is made with its deposit; imported ones wait without one. No address is used twice.
create table deposit_addresses (
  family TEXT not null,
  position INTEGER not null,
  address TEXT not null,
  -- Which key it was derived from; null if it was imported.
  key_fingerprint TEXT,
  deposit_id TEXT,
  created_ms INTEGER not null,
  primary key (family, position),
  unique (family, address)
) STRICT;

create index deposit_addresses_free on deposit_addresses (family, position) where deposit_id is null;

-- How far each chain was read. `final_*`: the last final block whose transfers are all stored. The times are those of the chain.
create table deposit_chains (
  id TEXT not null primary key,
  head_number INTEGER,
  head_ms INTEGER,
  final_number INTEGER,
  final_hash TEXT,
  final_ms INTEGER,
  -- A pass over all token accounts up to one block, which may take several ticks: that block, its time, and the last deposit that was read.
  pass_number INTEGER,
  pass_ms INTEGER,
  pass_after TEXT,
  -- Why the chain is not watched and takes no new deposits.
  paused_reason TEXT,
  updated_ms INTEGER not null
) STRICT;

-- Blocks above the final one up to which the chain was read, and their hashes. If the hash of one changes, the chain was reorganised.
create table deposit_checkpoints (
  chain TEXT not null,
  number INTEGER not null,
  hash TEXT not null,
  primary key (chain, number)
) STRICT;

-- How far each token account was read, on a chain whose nodes list the transactions of one account at a time. One row for each that exists.
create table deposit_accounts (
  chain TEXT not null,
  account TEXT not null,
  -- The address of the deposit.
  owner TEXT not null,
  -- What was in it. Null: it must be read again.
  units INTEGER,
  -- All its transactions up to this block are read.
  read_to INTEGER not null,
  -- Transactions are read from the newest to the oldest. This one was the last; null if none is left.
  before_tx TEXT,
  primary key (chain, account)
) STRICT;

create index deposit_accounts_of_owner on deposit_accounts (owner);

create table deposits (
  id TEXT not null primary key,
  org_id TEXT not null,
  status TEXT not null,
  chain TEXT not null,
  asset TEXT not null,
  family TEXT not null,
  amount_cents INTEGER not null check (amount_cents > 0),
  due_units INTEGER not null check (due_units > 0),
  address TEXT not null,
  position INTEGER not null,
  tx_hash TEXT,
  -- What was credited, exactly and in whole cents. The difference is below a cent for each credit.
  credited_units INTEGER,
  credited_cents INTEGER,
  -- Why it waits, for the operator.
  note TEXT,
  created_ms INTEGER not null,
  expires_ms INTEGER not null,
  -- Transfers after this time of the chain are not looked for any more.
  watched_until_ms INTEGER not null,
  due_ms INTEGER,
  unique (family, address)
) STRICT;

create index deposits_of_org on deposits (org_id, created_ms, id);
create index deposits_by_time on deposits (created_ms, id);
create index deposits_due on deposits (due_ms) where due_ms is not null;
create index deposits_undecided on deposits (chain, status)
where status in ('created', 'detected', 'confirming', 'settled', 'screening', 'held_screening');
create index deposits_noted on deposits (id) where note is not null;
create index deposits_watched on deposits (family, watched_until_ms);

-- One row for each transfer to an address of a deposit, also of the wrong token or on the wrong chain.
create table deposit_transfers (
  id TEXT not null primary key,
  deposit_id TEXT not null,
  chain TEXT not null,
  tx_hash TEXT not null,
  log_index INTEGER not null,
  block_number INTEGER not null,
  block_hash TEXT not null,
  block_ms INTEGER not null,
  from_address TEXT not null,
  asset TEXT not null,
  units INTEGER not null check (units > 0),
  status TEXT not null,
  -- It is part of what the deposit waits to be credited with.
  is_counted INTEGER not null default 0,
  -- The place of its money in the books: `wallet`, `suspense` or `returned`; null if it is not there yet.
  booking TEXT,
  unique (chain, tx_hash, log_index),
  check (booking is null or status = 'final')
) STRICT;

create index deposit_transfers_of_deposit on deposit_transfers (deposit_id);
create index deposit_transfers_by_block on deposit_transfers (chain, block_number);
create index deposit_transfers_in_suspense on deposit_transfers (deposit_id) where booking = 'suspense';

-- Addresses that no tokens are taken from.
create table deposit_sanctioned (
  address TEXT not null primary key,
  source TEXT not null,
  created_ms INTEGER not null
) STRICT;
