-- Deleted endpoints stay until their history is removed. Lists and counts of an organisation must not walk them.
create index webhook_endpoints_living on webhook_endpoints (org_id, created_ms, id) where deleted_ms is null;
