-- A replay of deliveries that were given up goes on in pieces: those from `replay_since_ms` on that were given up by `replay_asked_ms`.
alter table webhook_endpoints add column replay_since_ms INTEGER;
alter table webhook_endpoints add column replay_asked_ms INTEGER;
create index webhook_endpoints_replaying on webhook_endpoints (replay_asked_ms) where replay_since_ms is not null;

-- What was given up, for replays and for operators. Without it, both would read every delivery of an endpoint.
create index webhook_deliveries_dead on webhook_deliveries (endpoint_id, created_ms, id) where status = 'dead_lettered' and is_test = 0;
-- Endpoints of all organisations, for operators.
create index webhook_endpoints_by_time on webhook_endpoints (created_ms, id) where deleted_ms is null;
