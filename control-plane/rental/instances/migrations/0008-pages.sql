-- Pages of the operator's list, in the order of creation.
create index instances_by_time on instances (created_ms, id);
