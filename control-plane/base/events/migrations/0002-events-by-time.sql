-- What is old enough to be forgotten.
create index events_by_time on events (created_ms);
