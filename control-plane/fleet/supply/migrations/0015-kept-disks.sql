-- Disks of stopped containers, whose GPUs are free again. A host keeps such a disk for a while, in case the removal was a mistake.
create table kept_disks (
  held_by TEXT not null primary key,
  machine_id TEXT not null,
  disk_gb INTEGER not null
) STRICT;

create index kept_disks_by_machine on kept_disks (machine_id, disk_gb);
