-- The instances that their owner finds by their name, in the order of the list. An organisation may have thousands that have ended.
create index instances_by_name on instances (org_id, name, created_ms, id) where name is not null;
