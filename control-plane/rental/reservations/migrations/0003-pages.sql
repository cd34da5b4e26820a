-- Pages of the operator's list, in the order of creation.
create index reservations_by_time on reservations (created_ms, id);
