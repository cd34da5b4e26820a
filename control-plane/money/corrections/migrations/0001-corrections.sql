-- What an operator gave to a customer or took: one row for each decision, under a reference that counts once.
create table corrections (
  id TEXT not null primary key,
  kind TEXT not null check (kind in ('refund', 'credit', 'adjustment')),
  org_id TEXT not null,
  -- The rental, receipt or video of a refund; otherwise the organisation.
  subject_id TEXT not null,
  reference TEXT not null,
  reason TEXT not null,
  -- What the wallet got; negative: what was taken from it.
  amount_ucents INTEGER not null,
  -- The part of a refund that was taken back from suppliers.
  supplier_ucents INTEGER not null default 0,
  -- The part of a deduction that the wallet did not cover.
  bad_debt_ucents INTEGER not null default 0,
  from_platform INTEGER not null default 0,
  created_ms INTEGER not null
) STRICT;

create unique index corrections_by_reference on corrections (org_id, kind, reference);
create index corrections_by_subject on corrections (subject_id);
