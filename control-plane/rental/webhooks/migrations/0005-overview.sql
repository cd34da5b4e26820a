-- What operators see at a glance: deliveries that were given up lately.
create index webhook_deliveries_given_up on webhook_deliveries (completed_ms) where status = 'dead_lettered' and is_test = 0;
