-- How many deliveries of an endpoint were given up and are still stored, counted up to 1000, and when the oldest of them was given up. The list of
-- operators would otherwise look for them at every endpoint.
alter table webhook_endpoints add column dead INTEGER not null default 0;
alter table webhook_endpoints add column dead_since_ms INTEGER;
update webhook_endpoints set
  dead = (
    select case when count(*) > 1000 then 1000 else count(*) end from webhook_deliveries d
    where d.endpoint_id = webhook_endpoints.id and d.status = 'dead_lettered' and d.is_test = 0),
  dead_since_ms = (
    select d.completed_ms from webhook_deliveries d
    where d.endpoint_id = webhook_endpoints.id and d.status = 'dead_lettered' and d.is_test = 0 order by d.created_ms, d.id limit 1)
where deleted_ms is null;

-- The order of that list: the time since which an endpoint needs help. It has deliveries that were given up, or that are due for more than a minute.
-- A query finds this index by the same text.
create index webhook_endpoints_in_need on webhook_endpoints ((case
    when due_ms is null or status = 'disabled' then dead_since_ms
    when dead_since_ms is null or due_ms + 60000 < dead_since_ms then due_ms + 60000
    else dead_since_ms end), id)
where deleted_ms is null;
drop index webhook_endpoints_by_time;
