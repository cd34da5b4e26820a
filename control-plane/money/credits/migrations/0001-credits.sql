-- Time of a rental that is not charged although its container may have run: an outage, a broken GPU, an absence of ours.
create table free_times (
  id TEXT not null primary key,
  subject_id TEXT not null,
  org_id TEXT not null,
  supplier_id TEXT not null,
  machine_id TEXT not null,
  cause TEXT not null check (cause in ('outage', 'gpu_fault', 'own_outage')),
  rate_ucents_per_hour INTEGER not null,
  supplier_bps INTEGER not null,
  from_ms INTEGER not null,
  -- Uncharged time until counted_at_ms. The rest runs until the rental is charged again or is over.
  counted_ms INTEGER not null,
  counted_at_ms INTEGER not null,
  -- Both null while it lasts.
  ended_ms INTEGER,
  free_ms INTEGER,
  -- What the time would have cost: given at once, and held for the operator.
  granted_ucents INTEGER not null default 0 check (granted_ucents >= 0),
  held_ucents INTEGER not null default 0 check (held_ucents >= 0),
  evidence TEXT not null
) STRICT;

create unique index free_times_open on free_times (subject_id) where ended_ms is null;
create index free_times_of_org on free_times (org_id, ended_ms);
create index free_times_of_supplier on free_times (supplier_id, ended_ms);
create index free_times_of_machine on free_times (machine_id, ended_ms);
create index free_times_of_subject on free_times (subject_id, from_ms);

-- What is above a bound and waits for the operator. A credit: the customer has paid it, and gets it back or not. A payment: the supplier
-- gets it or not.
create table held_credits (
  id TEXT not null primary key,
  kind TEXT not null check (kind in ('credit', 'payment')),
  why TEXT not null check (why in ('flagged', 'org_bound', 'supplier_bound')),
  free_time_id TEXT,
  cause TEXT not null,
  subject_id TEXT not null,
  org_id TEXT not null,
  supplier_id TEXT not null,
  amount_ucents INTEGER not null check (amount_ucents > 0),
  -- The part of a credit that the wallet paid; the rest is bad debt.
  wallet_ucents INTEGER not null check (wallet_ucents between 0 and amount_ucents),
  supplier_bps INTEGER not null,
  from_ms INTEGER not null,
  until_ms INTEGER not null,
  evidence TEXT not null,
  state TEXT not null check (state in ('held', 'released', 'refused')),
  note TEXT,
  created_ms INTEGER not null,
  decided_ms INTEGER
) STRICT;

create index held_credits_by_state on held_credits (state, created_ms, id);

-- Tenants whose rentals fail again and again on hosts that serve others well: credits for their outages wait for the operator.
create table credit_flags (
  org_id TEXT not null primary key,
  -- Null since the operator has lifted it.
  flagged_ms INTEGER,
  -- Outages before that count no more.
  trusted_ms INTEGER,
  detail TEXT not null
) STRICT;
