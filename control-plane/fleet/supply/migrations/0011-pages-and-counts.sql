-- Pages of the operator's lists, in the order of creation.
create index suppliers_by_time on suppliers (created_ms, id);
create index machines_by_time on machines (created_ms, id);

-- What is read every few seconds: none of it may read the inventories of all machines.
create index machines_online on machines (id) where online = 1;
create index machines_by_state on machines (status, online);
create index machines_with_unknown on machines (id) where (unknown_workloads <> '[]' or (unknown_workloads is null and online = 1));
create index machines_failed on machines (id) where verification_status = 'failed' and status = 'listed';
