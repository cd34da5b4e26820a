-- What a launch reads of those before it: the open ones, those that were given up, and those that were ready after more than five minutes. All
-- others, which may be thousands a day, are in no index of these.
drop index instances_open_launches;
drop index instances_unpaid;
create index instances_open_launches on instances (org_id, created_ms, gpu_count, tier, machine_id, status)
where status in ('allocating', 'starting');
create index instances_given_up on instances (org_id, launch_ended_ms, created_ms, gpu_count, tier, machine_id)
where launch_ended_ms is not null;
create index instances_slow on instances (org_id, ready_ms) where ready_ms - created_ms > 300000;
