-- What is old enough to be forgotten.
create index operations_over on operations (completed_ms) where completed_ms is not null;
