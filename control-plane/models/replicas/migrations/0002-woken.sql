-- The starts that have succeeded, newest first. A pool whose starts fail for weeks has many other rows.
create index model_replicas_woken on model_replicas (pool_id, created_ms, id) where ready_ms is not null;
