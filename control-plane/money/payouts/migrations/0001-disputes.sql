-- A customer disputes that a rental was worth its price: what it earned is not paid out until the operator has decided.
create table disputes (
  id TEXT not null primary key,
  instance_id TEXT not null,
  -- The time from here on is disputed; 0: the whole rental.
  since_ms INTEGER not null,
  reason TEXT not null,
  state TEXT not null check (state in ('open', 'released', 'refunded')),
  -- What the decision gave back to the customer.
  refunded_ucents INTEGER not null default 0 check (refunded_ucents >= 0),
  note TEXT,
  opened_ms INTEGER not null,
  resolved_ms INTEGER
) STRICT;

create unique index disputes_open on disputes (instance_id) where state = 'open';
create index disputes_by_time on disputes (opened_ms, id);
create index disputes_of_instance on disputes (instance_id, opened_ms, id);
