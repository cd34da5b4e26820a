-- The launches of an organisation that never ran, with all that their GPU time is counted from.
create index instances_unpaid on instances (org_id, created_ms, tier, status, gpu_count, launch_ended_ms, machine_id, ready_ms)
  where ready_ms is null and machine_id is not null;
