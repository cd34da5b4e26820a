-- Containers of ours on the host that this database does not know, as a JSON list: it was restored from a backup older than them.
-- Null from the moment a host is seen to be ahead of us until it has said what it runs. Nothing new is offered there unless it is empty.
alter table machines add column unknown_workloads TEXT default '[]';
