-- What customers compare hosts by. The processors and the memory of a host are shared by all its GPUs.
alter table offerings add column host_gpu_count INTEGER not null default 0;
update offerings set host_gpu_count = (select count(*) from machine_gpus where machine_gpus.machine_id = offerings.machine_id);
-- Empty and 0 if they are unknown. The number is the one that CUDA itself uses: 12080 is version 12.8.
alter table offerings add column driver_version TEXT not null default '';
alter table offerings add column cuda_version INTEGER not null default 0;
-- A host that links again with the same inventory changes no offering. With this difference, each host fills its new columns when it links.
update machines set inventory = replace(inventory, '"agent_version":"', '"agent_version":"before the upgrade: ') where inventory is not null;
