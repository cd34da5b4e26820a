-- Contracts for reserved capacity. Their slots are GPUs: machine_gpus.reserved_by.
create table reservations (
  id TEXT not null primary key,
  org_id TEXT not null,
  title TEXT not null,
  status TEXT not null,
  renewal TEXT not null,
  commitment TEXT not null,
  starts_ms INTEGER not null,
  ends_ms INTEGER not null,
  created_ms INTEGER not null,
  check (starts_ms < ends_ms)
) STRICT;

create index reservations_of_org on reservations (org_id, id);
create index reservations_live on reservations (id) where status in ('pending', 'active', 'suspended');
