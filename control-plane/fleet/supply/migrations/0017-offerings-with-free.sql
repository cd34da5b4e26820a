-- The machines that a launch of one GPU can go to, in the order in which it takes them. Most launches have one GPU.
create index offerings_with_free on offerings (gpu_type, tier, price_ucents_per_hour, gpu_free, id, machine_id, region, disk_configurable, disk_free_gb)
where listed = 1 and gpu_free > 0;
