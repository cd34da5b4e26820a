-- The launches of an organisation that had a host, with all that their unpaid GPU time is counted from.
create index instances_unpaid on instances (org_id, created_ms, tier, status, gpu_count, launch_ended_ms, machine_id, ready_ms, id)
  where machine_id is not null;
