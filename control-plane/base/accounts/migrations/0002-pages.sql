-- Pages of the operator's lists, in the order of creation.
create index orgs_by_time on orgs (created_ms, id);
create index api_keys_by_time on api_keys (created_ms, id);
