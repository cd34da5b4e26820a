-- The operator's list of instances that are not over, newest first, however many have ended.
drop index instances_by_status;
create index instances_by_status on instances (status, created_ms, id) where status <> 'terminated';
