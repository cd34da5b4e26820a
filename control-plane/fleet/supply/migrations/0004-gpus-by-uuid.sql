-- A GPU is offered by one machine, whoever else says to have it.
create index machine_gpus_by_uuid on machine_gpus (gpu_uuid);
