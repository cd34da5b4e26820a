-- A supplier reads what ran on a machine, in pages.
create index workloads_of_machine on workloads (machine_id, created_ms, id);
