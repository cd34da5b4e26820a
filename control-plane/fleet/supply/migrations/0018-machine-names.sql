-- What its supplier calls a machine; null if it has no name.
alter table machines add column name TEXT;
-- The machines that their supplier finds by a name, in the order of the list. The name itself stands behind the inventory in the row.
create index machines_by_name on machines (supplier_id, name, created_ms, id) where name is not null;
