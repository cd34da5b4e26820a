-- The time from which a delivery is tried although its endpoint rests: later, its remaining attempts would not fit into its day.
-- The column of an endpoint has the earliest time of its deliveries.
alter table webhook_deliveries add column urgent_ms INTEGER;
alter table webhook_endpoints add column urgent_ms INTEGER;

create index webhook_deliveries_urgent on webhook_deliveries (endpoint_id, urgent_ms) where next_attempt_ms is not null;
