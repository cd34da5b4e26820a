-- What goes on with a resource now.
create index operations_of_resource on operations (resource_id) where completed_ms is null;
