-- Payouts to suppliers. The transfers of a payout have ids that follow from its id, so each of them is posted once.
create table payouts (
  id TEXT not null primary key,
  supplier_id TEXT not null,
  state TEXT not null check (state in ('due', 'in_flight', 'paid', 'failed')),
  amount_ucents INTEGER not null check (amount_ucents > 0),
  -- The chain to which the money goes; null for a payout that an operator has made by hand.
  chain TEXT,
  address TEXT,
  -- The beginning of the period for which the loop has made it; null: by hand.
  period_ms INTEGER,
  -- The export that has handed it to whoever sends the money.
  batch TEXT,
  -- The transaction or bank transfer with which it was paid.
  reference TEXT,
  -- Why it failed.
  reason TEXT,
  created_ms INTEGER not null,
  in_flight_ms INTEGER,
  ended_ms INTEGER
) STRICT;

create unique index payouts_by_period on payouts (supplier_id, period_ms) where period_ms is not null;
create unique index payouts_due on payouts (supplier_id) where state = 'due' and period_ms is not null;
create unique index payouts_by_reference on payouts (supplier_id, reference) where reference is not null;
create index payouts_of_supplier on payouts (supplier_id, created_ms, id);
create index payouts_by_time on payouts (created_ms, id);
create index payouts_by_state on payouts (state, created_ms, id);
create index payouts_by_batch on payouts (batch, id) where batch is not null;

-- An export takes what was due when it began. Once it is closed, its name always stands for the same payouts.
create table payout_batches (
  name TEXT not null primary key,
  created_ms INTEGER not null,
  closed_ms INTEGER
) STRICT;

-- The address at which a supplier wants its money. The newest row whose time has come is in force, unless it was cancelled before.
create table payout_destinations (
  id TEXT not null primary key,
  supplier_id TEXT not null,
  chain TEXT not null,
  address TEXT not null,
  requested_ms INTEGER not null,
  in_force_ms INTEGER not null,
  cancelled_ms INTEGER
) STRICT;

create index payout_destinations_of_supplier on payout_destinations (supplier_id, in_force_ms, id);
