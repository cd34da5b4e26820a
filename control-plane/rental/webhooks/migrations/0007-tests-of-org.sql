-- The tests that an organisation has asked for in the hour that began with the first of them. The row stays when an endpoint is deleted.
create table webhook_test_counts (
  org_id TEXT not null primary key,
  tests INTEGER not null,
  began_ms INTEGER not null
) STRICT;

drop index webhook_deliveries_tests;
