-- When a delivery of an endpoint may be tried: one is due, and the circuit is closed or one is urgent. Endpoints that are disabled or rest after
-- failures have deliveries that are due for hours, and each run of the courier would walk over them. A query finds this index by the same text.
create index webhook_endpoints_ready on webhook_endpoints ((case
    when status = 'disabled' then null
    when open_until_ms is null or open_until_ms <= due_ms or urgent_ms <= due_ms then due_ms
    when urgent_ms < open_until_ms then urgent_ms
    else open_until_ms end))
where due_ms is not null;
