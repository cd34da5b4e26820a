-- What a series of looks goes by: the last proof of life before its failures, the first good look after them, when the holder was to be
-- replaced, and what the host itself has seen.
alter table probes add column life_ms INTEGER;
alter table probes add column first_success_ms INTEGER;
alter table probes add column repair_ms INTEGER;
alter table probes add column host_failed_ms INTEGER;
alter table probes add column host_detail TEXT;
-- The outage is certain, and its verdict is held because many machines fail together.
alter table probes add column held INTEGER not null default 0;
