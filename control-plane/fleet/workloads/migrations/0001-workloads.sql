-- What should run where, and what the host last said about it. A row in `removing` is the tombstone.
create table workloads (
  id TEXT not null primary key,
  machine_id TEXT not null,
  instance_id TEXT not null,
  state TEXT not null,
  spec TEXT not null,
  observed TEXT,
  created_ms INTEGER not null,
  changed_ms INTEGER not null
) STRICT;

create index workloads_by_machine on workloads (machine_id) where state <> 'gone';
create index workloads_by_instance on workloads (instance_id);

-- How far each machine's desired state has come.
create table workload_machines (
  machine_id TEXT not null primary key,
  epoch INTEGER not null,
  revision INTEGER not null
) STRICT;
