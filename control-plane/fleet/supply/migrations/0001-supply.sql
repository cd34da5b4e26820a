-- Who supplies what. Declared fields are the supplier's words; inventory, GPUs and offerings come from the host itself.
create table suppliers (
  id TEXT not null primary key,
  org_id TEXT not null unique,
  status TEXT not null,
  created_ms INTEGER not null,
  updated_ms INTEGER not null
) STRICT;

create table machines (
  id TEXT not null primary key,
  supplier_id TEXT not null references suppliers (id),
  status TEXT not null,
  verification_status TEXT not null,
  declared_gpu_count INTEGER,
  declared_gpu_type TEXT,
  declared_vram_per_gpu_gb INTEGER,
  region TEXT not null,
  price_ucents_per_hour INTEGER not null check (price_ucents_per_hour > 0),
  tier TEXT not null,
  public_key TEXT,
  inventory TEXT,
  online INTEGER not null default 0,
  last_heartbeat_ms INTEGER,
  created_ms INTEGER not null,
  updated_ms INTEGER not null
) STRICT;

create index machines_by_supplier on machines (supplier_id, created_ms, id);

create table enrollment_tokens (
  token_hash TEXT not null primary key,
  machine_id TEXT not null references machines (id),
  expires_ms INTEGER not null,
  used_by_key TEXT
) STRICT;

create table machine_gpus (
  machine_id TEXT not null references machines (id),
  gpu_uuid TEXT not null,
  gpu_index INTEGER not null,
  gpu_type TEXT not null,
  vram_gb INTEGER not null,
  usable INTEGER not null,
  held_by TEXT,
  -- Disk of the workload that holds it, counted on the first of its GPUs.
  held_disk_gb INTEGER not null default 0,
  primary key (machine_id, gpu_uuid)
) STRICT;

create index machine_gpus_by_holder on machine_gpus (held_by) where held_by is not null;

-- One machine's GPUs of one type, kept in step with machines and machine_gpus in the same transaction: what placement and prices read.
create table offerings (
  id TEXT not null primary key,
  machine_id TEXT not null references machines (id),
  gpu_type TEXT not null,
  region TEXT not null,
  tier TEXT not null,
  price_ucents_per_hour INTEGER not null,
  vram_gb INTEGER not null,
  cpu_cores INTEGER not null,
  ram_gb INTEGER not null,
  storage_gb INTEGER not null,
  disk_configurable INTEGER not null,
  disk_free_gb INTEGER not null,
  disk_price_ucents_per_gb_hour INTEGER not null,
  gpu_total INTEGER not null,
  gpu_free INTEGER not null check (gpu_free >= 0),
  listed INTEGER not null,
  created_ms INTEGER not null,
  unique (machine_id, gpu_type)
) STRICT;

-- Both hold all that placement reads, so that a choice never touches the rows themselves.
create index offerings_by_price on offerings (gpu_type, tier, gpu_free, price_ucents_per_hour, id, machine_id, region, disk_configurable, disk_free_gb) where listed = 1;
create index offerings_by_region on offerings (gpu_type, tier, region, gpu_free, price_ucents_per_hour, id, machine_id, disk_configurable, disk_free_gb) where listed = 1;
create index offerings_page on offerings (created_ms, id) where listed = 1;
