-- What customers compare hosts by. The processors and the memory of a host are shared by all its GPUs.
alter table offerings add column host_gpu_count INTEGER not null default 0;
update offerings set host_gpu_count = (select count(*) from machine_gpus where machine_gpus.machine_id = offerings.machine_id);
-- Empty and 0 if they are unknown. The number is the one that CUDA itself uses: 12080 is version 12.8.
alter table offerings add column driver_version TEXT not null default '';
alter table offerings add column cuda_version INTEGER not null default 0;
