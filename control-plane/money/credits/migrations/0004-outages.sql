-- What operators see as one outage: the uncharged times of all rentals that one cause has stopped. Null as machine: an outage of our own.
create table outages (
  id TEXT not null primary key,
  cause TEXT not null check (cause in ('outage', 'gpu_fault', 'own_outage')),
  machine_id TEXT,
  -- The evidence of its first time. All times of an outage of our own have the same one.
  evidence TEXT not null,
  opened_ms INTEGER not null
) STRICT;

create index outages_by_time on outages (opened_ms, id);
create index outages_of_machine on outages (machine_id, opened_ms, id) where machine_id is not null;
create unique index outages_of_ours on outages (evidence) where cause = 'own_outage';

alter table free_times add column outage_id TEXT not null default '';

-- Times from before: each of a machine is an outage of its own.
insert into outages (id, cause, machine_id, evidence, opened_ms)
select 'out_' || id, cause, machine_id, evidence, from_ms from free_times where cause <> 'own_outage';
insert into outages (id, cause, machine_id, evidence, opened_ms)
select 'out_' || min(id), cause, null, evidence, min(from_ms) from free_times where cause = 'own_outage' group by cause, evidence;
update free_times set outage_id = 'out_' || id where cause <> 'own_outage';
update free_times set outage_id = (select o.id from outages o where o.cause = 'own_outage' and o.evidence = free_times.evidence)
where cause = 'own_outage';

create index free_times_of_outage on free_times (outage_id, from_ms, id);
