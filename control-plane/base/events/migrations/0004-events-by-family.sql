-- The family of an event is the first word of its type. Callers see some families only, so a page reads the newest events of each of them.
alter table events add column family TEXT not null default '';
update events set family = rtrim(rtrim(type, replace(type, '.', '')), '.');
create index events_by_family on events (org_id, family, created_ms, id) where org_id is not null;
